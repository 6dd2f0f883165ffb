//! Several gateways on one store.

use gantry_model::caller::{KeyKind, UserTrust};
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, KeyId};
use gantry_model::spec::Source;
use gantry_store::{
    ActFilter, ActRow, AgentRow, AgentTools, CallFilter, CallStatus, DamageKind, GrantRow,
    JournalDamage, JournalPosition, JournalRun, KeyRow, Store, StoreError,
};

use crate::harness::{ANYWHERE, NOON, call, local, on_each, on_each_config, open, server};

const RUN: JournalRun = JournalRun {
    segment: 4,
    calls: 17,
};

#[tokio::test]
async fn each_gateway_has_a_journal_of_its_own() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        a.begin_journal_run(7, RUN, ANYWHERE).await.unwrap();
        let of_a = a.journal_state().await.unwrap();
        assert_eq!((of_a.position, of_a.run), (Some(ANYWHERE), Some(RUN)));
        assert_eq!(b.journal_state().await.unwrap(), Default::default());
        let position = JournalPosition {
            segment: 9,
            offset: 9,
        };
        b.import_calls(&[call(1, CallStatus::Ok)], position)
            .await
            .unwrap();
        b.end_journal_run(position).await.unwrap();
        assert_eq!(a.journal_state().await.unwrap(), of_a);
        let damage = JournalDamage {
            at_ms: NOON,
            segment: 1,
            kind: DamageKind::Missing,
            calls: Some(1),
            file: None,
        };
        for store in [&a, &b] {
            store
                .put_journal_damage(std::slice::from_ref(&damage))
                .await
                .unwrap();
        }
        assert_eq!(b.acknowledge_journal_damage("x", NOON).await.unwrap(), 1);
        assert_eq!(a.journal_damage().await.unwrap(), [damage]);
        assert_eq!(b.journal_damage().await.unwrap(), []);
        assert_eq!(b.count_rows_between(0, 10).await.unwrap(), 1);
        assert_eq!(a.count_rows_between(0, 10).await.unwrap(), 0);
        // What was recorded is seen by both.
        assert_eq!(a.count_calls(&CallFilter::default()).await.unwrap(), 1);
        // A former start of a gateway does not move the position of a later one.
        let again = open(&config, 1).await;
        again.begin_journal_run(7, RUN, ANYWHERE).await.unwrap();
        a.import_calls::<&str>(&[], position).await.unwrap();
        assert_eq!(again.journal_state().await.unwrap(), of_a);
    })
    .await;
}

#[tokio::test]
async fn acts_are_seen_by_all_and_asked_for_by_gateway() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        for (store, target) in [(&a, "one"), (&b, "two")] {
            let act = ActRow {
                act: "file.approve".into(),
                target: target.into(),
                ..ActRow::default()
            };
            store.put_act(&act).await.unwrap();
        }
        let targets = async |filter: ActFilter| {
            let rows = a.acts(&filter).await.unwrap().into_iter();
            rows.map(|row| row.target).collect::<Vec<_>>()
        };
        assert_eq!(targets(ActFilter::default()).await, ["two", "one"]);
        let of_b = ActFilter {
            gateway: Some(b.gateway()),
            ..ActFilter::default()
        };
        assert_eq!(targets(of_b).await, ["two"]);
    })
    .await;
}

#[tokio::test]
async fn servers_of_files_belong_to_their_gateway() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        let of_file = |number, command: &str| {
            let mut row = server(number, "files", command);
            row.spec.source = Source::File;
            row
        };
        a.replace_server(&of_file(1, "one")).await.unwrap();
        b.replace_server(&of_file(2, "two")).await.unwrap();
        let registered = server(3, "search", "x");
        b.put_server(&registered).await.unwrap();
        let (of_a, of_b) = (of_file(1, "one"), of_file(2, "two"));
        assert_eq!(
            a.servers(&local()).await.unwrap(),
            [of_a, registered.clone()]
        );
        assert_eq!(
            b.servers(&local()).await.unwrap(),
            [of_b, registered.clone()]
        );
        let error = a.put_server(&server(4, "search", "y")).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        assert!(a.remove_server(&local(), registered.id).await.unwrap());
        assert_eq!(b.servers(&local()).await.unwrap().len(), 1);
    })
    .await;
}

