//! The SQLite file itself: opening, reopening, modes, damage, age.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use gantry_model::caller::UserTrust;
use gantry_model::diagnose::Diagnose;
use gantry_store::{
    ActFilter, ActOutcome, CallDetails, CallFilter, CallRow, CallStatus, ClockRecord, Gateway,
    SealedRow, Store, StoreConfig, StoreError,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;

use crate::harness::{ANYWHERE, block, call, gateway, local, server};

/// What is done to a file's bytes.
type Harm = fn(&mut Vec<u8>);

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join("gantry.db");
    (folder, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Opens a file for the gateway of its folder.
async fn opened(path: &Path) -> Result<Store, StoreError> {
    let gateway = Gateway {
        folder: path.parent().unwrap().to_owned(),
        ..gateway(1)
    };
    Store::open(&StoreConfig::Sqlite(path.to_owned()), &gateway).await
}

async fn filled(path: &Path) {
    let store = opened(path).await.unwrap();
    store.put_server(&server(1, "files", "npx")).await.unwrap();
    let rows: Vec<_> = (0..500).map(|n| call(n, CallStatus::Ok)).collect();
    store.import_calls(&rows, ANYWHERE).await.unwrap();
    store.close().await.unwrap();
}

/// Opens a file that must be refused, and proves that it was left as it is.
async fn refused(path: &Path) -> StoreError {
    let before = fs::read(path).unwrap();
    let error = opened(path).await.unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "the file was touched");
    error
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let (_folder, path) = place();
    filled(&path).await;
    assert!(!path.with_file_name("gantry.db-wal").exists());
    for _ in 0..2 {
        let store = opened(&path).await.unwrap();
        assert_eq!(
            store.servers(&local()).await.unwrap(),
            [server(1, "files", "npx")]
        );
        assert_eq!(
            store.count_calls(&CallFilter::default()).await.unwrap(),
            500
        );
        assert_eq!(
            store.journal_state().await.unwrap().position,
            Some(ANYWHERE)
        );
        // Not closed: the next opening finds the write-ahead log and goes on from it.
        store
            .import_calls(&[call(499, CallStatus::Ok)], ANYWHERE)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_warm_opening_says_how_long_it_takes() {
    let (_folder, path) = place();
    filled(&path).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        let start = tokio::time::Instant::now();
        let store = opened(&path).await.unwrap();
        times.push(start.elapsed());
        assert_eq!(store.keys().await.unwrap(), []);
        store.close().await.unwrap();
    }
    times.sort();
    println!(
        "opened in {:?} at best, {:?} in the middle",
        times[0], times[10]
    );
}

#[tokio::test]
async fn a_closed_store_refuses_and_does_not_hang() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let clone = store.clone();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(clone.keys().await, Err(StoreError::Busy { .. })));
    let error = clone.import_calls::<&str>(&[], ANYWHERE).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the database has no room to import the journal"
    );
    assert!(matches!(
        clone.probe_write().await,
        Err(StoreError::Busy { .. })
    ));
}

#[tokio::test]
async fn two_open_the_same_new_file_at_once() {
    let (_folder, path) = place();
    let (first, second) = tokio::join!(opened(&path), opened(&path));
    let (first, second) = (first.unwrap(), second.unwrap());
    let (one, two) = (server(1, "one", "x"), server(2, "two", "x"));
    let (a, b) = tokio::join!(first.put_server(&one), second.put_server(&two));
    a.and(b).unwrap();
    for store in [first, second] {
        assert_eq!(store.servers(&local()).await.unwrap().len(), 2);
        store.close().await.unwrap();
    }
}

// fault F5
#[tokio::test]
async fn only_the_owner_can_read_it() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    store.put_server(&server(1, "files", "npx")).await.unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for entry in fs::read_dir(path.parent().unwrap()).unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
    store.close().await.unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    opened(&path).await.unwrap().close().await.unwrap();
    assert_eq!(mode(&path), 0o600);
}

// fault F5
#[tokio::test]
async fn a_link_or_a_folder_in_its_place_is_refused() {
    let (folder, path) = place();
    filled(&path).await;
    let link = folder.path().join("link.db");
    symlink(&path, &link).unwrap();
    let error = opened(&link).await.unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(reason, format!("`{}` is a symbolic link", link.display()));
    let dangling = folder.path().join("dangling.db");
    symlink(folder.path().join("absent"), &dangling).unwrap();
    assert!(matches!(
        opened(&dangling).await,
        Err(StoreError::Open { .. })
    ));
    assert!(!folder.path().join("absent").exists());
    assert!(matches!(
        opened(folder.path()).await,
        Err(StoreError::Open { .. })
    ));
    symlink(&path, path.with_file_name("gantry.db-wal")).unwrap();
    assert!(matches!(opened(&path).await, Err(StoreError::Open { .. })));
}

