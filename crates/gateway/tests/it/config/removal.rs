//! `gantry rm` of a server that comes from a file: the file is where it is removed. First hour 4

use std::fs;

use serde_json::{Value, json};

use super::terminal::open;
use super::{Folder, peer, servers};

// First hour 4
#[test]
fn a_server_of_a_file_is_not_removed_over_the_api_and_the_file_is_named() {
    let mut folder = Folder::new();
    let text = servers(&[("a", peer()), ("b", peer())]);
    folder.write(".mcp.json", &text);
    folder.up(&["--trust"]);
    let pid = folder.wait("a", "ready")["pid"].clone();
    let file = folder.at(".mcp.json");
    assert_eq!(folder.status("a")["file"], json!(file));
    let id = folder.status("a")["id"].as_str().unwrap().to_owned();
    for server in ["a", &id] {
        let path = format!("/api/v1/mcp/servers/{server}");
        let (status, problem) = folder.rest("DELETE", &path, None);
        assert_eq!((status, &problem["code"]), (409, &json!("server.of_file")));
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(&format!("`{}`", file.display())),
            "{detail}"
        );
    }
    let (status, problem) = folder.rest(
        "PATCH",
        "/api/v1/mcp/servers/a",
        Some(&json!({"timeout": "2m"})),
    );
    assert_eq!(status, 409);
    assert!(
        problem["detail"].as_str().unwrap().contains(".mcp.json"),
        "{problem}"
    );
    assert_eq!(folder.status("a")["pid"], pid, "it runs on");

    // Nobody is there to ask.
    let refused = folder.run(&["rm", "a"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        told.contains("`a` comes from `") && told.contains(".mcp.json`"),
        "{told}"
    );
    assert!(told.contains(" rm a --yes`"), "{told}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // One that waits for approval is the file's, too.
    folder.write(
        ".mcp.json",
        &servers(&[("a", peer()), ("b", peer()), ("c", peer())]),
    );
    folder.wait("c", "needs_approval");
    assert_eq!(folder.rest("DELETE", "/api/v1/mcp/servers/c", None).0, 409);
}

// First hour 4
#[test]
fn rm_takes_an_entry_out_of_its_file_and_leaves_the_rest_approved_and_running() {
    let mut folder = Folder::new();
    let (a, b, c) = (peer(), peer(), peer());
    let json = format!(
        "{{\n  // mine\n  \"mcpServers\": {{\n    \"a\": {a}, // the first\n    // about b\n    \"b\": {b}\n  }}\n}}\n"
    );
    let command = c["command"].as_str().unwrap();
    let toml = format!(
        "# my servers\n\n[servers.c] # third\ncommand = \"{command}\"\n\n# about d\n[servers.d]\ncommand = \"{command}\"\n"
    );
    folder.write(".mcp.json", &json);
    folder.write("gantry.toml", &toml);
    folder.up(&["--trust"]);
    let pids = ["b", "d"].map(|name| folder.wait(name, "ready")["pid"].clone());
    let told = folder.told(&["rm", "a", "--yes"]);
    assert!(
        told.contains("a is removed from `") && told.contains(".mcp.json.bak`"),
        "{told}"
    );
    let removed: Value = serde_json::from_str(&folder.told(&["rm", "c", "-y", "--json"])).unwrap();
    assert_eq!(removed["removed"], "c");
    assert_eq!(folder.names(), ["b", "d"]);
    let left = fs::read_to_string(folder.at(".mcp.json")).unwrap();
    assert!(
        left.contains("// mine") && left.contains("// about b"),
        "{left}"
    );
    assert!(!left.contains("\"a\""), "{left}");
    assert_eq!(
        fs::read_to_string(folder.at("gantry.toml")).unwrap(),
        format!("# my servers\n\n# about d\n[servers.d]\ncommand = \"{command}\"\n")
    );
    assert_eq!(
        ["b", "d"].map(|name| folder.status(name)["pid"].clone()),
        pids
    );
    assert!(folder.told(&["approve"]).contains("nothing needs approval"));
    folder.down();
    folder.up(&[]);
    folder.wait("b", "ready");
    assert_eq!(folder.names(), ["b", "d"], "it is not back");
}

// First hour 4
#[test]
fn rm_asks_at_a_terminal_and_says_which_entry_counts_then() {
    let folder = Folder::new();
    let mut mine = peer();
    mine["env"] = json!({"TOKEN": "s3cr3t-value-of-mine"});
    fs::write(folder.home().join(".kode.json"), servers(&[("a", peer())])).unwrap();
    folder.write(".mcp.json", &servers(&[("a", mine)]));
    let mut up = open(&folder, "up --port 0 --trust");
    up.reads("Stop with Ctrl-C.");
    folder.wait("a", "ready");
    for (answer, code) in [("n\n", 1), ("y\n", 0)] {
        let mut rm = open(&folder, "rm a");
        let shown = rm.reads("Remove `a` from the file? [y/N] ");
        assert!(shown.contains("`a` comes from `"), "{shown}");
        assert!(!shown.contains("s3cr3t"), "{shown}");
        rm.types(answer);
        assert_eq!(rm.ends(), code, "{}", rm.shown());
        if code == 0 {
            assert!(rm.shown().contains("a is removed from `"), "{}", rm.shown());
            assert!(
                rm.shown().contains(".kode.json`, which takes effect now"),
                "{}",
                rm.shown()
            );
        }
    }
    assert!(
        folder.status("a")["file"]
            .as_str()
            .unwrap()
            .ends_with(".kode.json")
    );
    up.stops();
}

// First hour 4
#[test]
fn the_example_is_not_removed_by_itself() {
    let mut folder = Folder::new();
    folder.up(&[]);
    folder.wait("example", "ready");
    let (status, problem) = folder.rest("DELETE", "/api/v1/mcp/servers/example", None);
    assert_eq!((status, &problem["code"]), (409, &json!("server.builtin")));
    let refused = folder.run(&["rm", "example"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("--no-example"), "{told}");
    folder.wait("example", "ready");
}
