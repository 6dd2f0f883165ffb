//! Where the person's own servers work: not in a checkout that nobody vouches for, since programs load
//! and run what they find in their working folder. fault G5

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Folder, peer, servers};
use crate::harness::PROGRAM;

/// A program that runs what it finds where it works, as `python3 -m x`, `npx` and `uv` do.
fn finder(folder: &Folder) -> PathBuf {
    let program = folder.home().join("finder");
    let text = "#!/bin/sh\npwd > \"$TOLD\"\n[ -f ./x ] && . ./x\nexec \"$@\"\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// The entry of a server that tells where it works.
fn found(folder: &Folder, told: &str) -> Value {
    let mut entry = peer();
    let command = std::mem::replace(&mut entry["command"], json!(finder(folder)));
    entry["args"].as_array_mut().unwrap().insert(0, command);
    entry["env"] = json!({"TOLD": folder.home().join(told)});
    entry
}

fn mine(folder: &Folder, entries: &[(&str, Value)]) {
    fs::write(folder.home().join(".kode.json"), servers(entries)).unwrap();
}

/// Plants code in the checkout that leaves a mark when it is run.
fn plant(folder: &Folder) -> PathBuf {
    let mark = folder.home().join("ran");
    folder.write("x", &format!("touch {}\n", mark.display()));
    mark
}

fn place(folder: &Folder, told: &str) -> String {
    let text = fs::read_to_string(folder.home().join(told)).unwrap();
    text.trim().to_owned()
}

// fault G5
#[test]
fn the_homes_servers_work_in_folders_of_their_own_until_the_folder_is_trusted() {
    let mut folder = Folder::new();
    let mark = plant(&folder);
    let mut home = serde_json::from_str::<Value>(&servers(&[("a", found(&folder, "a"))])).unwrap();
    let shop = folder.home().join("shop").display().to_string();
    home["projects"] = json!({shop.as_str(): {"mcpServers": {"b": found(&folder, "b")}}});
    fs::write(folder.home().join(".kode.json"), home.to_string()).unwrap();
    folder.up(&[]);
    for name in ["a", "b"] {
        folder.wait(name, "ready");
        let own = folder.data().join("servers").join(name);
        assert_eq!(place(&folder, name), own.display().to_string());
    }
    assert!(!mark.exists(), "code of the checkout ran");
    let explained = folder.told(&["config", "explain", "a"]);
    assert!(
        explained.contains("a folder of its own ")
            && explained.contains("not trusted; `gantry approve .` trusts it"),
        "{explained}"
    );
    let asked = folder.run(&["approve"]);
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(
        asked.contains("a: would run in this folder and may execute code found in it"),
        "{asked}"
    );
    assert!(!mark.exists(), "to ask is not to run");

    // The gateway that runs takes it at once.
    folder.told(&["approve", "--yes", "."]);
    folder.wait_until("it works in the checkout", || mark.exists());
    folder.wait_until("so does the other", || place(&folder, "b") == shop);
    assert!(folder.told(&["approve"]).contains("nothing needs approval"));
    let explained = folder.told(&["config", "explain", "a"]);
    assert!(!explained.contains("not trusted"), "{explained}");
}

// fault G5
#[test]
fn what_leads_into_whichever_folder_it_is_waits_for_that_folder() {
    let mut folder = Folder::new();
    let mark = plant(&folder);
    finder(&folder);
    fs::copy(folder.home().join("finder"), folder.at("inside")).unwrap();
    let with = |key: &str, value: Value| {
        let mut entry = found(&folder, "told");
        entry[key] = value;
        entry
    };
    let file = "${workspaceFolder}/x".to_owned();
    let mut work_on = found(&folder, "told")["args"].clone();
    let before = ["/usr/bin/env", "-u", "${workspaceFolder}"].map(Value::from);
    work_on.as_array_mut().unwrap().splice(0..0, before);
    mine(
        &folder,
        &[
            ("command", with("command", json!("./inside"))),
            (
                "filled",
                with("command", json!("${workspaceFolder}/inside")),
            ),
            ("cwd", with("cwd", json!("."))),
            ("workspace", with("cwd", json!("${workspaceFolder}"))),
            ("up", with("cwd", json!("../shop"))),
            ("argument", with("args", json!([file]))),
            ("behind", with("args", json!([format!("--import={file}")]))),
            (
                "directory",
                with("args", json!(["--directory", "${workspaceFolder}", "run"])),
            ),
            (
                "prefix",
                with("args", json!(["--prefix=${workspaceFolder}"])),
            ),
            ("attached", with("args", json!(["-C${workspaceFolder}"]))),
            (
                "remote",
                json!({"url": "http://127.0.0.1:9/", "ca_file": "ca.pem"}),
            ),
            // The person named this very folder, or gives it as something to work on.
            ("named", with("cwd", json!(folder.home()))),
            ("data", with("args", work_on)),
        ],
    );
    folder.up(&[]);
    folder.wait("named", "ready");
    folder.wait("data", "ready");
    for name in [
        "command",
        "filled",
        "cwd",
        "workspace",
        "up",
        "argument",
        "behind",
        "directory",
        "prefix",
        "attached",
        "remote",
    ] {
        let status = folder.wait(name, "needs_approval");
        let reason = status["reason"].as_str().unwrap();
        assert!(
            reason.contains("points into this folder") && reason.contains("`gantry approve .`"),
            "{name}: {reason}"
        );
    }
    assert!(!mark.exists(), "code of the checkout ran");
}

// fault G5
#[test]
fn who_approves_a_file_of_the_folder_trusts_the_folder() {
    let mut folder = Folder::new();
    let mark = plant(&folder);
    mine(&folder, &[("mine", found(&folder, "mine"))]);
    folder.write(".mcp.json", &servers(&[("theirs", peer())]));
    let asked = folder.told(&["approve", "--yes", ".mcp.json"]);
    assert!(
        asked.contains("mine: would run in this folder"),
        "who approves is told: {asked}"
    );
    folder.up(&[]);
    folder.wait("mine", "ready");
    assert!(mark.exists());
}

// fault G5
#[test]
fn a_data_folder_inside_the_checkout_is_no_neutral_place() {
    let mut folder = Folder::new();
    let mark = plant(&folder);
    mine(&folder, &[("mine", found(&folder, "mine"))]);
    let data = folder.at("data");
    let mut gateway = Command::new(PROGRAM);
    gateway
        .args(["up", "--port", "0", "--data"])
        .arg(&data)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", folder.home())
        .current_dir(folder.home().join("shop"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    folder.gateway = Some(gateway.spawn().unwrap());
    let told = folder.home().join("mine");
    folder.wait_until("it works somewhere", || {
        fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n'))
    });
    assert_eq!(place(&folder, "mine"), folder.home().display().to_string());
    assert!(!mark.exists(), "code of the checkout ran");
}

// fault G5
#[test]
fn files_that_are_named_and_trusted_folders_are_as_they_were() {
    let mut folder = Folder::new();
    let mark = plant(&folder);
    let file = folder.home().join("named.json");
    fs::write(&file, servers(&[("a", found(&folder, "a"))])).unwrap();
    folder.up(&["--config", file.to_str().unwrap()]);
    folder.wait("a", "ready");
    assert_eq!(
        place(&folder, "a"),
        folder.home().join("shop").display().to_string()
    );
    assert!(mark.exists());
    folder.down();
    fs::remove_file(&mark).unwrap();
    fs::remove_file(folder.data().join("gateway.json")).ok();

    mine(&folder, &[("b", found(&folder, "b"))]);
    folder.up(&["--trust"]);
    folder.wait("b", "ready");
    assert!(mark.exists(), "`--trust` trusts the folder");
}
