//! What only the code of `sqlite` can see: statements, plans, migrations, broken turns.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_model::id::CallId;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row, SqlSafeStr};
use tempfile::TempDir;

use super::*;
use crate::call::{CallFilter, CallRow, CallStatus, JournalPosition};
use crate::config::StoreConfig;
use crate::database::Database;
use crate::gateway::Gateway;
use crate::sql;
use crate::store::{Store, calls};

const START: JournalPosition = JournalPosition {
    segment: 0,
    offset: 0,
};

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.db");
    (folder, path)
}

fn call(number: u64, input: &str) -> CallRow {
    CallRow {
        id: CallId::new(1_789_000_000_000 + number, u128::from(number)),
        seq: number,
        project: "local".into(),
        agent: "default".into(),
        key: "key_1".into(),
        user: None,
        user_trust: Default::default(),
        session: None,
        run: Some("run".into()),
        step: None,
        trace: None,
        parent_span: None,
        surface: "mcp".into(),
        server: "example".into(),
        server_id: None,
        method: "tools/call".into(),
        tool: "echo".into(),
        schema_version: None,
        started_ms: 1_789_000_000_000 + number,
        ended_ms: None,
        duration_us: None,
        status: CallStatus::Ok,
        code: None,
        error: None,
        input: Some(input.into()),
        input_bytes: input.len() as u64,
        output: None,
        output_bytes: 0,
        repeats: 1,
        details: Default::default(),
    }
}

fn full_filter() -> CallFilter {
    let some = || Some("x".to_owned());
    CallFilter {
        project: some(),
        agent: some(),
        server: some(),
        tool: some(),
        status: Some(CallStatus::Ok),
        code: some(),
        run: some(),
        session: some(),
        trace: some(),
        user: some(),
        error_kind: Some(crate::call::ErrorKind::Tool),
        since_ms: Some(1),
        until_ms: Some(2),
        before: Some(CallId::from_bits(3)),
        limit: 4,
    }
}

/// Runs SQL on the file from outside, as another program would.
async fn outside(path: &Path, sql: &'static str) -> sqlx::sqlite::SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::ZERO);
    let mut connection = options.connect().await.unwrap();
    connection.execute(sql).await.unwrap();
    connection
}

fn later(sql: &'static str) -> Migrator {
    let mut migrations: Vec<_> = migrate::known().iter().cloned().collect();
    let version = migrations.last().unwrap().version + 1;
    let kind = MigrationType::Simple;
    migrations.push(Migration::new(
        version,
        "later".into(),
        kind,
        sql.into_sql_str(),
        false,
    ));
    migrate::with_table(migrations)
}

fn gateway() -> Gateway {
    Gateway {
        id: gantry_model::id::GatewayId::from_random(1),
        folder: "/data".into(),
    }
}

async fn opened(path: &Path) -> Result<Store, StoreError> {
    Store::open(&StoreConfig::Sqlite(path.to_owned()), &gateway()).await
}

async fn open_with(path: &Path, migrator: &Migrator) -> Result<Store, StoreError> {
    let file = SqliteStore::open_with(path, migrator, Duration::from_millis(50)).await?;
    Store::over(Database::Sqlite(Box::new(file)), &gateway()).await
}

