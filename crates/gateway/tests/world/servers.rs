//! Must show 2 of the surfaces: from the file that people have, with nothing cached, as a user who is
//! not root, in the default profile: the file is found in the folder and approved, six servers come
//! up, and each of their tools does its work.
//!
//! `mcp-server-fetch` needs two words more than its manual's first example: a flag, since it refuses
//! private addresses, and time, since its first call installs a part of its own with npm.
//!
//! Where packages come from is read from this machine's own npm and pip and written where a person
//! has it, into the files of the user's home.

mod calls;
pub(crate) mod page;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Gid, Uid, chown};
use serde_json::Value;
use tempfile::TempDir;

use self::calls::CALLS;
use self::page::Page;
use crate::harness::{Gantry, NOBODY, Programs, needs_root};
use crate::parts::{beside, part};

/// The first start downloads each package.
const FIRST_START: Duration = Duration::from_secs(300);

#[test]
fn six_servers_come_up_from_a_persons_file_and_every_tool_is_called() {
    needs_root();
    let programs = Programs::copied();
    let home = home();
    let path = home.path().to_str().unwrap().to_owned();
    let text = fs::read_to_string(beside("servers/mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let servers = file["mcpServers"].as_object().unwrap();
    let gantry = Gantry::builder()
        .user(NOBODY)
        .program(&programs.gantry())
        .found(&text)
        .variable("HOME", &path)
        .variable("PATH", &format!("{path}/bin:/usr/local/bin:/usr/bin:/bin"))
        .start_in(home);
    // It came with a folder, so that it is found, shown, and waits for the person's word.
    for name in servers.keys() {
        gantry.wait_state(name, "needs_approval", FIRST_START);
    }
    approve(&programs.gantry(), Path::new(&path));
    for name in servers.keys() {
        gantry.wait_state(name, "ready", FIRST_START);
    }

    let list = gantry.mcp("tools/list", serde_json::json!({}));
    let list = list["result"]["tools"].as_array().unwrap().iter();
    let mut listed: Vec<&str> = list.filter_map(|tool| tool["name"].as_str()).collect();
    let mut known: Vec<&str> = CALLS.iter().map(|(tool, ..)| *tool).collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known, "what is listed, and what is called");

    // Not offered, and the status says why.
    let excluded = gantry.status("everything")["excluded"].to_string();
    assert!(excluded.contains("only as a task"), "{excluded}");

    let page = Page::serve();
    for (tool, arguments, says) in CALLS {
        let arguments = arguments.replace("HOME", &path).replace("PAGE", &page.url);
        let answer = gantry.call(tool, serde_json::from_str(&arguments).unwrap());
        let result = &answer["result"];
        assert!(result["content"].is_array(), "{tool}: {answer:#}");
        assert_ne!(result["isError"], true, "{tool}: {answer:#}");
        assert!(result.to_string().contains(says), "{tool}: {answer:#}");
    }
    let rows = gantry.audit_rows("status=ok");
    assert_eq!(rows.len(), CALLS.len());
}

/// Approves what is found in the checkout, as the user whose gateway it is.
fn approve(program: &Path, home: &Path) {
    let approved = Command::new(program)
        .arg("--data")
        .arg(home.join("data"))
        .args(["approve", "--yes"])
        .env("HOME", home)
        .current_dir(home.join("checkout"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&approved.stdout);
    assert!(approved.status.success(), "{approved:?}");
    assert!(told.contains("everything: runs npx -y"), "{told}");
}

/// Makes the home of a person who has never run any of this.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let at = |path: &str| home.path().join(path);
    for folder in ["files", "repository", "bin", ".config/uv"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("files/hello.txt"), "hello\n").unwrap();
    fs::write(at("files/dot.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    for program in ["uv", "uvx"] {
        fs::copy(part("uv/bin").join(program), at("bin").join(program)).unwrap();
    }
    // Both bring certificates of their own; the machine's are those that its administrator trusts.
    let registry = asked("npm", &["config", "get", "registry"]).expect("npm knows its registry");
    let authorities = Path::new("/etc/ssl/certs/ca-certificates.crt");
    // A registry may be away for a moment.
    let mut npm = format!("registry={registry}\nfetch-retries=5\n");
    if authorities.exists() {
        npm.push_str(&format!("cafile={}\n", authorities.display()));
    }
    fs::write(at(".npmrc"), npm).unwrap();
    let mut uv = "system-certs = true\n".to_owned();
    if let Some(index) = asked(
        "python3",
        &["-m", "pip", "config", "get", "global.index-url"],
    ) {
        uv.push_str(&format!("index-url = {index:?}\n"));
    }
    fs::write(at(".config/uv/uv.toml"), uv).unwrap();
    repository(&at("repository"));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    give_away(home.path());
    home
}

/// Makes a repository with one commit and one change.
fn repository(folder: &Path) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder).args(arguments);
        let done = command.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "--quiet"]);
    git(&["config", "user.name", "Ada"]);
    git(&["config", "user.email", "ada@localhost"]);
    fs::write(folder.join("hello.txt"), "hello\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "Begin"]);
    fs::write(folder.join("hello.txt"), "hello\nchanged\n").unwrap();
}

/// Returns what a program of this machine says, unless it fails or says nothing.
fn asked(program: &str, arguments: &[&str]) -> Option<String> {
    let said = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let text = text.trim();
    (said.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// Gives a folder and all that is in it to the user that owns nothing.
fn give_away(path: &Path) {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    chown(path, Some(uid), Some(gid)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}
