//! `mcp-remote`, with which clients that only start programs reach servers over HTTP.

use super::story::tell_over;
use super::{Stage, typescript};
use crate::parts::{NPM, node_path, part};

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
