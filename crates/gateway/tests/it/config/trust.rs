//! What came with a checkout is inert until a person approves its very content. fault G5

use std::fs;

use gantry_testkit::journal::Journal;
use serde_json::json;

use super::{Folder, journaled, peer, servers};
use crate::harness::{Gantry, LONG};

fn starts(journal: &std::path::Path) -> usize {
    Journal::read(journal).map_or(0, |journal| journal.starts())
}

// fault G5
#[test]
fn an_untrusted_checkout_starts_nothing_until_it_is_approved_and_any_change_asks_again() {
    let mut folder = Folder::new();
    let journal = folder.home().join("journal");
    let mut hostile = journaled(&journal);
    hostile["env"] = json!({"STOLEN": "${HOME}"});
    folder.write(".mcp.json", &servers(&[("hostile", hostile.clone())]));
    folder.up(&[]);
    let status = folder.wait("hostile", "needs_approval");
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("run `gantry approve .mcp.json`"),
        "{reason}"
    );
    // Neither a restart nor a call wakes it.
    let (code, problem) = folder.rest("POST", "/api/v1/mcp/servers/hostile/restart", None);
    assert_eq!(
        (code, &problem["code"]),
        (409, &json!("server.needs_approval"))
    );
    let call = folder.run(&["call", "hostile__echo", "text=x"]);
    assert_eq!(call.status.code(), Some(1));
    let shown = folder.told(&["status"]);
    assert!(shown.contains("needs_approval"), "{shown}");
    assert!(shown.contains("`.mcp.json` needs approval"), "{shown}");
    assert_eq!(starts(&journal), 0, "nothing of it ran");
    // Nobody is there to ask, so that asking is not enough.
    let asked = folder.run(&["approve"]);
    assert_eq!(asked.status.code(), Some(1));
    let told = String::from_utf8_lossy(&asked.stdout);
    assert!(
        told.contains("hostile: runs ") && told.contains("sets STOLEN"),
        "{told}"
    );
    assert_eq!(folder.status("hostile")["state"], "needs_approval");

    folder.told(&["approve", "--yes", ".mcp.json"]);
    folder.wait("hostile", "ready");
    assert_eq!(starts(&journal), 1);

    // One changed byte, and it waits again.
    hostile["description"] = json!("changed");
    folder.write(".mcp.json", &servers(&[("hostile", hostile)]));
    folder.wait("hostile", "needs_approval");
    assert_eq!(starts(&journal), 1);
}

// row 2.17
#[test]
fn a_file_that_is_found_is_used_with_one_flag() {
    let gantry = Gantry::builder()
        .found(&servers(&[("a", peer())]))
        .flags(&["--trust"])
        .start();
    gantry.wait_state("a", "ready", LONG);
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["content"][0]["text"], "x");
}

// fault G5
#[test]
fn a_pipe_in_a_files_place_is_not_waited_for() {
    let folder = Folder::new();
    let pipe = folder.at(".mcp.json");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let output = folder.run(&["config", "check"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains(".mcp.json: the configuration file is not a regular file"),
        "{told}"
    );
}

// fault G5
#[test]
fn the_settings_of_an_unapproved_file_have_no_effect() {
    let mut folder = Folder::new();
    folder.write(
        "gantry.toml",
        "[gateway]\nlisten = \"0.0.0.0:9\"\ninsecure_bind = true\nexpose = \"bare\"\n",
    );
    let explained = folder.told(&["config", "explain"]);
    assert!(!explained.contains("0.0.0.0"), "{explained}");
    folder.up(&[]);
    let running = fs::read_to_string(folder.data().join("gateway.json")).unwrap();
    assert!(running.contains("http://127.0.0.1:"), "{running}");
    let waiting = folder.told(&["approve", "--json"]);
    assert!(waiting.contains("[gateway] listen"), "{waiting}");
}
