//! The audit against a real SQLite store: kills, damage, floods and tickets that nobody ends.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use gantry_model::caller::{Context, UserTrust};
use gantry_store::{CallDetails, Check, ErrorKind, Phases, UserSource};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

mod chain;
mod damage;
mod evidence;
mod space;

/// An audit in a folder of its own.
pub(super) struct Rig {
    pub(super) folder: TempDir,
    pub(super) audit: Audit,
    pub(super) ids: CallIds,
}

/// Small segments, so that a few dozen calls fill one.
pub(super) fn small() -> AuditPolicy {
    AuditPolicy {
        bodies: Bodies::Redacted,
        body_bytes: 64,
        segment_bytes: 0,
        reserve: 0,
        ..AuditPolicy::default()
    }
}

impl Rig {
    pub(super) async fn new(policy: AuditPolicy) -> Self {
        Self::over(tempfile::tempdir().unwrap(), policy).await
    }

    /// Starts a gateway's audit over what is in the folder.
    pub(super) async fn over(folder: TempDir, policy: AuditPolicy) -> Self {
        let store = crate::folder::store_in(folder.path()).await;
        let audit = Audit::open(&folder.path().join("journal"), store, policy)
            .await
            .unwrap();
        Self {
            folder,
            audit,
            ids: CallIds::new(),
        }
    }

    /// Returns a copy of everything on the disk, as a kill at this moment would leave it.
    pub(super) fn killed(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        copy
    }

    /// Kills the gateway and starts another one over what it left.
    pub(super) async fn restarted(&self) -> Self {
        Self::over(self.killed(), self.audit.shared.policy.clone()).await
    }

