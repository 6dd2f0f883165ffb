//! Servers that their file does not let run, switched off or wrong, are shown with the reason; and what
//! `import` says beside a gateway that runs.

use serde_json::{Value, json};

use crate::config::{Folder, peer, servers};

/// A folder whose file has a server that runs, and others that do not.
fn mixed() -> Folder {
    let folder = Folder::new();
    let mut off = peer();
    off["disabled"] = json!(true);
    let mut unset = peer();
    unset["env"] = json!({"TOKEN": "${NO_SUCH_VARIABLE}"});
    let mut switched = json!({"url": "https://mcp.example.com/mcp", "enabled": false});
    switched["headers"] = json!({"Authorization": "Bearer ${NO_SUCH_VARIABLE}"});
    let entries = [
        ("runs", peer()),
        ("off", off),
        ("unset", unset),
        ("far", switched),
    ];
    folder.write("a.json", &servers(&entries));
    folder
}

fn items(folder: &Folder) -> Vec<Value> {
    let listed = folder.rest("GET", "/api/v1/mcp/servers", None).1;
    listed["items"].as_array().unwrap().clone()
}

#[test]
fn what_does_not_run_is_listed_with_the_reason() {
    let mut folder = mixed();
    folder.up(&["--config", "a.json"]);
    folder.wait("runs", "ready");
    let off = folder.wait("off", "disabled");
    let reason = off["reason"].as_str().unwrap();
    assert!(
        reason.contains("a.json:1") && reason.contains("remove `disabled`"),
        "{reason}"
    );
    let unset = folder.wait("unset", "misconfigured");
    let reason = unset["reason"].as_str().unwrap();
    assert!(
        reason.contains("NO_SUCH_VARIABLE") && reason.contains("gantry secret set"),
        "{reason}"
    );
    assert_eq!(
        folder.wait("far", "disabled")["url"],
        "https://mcp.example.com/mcp"
    );
    let names: Vec<_> = items(&folder)
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["runs", "unset", "off", "far"]);
    for verb in ["status", "ls"] {
        let told = folder.told(&[verb]);
        let row = |name: &str| {
            let row = told.lines().find(|line| line.starts_with(name));
            row.unwrap_or_else(|| panic!("no `{name}`: {told}"))
                .to_owned()
        };
        assert!(row("runs").contains("ready"), "{told}");
        assert!(
            row("off").contains("disabled") && row("off").contains("disabled at"),
            "{told}"
        );
        assert!(row("unset").contains("misconfigured"), "{told}");
        assert!(row("unset").contains("NO_SUCH_VARIABLE"), "{told}");
        assert!(row("far").contains("disabled"), "{told}");
    }
    let one = folder.told(&["status", "off"]);
    assert!(
        one.contains("disabled") && one.contains("disabled at"),
        "{one}"
    );
    let explained = folder.told(&["config", "explain", "off", "--config", "a.json"]);
    assert!(explained.contains("disabled"), "{explained}");
    // Nothing of them can be used, and nothing starts them.
    for (name, state, code) in [
        ("off", "disabled", "server.disabled"),
        ("unset", "misconfigured", "server.misconfigured"),
    ] {
        let path = format!("/api/v1/mcp/servers/{name}/restart");
        let (status, problem) = folder.rest("POST", &path, None);
        // What is missing is looked for again at each start.
        let expected = match name {
            "unset" => (200, &json!(null)),
            _ => (409, &json!(code)),
        };
        assert_eq!((status, &problem["code"]), expected, "{problem:#}");
        folder.wait(name, state);
        let body = json!({"name": format!("{name}__echo"), "arguments": {}});
        let (status, _) = folder.rest("POST", "/api/v1/tools/call", Some(&body));
        assert!(status >= 400, "{status}");
        let output = folder.run(&["tools", name]);
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains("disabled") || told.contains("misconfigured"),
            "{told}"
        );
    }
    // The start screen has a row for each.
    let printed = std::fs::read_to_string(folder.home().join("stdout")).unwrap();
    for row in [
        "○ off    disabled: ",
        "✗ unset  left out: ",
        "○ far    disabled: ",
    ] {
        assert!(printed.contains(row), "{row}: {printed}");
    }
}

#[test]
fn a_server_that_is_switched_on_starts_and_one_that_is_switched_off_ends() {
    let mut folder = mixed();
    folder.up(&["--config", "a.json"]);
    let pid = folder.wait("runs", "ready")["pid"].clone();
    folder.wait("off", "disabled");
    let mut stopped = peer();
    stopped["disabled"] = json!(true);
    folder.write(
        "a.json",
        &servers(&[("runs", peer()), ("off", peer()), ("unset", stopped)]),
    );
    folder.wait("off", "ready");
    folder.wait("unset", "disabled");
    assert_eq!(folder.wait("runs", "ready")["pid"], pid, "it is left alone");
    assert_eq!(folder.rest("GET", "/api/v1/mcp/servers/far", None).0, 404);
    folder.down();
}

