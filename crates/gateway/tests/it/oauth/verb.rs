//! `gantry auth`, word for word: where it signs in or out, and where it cannot.

use std::io::Read as _;
use std::process::Output;

use gantry_testkit::Evilpeer;
use insta::assert_snapshot;

use super::*;
use crate::cli::{run, settings, told};

/// Makes the links of sign-ins the same, beside what else differs from run to run.
fn with_links() -> insta::Settings {
    let mut settings = settings();
    settings.add_filter(r"http://\[address\]/tenant-0/authorize\?\S+", "[link]");
    settings
}

/// Runs the verb, opens the link that it shows as the person does, and returns what it told.
fn run_and_browse(gantry: &Gantry) -> String {
    let mut verb = Command::new(PROGRAM);
    verb.arg("--data").arg(gantry.data());
    verb.args(["auth", "safe", "--no-browser", "--wait", "60s"]);
    verb.env("NO_COLOR", "1").stdin(Stdio::null());
    verb.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut verb = verb.spawn().unwrap();
    let mut stdout = BufReader::new(verb.stdout.take().unwrap());
    let mut printed = String::new();
    stdout.read_line(&mut printed).unwrap();
    browse(printed.trim_end());
    stdout.read_to_string(&mut printed).unwrap();
    let ended = verb.wait_with_output().unwrap();
    told(&Output {
        stdout: printed.into_bytes(),
        ..ended
    })
}

#[test]
fn a_person_signs_in_and_out() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    with_links().bind(|| {
        assert_snapshot!(run_and_browse(&gantry), @"
        [link]
        signed in to safe for mcp, offline_access
        --- stderr
        sign in to safe here:
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["auth", "safe", "--remove"]), @"
        signed out of safe
        --- exit 0
        ");
        // Who is signed out already stays so.
        assert_snapshot!(run(&gantry, &["auth", "safe", "--remove", "--json"]), @r#"
        {
          "server": "safe",
          "state": "signed_out"
        }
        --- exit 0
        "#);
    });
}

#[test]
fn a_person_who_says_no_is_told_of_it() {
    let peer = AuthServer::start(AuthOptions {
        denies: true,
        ..AuthOptions::default()
    });
    let gantry = gateway(&peer, json!({}));
    wait_offered(&gantry);
    with_links().bind(|| {
        assert_snapshot!(run_and_browse(&gantry), @"
        [link]
        --- stderr
        sign in to safe here:
        error: the sign-in to `safe` failed
          because: the sign-in to `safe` was refused: access_denied
        --- exit 1
        ");
    });
}

#[test]
fn nobody_is_waited_for_longer_than_was_said() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = gateway(&peer, json!({}));
    gantry.wait_state("safe", "needs_sign_in", LONG);
    with_links().bind(|| {
        assert_snapshot!(run(&gantry, &["auth", "safe", "--wait", "300ms"]), @"
        [link]
        --- stderr
        sign in to safe here:
        error: no one signed in to `safe` within 300ms
        hint: the link stays valid for ten minutes; `gantry status` shows the result
        --- exit 1
        ");
    });
}

#[test]
fn a_server_that_is_not_there_or_takes_no_sign_in_is_refused() {
    let gantry = Gantry::builder().server("here", &Evilpeer::new()).start();
    with_links().bind(|| {
        for words in [&["auth", "nobody"][..], &["auth", "nobody", "--remove"]] {
            insta::allow_duplicates! {
                assert_snapshot!(run(&gantry, words), @"
                --- stderr
                error: no server `nobody`
                  because: code `server.unknown`
                --- exit 1
                ");
            }
        }
        for words in [&["auth", "here"][..], &["auth", "here", "--remove"]] {
            insta::allow_duplicates! {
                assert_snapshot!(run(&gantry, words), @"
                --- stderr
                error: server `here` does not support sign-in: it is not remote, or has an `Authorization` header of its own
                  because: code `sign_in.not_taken`
                --- exit 1
                ");
            }
        }
    });
}
