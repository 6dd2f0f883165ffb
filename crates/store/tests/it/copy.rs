//! Copies between SQLite and PostgreSQL.

use std::collections::BTreeMap;
use std::path::Path;

use gantry_model::caller::{KeyKind, Role};
use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, KeyId};
use gantry_store::{
    ActRow, AgentRow, AgentTools, CallStatus, CatalogRow, ClockRecord, DamageKind, GrantRow,
    GroupRow, JournalDamage, KeyRow, SealedRow, Store, StoreConfig, StoreError, VolumeRow,
};
use gantry_testkit::postgres::PgDatabase;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Row};

use crate::harness::{ANYWHERE, NOON, call, local, open, server};

/// Writes something into most tables.
async fn fill(store: &Store) {
    store.put_server(&server(1, "files", "npx")).await.unwrap();
    let mut of_file = server(2, "mail", "x");
    of_file.spec.source = gantry_model::spec::Source::File;
    store.put_server(&of_file).await.unwrap();
    store
        .take_leases(&local(), std::time::Duration::from_secs(9))
        .await
        .unwrap();
    let item = CatalogRow {
        kind: "tool".into(),
        name: "echo".into(),
        position: 0,
        definition: r#"{"b": 1,  "a": 2}"#.into(),
        hash: "h".into(),
        version: 1,
    };
    let id = server(1, "files", "npx").id;
    store
        .save_catalog(id, "f", "h", &[item], &gantry_store::CatalogPins::default())
        .await
        .unwrap();
    let grant = GrantRow {
        project: local(),
        principal: Principal::Project,
        server: "*".into(),
        item: "*".into(),
        alias: None,
        id: GrantId::from_random(1),
        effect: Effect::Ask,
        conditions: Some("[]".into()),
        created_ms: NOON,
        last_used_ms: None,
    };
    let key = KeyRow {
        id: KeyId::from_random(1),
        project: local(),
        agent: "default".parse().unwrap(),
        kind: KeyKind::Admin(Role::Auditor),
        digest: [7; 32],
        label: "x".into(),
        created_ms: NOON,
        revoked_ms: None,
        expires_ms: Some(NOON + 1),
        sources: Vec::new(),
        limits: Default::default(),
        replaces: None,
    };
    store.put_first(&[grant], &[key]).await.unwrap();
    let used = [(GrantId::from_random(1), NOON)];
    store.note_grant_uses(&local(), &used).await.unwrap();
    let group = GroupRow {
        project: local(),
        name: "team".into(),
        servers: vec!["files".into()],
        created_ms: NOON,
    };
    store.put_group(&group).await.unwrap();
    let agent = AgentRow {
        project: local(),
        name: "other".parse().unwrap(),
        label: "«x»".into(),
        tools: AgentTools::default(),
        users: true.into(),
        limits: Default::default(),
        created_ms: NOON,
    };
    store.put_agent(&agent, &[]).await.unwrap();
    let sealed = SealedRow {
        project: local(),
        scope: "srv".into(),
        name: "tokens".into(),
        key_id: "k".into(),
        nonce: vec![0, 1, 255],
        ciphertext: vec![0; 300],
        version: 1,
    };
    store.put_sealed(&sealed).await.unwrap();
    let rows: Vec<_> = (0..1200).map(|n| call(n, CallStatus::Ok)).collect();
    store.import_calls(&rows, ANYWHERE).await.unwrap();
    let event = ServerEvent {
        at_ms: NOON,
        server: "files".parse().unwrap(),
        kind: EventKind::Ready,
        detail: "x".into(),
    };
    store.put_events(&[(local(), event)]).await.unwrap();
    store.put_act(&ActRow::default()).await.unwrap();
    store.put_clock(ClockRecord::at(NOON)).await.unwrap();
    let damage = JournalDamage {
        at_ms: NOON,
        segment: 1,
        kind: DamageKind::Missing,
        calls: None,
        file: None,
    };
    store.put_journal_damage(&[damage]).await.unwrap();
    let volume = VolumeRow {
        project: local(),
        server: "files".parse().unwrap(),
        path: "/data".into(),
        folder: "f".into(),
        created_ms: NOON,
    };
    store.put_volume(&volume).await.unwrap();
    store.id_range(&local(), &volume.server, 7).await.unwrap();
    let settings = [("a".to_owned(), Some(json!({"z": 1, "b": [true, null]})))];
    store.change_settings(&local(), &settings).await.unwrap();
}