async fn moved(store: &Store, access: bool, servers: bool, what: &str, seen: &mut (u64, u64)) {
    let changes = store.changes(&local()).await.unwrap();
    assert_eq!(changes.access > seen.0, access, "{what}");
    assert_eq!(changes.servers > seen.1, servers, "{what}");
    *seen = (changes.access, changes.servers);
}

// Every write to what gateways keep in memory moves a revision, in its own transaction.
#[tokio::test]
async fn every_change_moves_its_revision() {
    on_each(|store| async move {
        let mut seen = (0, 0);
        moved(&store, false, false, "nothing", &mut seen).await;
        let key = KeyRow {
            id: KeyId::from_random(7),
            project: local(),
            agent: "one".parse().unwrap(),
            kind: KeyKind::Agent,
            digest: [7; 32],
            label: String::new(),
            created_ms: NOON,
            revoked_ms: None,
            expires_ms: None,
            sources: Vec::new(),
            limits: Default::default(),
            replaces: None,
        };
        store.put_key(&key).await.unwrap();
        moved(&store, true, false, "a key", &mut seen).await;
        store.revoke_key(key.id, NOON).await.unwrap();
        moved(&store, true, false, "a revocation", &mut seen).await;
        let agent = AgentRow {
            project: local(),
            name: "one".parse().unwrap(),
            label: String::new(),
            tools: AgentTools::default(),
            users: UserTrust::Asserted,
            limits: Default::default(),
            created_ms: NOON,
        };
        let grant = GrantRow {
            project: local(),
            principal: Principal::Agent(agent.name.clone()),
            server: "*".into(),
            item: "*".into(),
            alias: None,
            id: GrantId::from_random(1),
            effect: Effect::Allow,
            conditions: None,
            created_ms: NOON,
            last_used_ms: None,
        };
        store.replace_agent(&agent, &[grant]).await.unwrap();
        moved(&store, true, false, "an agent and its grants", &mut seen).await;
        store.remove_agent(&local(), &agent.name).await.unwrap();
        moved(&store, true, false, "the end of an agent", &mut seen).await;
        let row = server(1, "files", "x");
        store.put_server(&row).await.unwrap();
        moved(&store, false, true, "a server", &mut seen).await;
        store.replace_server(&row).await.unwrap();
        moved(&store, false, false, "the same server", &mut seen).await;
        store
            .replace_server(&server(1, "files", "y"))
            .await
            .unwrap();
        moved(&store, false, true, "another spec", &mut seen).await;
        store.remove_server(&local(), row.id).await.unwrap();
        moved(&store, false, true, "the end of a server", &mut seen).await;
        let mut of_file = server(2, "mail", "x");
        of_file.spec.source = Source::File;
        store.put_server(&of_file).await.unwrap();
        moved(&store, false, false, "a server of a file", &mut seen).await;
        let mut elsewhere = server(3, "files", "x");
        elsewhere.project = "other".parse().unwrap();
        store.put_server(&elsewhere).await.unwrap();
        moved(&store, false, false, "another project", &mut seen).await;
    })
    .await;
}

#[tokio::test]
async fn a_gateway_sees_whether_it_is_alone() {
    on_each_config(|config| async move {
        let a = open(&config, 1).await;
        let others = async |store: &Store| store.changes(&local()).await.unwrap().others;
        assert!(!others(&a).await);
        let b = open(&config, 2).await;
        assert!(others(&a).await && others(&b).await);
        b.close().await.unwrap();
        assert!(!others(&a).await);
        open(&config, 2).await;
        assert!(others(&a).await);
    })
    .await;
}
