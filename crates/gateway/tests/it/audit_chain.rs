//! The hash chain of the audit: an unaltered copy passes, every alteration is found, and erasure and holds
//! leave a chain that still fits. On SQLite and on PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};

use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, proof};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tempfile::TempDir;

use crate::harness::{Gantry, LONG};

/// Where a gateway keeps its rows.
enum Place {
    Folder,
    Server(PgDatabase),
}

impl Place {
    fn start(&self) -> Gantry {
        let builder = Gantry::builder().server("a", &Evilpeer::new());
        let gantry = match self {
            Self::Folder => builder.start(),
            Self::Server(database) => builder.flags(&["--store", &database.url()]).start(),
        };
        gantry.wait_state("a", "ready", LONG);
        gantry
    }
}

/// A copy of a store that is altered and made whole again.
struct Copy {
    _folder: TempDir,
    file: PathBuf,
    server: Option<String>,
    original: PathBuf,
}

const TABLES: [&str; 5] = [
    "mcp_tool_call_log",
    "mcp_admin_log",
    "mcp_audit_blocks",
    "mcp_audit_heads",
    "mcp_audit_keys",
];

/// How many kinds of alterations of calls, keys and the chain there are.
const CALL_KINDS: usize = 36;
/// How many kinds of alterations of administrative acts there are.
const ACT_KINDS: usize = 23;
const KINDS: usize = CALL_KINDS + ACT_KINDS;

impl Copy {
    fn of(place: &Place, data: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copy = Self {
            file: folder.path().join("copy.db"),
            original: data.join("gantry.db"),
            server: match place {
                Place::Folder => None,
                Place::Server(database) => Some(database.url()),
            },
            _folder: folder,
        };
        if let Place::Server(database) = place {
            for table in TABLES {
                database.sql(&format!("CREATE TABLE public.{table} AS TABLE kb.{table}"));
            }
        }
        copy
    }

    /// Makes it as it was.
    fn restore(&self, place: &Place) {
        match place {
            Place::Folder => {
                fs::copy(&self.original, &self.file).unwrap();
                for end in ["-wal", "-shm"] {
                    fs::remove_file(format!("{}{end}", self.file.display())).ok();
                }
            }
            Place::Server(database) => {
                for table in TABLES {
                    database.sql(&format!(
                        "DELETE FROM kb.{table}; INSERT INTO kb.{table} SELECT * FROM public.{table}"
                    ));
                }
            }
        }
    }

    /// Runs statements in which `kb.` stands before tables.
    fn sql(&self, place: &Place, statements: &str) {
        match place {
            Place::Server(database) => {
                database.sql(statements);
            }
            Place::Folder => {
                let statements = statements.replace("kb.", "");
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let options = SqliteConnectOptions::new().filename(&self.file);
                runtime.unwrap().block_on(async {
                    let mut connection = options.connect().await.unwrap();
                    let altered = connection.execute(AssertSqlSafe(statements.as_str()));
                    altered.await.unwrap();
                    connection.close().await.unwrap();
                });
            }
        }
    }

    fn name(&self) -> String {
        match &self.server {
            Some(url) => url.clone(),
            None => self.file.to_str().unwrap().to_owned(),
        }
    }
}