/// Returns the file behind a store.
fn file_of(store: &Store) -> &SqliteStore {
    match store.database() {
        Database::Sqlite(file) => file,
        Database::Postgres(_) => unreachable!("these stores are files"),
    }
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut statements: Vec<String> = sql::all().iter().map(|s| (*s).to_owned()).collect();
    statements.push(sql::calls::USAGE_SQLITE.to_owned());
    statements.push(sql::chain::DAMAGED_SQLITE.to_owned());
    statements.push(import::statement(1));
    statements.push(import::statement(import::MANY));
    statements.push(import::alike_statement(import::ALIKE));
    statements.push(import::alike_statement(import::FEW));
    statements.push(
        calls::page(&full_filter(), true, calls::index_for(&full_filter()))
            .text()
            .to_owned(),
    );
    let mut turn = file_of(&store)
        .writer
        .turn("prepare", Durability::Process)
        .await
        .unwrap();
    let connection = turn.connection().unwrap();
    for statement in statements {
        let prepared = connection
            .prepare(AssertSqlSafe(statement.as_str()).into_sql_str())
            .await;
        prepared.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[test]
fn every_statement_is_in_its_list() {
    let files = [
        // Conditions follow the statement that they belong to.
        (include_str!("../sql/acts.rs"), sql::acts::ALL.len() + 1),
        (include_str!("../sql/clock.rs"), sql::clock::ALL.len()),
        (include_str!("../sql/agents.rs"), sql::agents::ALL.len()),
        (include_str!("../sql/secrets.rs"), sql::secrets::ALL.len()),
        (include_str!("../sql/servers.rs"), sql::servers::ALL.len()),
        (include_str!("../sql/keys.rs"), sql::keys::ALL.len()),
        (include_str!("../sql/grants.rs"), sql::grants::ALL.len()),
        (include_str!("../sql/catalog.rs"), sql::catalog::ALL.len()),
        (include_str!("../sql/events.rs"), sql::events::ALL.len()),
        (include_str!("../sql/gateways.rs"), sql::gateways::ALL.len()),
        (include_str!("../sql/leases.rs"), sql::leases::ALL.len()),
        (include_str!("../sql/journal.rs"), sql::journal::ALL.len()),
        // The two halves of the importing statement are prepared joined.
        (include_str!("../sql/calls.rs"), sql::calls::ALL.len() + 8),
        (include_str!("../sql/chain.rs"), sql::chain::ALL.len() + 3),
        (include_str!("../sql/holds.rs"), sql::holds::ALL.len()),
    ];
    for (text, listed) in files {
        assert_eq!(text.matches(": &str =").count(), listed, "{text}");
    }
}

#[test]
fn a_released_migration_never_changes() {
    let known = migrate::known();
    let checksum = &known.iter().next().unwrap().checksum;
    let hex: String = checksum.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(include_str!("../../tests/fixtures/schema-0001.sql").contains(&hex));
}

async fn plan(turn: &mut WriteTurn<'_>, statement: &str) -> Vec<String> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let query = sqlx::query(explain).persistent(false);
    let rows = query.fetch_all(turn.connection().unwrap()).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}

// fault D6: the plans do not walk the whole audit.
#[tokio::test]
async fn the_audit_is_read_by_its_keys() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut turn = file_of(&store)
        .writer
        .turn("explain", Durability::Process)
        .await
        .unwrap();
    let after = |conditions: &str| format!("{}{conditions}", sql::calls::SELECT);
    for (statement, expected) in [
        (after(sql::chain::LEFT_RUNNING), "mcp_tool_call_log_running"),
        (
            after(sql::chain::AFTER),
            "USING INDEX sqlite_autoindex_mcp_tool_call_log_1 (id>?)",
        ),
        (
            after(sql::calls::OLD),
            "mcp_tool_call_log_project (project_id=? AND id>? AND id<?)",
        ),
        (
            after(sql::calls::OF_USER_SQLITE),
            "mcp_tool_call_log_user (project_id=? AND user_id=? AND id>?)",
        ),
        (
            sql::calls::NEXT_PROJECT.to_owned(),
            "COVERING INDEX mcp_tool_call_log_",
        ),
        (
            sql::events::OF_SERVER.to_owned(),
            "mcp_server_events_server",
        ),
    ] {
        let statement = statement.as_str();
        let plan = plan(&mut turn, statement).await;
        let found = plan.iter().any(|step| step.contains(expected));
        assert!(found, "{statement}: {plan:?}");
        let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
        assert!(!sorts, "{statement}: {plan:?}");
    }
    // How many rows there are is not counted one by one.
    let plan = plan(&mut turn, sql::calls::USAGE_SQLITE).await;
    let ends = plan
        .iter()
        .filter(|step| *step == "SEARCH kb.mcp_tool_call_log");
    assert_eq!(ends.count(), 2, "{plan:?}");
    assert!(
        !plan.iter().any(|step| step.contains("TEMP B-TREE")),
        "{plan:?}"
    );
}

// fault D6: the few calls that did not end well are found among millions of others.
#[tokio::test]
async fn calls_that_failed_are_found_by_their_own_index() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut turn = file_of(&store)
        .writer
        .turn("explain", Durability::Process)
        .await
        .unwrap();
    for tool in [None, full_filter().tool] {
        let filter = CallFilter {
            project: full_filter().project,
            status: Some(CallStatus::Refused),
            tool,
            ..CallFilter::default()
        };
        let page = plan(
            &mut turn,
            calls::page(&filter, true, calls::index_for(&filter)).text(),
        )
        .await;
        let wanted = "COVERING INDEX mcp_tool_call_log_not_ok (project_id=? AND status=? AND id";
        assert!(page.iter().any(|step| step.contains(wanted)), "{page:?}");
    }
}

