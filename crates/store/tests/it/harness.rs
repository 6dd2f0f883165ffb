//! Stores to test on, and rows to fill them with.
//!
//! A kind of store joins the suite by one more line in `Place::each`.

use std::future::Future;

use gantry_model::id::{CallId, GatewayId, ProjectName, ServerId};
use gantry_model::spec::ServerSpec;
use gantry_store::{
    Block, BlockKind, CallDetails, CallRow, CallStatus, ChainHead, Check, Entries, ErrorKind,
    Gateway, JournalPosition, Phases, Removed, ServerRow, SignedBlock, Store, StoreConfig,
    UserSource,
};
use gantry_testkit::postgres::PgDatabase;
use tempfile::TempDir;

/// The time of the first call of every test.
pub(crate) const NOON: u64 = 1_789_000_000_000;

/// A position that no test asks about.
pub(crate) const ANYWHERE: JournalPosition = JournalPosition {
    segment: 1,
    offset: 1,
};

/// What a store of a test is in; it goes with this.
pub(crate) enum Place {
    Folder(TempDir),
    Database(PgDatabase),
}

impl Place {
    /// Returns an empty place of each kind.
    fn each() -> [Self; 2] {
        let folder = tempfile::tempdir().unwrap();
        [Self::Folder(folder), Self::Database(PgDatabase::new())]
    }

    pub(crate) fn config(&self) -> StoreConfig {
        match self {
            Self::Folder(folder) => StoreConfig::in_folder(folder.path()),
            Self::Database(database) => database.url().parse().unwrap(),
        }
    }
}

/// Returns a gateway with a data folder of its own.
pub(crate) fn gateway(number: u128) -> Gateway {
    Gateway {
        id: GatewayId::from_random(number),
        folder: format!("/data/{number}").into(),
    }
}

/// Opens a store for a gateway.
pub(crate) async fn open(config: &StoreConfig, number: u128) -> Store {
    Store::open(config, &gateway(number)).await.unwrap()
}

/// Runs a test on an empty store of each kind, for one gateway, and closes it.
pub(crate) async fn on_each<F, R>(test: F)
where
    F: Fn(Store) -> R,
    R: Future<Output = ()>,
{
    for place in Place::each() {
        let store = open(&place.config(), 1).await;
        test(store.clone()).await;
        store.close().await.unwrap();
    }
}

/// Runs a test of several gateways on an empty store of each kind.
pub(crate) async fn on_each_config<F, R>(test: F)
where
    F: Fn(StoreConfig) -> R,
    R: Future<Output = ()>,
{
    for place in Place::each() {
        test(place.config()).await;
    }
}

/// Returns the project that tests use.
pub(crate) fn local() -> ProjectName {
    ProjectName::local()
}

/// Returns a server that runs `command`.
pub(crate) fn server(number: u128, name: &str, command: &str) -> ServerRow {
    let launch = serde_json::from_value(serde_json::json!({ "command": command })).unwrap();
    ServerRow {
        id: ServerId::from_random(number),
        project: local(),
        spec: ServerSpec::process(name.parse().unwrap(), launch),
        enabled: true,
        created_ms: NOON,
        updated_ms: NOON,
    }
}

/// Returns a call with something in every field, `number` milliseconds after noon.
pub(crate) fn call(number: u64, status: CallStatus) -> CallRow {
    let text = |word: &str| Some(format!("{word}-{number}"));
    let ended = status != CallStatus::Running;
    CallRow {
        id: CallId::new(NOON + number, u128::from(number)),
        seq: number,
        project: "local".into(),
        agent: "default".into(),
        key: "key_00000000000000000000000000000001".into(),
        user: text("user"),
        user_trust: (number % 2 == 1).into(),
        session: text("session"),
        run: text("run"),
        step: text("step"),
        trace: text("trace"),
        parent_span: None,
        surface: "mcp".into(),
        server: "example".into(),
        server_id: (!number.is_multiple_of(3)).then(|| ServerId::from_random(7)),
        method: "tools/call".into(),
        tool: "echo".into(),
        schema_version: Some("1".into()),
        started_ms: NOON + number,
        ended_ms: ended.then_some(NOON + number + 5),
        duration_us: ended.then_some(5_000),
        status,
        code: None,
        error: None,
        input: Some(r#"{"text":"hallo"}"#.into()),
        input_bytes: 16,
        output: ended.then(|| r#"{"content":[]}"#.to_owned()),
        output_bytes: if ended { 14 } else { 0 },
        repeats: 1,
        details: CallDetails {
            phases: Phases {
                auth_us: ended.then_some(1),
                grant_us: ended.then_some(2),
                schema_us: ended.then_some(3),
                queue_us: ended.then_some(4),
                server_us: ended.then_some(u32::MAX - 1),
                output_us: None,
            },
            attempts: ended.then_some(1),
            input_check: ended.then_some(Check::Passed),
            output_check: ended.then_some(Check::Skipped),
            error_kind: (status == CallStatus::Error).then_some(ErrorKind::Tool),
            policy_revision: Some(number),
            grant: text("grant"),
            parent: text("parent"),
            user_source: Some(UserSource::Agent),
        },
    }
}

/// Returns a block that covers nothing, and the end that it makes of the chain; nobody signed them.
pub(crate) fn block(store: &Store, number: u64) -> (SignedBlock, ChainHead) {
    let gateway = store.chain_origin().gateway;
    let entries = Entries::default();
    let block = Block {
        gateway,
        number,
        previous: [0; 32],
        at_ms: NOON,
        kind: BlockKind::Retention,
        note: String::new(),
        count: 0,
        entries_hash: entries.hash(),
        removed: Removed::default(),
        key_id: "none".to_owned(),
    };
    let hash = block.hash();
    let signature = vec![7; 64];
    let head = ChainHead {
        gateway,
        number,
        hash,
        signature: signature.clone(),
    };
    let signed = SignedBlock {
        live: block.count,
        block,
        hash,
        signature,
        entries,
    };
    (signed, head)
}