/// Returns all rows of all tables of a file, JSON in a form of its own.
async fn content(path: &Path) -> BTreeMap<String, Vec<String>> {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = options.disable_statement_logging().connect().await.unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' \
         AND name NOT LIKE 'sqlite_%' AND name <> '_sqlx_migrations'";
    let names = sqlx::query(names).fetch_all(&mut connection).await.unwrap();
    let mut content = BTreeMap::new();
    for name in names {
        let name: String = name.get(0);
        let columns = format!("SELECT name FROM pragma_table_info('{name}') ORDER BY name");
        let columns = sqlx::query(AssertSqlSafe(columns));
        let columns = columns.fetch_all(&mut connection).await.unwrap();
        let quoted: Vec<String> = columns
            .iter()
            .map(|column| format!("quote({})", column.get::<String, _>(0)))
            .collect();
        let rows = format!("SELECT json_array({}) FROM {name}", quoted.join(", "));
        let rows = sqlx::query(AssertSqlSafe(rows));
        let rows = rows.fetch_all(&mut connection).await.unwrap();
        let mut rows: Vec<String> = rows
            .iter()
            .map(|row| normal(&row.get::<String, _>(0)))
            .collect();
        rows.sort();
        content.insert(name, rows);
    }
    content
}

/// Returns a row with its JSON in the order of its keys.
fn normal(row: &str) -> String {
    let cells: Vec<String> = serde_json::from_str(row).unwrap();
    let cells = cells.iter().map(|cell| {
        let inner = cell
            .strip_prefix('\'')
            .and_then(|cell| cell.strip_suffix('\''));
        let inner = inner.map(|inner| inner.replace("''", "'"));
        let value = inner.and_then(|inner| serde_json::from_str::<Value>(&inner).ok());
        value.map_or_else(|| cell.clone(), |value| value.to_string())
    });
    cells.collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn a_store_is_the_same_after_it_went_to_postgresql_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (file, back) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let database = PgDatabase::new();
    let (from, to): (StoreConfig, StoreConfig) = (
        StoreConfig::Sqlite(file.clone()),
        database.url().parse().unwrap(),
    );
    let store = open(&from, 1).await;
    fill(&store).await;
    let error = Store::copy(&from, &to, false).await.unwrap_err();
    assert!(
        matches!(error, StoreError::InUse { gateways: 1 }),
        "{error:?}"
    );
    store.close().await.unwrap();
    let copied = Store::copy(&from, &to, false).await.unwrap();
    let before = content(&file).await;
    // Every table there is, with every row.
    let mut names: Vec<_> = copied.iter().map(|table| table.name.clone()).collect();
    names.sort();
    assert_eq!(names, before.keys().cloned().collect::<Vec<_>>());
    for table in &copied {
        assert_eq!(table.rows, before[&table.name].len() as u64, "{table:?}");
    }
    let again = Store::copy(&from, &to, false).await.unwrap_err();
    assert!(matches!(again, StoreError::NotEmpty { .. }), "{again:?}");
    let home = StoreConfig::Sqlite(back.clone());
    Store::copy(&to, &home, false).await.unwrap();
    let after = content(&back).await;
    // PostgreSQL keeps the members of an object in an order of its own.
    let ordered = |rows: &[String]| -> Vec<String> { rows.iter().map(|row| sorted(row)).collect() };
    for (table, rows) in &before {
        assert_eq!(ordered(rows), ordered(&after[table]), "{table}");
    }
    // The copy is a store that goes on.
    let moved = open(&to, 1).await;
    let number = moved.put_act(&ActRow::default()).await.unwrap();
    assert_eq!(number, 2, "numbers go on after those that were copied");
    assert_eq!(moved.servers(&local()).await.unwrap().len(), 2);
    moved.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let absent = StoreConfig::Sqlite(folder.path().join("absent.db"));
    let other = StoreConfig::Sqlite(folder.path().join("other.db"));
    let database: StoreConfig = PgDatabase::new().url().parse().unwrap();
    let error = Store::copy(&absent, &database, false).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}");
    open(&other, 1).await.close().await.unwrap();
    let error = Store::copy(&other, &absent, false).await.unwrap_err();
    assert!(matches!(error, StoreError::Copy { .. }), "{error:?}");
    assert!(!folder.path().join("absent.db").exists());
}

/// Sorts the members of every JSON object in a row, so that the order of members does not count.
fn sorted(row: &str) -> String {
    let cells = row.split(" | ").map(|cell| {
        let value: Result<serde_json::Value, _> = serde_json::from_str(cell);
        match value {
            Ok(mut value) => {
                value.sort_all_objects();
                value.to_string()
            }
            Err(_) => cell.to_owned(),
        }
    });
    cells.collect::<Vec<_>>().join(" | ")
}