// fault D4
#[tokio::test]
async fn a_damaged_file_is_refused_and_left_as_it_is() {
    let damages: [(&str, Harm); 6] = [
        ("empty", |bytes| bytes.clear()),
        ("cut in half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut to its header", |bytes| bytes.truncate(100)),
        ("zeroed first page", |bytes| bytes[..4096].fill(0)),
        ("flipped bits in the magic", |bytes| bytes[3] ^= 0xff),
        ("flipped bits in every page's head", |bytes| {
            for page in bytes.chunks_mut(4096).skip(1) {
                page[..8].iter_mut().for_each(|byte| *byte ^= 0xff);
            }
        }),
    ];
    for (damage, harm) in damages {
        let (_folder, path) = place();
        filled(&path).await;
        let mut bytes = fs::read(&path).unwrap();
        harm(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let error = refused(&path).await;
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{damage}: {error:?}"
        );
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{damage}: {error}"
        );
        let hint = error.hint().unwrap();
        assert!(
            hint.contains("put a backup in its place"),
            "{damage}: {hint}"
        );
    }
}

// fault D4
#[tokio::test]
async fn the_way_back_names_the_copy_there_is() {
    let (_folder, path) = place();
    filled(&path).await;
    let copy = path.with_file_name("gantry.db.schema-12.bak");
    fs::write(path.with_file_name("gantry.db.schema-9.bak"), "").unwrap();
    fs::write(&copy, "").unwrap();
    fs::write(&path, "").unwrap();
    let hint = refused(&path).await.hint().unwrap();
    assert!(
        hint.contains(&format!("copy `{}` to", copy.display())),
        "{hint}"
    );
}