fn verified(gantry: &Gantry, store: &str) -> (bool, Value) {
    let output = gantry.cli(&["audit", "verify", "--store", store, "--json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), report)
}

fn call_as(gantry: &Gantry, user: &str, text: &str) {
    let params = json!({
        "name": "a__echo",
        "arguments": {"text": text},
        "_meta": {"io.gantry/user-id": user, "io.gantry/run-id": "run-1"},
    });
    let answer = gantry.mcp("tools/call", params);
    assert_eq!(answer["result"]["content"][0]["text"], text);
}

/// Returns an alteration of acts: the statements, and what is found.
fn alteration_of_acts(number: usize, one: i64, other: i64) -> (String, &'static str) {
    let log = "kb.mcp_admin_log";
    let change = |set: &str| format!("UPDATE {log} SET {set} WHERE id = {one}");
    let forged = |set: &str| {
        format!(
            "CREATE TEMPORARY TABLE forged AS SELECT * FROM {log} WHERE id = {one}; \
             UPDATE forged SET id = 999999{set}; \
             INSERT INTO {log} SELECT * FROM forged; DROP TABLE forged"
        )
    };
    match number {
        0 => (change("target = 'other'"), "changed"),
        1 => (change("actor = 'mallory'"), "changed"),
        2 => (change("outcome = 'refused'"), "changed"),
        3 => (change("old_value = '{}'"), "changed"),
        4 => (change("new_value = NULL"), "changed"),
        5 => (change("at = at - 86400000"), "changed"),
        6 => (change("address = '192.0.2.1'"), "changed"),
        7 => (change("repeats = repeats + 1"), "changed"),
        8 => (change("key_id = ''"), "changed"),
        9 => (change("via = 'file'"), "changed"),
        10 => (change("ended_at = NULL"), "changed"),
        11 => (change("project_id = 'other'"), "changed"),
        12 => (change("code = 'x.y'"), "changed"),
        13 => (change("outcome = 'nonsense'"), "changed"),
        14 => (format!("DELETE FROM {log} WHERE id = {one}"), "missing"),
        15 => (forged(""), "inserted"),
        16 => (forged(", chain_block = NULL"), "inserted"),
        17 => (forged(", chain_block = NULL, gateway = 77"), "inserted"),
        18 => (change("chain_block = NULL"), "inserted"),
        // As it was when it began.
        19 => (
            change("chain_block = chain_block - 1, outcome = 'unfinished', ended_at = NULL"),
            "inserted",
        ),
        20 => (
            format!(
                "UPDATE {log} SET id = -1 WHERE id = {one}; \
                 UPDATE {log} SET id = {one} WHERE id = {other}; \
                 UPDATE {log} SET id = {other} WHERE id = -1"
            ),
            "inserted",
        ),
        21 => (
            "UPDATE kb.mcp_audit_heads SET acts_since = NULL".to_owned(),
            "head_changed",
        ),
        _ => (change("id = -id"), "changed"),
    }
}

/// Returns an alteration: the statements, what is found, and whether a call is named.
fn alteration(number: usize, one: &str, other: &str, is_server: bool) -> (String, &'static str) {
    let log = "kb.mcp_tool_call_log";
    let change = |set: &str| format!("UPDATE {log} SET {set} WHERE id = '{one}'");
    let not_trusted = match is_server {
        true => "user_trusted = NOT user_trusted",
        false => "user_trusted = 1 - user_trusted",
    };
    let forged = |block: &str| {
        format!(
            "CREATE TEMPORARY TABLE forged AS SELECT * FROM {log} WHERE id = '{one}'; \
             UPDATE forged SET id = 'call_7fffffffffffffffffffffffffffffff'{block}; \
             INSERT INTO {log} SELECT * FROM forged; DROP TABLE forged"
        )
    };
    let last = "(SELECT max(number) FROM kb.mcp_audit_blocks)";
    match number {
        0 => (change("duration_us = duration_us + 1"), "changed"),
        1 => (change("tool_name = 'other'"), "changed"),
        2 => (change("user_id = 'mallory'"), "changed"),
        3 => (change("user_id = NULL"), "changed"),
        4 => (change("status = 'timeout'"), "changed"),
        5 => (change("code = 'x.y'"), "changed"),
        6 => (change("output = 'forged'"), "changed"),
        7 => (change("input = NULL"), "changed"),
        8 => (change("agent_id = 'somebody'"), "changed"),
        9 => (change("started_at = started_at - 86400000"), "changed"),
        10 => (change("seq = seq + 1"), "changed"),
        11 => (change("attempts = attempts + 1"), "changed"),
        12 => (change("server_us = 1"), "changed"),
        13 => (change("queue_us = -5"), "changed"),
        14 => (change(not_trusted), "changed"),
        15 => (change("boot = boot + 1"), "changed"),
        16 => (change("status = 'nonsense'"), "changed"),
        17 => (format!("DELETE FROM {log} WHERE id = '{one}'"), "missing"),
        18 => (forged(""), "inserted"),
        19 => (forged(", chain_block = NULL"), "inserted"),
        20 => (
            forged(", chain_block = NULL, status = 'running'"),
            "inserted",
        ),
        21 => (
            format!(
                "UPDATE {log} SET id = 'swap' WHERE id = '{one}'; \
                 UPDATE {log} SET id = '{one}' WHERE id = '{other}'; \
                 UPDATE {log} SET id = '{other}' WHERE id = 'swap'"
            ),
            "inserted",
        ),
        // The newest rows with their block, and with the end of the chain put where it was before.
        22 => (
            format!(
                "DELETE FROM {log} WHERE chain_block = {last}; \
                 DELETE FROM kb.mcp_admin_log WHERE chain_block = {last}; \
                 DELETE FROM kb.mcp_audit_blocks WHERE number = {last}"
            ),
            "cut_off",
        ),
        23 => (
            format!(
                "DELETE FROM {log} WHERE chain_block = {last}; \
                 DELETE FROM kb.mcp_admin_log WHERE chain_block = {last}; \
                 DELETE FROM kb.mcp_audit_blocks WHERE number = {last}; \
                 UPDATE kb.mcp_audit_heads SET \
                 number = {last}, hash = (SELECT hash FROM kb.mcp_audit_blocks WHERE number = {last}), \
                 signature = (SELECT signature FROM kb.mcp_audit_blocks WHERE number = {last})"
            ),
            "head_changed",
        ),
        24 => (
            "DELETE FROM kb.mcp_audit_blocks WHERE number = 2".to_owned(),
            "block_missing",
        ),
        25 => (
            "UPDATE kb.mcp_audit_blocks SET at = at + 1 WHERE number = 2".to_owned(),
            "block_changed",
        ),
        26 => (
            "UPDATE kb.mcp_audit_blocks SET key_id = 'other' WHERE number = 2".to_owned(),
            "block_changed",
        ),
        27 => ("DELETE FROM kb.mcp_audit_heads".to_owned(), "head_changed"),
        // Whoever belongs to no chain has no rows either.
        28 => (forged(", chain_block = NULL, gateway = 77"), "inserted"),
        29 => (
            "UPDATE kb.mcp_audit_blocks SET live = live + 1 WHERE number = 3".to_owned(),
            "block_changed",
        ),
        30 => (
            "UPDATE kb.mcp_audit_keys SET public = hash FROM kb.mcp_audit_heads".to_owned(),
            "key_changed",
        ),
        31 => ("DELETE FROM kb.mcp_audit_keys".to_owned(), "key_changed"),
        32 => (
            "UPDATE kb.mcp_audit_keys SET id = 'other'".to_owned(),
            "key_changed",
        ),
        33 => (
            "UPDATE kb.mcp_audit_heads SET number = number - 1".to_owned(),
            "head_changed",
        ),
        34 => (
            "UPDATE kb.mcp_audit_blocks SET signature = \
             (SELECT signature FROM kb.mcp_audit_blocks WHERE number = 3) WHERE number = 2"
                .to_owned(),
            "bad_signature",
        ),
        _ => match is_server {
            // A flag has two values there.
            true => (change(not_trusted), "changed"),
            false => (change("user_trusted = 7"), "changed"),
        },
    }
}

// fault D2
#[test]
fn every_alteration_of_a_copy_is_found() {
    finds_alterations(&Place::Folder);
}

// fault D2
#[test]
fn every_alteration_in_postgresql_is_found() {
    finds_alterations(&Place::Server(PgDatabase::new()));
}

fn finds_alterations(place: &Place) {
    let mut gantry = place.start();
    for round in 0..4 {
        for number in 0..8 {
            call_as(
                &gantry,
                ["ann", "bob"][number % 2],
                &format!("{round}-{number}"),
            );
        }
        // Each round is a block of its own.
        assert_eq!(gantry.audit_rows("tool=echo").len(), (round + 1) * 8);
    }
    for user in ["ann", "bob", "cid"] {
        let hold = gantry.cli(&["audit", "hold", "--user", user]);
        assert!(hold.status.success());
    }
    let acts = gantry
        .rest("GET", "/api/v1/acts?act=audit.hold", None)
        .json();
    let acts: Vec<i64> = acts["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|act| act["id"].as_i64().unwrap())
        .collect();
    assert_eq!(acts.len(), 3);
    let live = gantry.cli(&["audit", "verify"]);
    let said = String::from_utf8_lossy(&live.stdout).into_owned();
    assert!(live.status.success(), "{said}");
    assert!(
        said.contains("32 calls and ") && said.contains(" acts in "),
        "{said}"
    );
    let rows = gantry.audit_rows("tool=echo");
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(gantry.stop(), Some(0));
    let copy = Copy::of(place, &gantry.data());
    copy.restore(place);
    let (passes, report) = verified(&gantry, &copy.name());
    assert!(passes, "{report:#}");
    assert_eq!(report["rows"], rows.len());
    for number in 0..proof::count(4 * KINDS, KINDS) {
        copy.restore(place);
        let (one, other) = (number * 7, number * 7 + 11);
        let (kind_of, calls) = (number % KINDS, ids.len());
        let named = match kind_of.checked_sub(CALL_KINDS) {
            None => [one, other].map(|at| json!(ids[at % calls])),
            Some(_) => [one, other].map(|at| json!(acts[at % acts.len()])),
        };
        let (statements, kind) = match kind_of.checked_sub(CALL_KINDS) {
            None => {
                let [one, other] = [one, other].map(|at| ids[at % calls]);
                alteration(kind_of, one, other, copy.server.is_some())
            }
            Some(of_acts) => {
                let [one, other] = [one, other].map(|at| acts[at % acts.len()]);
                alteration_of_acts(of_acts, one, other)
            }
        };
        copy.sql(place, &statements);
        let (passes, report) = verified(&gantry, &copy.name());
        assert!(!passes, "{number}: {statements}");
        let findings = report["findings"].as_array().unwrap();
        // Two rows of one block that changed places are changed, of two blocks not where they belong.
        let is_it = |finding: &&Value| {
            finding["kind"] == kind || (kind_of == 21 && finding["kind"] == "changed")
        };
        let found = findings.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{number}: {statements}: {report:#}"));
        // A number that is turned round is named as it is now.
        let is_named = |id: &Value| {
            [&found["call"], &found["act"]].contains(&id)
                || (id.is_i64() && found["act"] == -id.as_i64().unwrap())
        };
        assert!(
            named.iter().any(is_named) || !matches!(kind, "changed" | "missing"),
            "{statements}: {report:#}"
        );
    }
}

// fault D2: what lists show follows from indexes, which no block covers.
#[test]
fn every_alteration_of_an_index_is_found() {
    let place = Place::Folder;
    let mut gantry = place.start();
    for number in 0..8 {
        call_as(&gantry, "ann", &number.to_string());
    }
    assert_eq!(gantry.audit_rows("tool=echo").len(), 8);
    assert_eq!(gantry.stop(), Some(0));
    let copy = Copy::of(&place, &gantry.data());
    copy.restore(&place);
    for index in index_pages(&copy.file) {
        copy.restore(&place);
        let mut bytes = fs::read(&copy.file).unwrap();
        // In the first entry, which is at the end of the page.
        bytes[index - 1] ^= 2;
        fs::write(&copy.file, bytes).unwrap();
        let (passes, report) = verified(&gantry, &copy.name());
        assert!(!passes, "{index}");
        let findings = report["findings"].as_array().unwrap();
        let is_it = |finding: &Value| finding["kind"] == "table_damaged";
        assert!(findings.iter().any(is_it), "{report:#}");
    }
}

/// Returns where the pages of the calls' indexes end in a database that is so small that each has one.
fn index_pages(file: &Path) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let options = SqliteConnectOptions::new().filename(file);
    let pages: Vec<i64> = runtime.unwrap().block_on(async {
        let mut connection = options.connect().await.unwrap();
        let pages = "SELECT rootpage * (SELECT page_size FROM pragma_page_size) FROM sqlite_schema \
             WHERE type = 'index' AND tbl_name = 'mcp_tool_call_log' AND name IN ( \
             'mcp_tool_call_log_project', 'mcp_tool_call_log_agent', 'mcp_tool_call_log_tool', \
             'mcp_tool_call_log_user')";
        let pages = sqlx::query_scalar(pages).fetch_all(&mut connection).await;
        connection.close().await.unwrap();
        pages.unwrap()
    });
    assert_eq!(pages.len(), 4);
    pages
        .into_iter()
        .map(|end| usize::try_from(end).unwrap())
        .collect()
}

// fault D2
#[test]
fn every_alteration_of_a_journal_is_found() {
    finds_damage(&Place::Folder);
}

// fault D2
#[test]
fn every_alteration_of_a_journal_beside_postgresql_is_found() {
    finds_damage(&Place::Server(PgDatabase::new()));
}

/// Damages the journal that a killed gateway left. How many segments it has depends on the disk: on one with
/// much space none is made ahead.
fn finds_damage(place: &Place) {
    let mut gantry = place.start();
    for number in 0..40 {
        call_as(&gantry, "ann", &number.to_string());
    }
    assert_eq!(gantry.audit_rows("tool=echo").len(), 40);
    let mark = gantry.data().join("marks/journal.mark");
    let before = fs::read(&mark).unwrap();
    call_as(&gantry, "ann", "the last one");
    assert!(eventually(LONG, || fs::read(&mark).unwrap() != before).is_some());
    gantry.kill();
    let journal = gantry.data().join("journal");
    let verify = |folder: &Path| {
        let journal = folder.join("journal");
        let words = [
            "audit",
            "verify",
            "--json",
            "--journal",
            journal.to_str().unwrap(),
        ];
        gantry.cli(&words).status.success()
    };
    assert!(verify(&gantry.data()));
    let names: Vec<_> = fs::read_dir(&journal).unwrap().flatten().collect();
    assert!(!names.is_empty(), "one is in use");
    for number in 0..proof::count(100, 12) {
        let copy = tempfile::tempdir().unwrap();
        for folder in ["journal", "marks"] {
            fs::create_dir(copy.path().join(folder)).unwrap();
            for entry in fs::read_dir(gantry.data().join(folder)).unwrap().flatten() {
                fs::copy(
                    entry.path(),
                    copy.path().join(folder).join(entry.file_name()),
                )
                .unwrap();
            }
        }
        // The segment in use is the one that says something behind its header.
        let used = names
            .iter()
            .map(|entry| copy.path().join("journal").join(entry.file_name()));
        let used = used
            .filter(|file| file.is_file())
            .find(|file| {
                fs::read(file).unwrap()[64..96]
                    .iter()
                    .any(|byte| *byte != 0)
            })
            .unwrap();
        let mut bytes = fs::read(&used).unwrap();
        match number % 5 {
            0 => fs::remove_file(&used).unwrap(),
            1 => fs::write(&used, &bytes[..1024]).unwrap(),
            // One bit of the header's copy.
            2 => {
                let at = bytes.len() - 1 - number % 48;
                bytes[at] ^= 1 << (number % 8);
                fs::write(&used, &bytes).unwrap();
            }
            _ => {
                // Some 16 bytes of a record among the first thirty calls.
                let at = 64 + (number * 37 % 500) * 16;
                bytes[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0x5a);
                fs::write(&used, &bytes).unwrap();
            }
        }
        assert!(!verify(copy.path()), "{number}");
    }
}

// rows 0.9, 3.5
#[test]
fn a_user_is_erased_and_the_chain_still_fits() {
    erases(&Place::Folder);
}

// rows 0.9, 3.5
#[test]
fn a_user_is_erased_from_postgresql_and_the_chain_still_fits() {
    erases(&Place::Server(PgDatabase::new()));
}

fn erases(place: &Place) {
    let gantry = place.start();
    for number in 0..6 {
        let user = ["ann", "bob", "cid"][number % 3];
        call_as(&gantry, user, &format!("canary-of-{user}"));
    }
    let held = gantry.cli(&[
        "audit", "hold", "--user", "bob", "--reason", "case 7", "--json",
    ]);
    let held: Value = serde_json::from_slice(&held.stdout).unwrap();
    let erased = |user: &str| {
        let erased = gantry.cli(&["audit", "erase", "--user", user, "--json"]);
        serde_json::from_slice::<Value>(&erased.stdout).unwrap()
    };
    assert_eq!(erased("ann"), json!({"calls": 2, "held": 0}));
    assert_eq!(erased("bob"), json!({"calls": 0, "held": 2}));
    assert_eq!(gantry.audit_rows("user=ann").len(), 0);
    assert_eq!(gantry.audit_rows("user=bob").len(), 2);
    // They can still be counted, and say nothing of the person.
    let rows = gantry.audit_rows("tool=echo");
    assert_eq!(rows.len(), 6);
    let blank: Vec<_> = rows.iter().filter(|row| row["user"].is_null()).collect();
    assert_eq!(blank.len(), 2);
    for row in blank {
        for member in ["input", "output", "run", "session", "trace", "error"] {
            assert!(row[member].is_null(), "{row:#}");
        }
        assert_eq!(
            (&row["status"], &row["agent"]),
            (&json!("ok"), &json!("default"))
        );
    }
    let check = || {
        let report = gantry.rest("GET", "/api/v1/audit/verify", None).json();
        assert_eq!(report["sound"], true, "{report:#}");
        report
    };
    let report = check();
    assert_eq!(report["rows"], 6);
    let id = held["id"].as_str().unwrap();
    assert!(gantry.cli(&["audit", "release", id]).status.success());
    assert!(!gantry.cli(&["audit", "release", id]).status.success());
    assert_eq!(erased("bob"), json!({"calls": 2, "held": 0}));
    check();
    let acts = gantry.rest("GET", "/api/v1/acts?act=audit.*", None).json();
    let acts: Vec<_> = acts["items"].as_array().unwrap().iter().collect();
    assert_eq!(acts.len(), 6, "{acts:#?}");
    assert!(
        !json!(
            acts.iter()
                .filter(|act| act["act"] == "audit.erase")
                .collect::<Vec<_>>()
        )
        .to_string()
        .contains("bob")
    );
    if matches!(place, Place::Folder) {
        let has = |text: &str| {
            let files = ["gantry.db", "gantry.db-wal"].map(|name| gantry.data().join(name));
            let mut found = files.iter().filter_map(|file| fs::read(file).ok());
            found.any(|bytes| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            })
        };
        let is_gone = || !has("canary-of-ann") && !has("canary-of-bob");
        assert!(eventually(LONG, is_gone).is_some());
        assert!(has("canary-of-cid"));
    }
    // Who reads the body of a call is on record.
    let cid = gantry.audit_rows("user=cid");
    let path = format!("/api/v1/calls/{}", cid[0]["id"].as_str().unwrap());
    assert_eq!(gantry.rest("GET", &path, None).status, 200);
    let read = gantry
        .rest("GET", "/api/v1/acts?act=call.read", None)
        .json();
    assert_eq!(read["items"][0]["target"], cid[0]["id"], "{read:#}");
}

// row 3.5
#[test]
fn a_project_chooses_what_is_kept_of_bodies() {
    let gantry = Place::Folder.start();
    let set = |value: Value| {
        let body = json!({"audit.bodies": value});
        assert_eq!(
            gantry.rest("PATCH", "/api/v1/settings", Some(&body)).status,
            200
        );
    };
    let newest = |text: &str| {
        call_as(&gantry, "ann", text);
        gantry.audit_rows("tool=echo").pop().unwrap()
    };
    assert!(newest("one")["input"].as_str().unwrap().contains("one"));
    set(json!("hash"));
    let row = newest("two");
    for member in ["input", "output"] {
        assert!(
            row[member].as_str().unwrap().starts_with("sha256:"),
            "{row:#}"
        );
    }
    set(json!("off"));
    let row = newest("three");
    assert!(row["input"].is_null() && row["output"].is_null(), "{row:#}");
    assert_eq!(row["input_bytes"], r#"{"text":"three"}"#.len());
    set(Value::Null);
    assert!(newest("four")["output"].as_str().unwrap().contains("four"));
    let wrong = json!({"audit.bodies": "all"});
    assert_eq!(
        gantry
            .rest("PATCH", "/api/v1/settings", Some(&wrong))
            .status,
        422
    );
}