/// Returns the filter that asks for what the bits say, of everything that can be asked for.
fn filter_of(bits: u32) -> CallFilter {
    let full = full_filter();
    let has = |bit: u32| bits & (1 << bit) != 0;
    CallFilter {
        project: full.project.filter(|_| has(0)),
        agent: full.agent.filter(|_| has(1)),
        server: full.server.filter(|_| has(2)),
        tool: full.tool.filter(|_| has(3)),
        status: full.status.filter(|_| has(4)),
        code: full.code.filter(|_| has(5)),
        run: full.run.filter(|_| has(6)),
        session: full.session.filter(|_| has(7)),
        trace: full.trace.filter(|_| has(8)),
        since_ms: full.since_ms.filter(|_| has(9)),
        until_ms: full.until_ms.filter(|_| has(10)),
        before: full.before.filter(|_| has(11)),
        user: full.user.filter(|_| has(12)),
        error_kind: full.error_kind.filter(|_| has(13)),
        limit: full.limit,
    }
}

// fault D6: no filter, and no two of them together, reads calls that it does not show.
#[tokio::test]
async fn every_filter_over_calls_is_answered_by_an_index() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut turn = file_of(&store)
        .writer
        .turn("explain", Durability::Process)
        .await
        .unwrap();
    let mut seen = 0;
    // Whoever asks names a project; without one the primary key bounds the time alone.
    for bits in (0..1 << 14).filter(|bits| bits & 1 == 1) {
        // All pairs and triples, and everything at once; further ones add conditions to the same plan.
        if u32::count_ones(bits) > 4 && bits != (1 << 14) - 1 {
            continue;
        }
        let filter = filter_of(bits);
        let page = plan(
            &mut turn,
            calls::page(&filter, true, calls::index_for(&filter)).text(),
        )
        .await;
        let count = plan(
            &mut turn,
            calls::count(&filter, true, calls::index_for(&filter)).text(),
        )
        .await;
        let inner = match &filter.run {
            Some(_) => "INDEX mcp_tool_call_log_run (run_id=?",
            None if filter.user.is_some() => {
                "INDEX mcp_tool_call_log_user (project_id=? AND user_id=? AND id"
            }
            None if filter.session.is_some() => {
                "INDEX mcp_tool_call_log_session (project_id=? AND session_id=? AND id"
            }
            None if filter.trace.is_some() => {
                "INDEX mcp_tool_call_log_trace (project_id=? AND trace_id=? AND id"
            }
            None if filter.code.is_some() => {
                "INDEX mcp_tool_call_log_code (project_id=? AND code=? AND id"
            }
            None if filter.error_kind.is_some() => {
                "INDEX mcp_tool_call_log_error_kind (project_id=? AND error_kind=? AND id"
            }
            None if filter.tool.is_some() => {
                "USING COVERING INDEX mcp_tool_call_log_tool (project_id=? AND tool_name=? AND id"
            }
            None if filter.server.is_some() => {
                "USING COVERING INDEX mcp_tool_call_log_server (project_id=? AND server_name=? AND id"
            }
            None if filter.agent.is_some() => {
                "USING COVERING INDEX mcp_tool_call_log_agent (project_id=? AND agent_id=? AND id"
            }
            None => "USING COVERING INDEX mcp_tool_call_log_project (project_id=? AND id",
        };
        let rows = "USING INDEX sqlite_autoindex_mcp_tool_call_log_1 (id=?)";
        let mut inners = vec![inner];
        if inner.contains("_trace") {
            // The call that began the trace.
            inners.push("INDEX mcp_tool_call_log_project (project_id=? AND id>? AND id<?)");
        }
        let outer = [&[rows], inners.as_slice()].concat();
        for (plan, wanted) in [(&page, outer), (&count, inners)] {
            let reads = plan
                .iter()
                .filter(|step| step.contains("mcp_tool_call_log"));
            let reads: Vec<&String> = reads.collect();
            assert_eq!(reads.len(), wanted.len(), "{filter:?}: {plan:?}");
            for (step, wanted) in reads.iter().zip(wanted) {
                assert!(
                    step.starts_with("SEARCH ") && step.contains(wanted),
                    "{filter:?}: {plan:?}"
                );
            }
            let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(!sorts, "{filter:?}: {plan:?}");
        }
        seen += 1;
    }
    assert_eq!(seen, 1 + 13 + 78 + 286 + 1);
}

