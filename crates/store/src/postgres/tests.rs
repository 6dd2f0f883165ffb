//! What only the code of `postgres` can see: statements, plans, and that its schema is that of SQLite.

use std::collections::BTreeMap;

use gantry_testkit::postgres::PgDatabase;
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr};

use super::*;
use crate::call::{CallFilter, CallStatus, ErrorKind};
use crate::config::StoreConfig;
use crate::database::query::query;
use crate::sql;
use crate::store::calls;

fn url(database: &PgDatabase) -> PostgresUrl {
    let StoreConfig::Postgres(url) = database.url().parse().unwrap() else {
        unreachable!("it is the URL of a server");
    };
    url
}

async fn opened(database: &PgDatabase) -> PostgresStore {
    PostgresStore::open(&url(database)).await.unwrap()
}

// fault D5: of two steps the second fails.
#[tokio::test]
async fn a_migration_that_fails_half_way_leaves_the_old_schema() {
    let database = PgDatabase::new();
    opened(&database).await.close().await;
    let last = migrate::MIGRATIONS.last().unwrap().0;
    let brought_to = async |second: &'static str| {
        let mut steps = migrate::MIGRATIONS.to_vec();
        steps.push((last + 1, "one", "CREATE TABLE kb.one (id BIGINT)"));
        steps.push((last + 2, "two", second));
        let connector = Connector::new(&url(&database)).unwrap();
        let mut connection = connector.connect().await.unwrap();
        migrate::prepare(&mut connection, "it", &steps).await
    };
    let failed = brought_to("INSERT INTO kb.absent VALUES (1)").await;
    assert!(failed.is_err());
    // It is as old as before, so that this version opens it.
    opened(&database).await.close().await;
    brought_to("CREATE TABLE kb.two (id BIGINT)").await.unwrap();
    let found = PostgresStore::open(&url(&database)).await.err();
    let is_newer = |error: &StoreError| matches!(error, StoreError::Newer { .. });
    assert!(found.as_ref().is_some_and(is_newer), "{found:?}");
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let database = PgDatabase::new();
    let store = opened(&database).await;
    let mut statements: Vec<String> = sql::all().iter().map(|text| (*text).to_owned()).collect();
    statements.push(sql::calls::USAGE_POSTGRES.to_owned());
    statements.push(import::example());
    let mut lent = store.reader("prepare").await.unwrap();
    let (connection, _) = lent.parts().unwrap();
    for statement in statements {
        let text = AssertSqlSafe(statement.as_str()).into_sql_str();
        let prepared = connection.prepare(text).await;
        prepared.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// Returns the filter that asks for what the bits say, of everything that can be asked for.
fn filter_of(bits: u32) -> CallFilter {
    let some = |bit: u32, text: &str| (bits & (1 << bit) != 0).then(|| text.to_owned());
    let number = |bit: u32, ms: u64| (bits & (1 << bit) != 0).then_some(ms);
    CallFilter {
        project: Some("local".to_owned()),
        agent: some(0, "agent-7"),
        server: some(1, "server-7"),
        tool: some(2, "tool-7"),
        status: some(3, "").map(|_| CallStatus::Error),
        code: some(4, "code-7"),
        run: some(5, "run-7"),
        session: some(6, "session-7"),
        trace: some(7, "trace-7"),
        since_ms: number(8, 1_000_000),
        until_ms: number(9, 2_000_000),
        user: some(10, "user-7"),
        error_kind: some(11, "").map(|_| ErrorKind::Tool),
        before: None,
        limit: 50,
    }
}

// fault D6: no filter, and no two of them together, walks the whole audit.
#[tokio::test]
async fn every_filter_over_calls_is_answered_by_an_index() {
    let database = PgDatabase::new();
    let store = opened(&database).await;
    database.sql(
        "INSERT INTO kb.mcp_tool_call_log (id, seq, project_id, agent_id, key_id, session_id, run_id, \
         trace_id, surface, server_name, method, tool_name, started_at, status, code, input, \
         input_bytes, output_bytes, repeats, user_id, error_kind) SELECT 'call_' || lpad(to_hex(n), 32, '0'), n, 'local', \
         'agent-' || n % 20, 'key', 'session-' || n % 2000, 'run-' || n % 3000, 'trace-' || n, 'mcp', \
         'server-' || n % 10, 'tools/call', 'tool-' || n % 50, n, \
         CASE WHEN n % 100 = 0 THEN 'error' ELSE 'ok' END, \
         CASE WHEN n % 100 = 0 THEN 'code-' || n % 9 END, repeat('x', 500), 500, 0, 1, \
         'user-' || n % 2000, CASE WHEN n % 100 = 0 THEN 'tool' END \
         FROM generate_series(1, 30000) AS n; ANALYZE kb.mcp_tool_call_log",
    );
    let mut lent = store.reader("explain").await.unwrap();
    let (connection, _) = lent.parts().unwrap();
    for bits in (0..1_u32 << 12).filter(|bits| bits.count_ones() <= 2) {
        let filter = filter_of(bits);
        let page = calls::page(&filter, false, calls::index_for(&filter)).explained();
        let rows = page
            .for_postgres()
            .fetch_all(&mut *connection)
            .await
            .unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let walks = plan.iter().any(|step| step.contains("Seq Scan"));
        assert!(!walks, "{filter:?}: {plan:#?}");
    }
    let after = |conditions: &str| {
        let mut statement = query(sql::calls::SELECT);
        statement.push(conditions);
        statement
    };
    let old = after(sql::calls::OLD)
        .bind("local")
        .bind("")
        .bind("call_00");
    for statement in [
        after(sql::chain::LEFT_RUNNING)
            .bind(1_i64)
            .bind(2_i64)
            .bind(9_u32),
        after(sql::chain::AFTER).bind("call_00").bind(500_u32),
        old.bind(1_u64).bind(500_u32),
        after(sql::calls::OF_USER_POSTGRES)
            .bind("local")
            .bind("user-7")
            .bind("")
            .bind(9_u32),
        query(sql::calls::NEXT_PROJECT).bind("loca"),
    ] {
        let explained = statement.explained();
        let rows = explained.for_postgres().fetch_all(&mut *connection);
        let plan: Vec<String> = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
        let walks = plan.iter().any(|step| step.contains("Seq Scan"));
        assert!(!walks, "{plan:#?}");
    }
}

/// Returns the columns of each table: name, kind and whether it may be null.
type Tables = BTreeMap<String, Vec<(String, String, bool)>>;

fn tables_of_postgres(database: &PgDatabase) -> Tables {
    let rows = database.sql(
        "SELECT c.table_name || ' ' || c.column_name || ' ' || c.udt_name || ' ' || c.is_nullable \
         FROM information_schema.columns AS c JOIN information_schema.tables AS t \
         USING (table_schema, table_name) WHERE c.table_schema = 'kb' \
         AND t.table_type = 'BASE TABLE' AND c.table_name <> '_sqlx_migrations' \
         ORDER BY c.table_name, c.column_name COLLATE \"C\"",
    );
    let mut tables = Tables::new();
    for row in rows.lines() {
        let [table, column, kind, null] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let columns = tables.entry(table.to_owned()).or_default();
        columns.push((column.to_owned(), kind.to_owned(), null == "YES"));
    }
    tables
}

async fn tables_of_sqlite() -> Tables {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gantry.db");
    let store = crate::sqlite::SqliteStore::open(&path).await.unwrap();
    let mut reader = store.reader("look").await.unwrap();
    let rows = sqlx::query_as::<_, (String, String, String, bool, i64)>(
        "SELECT m.name, c.name, c.type, c.\"notnull\", c.pk FROM kb.sqlite_master AS m, \
         pragma_table_info(m.name, 'kb') AS c WHERE m.type = 'table' \
         AND m.name NOT LIKE 'sqlite_%' AND m.name <> '_sqlx_migrations' ORDER BY m.name, c.name",
    );
    let rows = rows.fetch_all(reader.connection()).await.unwrap();
    let mut tables = Tables::new();
    for (table, column, kind, not_null, key) in rows {
        let columns = tables.entry(table).or_default();
        columns.push((column, kind, !not_null && key == 0));
    }
    tables
}

// What one database has, the other has too: `gantry store copy` relies on it.
#[tokio::test]
async fn both_databases_have_the_same_tables() {
    let database = PgDatabase::new();
    opened(&database).await;
    let (ours, theirs) = (tables_of_postgres(&database), tables_of_sqlite().await);
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        theirs.keys().collect::<Vec<_>>()
    );
    for (table, columns) in &ours {
        let others = &theirs[table];
        let names = |columns: &[(String, String, bool)]| {
            let names = columns.iter().map(|(name, _, null)| (name.clone(), *null));
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(columns), names(others), "{table}");
        for ((column, kind, _), (_, other, _)) in columns.iter().zip(others) {
            let fits = match kind.as_str() {
                "text" | "jsonb" => other == "TEXT",
                "int8" | "bool" => other == "INTEGER",
                "bytea" => other == "BLOB",
                _ => false,
            };
            assert!(fits, "{table}.{column}: {kind} and {other}");
        }
    }
    // Texts are ordered by bytes, wherever the server was installed.
    let others = database.sql(
        "SELECT c.relname || '.' || a.attname FROM pg_attribute AS a JOIN pg_class AS c \
         ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace \
         JOIN pg_collation AS l ON l.oid = a.attcollation WHERE n.nspname = 'kb' \
         AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND l.collname <> 'C'",
    );
    assert_eq!(others, "", "columns without COLLATE \"C\"");
}
