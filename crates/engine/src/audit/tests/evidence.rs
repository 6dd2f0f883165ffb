//! The chain fits whatever happens to the rows: kills, replays, open calls, retention, holds.

use std::collections::VecDeque;

use gantry_store::{ActFilter, ActOutcome, ActRow, HoldRow, Store, StoreError};

use super::*;

const DAY: u64 = 86_400_000;
/// More than an import waits for.
const WAITS: u32 = 20;

async fn check(rig: &Rig) -> Verification {
    let report = rig.audit.verify(rig.folder.path(), 10).await.unwrap();
    assert!(report.is_sound(), "{:#?}", report.findings);
    report
}

#[tokio::test]
async fn the_chain_fits_after_kills_and_open_calls() {
    // fault D2
    let mut rig = Rig::new(small()).await;
    let mut former = Vec::new();
    for round in 0..4 {
        for _ in 0..20 {
            rig.call().await;
        }
        let open = rig.begin().await;
        // Open calls get a row that their end replaces.
        assert_eq!(rig.row(open.id()).await.status, CallStatus::Running);
        check(&rig).await;
        if round % 2 == 0 {
            open.outcome(&ok()).await;
            check(&rig).await;
        }
        let left = rig.begin().await;
        let next = rig.restarted().await;
        assert_eq!(next.row(left.id()).await.status, CallStatus::Unknown);
        let report = check(&next).await;
        assert_eq!(report.rows, (round + 1) * 22);
        former.push(std::mem::replace(&mut rig, next));
    }
}

#[tokio::test]
async fn a_reader_that_leaves_in_the_middle_leaves_no_call_twice_in_the_chain() {
    let rig = Rig::new(small()).await;
    // Two readers, one after the other: each gives up wherever it waits, also between the commit and what
    // follows it.
    for (first, second) in
        (0..WAITS).flat_map(|first| (0..WAITS).map(move |second| (first, second)))
    {
        rig.call().await;
        for waits in [first, second] {
            leaving_after(waits, rig.audit.import_now()).await;
        }
    }
    let report = check(&rig).await;
    assert_eq!(report.rows, u64::from(WAITS * WAITS));
}