// fault D5
#[tokio::test]
async fn an_older_file_is_copied_and_brought_forward() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    store.import_calls(&[call(1, "kept")], START).await.unwrap();
    store.close().await.unwrap();
    let migrator = later("CREATE TABLE kb.later (id INTEGER PRIMARY KEY) STRICT");
    let (first, second) = tokio::join!(open_with(&path, &migrator), open_with(&path, &migrator));
    for store in [first.unwrap(), second.unwrap()] {
        assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 1);
        store.close().await.unwrap();
    }
    let backup = newest_backup(&path).unwrap();
    let ours = migrate::known().iter().last().unwrap().version;
    let named = format!("gantry.db.schema-{ours}.bak");
    assert_eq!(backup, path.with_file_name(named));
    assert_eq!(
        fs::metadata(&backup).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let restored = path.with_file_name("restored.db");
    fs::copy(&backup, &restored).unwrap();
    let restored = opened(&restored).await.unwrap();
    assert_eq!(
        restored.count_calls(&CallFilter::default()).await.unwrap(),
        1
    );

    // And the Gantry before does not touch what the later one made.
    let before = fs::read(&path).unwrap();
    let error = opened(&path).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found, known } if (found, known) == (ours + 1, ours)),
        "{error:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn acts_from_before_projects_are_those_of_the_only_project() {
    for (others, expected) in [
        ("", "mine"),
        ("INSERT INTO projects VALUES ('b', NULL, 0)", "local"),
    ] {
        let (_folder, path) = place();
        let before = migrate::known().iter().take(6).cloned().collect();
        let store = open_with(&path, &migrate::with_table(before))
            .await
            .unwrap();
        store.close().await.unwrap();
        let rows = "INSERT INTO projects VALUES ('mine', NULL, 0); \
             INSERT INTO mcp_admin_log (at, key_id, act, target, detail) VALUES (0, '', '', '', '')";
        let mut file = outside(&path, rows).await;
        file.execute(others).await.unwrap();
        file.close().await.unwrap();
        opened(&path).await.unwrap().close().await.unwrap();
        let mut file = outside(&path, "").await;
        let row = file.fetch_one("SELECT project_id FROM mcp_admin_log");
        assert_eq!(row.await.unwrap().get::<String, _>(0), expected);
    }
}

// fault D5
#[tokio::test]
async fn a_migration_that_fails_half_way_leaves_the_old_schema() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    store.import_calls(&[call(1, "kept")], START).await.unwrap();
    store.close().await.unwrap();
    let broken =
        later("CREATE TABLE kb.later (id INTEGER) STRICT; INSERT INTO kb.absent VALUES (1)");
    assert!(open_with(&path, &broken).await.is_err());
    let store = opened(&path).await.unwrap();
    assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 1);
    store.close().await.unwrap();
    let mended = later("CREATE TABLE kb.later (id INTEGER PRIMARY KEY) STRICT");
    open_with(&path, &mended).await.unwrap();
}

// fault F1: full, said so, and well again by itself.
#[tokio::test]
async fn a_full_disk_is_said_and_heals() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let mut turn = file_of(&store)
        .writer
        .turn("limit", Durability::Process)
        .await
        .unwrap();
    let limit = "PRAGMA kb.max_page_count = 1";
    turn.connection().unwrap().execute(limit).await.unwrap();
    turn.done();
    let rows: Vec<_> = (0..200)
        .map(|number| call(number, &"x".repeat(4096)))
        .collect();
    let end = JournalPosition {
        segment: 1,
        offset: 2,
    };
    let error = store.import_calls(&rows, end).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 0);
    assert_eq!(store.journal_state().await.unwrap().position, None);
    let mut turn = file_of(&store)
        .writer
        .turn("free", Durability::Process)
        .await
        .unwrap();
    let free = "PRAGMA kb.max_page_count = 1000000";
    turn.connection().unwrap().execute(free).await.unwrap();
    turn.done();
    store.import_calls(&rows, end).await.unwrap();
    assert_eq!(
        store.count_calls(&CallFilter::default()).await.unwrap(),
        200
    );
    assert_eq!(store.journal_state().await.unwrap().position, Some(end));
}

