//! Row 1.18, fault C12: what a host refuses is missed before a hosted server runs its first instruction, and
//! said in the status, the events and on the command line. And nothing is claimed that was not done.
//!
//! The gateway runs under `deny` (test kit), which refuses it one system call and all that it starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use gantry_testkit::deny;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};
use tempfile::TempDir;

use crate::harness::{Gantry, NOBODY, Programs, needs_root};

const SERVERS: &str = "/api/v1/mcp/servers";
const SECOND: Duration = Duration::from_secs(1);

/// A gateway to which something is refused, and a folder in which its server leaves a mark.
struct Denied {
    gantry: Gantry,
    mark: TempDir,
    _programs: Programs,
    _deny: TempDir,
}

impl Denied {
    fn new(name: Option<&str>, user: Option<u32>) -> Self {
        needs_root();
        let open = |mode| {
            // Where no home and no data folder is.
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            folder
        };
        let (programs, built, mark) = (Programs::copied(), open(0o755), open(0o777));
        let mut builder = Gantry::builder().program(&programs.gantry());
        if let Some(name) = name {
            let program = deny::build(built.path());
            builder = builder.under(&[program.to_str().unwrap(), name, "--"]);
        }
        if let Some(user) = user {
            builder = builder.user(user);
        }
        Self {
            gantry: builder.start(),
            mark,
            _programs: programs,
            _deny: built,
        }
    }

    /// Registers a command that leaves a mark as soon as it runs.
    fn register(&self, name: &str, members: &Value) {
        let mut body = json!({
            "name": name,
            "command": "/bin/sh",
            "args": ["-c", "echo > ran; exec cat > /dev/null"],
            "cwd": self.mark.path(),
            "profile": "hosted",
            "allow_shell": true,
            "start": "eager",
        });
        for (key, value) in members.as_object().unwrap() {
            body[key] = value.clone();
        }
        let made = self.gantry.rest("POST", SERVERS, Some(&body));
        assert_eq!(made.status, 201, "{}", made.text());
    }

    fn ran(&self) -> bool {
        self.mark.path().join("ran").exists()
    }
}