/// Drops a future when it has waited so many times.
async fn leaving_after(waits: u32, future: impl Future) {
    let (mut future, mut left) = (std::pin::pin!(future), waits);
    std::future::poll_fn(|context| {
        let is_ready = left == 0 || future.as_mut().poll(context).is_ready();
        left = left.saturating_sub(1);
        match is_ready {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

// fault D2: also what one gave up after its commit, and the next one before it had looked.
#[tokio::test]
async fn readers_that_leave_leave_no_open_call_twice_in_the_chain() {
    let rig = Rig::new(small()).await;
    let mut open = VecDeque::new();
    for number in 0..400 {
        open.push_back(rig.begin().await);
        if let Some(ended) = open.pop_front().filter(|_| number % 4 != 0) {
            ended.outcome(&ok()).await;
        }
        let patience = Duration::from_micros(number % 40 * 50);
        let show = match number % 3 {
            0 => RowPolicy::Ended,
            _ => RowPolicy::Open,
        };
        drop(tokio::time::timeout(patience, rig.audit.import(show)).await);
    }
    drop(open);
    let report = check(&rig).await;
    assert_eq!(report.rows, 400);
}

async fn call_of(rig: &Rig, user: &str, at_ms: u64) -> CallId {
    let context = Context {
        user: Some(user.into()),
        ..Context::default()
    };
    let id = rig.ids.next(at_ms);
    let begun = Intent {
        started_ms: at_ms,
        ..intent(id, &context)
    };
    rig.audit.intent(&begun).await.unwrap().outcome(&ok()).await;
    rig.audit.import_now().await.unwrap();
    id
}

fn hold(user: &str) -> HoldRow {
    HoldRow {
        id: "hold_1".to_owned(),
        project: "local".to_owned(),
        agent: None,
        user: Some(user.to_owned()),
        server: None,
        since_ms: None,
        until_ms: None,
        reason: String::new(),
        created_ms: 1,
        created_by: "admin".to_owned(),
        released_ms: None,
        released_by: None,
    }
}

#[tokio::test]
async fn retention_is_the_projects_own_and_a_hold_wins() {
    let rig = Rig::new(AuditPolicy {
        retention: Duration::from_millis(30 * DAY),
        ..small()
    })
    .await;
    let now = unix_now();
    let old = call_of(&rig, "ann", now - 40 * DAY).await;
    let held = call_of(&rig, "bob", now - 40 * DAY).await;
    let new = call_of(&rig, "ann", now).await;
    let store: &Store = &rig.audit.shared.store;
    let set = async |value: Option<serde_json::Value>| {
        let project = "local".parse().unwrap();
        let days = [("audit.retention_days".to_owned(), value)];
        store.change_settings(&project, &days).await.unwrap();
        rig.audit.drop_old(&mut background::TaskState::due()).await;
        rig.audit.drop_old(&mut background::TaskState::due()).await;
        let rows = rig.rows().await;
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    // What cannot be read of the settings drops nothing.
    assert_eq!(set(Some("x".into())).await, [old, held, new]);
    assert_eq!(set(Some(60.into())).await, [old, held, new]);
    store.put_hold(&hold("bob")).await.unwrap();
    assert_eq!(set(None).await, [held, new]);
    let report = check(&rig).await;
    assert_eq!(report.rows, 2);
    let released = store.release_hold("local", "hold_1", 2, "admin").await;
    assert!(released.unwrap());
    assert_eq!(set(Some(30.into())).await, [new]);
    check(&rig).await;
}

#[tokio::test]
async fn a_chain_that_begins_late_says_what_it_does_not_cover() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(folder.path()).await;
    let rig = Rig::new(small()).await;
    rig.call().await;
    let rows = rig.rows().await;
    let position = gantry_store::JournalPosition {
        segment: 0,
        offset: 0,
    };
    // As a release before the chain wrote it.
    store.import_calls(&rows, position).await.unwrap();
    store.close().await.unwrap();
    let late = Rig::over(folder, small()).await;
    late.call().await;
    let report = check(&late).await;
    assert_eq!((report.rows, report.not_covered), (2, 1));
}

fn act(name: &str, outcome: ActOutcome) -> ActRow {
    ActRow {
        project: "local".to_owned(),
        act: name.to_owned(),
        outcome,
        ..ActRow::default()
    }
}

// fault D2: an older copy of the database, once the gateway has started on it.
#[tokio::test]
async fn a_database_that_was_set_back_is_on_record() {
    let rig = Rig::new(small()).await;
    let put = |rig: &Rig| {
        let log = rig.audit.act_log();
        async move { log.put(act("key.create", ActOutcome::Done)).await.unwrap() }
    };
    put(&rig).await;
    let end = HeadMark::read(rig.folder.path()).unwrap().unwrap();
    let path = rig.folder.path().join("marks/audit.head");
    let noted = std::fs::read_to_string(&path).unwrap();
    let later = noted.replacen(
        &format!("\n{}\n", end.number),
        &format!("\n{}\n", end.number + 5),
        1,
    );
    std::fs::write(&path, later).unwrap();
    let next = rig.restarted().await;
    put(&next).await;
    put(&next).await;
    let acts = next
        .audit
        .shared
        .store
        .acts(&ActFilter::default())
        .await
        .unwrap();
    let said: Vec<_> = acts
        .iter()
        .filter(|row| row.act == "audit.cut_off")
        .map(|row| row.target.clone())
        .collect();
    let (first, last) = (end.number + 1, end.number + 5);
    assert_eq!(said, [format!("blocks {first} to {last}")]);
    check(&next).await;
}

// fault D2: acts are covered from their beginning on, also when they change, are counted or dropped, and by
// whoever drops them.
#[tokio::test]
async fn acts_are_in_the_chain_until_they_are_dropped() {
    let mut rig = Rig::new(small()).await;
    let log = rig.audit.act_log();
    for number in 0..8 {
        rig.call().await;
        rig.audit.import_now().await.unwrap();
        let begun = log
            .put(act("agent.change", ActOutcome::Unfinished))
            .await
            .unwrap();
        if number == 7 {
            // Nobody says how it ended.
            break;
        }
        let done = act("agent.change", ActOutcome::Done);
        let done = ActRow {
            id: begun.row.id,
            ..done
        };
        log.change(&begun, done.clone(), false).await.unwrap();
        // It is not what it was.
        let again = log.change(&begun, done, false).await;
        assert!(matches!(again, Err(StoreError::NotFound { .. })));
        let refused = log
            .put(act("server.remove", ActOutcome::Refused))
            .await
            .unwrap();
        let counted = ActRow {
            repeats: 9,
            ..refused.row.clone()
        };
        log.change(&refused, counted, true).await.unwrap();
    }
    let report = check(&rig).await;
    assert_eq!(
        (report.rows, report.acts, report.acts_not_covered),
        (8, 15, 0)
    );
    // One that is given up wherever it waits is there with its block, or neither is.
    for waits in 0..WAITS {
        leaving_after(waits, log.put(act("key.revoke", ActOutcome::Done))).await;
        check(&rig).await;
    }
    let next = rig.restarted().await;
    let former = std::mem::replace(&mut rig, next);
    let mut chain = rig.audit.shared.chain.lock().await;
    chain.prune_acts("local", (2, 3)).await.unwrap();
    drop(chain);
    let report = check(&rig).await;
    assert_eq!((report.rows, report.acts), (8, 5));
    let store = &rig.audit.shared.store;
    let left = store.acts(&ActFilter::default()).await.unwrap();
    let counts: Vec<u64> = left
        .iter()
        .filter(|row| row.outcome == ActOutcome::Refused)
        .map(|row| row.repeats)
        .collect();
    assert_eq!(counts, [9, 9]);
    drop(former);
}

// fault D2
#[tokio::test]
async fn acts_of_earlier_releases_are_told_apart_from_inserted_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(folder.path()).await;
    for _ in 0..3 {
        store
            .put_act(&act("agent.add", ActOutcome::Done))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    let rig = Rig::over(folder, small()).await;
    let log = rig.audit.act_log();
    log.put(act("agent.add", ActOutcome::Done)).await.unwrap();
    let report = check(&rig).await;
    assert_eq!((report.acts, report.acts_not_covered), (4, 3));
    let store: &Store = &rig.audit.shared.store;
    let inserted = store
        .put_act(&act("agent.add", ActOutcome::Done))
        .await
        .unwrap();
    let report = rig.audit.verify(rig.folder.path(), 10).await.unwrap();
    let [found] = &report.findings[..] else {
        panic!("{report:#?}");
    };
    assert_eq!(found.kind, FindingKind::Inserted);
    assert_eq!(found.act, i64::try_from(inserted).ok());
}