// fault D1
#[tokio::test]
async fn a_locked_file_is_said_and_heals() {
    let (_folder, path) = place();
    let store = open_with(&path, &migrate::known()).await.unwrap();
    let mut other = outside(&path, "BEGIN IMMEDIATE").await;
    let error = store.import_calls(&[call(1, "")], START).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(matches!(
        store.probe_write().await,
        Err(StoreError::Locked { .. })
    ));
    assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 0);
    other.execute("ROLLBACK").await.unwrap();
    store.probe_write().await.unwrap();
    store.import_calls(&[call(1, "")], START).await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_open() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    {
        let mut turn = file_of(&store)
            .writer
            .turn("abandon", Durability::Process)
            .await
            .unwrap();
        let connection = turn.connection().unwrap();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let insert = "INSERT INTO kb.projects (id, created_at) VALUES ('lost', 0)";
        transaction.execute(insert).await.unwrap();
    }
    let mut reader = file_of(&store).readers.take("look").await.unwrap();
    let projects = sqlx::query("SELECT id FROM kb.projects");
    let projects = projects.fetch_all(reader.connection()).await.unwrap();
    assert!(projects.is_empty());
    drop(reader);
    store.import_calls(&[call(1, "")], START).await.unwrap();
    assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 1);
}

// fault F1: after some failures SQLite has rolled back by itself, which the driver does not see.
#[tokio::test]
async fn a_transaction_that_ended_behind_the_drivers_back_is_mended() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    {
        let mut turn = file_of(&store)
            .writer
            .turn("fail", Durability::Process)
            .await
            .unwrap();
        let connection = turn.connection().unwrap();
        let begun = connection.begin_with("BEGIN IMMEDIATE").await;
        begun.unwrap().execute("ROLLBACK").await.unwrap();
    }
    store.import_calls(&[call(1, "")], START).await.unwrap();
    assert_eq!(store.count_calls(&CallFilter::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn the_queue_of_writes_is_bounded() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let turn = file_of(&store)
        .writer
        .turn("hold", Durability::Process)
        .await
        .unwrap();
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..300 {
        let store = store.clone();
        writes.spawn(async move { store.import_calls(&[call(number, "")], START).await });
    }
    for _ in 0..45 {
        let refused = writes.join_next().await.unwrap().unwrap();
        assert!(
            matches!(refused, Err(StoreError::Busy { .. })),
            "{refused:?}"
        );
    }
    turn.done();
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    assert_eq!(
        store.count_calls(&CallFilter::default()).await.unwrap(),
        255
    );
}

// fault D3: what people did is synced, what the journal brings again is not.
#[tokio::test]
async fn durability_is_set_per_turn() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    for (durability, expected) in [
        (Durability::Power, 2_i64),
        (Durability::Process, 1),
        (Durability::Power, 2),
    ] {
        let mut turn = file_of(&store)
            .writer
            .turn("look", durability)
            .await
            .unwrap();
        let row = turn
            .connection()
            .unwrap()
            .fetch_one("PRAGMA kb.synchronous")
            .await
            .unwrap();
        assert_eq!(row.get::<i64, _>(0), expected);
        turn.done();
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_read_hurts_no_other() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let project = gantry_model::id::ProjectName::local();
    let insert = "INSERT INTO projects (id, created_at) VALUES ('local', 0); \
         INSERT INTO project_mcp_servers (id, project_id, name, transport, config, \
         enabled, created_at, updated_at, position) \
         VALUES ('srv_1', 'local', 'odd', 'stdio', '{}', 1, 0, 0, 1)";
    outside(&path, insert).await.close().await.unwrap();
    assert_eq!(store.servers(&project).await.unwrap(), []);
}

// fault C13
#[tokio::test]
async fn ids_that_were_given_back_first_are_taken_first_when_no_others_are_left() {
    let (_folder, path) = place();
    let store = opened(&path).await.unwrap();
    let all = "WITH RECURSIVE slot (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM slot WHERE n < 4094) \
         INSERT INTO mcp_id_ranges (project_id, server, first_id, created_at, released_at) \
         SELECT 'local', 's' || n, 1879048192 + n * 65536, 1, \
         CASE n WHEN 7 THEN 30 WHEN 8 THEN 20 END FROM slot";
    drop(outside(&path, all).await);
    let local = gantry_model::id::ProjectName::local();
    let take = async |name: &str| store.id_range(&local, &name.parse().unwrap(), 1).await;
    let slot = |first: u32| (first - crate::HOSTED_IDS.start) / crate::IDS_PER_SERVER;
    assert_eq!(slot(take("one").await.unwrap()), 8);
    assert_eq!(slot(take("two").await.unwrap()), 7);
    assert_eq!(slot(take("one").await.unwrap()), 8, "it is its own now");
    let full = take("three").await.unwrap_err();
    assert!(matches!(full, StoreError::Conflict { .. }), "{full}");
}