    pub(super) async fn begin(&self) -> Ticket<'static> {
        self.try_begin().await.unwrap()
    }

    pub(super) async fn try_begin(&self) -> Result<Ticket<'static>, AuditError> {
        let id = self.ids.next(unix_now());
        self.audit.intent(&intent(id, &Context::default())).await
    }

    pub(super) async fn call(&self) -> CallId {
        let ticket = self.begin().await;
        let id = ticket.id();
        ticket.outcome(&ok()).await;
        id
    }

    pub(super) async fn rows(&self) -> Vec<CallRow> {
        let filter = CallFilter {
            limit: 100_000,
            ..CallFilter::default()
        };
        let mut rows = self.audit.calls(&filter).await.unwrap();
        rows.sort_by_key(|row| row.seq);
        rows
    }

    pub(super) async fn row(&self, id: CallId) -> CallRow {
        self.audit.call(id).await.unwrap().unwrap()
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else if !entry.file_name().to_str().unwrap().ends_with("-shm") {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn unix_now() -> u64 {
    crate::clock::unix_ms()
}

static NOTHING: std::sync::LazyLock<Redactor> = std::sync::LazyLock::new(Redactor::default);

pub(super) fn intent<'a>(id: CallId, context: &'a Context) -> Intent<'a> {
    Intent {
        id,
        project: "local",
        agent: "default",
        key: "key_1",
        context,
        users: UserTrust::Trusted,
        surface: Surface::Mcp,
        server: "files",
        server_id: Some(gantry_model::id::ServerId::from_random(7)),
        method: "tools/call",
        tool: "read",
        schema_version: Some("3"),
        started_ms: 1_789_000_000_000,
        input: Some(r#"{"path":"/etc/hosts","token":"abcdef"}"#),
        redactor: &NOTHING,
        policy_revision: Some(9),
        grant: Some(gantry_model::id::GrantId::from_random(5)),
        user_source: Some(UserSource::Agent),
    }
}

pub(super) fn ok<'a>() -> Outcome<'a> {
    Outcome {
        status: CallStatus::Ok,
        code: None,
        error: None,
        output: Some(br#"{"content":[]}"#),
        duration: Duration::from_micros(1_500),
        redactor: &NOTHING,
        measured: Measurements::default(),
        error_kind: None,
    }
}

fn statuses(rows: &[CallRow]) -> HashMap<CallStatus, usize> {
    let mut counts = HashMap::new();
    for row in rows {
        *counts.entry(row.status).or_default() += 1;
    }
    counts
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[tokio::test]
async fn a_row_says_everything_about_its_call() {
    let rig = Rig::new(AuditPolicy::default()).await;
    let context = Context {
        user: Some("ann".into()),
        session: Some("s1".into()),
        run: Some("r1".into()),
        step: Some("4".into()),
        trace: TraceParent::parse(&format!("00-{TRACE}-b7ad6b7169203331-01")),
        trace_state: None,
        parent: Some("call_1".into()),
    };
    let id = rig.ids.next(1_789_000_000_000);
    let ticket = rig.audit.intent(&intent(id, &context)).await.unwrap();
    assert_eq!(rig.row(id).await.status, CallStatus::Running);
    let measured = Measured::begin(Duration::from_micros(7));
    measured.add(Phase::Server, Duration::from_micros(300));
    measured.input_checked(Check::Passed);
    measured.sent();
    measured.sent();
    let text = |text: &str| Some(text.to_owned());
    ticket
        .outcome(&Outcome {
            status: CallStatus::Error,
            code: Some("server.error"),
            error: Some("no such file"),
            measured: measured.read(),
            error_kind: Some(ErrorKind::Transport),
            ..ok()
        })
        .await;
    let row = rig.row(id).await;
    let expected = CallRow {
        id,
        seq: row.seq,
        project: "local".to_owned(),
        agent: "default".to_owned(),
        key: "key_1".to_owned(),
        user: text("ann"),
        user_trust: UserTrust::Trusted,
        session: text("s1"),
        run: text("r1"),
        step: text("4"),
        trace: text(TRACE),
        parent_span: None,
        surface: "mcp".to_owned(),
        server: "files".to_owned(),
        server_id: Some(gantry_model::id::ServerId::from_random(7)),
        method: "tools/call".to_owned(),
        tool: "read".to_owned(),
        schema_version: text("3"),
        started_ms: 1_789_000_000_000,
        ended_ms: Some(1_789_000_000_001),
        duration_us: Some(1_500),
        status: CallStatus::Error,
        code: text("server.error"),
        error: text("no such file"),
        input: text(r#"{"path":"/etc/hosts","token":"[redacted]"}"#),
        input_bytes: 38,
        output: text(r#"{"content":[]}"#),
        output_bytes: 14,
        repeats: 1,
        details: CallDetails {
            phases: Phases {
                auth_us: Some(7),
                server_us: Some(300),
                ..Phases::default()
            },
            attempts: Some(2),
            input_check: Some(Check::Passed),
            output_check: None,
            error_kind: Some(ErrorKind::Transport),
            policy_revision: Some(9),
            grant: text("grant_00000000000000000000000000000005"),
            parent: text("call_1"),
            user_source: Some(UserSource::Agent),
        },
    };
    assert_eq!(row, expected);
    assert!(row.seq > 0);
}

#[tokio::test]
async fn answered_calls_survive_a_kill_and_open_ones_become_unknown() {
    // fault D2
    let rig = Rig::new(small()).await;
    let mut answered = Vec::new();
    for _ in 0..10 {
        answered.push(rig.call().await);
    }
    let open = rig.begin().await;
    let mut next = rig.restarted().await;
    for _ in 0..2 {
        let rows = next.rows().await;
        assert_eq!(rows.len(), 11);
        for id in &answered {
            assert_eq!(next.row(*id).await.status, CallStatus::Ok);
        }
        let cut = next.row(open.id()).await;
        assert_eq!(
            (cut.status, cut.code.as_deref()),
            (CallStatus::Unknown, Some("gateway.died"))
        );
        assert!(cut.ended_ms.is_some());
        next = next.restarted().await;
    }
}

/// How many segments a folder's journal has.
fn segments(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path().join("journal"))
        .unwrap()
        .count()
}

/// Stops the audit as a gateway does that was asked to.
async fn stop(rig: &Rig) {
    let stop = CancellationToken::new();
    stop.cancel();
    rig.audit.clone().run(stop, |_| {}).await;
}

#[tokio::test]
async fn a_clean_stop_leaves_nothing_for_the_next_start_to_read() {
    let rig = Rig::new(small()).await;
    let before = rig.call().await;
    stop(&rig).await;
    assert_eq!(segments(&rig.folder), 0);
    // A record that comes after all is kept as any other.
    let late = rig.call().await;
    let next = rig.restarted().await;
    let after = next.call().await;
    let ids: Vec<_> = next.rows().await.iter().map(|row| row.id).collect();
    assert_eq!(ids, [before, late, after]);
}

#[tokio::test]
async fn a_stop_with_a_call_still_open_keeps_its_intent() {
    // fault D2
    let rig = Rig::new(small()).await;
    let open = rig.begin().await;
    stop(&rig).await;
    assert!(segments(&rig.folder) > 0);
    let next = rig.restarted().await;
    assert_eq!(next.row(open.id()).await.status, CallStatus::Unknown);
}

#[tokio::test]
async fn the_order_of_the_audit_is_the_order_of_the_journal() {
    // fault P13: the clock plays no part in it
    let mut rig = Rig::new(small()).await;
    let mut expected = Vec::new();
    for round in 0..3 {
        for count in 0..60_u64 {
            let id = rig.ids.next(9_000_000 - round * 1_000_000 - count);
            let context = Context::default();
            rig.audit
                .intent(&intent(id, &context))
                .await
                .unwrap()
                .outcome(&ok())
                .await;
            expected.push(id);
        }
        rig = rig.restarted().await;
    }
    let order: Vec<CallId> = rig.rows().await.iter().map(|row| row.id).collect();
    assert_eq!(order, expected);
}

#[tokio::test]
async fn a_long_call_keeps_no_segment_and_still_gets_its_own_end() {
    let rig = Rig::new(small()).await;
    let long = rig.begin().await;
    let id = long.id();
    for _ in 0..1_000 {
        rig.call().await;
    }
    rig.audit.import_now().await.unwrap();
    assert!(rig.audit.health().journal_bytes <= 3 * rig.audit.shared.policy.segment_bytes);
    assert_eq!(
        rig.restarted().await.row(id).await.status,
        CallStatus::Unknown
    );
    long.outcome(&ok()).await;
    // Its intent is long gone from the journal; the outcome completes the row in the database.
    let next = rig.restarted().await;
    let row = next.row(id).await;
    assert_eq!((row.status, row.tool.as_str()), (CallStatus::Ok, "read"));
    assert!(row.input.is_some() && row.output.is_some());
    assert_eq!(next.rows().await.len(), 1_001);
    assert_eq!(rig.row(id).await.status, CallStatus::Ok);
}

#[tokio::test]
async fn a_ticket_that_is_dropped_ends_its_call() {
    let rig = Rig::new(small()).await;
    let dropped = rig.begin().await;
    let dropped_id = dropped.id();
    drop(dropped);
    let mut cancelled = rig.begin().await;
    let cancelled_id = cancelled.id();
    cancelled.on_drop(CallStatus::Cancelled, RowCode::Cancelled);
    let task = tokio::task::JoinSet::from_iter([async move {
        std::future::pending::<()>().await;
        drop(cancelled);
    }]);
    drop(task);
    let panicked = rig.begin().await;
    let panicked_id = panicked.id();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let _held = panicked;
        panic!("a bug in a call");
    });
    assert!(tasks.join_next().await.unwrap().is_err());
    tokio::task::yield_now().await;

    let end = |row: CallRow| (row.status, row.code.unwrap());
    let unknown = (CallStatus::Unknown, "gateway.dropped".to_owned());
    assert_eq!(end(rig.row(dropped_id).await), unknown);
    let panicked = (CallStatus::Error, "gateway.panic".to_owned()); // fault P12
    assert_eq!(end(rig.row(panicked_id).await), panicked);
    let cancelled = (CallStatus::Cancelled, "call.cancelled".to_owned());
    assert_eq!(end(rig.row(cancelled_id).await), cancelled);
}

#[tokio::test]
async fn a_flood_of_refusals_is_counted() {
    let rig = Rig::new(small()).await;
    let context = Context::default();
    let refused = Outcome {
        status: CallStatus::Refused,
        code: Some("grant.missing"),
        error: Some("agent `default` may not use `read`"),
        output: None,
        ..ok()
    };
    let mut own = Vec::new();
    for count in 0..100 {
        let id = rig.ids.next(unix_now());
        let intent = intent(id, &context);
        if rig.audit.refusal(&intent, &refused).await.unwrap() {
            own.push(id);
        }
        if count == 50 {
            rig.audit.import_now().await.unwrap();
        }
    }
    let rows = rig.rows().await;
    assert_eq!(rows.iter().map(|row| row.repeats).sum::<u64>(), 100);
    assert!(
        rows.iter()
            .all(|row| row.status == CallStatus::Refused && row.output.is_none())
    );
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, own, "no other call is said to have a row");
    // A slow machine may see a second window.
    assert!((21..=63).contains(&rows.len()), "{}", rows.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_one_import_no_row_lost_and_none_twice() {
    let rig = Rig::new(AuditPolicy {
        import_every: Duration::from_millis(5),
        ..small()
    })
    .await;
    let stop = tokio_util::sync::CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(rig.audit.clone().run(stop.clone(), |_| {}));
    let rig = Arc::new(rig);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let rig = Arc::clone(&rig);
        writers.spawn(async move {
            let mut held = Vec::new();
            for count in 0..400 {
                let ticket = rig.begin().await;
                if count % 50 == writer {
                    held.push(ticket);
                } else {
                    ticket.outcome(&ok()).await;
                }
                if count % 100 == 0 {
                    rig.audit.import_now().await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            held
        });
    }
    let held: Vec<Ticket<'static>> = writers.join_all().await.into_iter().flatten().collect();
    let now = rig.rows().await;
    assert_eq!(
        statuses(&now),
        [(CallStatus::Ok, 3_136), (CallStatus::Running, 64)].into()
    );
    for ticket in held {
        ticket.outcome(&ok()).await;
    }
    stop.cancel();
    running.join_all().await;
    assert_eq!(rig.audit.health().folded_lag_records, 0);
    let rows = rig.rows().await;
    assert_eq!(statuses(&rows), [(CallStatus::Ok, 3_200)].into());
    assert!(rows.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let policy = &rig.audit.shared.policy;
    assert!(rig.audit.health().journal_bytes <= 4 * policy.segment_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_disk_everything_is_synced_in_groups() {
    // fault D3
    let rig = Rig::new(AuditPolicy {
        durability: Durability::Disk,
        ..small()
    })
    .await;
    let rig = Arc::new(rig);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let rig = Arc::clone(&rig);
        calls.spawn(async move { rig.call().await });
    }
    let ids = calls.join_all().await;
    let syncs = rig.audit.shared.journal.syncs();
    assert!(syncs < 2 * 64, "{syncs} syncs for 128 records");
    let next = rig.restarted().await;
    for id in ids {
        assert_eq!(next.row(id).await.status, CallStatus::Ok);
    }
}

#[tokio::test]
async fn relaxed_writes_later_and_is_whole_when_read() {
    let rig = Rig::new(AuditPolicy {
        durability: Durability::Relaxed,
        ..small()
    })
    .await;
    for _ in 0..300 {
        rig.call().await;
    }
    let killed = rig.restarted().await.rows().await;
    assert!(killed.len() < 300);
    assert_eq!(statuses(&rig.rows().await), [(CallStatus::Ok, 300)].into());
    assert_eq!(
        statuses(&rig.restarted().await.rows().await),
        [(CallStatus::Ok, 300)].into()
    );
}

/// Records a call that came in at a time.
async fn call_at(rig: &Rig, at_ms: u64) -> CallId {
    let id = rig.ids.next(at_ms);
    let context = Context::default();
    let begun = Intent {
        started_ms: at_ms,
        ..intent(id, &context)
    };
    rig.audit.intent(&begun).await.unwrap().outcome(&ok()).await;
    rig.audit.import_now().await.unwrap();
    id
}

// The clock jumps by a hundred days: nothing is dropped, before and after calls come in by it, until
// somebody says that it is right.
#[tokio::test]
async fn a_clock_that_is_far_ahead_drops_nothing() {
    const DAY: u64 = 86_400_000;
    let rig = Rig::new(small()).await;
    call_at(&rig, unix_now() - 100 * DAY).await;
    rig.audit.drop_old(&mut background::TaskState::due()).await;
    assert!(rig.audit.health().clock_ahead.is_some());
    call_at(&rig, unix_now()).await;
    rig.audit.drop_old(&mut background::TaskState::due()).await;
    assert_eq!(rig.rows().await.len(), 2);
    // Nor does a start that finds the new row, once it was known how late it is.
    let next = rig.restarted().await;
    next.audit.drop_old(&mut background::TaskState::due()).await;
    assert_eq!(next.rows().await.len(), 2);
    let health = next.audit.health();
    assert_eq!(health.clock_ahead.unwrap().as_secs() / 86_400, 100);
    next.audit.confirm_clock().await.unwrap();
    next.audit.drop_old(&mut background::TaskState::due()).await;
    assert_eq!(next.audit.health().clock_ahead, None);
    assert_eq!(next.rows().await.len(), 1);
}

#[tokio::test]
async fn old_rows_are_dropped() {
    let rig = Rig::new(small()).await;
    let old = rig.ids.next(1_000);
    let context = Context::default();
    let begun = Intent {
        started_ms: 1_000,
        ..intent(old, &context)
    };
    rig.audit.intent(&begun).await.unwrap().outcome(&ok()).await;
    let young = rig.ids.next(unix_now());
    let begun = Intent {
        started_ms: unix_now(),
        ..intent(young, &context)
    };
    rig.audit.intent(&begun).await.unwrap().outcome(&ok()).await;
    rig.audit.import_now().await.unwrap();
    rig.audit.drop_old(&mut background::TaskState::due()).await;
    assert_eq!(
        rig.rows()
            .await
            .iter()
            .map(|row| row.id)
            .collect::<Vec<_>>(),
        [young]
    );
}
