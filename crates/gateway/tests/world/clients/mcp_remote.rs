//! `mcp-remote`, with which clients that only start programs reach servers over HTTP.

use std::process::Command;

use super::story::tell_over;
use super::{Stage, typescript};
use crate::parts::{NPM, node_path, part, run};

/// Returns its command before a gateway.
fn command(stage: &Stage) -> Vec<String> {
    let script = part(&format!("{NPM}/node_modules/mcp-remote/dist/proxy.js"));
    let argv = [node_path(), script].map(|path| path.to_str().unwrap().to_owned());
    [argv.as_slice(), &[stage.url()]].concat()
}

#[test]
fn a_client_that_only_starts_programs_does_everything() {
    let stage = Stage::set();
    let header = format!("Authorization: Bearer {}", stage.gantry.agent);
    let mut link = vec!["stdio".to_owned()];
    link.extend(command(&stage));
    link.extend(["--header".to_owned(), header]);
    tell_over(&stage, typescript::FIRST, &link);
}

/// It looks for a way to sign in, finds none, and must end with words that say what is missing.
#[test]
fn without_a_key_its_user_reads_that_a_bearer_key_is_missing() {
    let stage = Stage::set();
    let argv = command(&stage);
    let ran = run(Command::new(&argv[0]).args(&argv[1..]));
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    let said = ran.stderr.to_lowercase();
    assert!(said.contains("bearer key"), "{ran:#?}");
    assert!(!said.contains("browser"), "{ran:#?}");
}