/// Returns how a status has a protection: its state and its words.
fn promise(status: &Value, name: &str) -> (String, String) {
    let promises = status["isolation"].as_array().unwrap();
    let found = promises.iter().find(|promise| promise["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no `{name}` in {promises:#?}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("detail"))
}

// row 1.18, fault C12
#[test]
fn below_the_floor_not_one_instruction_runs_and_the_reason_is_told() {
    for (denied, user, why) in [
        ("seccomp", None, "syscalls (seccomp: "),
        ("seccomp", Some(NOBODY), "syscalls (seccomp: "),
        ("landlock", None, "filesystem (Landlock: "),
        // Found to be there when the gateway started, and then denied.
        ("landlock-late", None, "filesystem (Landlock: "),
        ("landlock-restrict", Some(NOBODY), "filesystem (Landlock: "),
        ("unshare", None, "a separate root"),
        ("pivot_root", Some(NOBODY), "a separate root"),
        ("setns", None, "the tree's own user"),
    ] {
        let rig = Denied::new(Some(denied), user);
        rig.register("a", &json!({"restart_policy": "never"}));
        let told = |now: &Value| {
            now["reason"]
                .as_str()
                .is_some_and(|text| text.contains(why))
        };
        let status = rig.gantry.wait_status("a", 20 * SECOND, told);
        assert_ne!(status["state"], "ready", "{denied}");
        assert!(
            status["isolation"].is_null(),
            "{denied}: nothing is claimed of what never ran"
        );
        assert!(!rig.ran(), "{denied}: its program ran");
        let mut events = Value::Null;
        // Written a moment after what they tell.
        gantry_testkit::wait::eventually(10 * SECOND, || {
            let path = format!("{SERVERS}/a/events");
            events = rig.gantry.rest("GET", &path, None).json();
            let mut all = events["items"].as_array().unwrap().iter();
            all.any(|event| {
                let detail = event["detail"].as_str().unwrap_or_default();
                event["kind"] == "start_failed" && detail.contains(why)
            })
        })
        .unwrap_or_else(|| panic!("{denied}: {events:#?}"));
        let shown = rig.gantry.cli(&["status", "a"]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let first_word = why.split(" (").next().unwrap();
        assert!(shown.contains(first_word), "{denied}: {shown}");
        if matches!(denied, "seccomp" | "landlock") && user.is_none() {
            // An image finds that the rung is not there, before anything is pulled.
            let image = json!({
                "name": "b", "image": "registry.invalid/x:1", "provider": "namespaces",
            });
            let made = rig.gantry.rest("POST", SERVERS, Some(&image));
            assert_eq!(made.status, 201, "{}", made.text());
            let told = |now: &Value| {
                let reason = now["reason"].as_str().unwrap_or_default();
                reason.contains("provider_unavailable: `namespaces`") && reason.contains(denied)
            };
            rig.gantry.wait_status("b", 20 * SECOND, told);
        }
    }
}

// row 1.18: with nothing denied the same server runs, and says how it is held
#[test]
fn with_nothing_denied_it_runs_and_every_pillar_holds() {
    for user in [None, Some(NOBODY)] {
        let rig = Denied::new(None, user);
        rig.register("a", &json!({}));
        let has_isolation = |now: &Value| now["isolation"].is_array();
        let status = rig.gantry.wait_status("a", 20 * SECOND, has_isolation);
        for name in [
            "tree",
            "root",
            "filesystem",
            "syscalls",
            "ipc",
            "network",
            "privileges",
        ] {
            let (state, detail) = promise(&status, name);
            assert_eq!(state, "enforced", "{name}: {detail}");
        }
        let (state, detail) = promise(&status, "user");
        // A gateway that is not root has no other user to give, and says so.
        let expected = if user.is_none() {
            "enforced"
        } else {
            "not_enforced"
        };
        assert_eq!(state, expected, "{detail}");
        // It may have been started only now.
        let ran = gantry_testkit::wait::eventually(10 * SECOND, || rig.ran());
        assert!(ran.is_some(), "{user:?}: its program did not run");
    }
}

// fault P7: what a person's own server sees of the data folder is told by what was covered
#[test]
fn the_data_folder_is_not_said_to_be_hidden_where_it_is_not() {
    for (denied, expected) in [(None, "enforced"), (Some("mount"), "not_enforced")] {
        let rig = Denied::new(denied, None);
        let script = format!(
            "ls {} > ran; exec cat > /dev/null",
            rig.gantry.data().display()
        );
        rig.register(
            "a",
            &json!({"profile": "local", "args": ["-c", script], "cwd": rig.mark.path()}),
        );
        let has_isolation = |now: &Value| now["isolation"].is_array();
        let status = rig.gantry.wait_status("a", 20 * SECOND, has_isolation);
        let (state, detail) = promise(&status, "data_folder");
        assert_eq!(state, expected, "{detail}");
        let seen = || fs::read_to_string(rig.mark.path().join("ran")).unwrap_or_default();
        let listed = gantry_testkit::wait::eventually(10 * SECOND, || rig.ran());
        assert!(listed.is_some());
        gantry_testkit::wait::eventually(SECOND, || seen().contains("keys") == denied.is_some());
        assert_eq!(seen().contains("keys"), denied.is_some(), "{}", seen());
    }
}

/// Returns since when the ids of a server are given back, if they are.
fn released(file: &Path, server: &str) -> Option<Option<i64>> {
    let read = async {
        let mut connection = SqliteConnectOptions::new().connect().await?;
        sqlx::query("ATTACH $1 AS kb")
            .bind(file.to_str().unwrap())
            .execute(&mut connection)
            .await?;
        sqlx::query("SELECT released_at FROM kb.mcp_id_ranges WHERE server = $1")
            .bind(server)
            .fetch_optional(&mut connection)
            .await
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let found: Option<sqlx::sqlite::SqliteRow> = runtime.unwrap().block_on(read).unwrap();
    found.map(|row| row.get(0))
}

// row 1.20, fault C13: ids are given back once no file belongs to them
#[test]
fn the_ids_of_a_removed_server_are_given_back_when_nothing_is_left_of_it() {
    let rig = Denied::new(None, None);
    let database = rig.gantry.data().join("gantry.db");
    let own = json!({"cwd": null, "args": ["-c", "exec cat > /dev/null"]});
    let with_volume = json!({
        "cwd": null, "args": ["-c", "exec cat > /dev/null"], "volumes": ["/data"],
    });
    rig.register("own", &own);
    rig.register("kept", &with_volume);
    rig.register("outside", &json!({}));
    for name in ["own", "kept", "outside"] {
        let has_isolation = |now: &Value| now["isolation"].is_array();
        rig.gantry.wait_status(name, 20 * SECOND, has_isolation);
        assert_eq!(released(&database, name), Some(None), "{name}");
        let path = format!("{SERVERS}/{name}");
        let removed = rig.gantry.rest("DELETE", &path, None);
        assert!(removed.status < 300, "{}", removed.text());
    }
    assert!(matches!(released(&database, "own"), Some(Some(_))));
    assert_eq!(released(&database, "kept"), Some(None), "it has a volume");
    assert_eq!(
        released(&database, "outside"),
        Some(None),
        "its files lie elsewhere"
    );
    let pruned = rig.gantry.cli(&["volumes", "prune", "--yes"]);
    assert!(pruned.status.success(), "{pruned:?}");
    assert!(matches!(released(&database, "kept"), Some(Some(_))));
}