// fault D4
#[tokio::test]
async fn a_lost_file_is_not_made_anew_beside_its_log() {
    let (_folder, path) = place();
    filled(&path).await;
    fs::rename(&path, path.with_file_name("moved")).unwrap();
    fs::write(path.with_file_name("gantry.db-wal"), "something").unwrap();
    let error = opened(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(!path.exists());
}

// fault D4
#[tokio::test]
async fn a_database_of_somebody_else_is_refused() {
    let (_folder, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    load(&path, "CREATE TABLE t (x); INSERT INTO t VALUES (1)").await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = opened(&path).await.unwrap_err();
    assert!(
        error.to_string().contains("it is not a Gantry database"),
        "{error}"
    );
    load(&path, "INSERT INTO t VALUES (2)").await;
}

// fault D5
#[tokio::test]
async fn a_newer_file_is_refused_with_both_numbers() {
    let (_folder, path) = place();
    filled(&path).await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, \
         execution_time) VALUES (9999, 'from the future', TRUE, X'00', 0)";
    load(&path, newer).await;
    let error = refused(&path).await;
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
    let names = fs::read_dir(migrations).unwrap();
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    let known: i64 = names.map(|name| name[..4].parse().unwrap()).max().unwrap();
    assert_eq!(
        error.to_string(),
        format!("the database has schema 9999, this Gantry knows schemas up to {known}")
    );
    assert_eq!(error.code(), "store.newer_schema");
}

// A start that was killed while it made the file leaves only what the next one clears away.
#[tokio::test]
async fn an_unfinished_file_is_no_obstacle() {
    let (_folder, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(path.with_file_name("gantry.db.new"), "half").unwrap();
    fs::write(path.with_file_name("gantry.db.new-wal"), "half").unwrap();
    filled(&path).await;
    assert!(!path.with_file_name("gantry.db.new").exists());
}

#[tokio::test]
async fn the_files_of_the_first_schema_load_for_ever() {
    let (_folder, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    load(&path, include_str!("../fixtures/schema-0001.sql")).await;
    let store = opened(&path).await.unwrap();
    let servers = store.servers(&local()).await.unwrap();
    let names: Vec<_> = servers.iter().map(|row| row.spec.name.as_str()).collect();
    assert_eq!(names, ["files", "search"]);
    let (fingerprint, _, items) = store.load_catalog(servers[0].id).await.unwrap().unwrap();
    assert_eq!(
        (fingerprint.as_str(), items.len(), items[0].version),
        ("spec-1", 2, 2)
    );
    assert_eq!(store.keys().await.unwrap().len(), 2);
    assert_eq!(store.grants(&local()).await.unwrap().len(), 3);
    let events = store.events_before(&local(), None, None, 10).await.unwrap();
    assert_eq!(events.len(), 2);
    let acts = store.acts(&ActFilter::default()).await.unwrap();
    let outcomes: Vec<_> = acts.iter().map(|act| act.outcome).collect();
    assert_eq!(outcomes, [ActOutcome::Done]);
    assert_eq!(
        store.journal_state().await.unwrap().position,
        Some(ANYWHERE)
    );
    let calls = store.calls(&CallFilter::default()).await.unwrap();
    let statuses: Vec<_> = calls.iter().map(|row| row.status.as_str()).collect();
    assert_eq!(
        statuses,
        [
            "unknown",
            "refused",
            "cancelled",
            "timeout",
            "error",
            "ok",
            "running"
        ]
    );
    // Nobody was trusted yet to say who its users are.
    let asserted = CallRow {
        user_trust: UserTrust::Asserted,
        server_id: None,
        details: CallDetails::default(),
        ..call(1, CallStatus::Ok)
    };
    assert_eq!(calls[5], asserted);
    store.close().await.unwrap();
}

// Rows of before gateways had ids belong to the gateway of the folder, names of servers become ids.
#[tokio::test]
async fn older_rows_get_the_id_of_their_gateway_and_of_their_server() {
    let (_folder, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    load(&path, include_str!("../fixtures/schema-0001.sql")).await;
    load(
        &path,
        "UPDATE mcp_tool_call_log SET server_id = 'files' WHERE id LIKE '%1'; \
         INSERT INTO project_mcp_servers SELECT 'srv_00000000000000000000000000000003', project_id, \
         NULL, 'mine', NULL, transport, json_set(config, '$.name', 'mine', '$.source', 'file'), 1, \
         created_at, updated_at, 3 FROM project_mcp_servers WHERE name = 'files'",
    )
    .await;
    let config = StoreConfig::Sqlite(path.clone());
    let other = Store::open(&config, &gateway(2)).await.unwrap();
    assert_eq!(other.journal_state().await.unwrap().position, None);
    let settle = async |store: &Store| {
        let left = store.left_running(10).await.unwrap();
        left.len()
    };
    assert_eq!(settle(&other).await, 0);
    let names = async |store: &Store| {
        let rows = store.servers(&local()).await.unwrap();
        let names = rows.iter().map(|row| row.spec.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&other).await, ["files", "search"]);
    let own = opened(&path).await.unwrap();
    let state = own.journal_state().await.unwrap();
    assert_eq!(state.position, Some(ANYWHERE));
    assert_eq!(settle(&own).await, 1);
    assert_eq!(names(&own).await, ["files", "search", "mine"]);
    let row = own.call(call(1, CallStatus::Ok).id).await.unwrap().unwrap();
    let files = own.servers(&local()).await.unwrap()[0].id;
    assert_eq!((row.server.as_str(), row.server_id), ("files", Some(files)));
    let removed: i64 = events_with_id(&path).await;
    assert_eq!(removed, 2);
}

/// Counts the events that have the id of a server.
async fn events_with_id(path: &Path) -> i64 {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = options.disable_statement_logging().connect().await.unwrap();
    let count =
        sqlx::query_scalar("SELECT count(*) FROM mcp_server_events WHERE server_id IS NOT NULL");
    count.fetch_one(&mut connection).await.unwrap()
}

/// Tells which of the database's files have a text in them.
fn with(path: &Path, text: &str) -> Vec<&'static str> {
    let has = |suffix: &&str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let bytes = fs::read(name).unwrap_or_default();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    ["", "-wal", "-shm"].into_iter().filter(has).collect()
}

// A secret that was replaced or removed is in none of the files, while the store is open and after.
#[tokio::test]
async fn what_is_removed_leaves_no_bytes() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let row = |number: u128, secret: &str| {
        // Some fit on a page with others, some alone, some on several.
        let padding = "x".repeat((number as usize * 997) % 9000);
        let mut row = server(number, &format!("server-{number}"), "npx");
        let value = serde_json::json!({"command": "npx", "env": {
            "TOKEN": format!("{secret}-{number}-{secret}"), "PAD": padding}});
        row.spec.launch =
            gantry_model::spec::Launch::Process(serde_json::from_value(value).unwrap());
        row
    };
    for number in 1..=60 {
        store.put_server(&row(number, "fiRst")).await.unwrap();
    }
    assert!(!with(&path, "fiRst").is_empty());
    for number in 1..=60 {
        store.replace_server(&row(number, "seCond")).await.unwrap();
    }
    assert_eq!(with(&path, "fiRst"), [""; 0]);
    let mut sealed = SealedRow {
        project: local(),
        scope: "srv".into(),
        name: "tokens".into(),
        key_id: "k".into(),
        nonce: vec![1; 24],
        ciphertext: b"seAled-one".repeat(300),
        version: 1,
    };
    store.put_sealed(&sealed).await.unwrap();
    sealed.ciphertext = b"seAled-two".repeat(10);
    store.put_sealed(&sealed).await.unwrap();
    assert_eq!(with(&path, "seAled-one"), [""; 0]);
    store
        .remove_sealed(&local(), "srv", "tokens")
        .await
        .unwrap();
    assert_eq!(with(&path, "seAled"), [""; 0]);
    // In an order that joins and splits pages.
    for number in (1..=60).map(|number| number * 7 % 61) {
        let id = gantry_model::id::ServerId::from_random(number);
        assert!(store.remove_server(&local(), id).await.unwrap());
        let gone = format!("seCond-{number}-");
        assert_eq!(with(&path, &gone), [""; 0], "{gone}");
    }
    assert_eq!(with(&path, "seCond"), [""; 0]);
    store.close().await.unwrap();
    assert_eq!(with(&path, "seCond"), [""; 0]);
}

// A reader at work keeps the log from being emptied; whoever asks again does it.
#[tokio::test]
async fn a_log_that_is_read_is_emptied_later() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut row = server(1, "files", "npx");
    row.spec.description = Some("fiRst".into());
    store.put_server(&row).await.unwrap();
    let options = SqliteConnectOptions::new().filename(&path);
    let mut reader = options.disable_statement_logging().connect().await.unwrap();
    reader
        .execute("BEGIN; SELECT * FROM projects")
        .await
        .unwrap();
    assert!(store.remove_server(&local(), row.id).await.unwrap());
    assert_eq!(with(&path, "fiRst"), ["-wal"]);
    assert!(!store.scrub().await.unwrap());
    reader.execute("COMMIT").await.unwrap();
    assert!(store.scrub().await.unwrap());
    assert_eq!(with(&path, "fiRst"), [""; 0]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_audit_knows_its_size() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let usage = store.call_usage().await.unwrap();
    assert_eq!(
        (usage.rows, usage.oldest_ms, usage.newest_ms),
        (0, None, None)
    );
    let rows: Vec<_> = (0..500).map(|n| call(n, CallStatus::Ok)).collect();
    store.import_calls(&rows, ANYWHERE).await.unwrap();
    let before = rows[100].started_ms;
    let old = store.old_calls("local", None, before, 1000).await.unwrap();
    assert_eq!(old.len(), 100);
    let old: Vec<_> = old.iter().map(|call| (call.row.id, call.block)).collect();
    let (block, head) = block(&store, 1);
    store.drop_calls(&old, &block, &head).await.unwrap();
    let usage = store.call_usage().await.unwrap();
    assert_eq!((usage.rows, usage.oldest_ms), (400, Some(before)));
    assert_eq!(usage.newest_ms, Some(rows[499].started_ms));
    assert!(usage.database_bytes > 100_000, "{usage:?}");
    assert_eq!(store.clock().await.unwrap(), None);
    for at_ms in [7, 5] {
        let clock = ClockRecord {
            believed_ms: at_ms,
            doubted_ms: at_ms + 1,
            seen_ms: at_ms + 2,
        };
        store.put_clock(clock).await.unwrap();
        assert_eq!(store.clock().await.unwrap(), Some(clock));
    }
    store.close().await.unwrap();
}

/// The same qualified names as on PostgreSQL, and the view that rows 0.9 and 1.1 name.
#[tokio::test]
async fn the_tables_of_the_design_are_there() {
    let (_folder, path) = place();
    filled(&path).await;
    let options = SqliteConnectOptions::new()
        .filename(":memory:")
        .disable_statement_logging();
    let mut connection = options.connect().await.unwrap();
    let attach = sqlx::query("ATTACH $1 AS kb").bind(path.to_str().unwrap());
    attach.execute(&mut connection).await.unwrap();
    for statement in [
        "SELECT id, project_id, product_id, name, description, transport, config, enabled, \
         created_at, updated_at FROM kb.project_mcp_servers",
        "SELECT container_type, status, provider, image FROM kb.agent_workspaces",
        "SELECT project_id, name, nonce, ciphertext FROM kb.mcp_secrets",
        "SELECT id FROM kb.projects",
        "SELECT id FROM kb.products",
        "SELECT id FROM kb.agents",
    ] {
        connection.execute(statement).await.unwrap();
    }
    let calls: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM kb.agent_run_tool_calls WHERE run_id = 'run-7' AND step = 'step-7' \
         AND input = '{\"text\":\"hallo\"}' AND output = '{\"content\":[]}'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(calls, 1);
}

/// Runs SQL on a file from outside.
async fn load(path: &Path, sql: &'static str) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut connection = options.disable_statement_logging().connect().await.unwrap();
    connection.execute(sql).await.unwrap();
    connection.close().await.unwrap();
}