// A name that an administrator registered is not taken by an entry that is only shown.
#[test]
fn an_entry_that_is_switched_off_takes_no_registered_name() {
    let mut folder = Folder::new();
    folder.write("a.json", &servers(&[("runs", peer())]));
    folder.up(&["--config", "a.json"]);
    let mut body = peer();
    body["name"] = json!("off");
    body["profile"] = json!("local");
    body["start"] = json!("eager");
    assert_eq!(
        folder.rest("POST", "/api/v1/mcp/servers", Some(&body)).0,
        201
    );
    folder.wait("off", "ready");
    let mut off = peer();
    off["disabled"] = json!(true);
    folder.write(
        "a.json",
        &servers(&[("runs", peer()), ("off", off), ("more", peer())]),
    );
    folder.wait("more", "ready");
    assert_eq!(folder.wait("off", "ready")["source"], "api");
    folder.down();
    folder.up(&["--config", "a.json"]);
    assert_eq!(folder.wait("off", "ready")["source"], "api");
}

#[test]
fn import_says_what_comes_next_beside_a_gateway_that_runs() {
    let mut folder = Folder::new();
    let cursor = folder.home().join(".cursor");
    std::fs::create_dir(&cursor).unwrap();
    std::fs::write(cursor.join("mcp.json"), servers(&[("theirs", peer())])).unwrap();
    let alone = folder.told(&["import", "cursor"]);
    assert!(
        alone.contains("Start the servers with `gantry") && alone.contains(" up`."),
        "{alone}"
    );
    let other = folder.told(&["import", "cursor", "--into", "other.toml"]);
    assert!(other.contains(" up --config other.toml`"), "{other}");
    std::fs::remove_file(folder.home().join("shop/gantry.toml")).unwrap();
    folder.up(&[]);
    let beside = folder.told(&["import", "cursor"]);
    assert!(!beside.contains("Start the servers with"), "{beside}");
    assert!(beside.contains(" approve gantry.toml`"), "{beside}");
    // What it says is true.
    folder.wait("theirs", "needs_approval");
    folder.told(&["approve", "gantry.toml", "--yes"]);
    folder.wait("theirs", "ready");
    let again = folder.told(&["import", "cursor", "--into", "more.toml"]);
    assert!(again.contains("does not read `more.toml`"), "{again}");
    assert!(again.contains(" up --config more.toml`"), "{again}");
}

#[test]
fn config_check_shows_every_mistake_of_every_part() {
    let folder = Folder::new();
    folder.write(
        "bad.toml",
        "colour = \"red\"\n[gateway]\nlisten = 7\ndrain = \"soon\"\n\
         [servers.one]\ncomand = \"x\"\n[servers.two]\ncommand = \"x\"\nstart = \"never\"\n\
         [servers.three]\ncommand = \"x\"\nenv = {A = \"${NO_SUCH_VARIABLE}\"}\n",
    );
    folder.write("worse.json", "{\"mcpServers\": {\"four\": {\"args\": 7}}}");
    let wanted = [
        "`colour` is not known",
        "gateway.listen",
        "gateway.drain",
        "`comand` is not known",
        "server `two`",
        "NO_SUCH_VARIABLE",
        "server `four`",
    ];
    let words = [
        "config",
        "check",
        "--config",
        "worse.json",
        "--config",
        "bad.toml",
    ];
    let output = folder.run(&words);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in wanted {
        assert!(told.contains(part), "{part}: {told}");
    }
    let output = folder.run(&[&words[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    let text = report["mistakes"].to_string();
    for part in wanted {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Found in the folder and not approved, it is told of in the same way.
    std::fs::rename(
        folder.home().join("shop/bad.toml"),
        folder.home().join("shop/gantry.toml"),
    )
    .unwrap();
    let output = folder.run(&["config", "check"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "`colour` is not known",
        "gateway.listen",
        "`comand` is not known",
        "server `two`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // And `up` refuses it with all of them.
    let output = folder.run(&["up", "--port", "0", "--config", "gantry.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("gateway.drain") && told.contains("server `two`"),
        "{told}"
    );
}

// First hour 1, 6
#[test]
fn an_entry_that_is_switched_off_while_it_waits_is_listed() {
    let mut folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("a", peer()), ("b", peer())]));
    folder.up(&["--trust"]);
    folder.wait("b", "ready");
    let mut off = peer();
    off["disabled"] = json!(true);
    folder.write(".mcp.json", &servers(&[("a", peer()), ("b", off)]));
    folder.wait("b", "disabled");
    folder.wait("a", "ready");
    // As it was approved.
    folder.write(".mcp.json", &servers(&[("a", peer()), ("b", peer())]));
    folder.wait("b", "ready");
}
