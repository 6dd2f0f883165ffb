//! Full disks, failing disks and databases that are away: who is refused, and who never is.

use std::io::Write;
use std::process::Command;

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_store::{ActRow, StoreError};

use super::*;
use crate::audit::evidence::{ActLog, ChainWriter};
use crate::audit::journal::tests::{make_current_read_only, make_current_writable};

/// A small file system in memory, taken down with the test.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Returns nothing where the machine does not let us mount, as for users other than root.
    fn mount(kib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={kib}k");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        println!("not tested here: mounting a file system is not allowed");
        None
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> std::path::PathBuf {
        self.folder.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount")
            .arg("-l")
            .arg(self.folder.path())
            .status();
        assert!(unmounted.unwrap().success());
    }
}

/// Tries again until calls are accepted, which must happen by itself and soon.
async fn accepted_again(rig: &Rig) {
    let resumed = async {
        while rig.try_begin().await.map(drop).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), resumed)
        .await
        .unwrap();
}

/// Begins calls until one is refused.
async fn begin_until_refused(rig: &Rig, most: usize) -> (Vec<Ticket<'static>>, AuditError) {
    let mut held = Vec::new();
    loop {
        match rig.try_begin().await {
            Ok(ticket) => held.push(ticket),
            Err(error) => return (held, error),
        }
        assert!(held.len() < most, "never refused");
    }
}

async fn rig_on(disk: &SmallDisk) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(folder.path()).await;
    let journal = disk.folder.path().join("journal");
    let audit = Audit::open(&journal, store, small()).await.unwrap();
    Rig {
        folder,
        audit,
        ids: CallIds::new(),
    }
}

#[tokio::test]
async fn a_full_disk_refuses_calls_loses_no_outcome_and_resumes() {
    // fault F1
    let Some(disk) = SmallDisk::mount(400) else {
        return;
    };
    let rig = rig_on(&disk).await;
    let early = rig.begin().await;
    disk.fill();
    let (mut held, error) = begin_until_refused(&rig, 100_000).await;
    held.push(early);
    assert!(matches!(error, AuditError::Full { .. }), "{error:?}");
    assert_eq!(
        (error.code(), error.fault()),
        ("audit.full", Fault::Gateway)
    );
    assert!(error.hint().unwrap().contains("free space"));
    let health = rig.audit.health();
    assert!(!health.writable);
    assert!(health.reason.unwrap().contains("No space left"));

    // Every open call ends with its longest possible outcome, and none of them is lost.
    let count = held.len();
    let long = format!("\"{}\"", "x".repeat(10_000));
    for ticket in held {
        let outcome = Outcome {
            status: CallStatus::Error,
            code: Some(&long),
            error: Some(&long),
            output: Some(long.as_bytes()),
            ..ok()
        };
        ticket.outcome(&outcome).await;
    }
    disk.free();
    accepted_again(&rig).await;
    assert!(rig.audit.health().writable);
    let rows = rig.rows().await;
    assert_eq!(statuses(&rows).get(&CallStatus::Error), Some(&count));
    assert_eq!(rows.len(), count + 1);
}

#[tokio::test]
async fn a_reserve_records_calls_for_a_while_on_a_disk_that_somebody_filled() {
    // faults F1 and P9
    let mut accepted = Vec::new();
    for reserve in [0, 4] {
        let Some(disk) = SmallDisk::mount(8_000) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        let policy = AuditPolicy {
            reserve,
            import_every: Duration::from_millis(10),
            ..small()
        };
        let journal = disk.folder.path().join("journal");
        let audit = Audit::open(&journal, store, policy).await.unwrap();
        let rig = Rig {
            folder,
            audit,
            ids: CallIds::new(),
        };
        rig.call().await;
        let stop = tokio_util::sync::CancellationToken::new();
        let mut running = tokio::task::JoinSet::new();
        running.spawn(rig.audit.clone().run(stop.clone(), |_| {}));
        let kept = async {
            while rig.audit.shared.journal.spares() < reserve {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), kept)
            .await
            .unwrap();
        disk.fill();
        let (held, error) = begin_until_refused(&rig, 100_000).await;
        assert!(matches!(error, AuditError::Full { .. }), "{error:?}");
        accepted.push(held.len());
        stop.cancel();
        running.join_all().await;
    }
    assert!(accepted[1] >= 3 * accepted[0].max(1), "{accepted:?}");
}

#[tokio::test]
async fn a_gateway_starts_on_a_full_disk_and_accepts_calls_when_there_is_space() {
    // fault F1
    let Some(disk) = SmallDisk::mount(400) else {
        return;
    };
    // The gateway ran before: its key is there.
    let other = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(other.path()).await;
    ChainWriter::open(disk.folder.path(), store).unwrap();
    disk.fill();
    let rig = rig_on(&disk).await;
    assert!(matches!(
        rig.try_begin().await,
        Err(AuditError::Full { .. })
    ));
    assert!(!rig.audit.health().writable);
    assert_eq!(rig.rows().await, []);
    disk.free();
    accepted_again(&rig).await;
    assert_eq!(rig.rows().await.len(), 1);
}

#[tokio::test]
async fn what_frees_space_is_recorded_on_a_full_disk() {
    // fault F1
    for act in [
        "image.prune",
        "volume.remove",
        "project.delete",
        "grant.remove",
    ] {
        let Some(disk) = SmallDisk::mount(12_000) else {
            return;
        };
        let store = crate::folder::store_in(disk.folder.path()).await;
        let log = ActLog::open(disk.folder.path(), store.clone()).unwrap();
        let put = |act: &str| {
            let row = ActRow {
                act: act.to_owned(),
                ..ActRow::default()
            };
            log.put(row)
        };
        put("agent.change").await.unwrap();
        disk.fill();
        let refused = loop {
            if let Err(error) = put("agent.change").await {
                break error;
            }
        };
        assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
        put(act).await.unwrap();
        store.close().await.ok();
    }
}

#[tokio::test]
async fn calls_go_on_while_the_database_is_away_and_it_heals() {
    // fault D1: here the database has no space, the journal has
    let Some(disk) = SmallDisk::mount(2_000) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(disk.folder.path()).await;
    let policy = AuditPolicy {
        import_every: Duration::from_millis(10),
        ..small()
    };
    let audit = Audit::open(&folder.path().join("journal"), store, policy)
        .await
        .unwrap();
    let rig = Rig {
        folder,
        audit,
        ids: CallIds::new(),
    };
    disk.fill();
    let stop = tokio_util::sync::CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(rig.audit.clone().run(stop.clone(), |_| {}));
    let failing = async {
        while rig.audit.health().last_fold_error.is_none() {
            rig.call().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), failing)
        .await
        .unwrap();
    for _ in 0..500 {
        rig.call().await;
    }
    let health = rig.audit.health();
    assert!(health.writable && health.folded_lag_records >= 1_000);
    disk.free();
    let healed = async {
        while rig.audit.health().folded_lag_records > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), healed)
        .await
        .unwrap();
    assert_eq!(rig.audit.health().last_fold_error, None);
    stop.cancel();
    running.join_all().await;
    let rows = rig.rows().await;
    assert!(rows.len() >= 500 && rows.iter().all(|row| row.status == CallStatus::Ok));
}

#[tokio::test]
async fn the_journal_is_bounded_while_the_database_is_away() {
    // fault D1
    let policy = small().bounded();
    let policy = AuditPolicy {
        journal_bytes: 4 * policy.segment_bytes,
        ..policy
    };
    let rig = Rig::new(policy.clone()).await;
    rig.audit.shared.store.close().await.unwrap();
    let (held, error) = begin_until_refused(&rig, 100_000).await;
    assert!(matches!(error, AuditError::Behind { .. }), "{error:?}");
    let health = rig.audit.health();
    assert!(!health.writable && health.journal_bytes <= policy.journal_bytes);
    let count = held.len();
    for ticket in held {
        ticket.outcome(&ok()).await;
    }
    assert!(rig.audit.import_now().await.is_err());
    assert!(rig.audit.health().last_fold_error.is_some());
    let next = rig.restarted().await;
    assert_eq!(
        statuses(&next.rows().await),
        [(CallStatus::Ok, count)].into()
    );
    next.call().await;
    assert!(next.audit.health().writable);
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_refuses_calls_and_says_which_end_was_lost() {
    // faults F3, F4
    let rig = Rig::new(small()).await;
    let good = rig.call().await;
    let ticket = rig.begin().await;
    let id = ticket.id();
    make_current_read_only(&rig.audit.shared.journal);
    let error = rig.try_begin().await.unwrap_err();
    assert!(matches!(error, AuditError::Write { .. }), "{error:?}");
    assert!(!rig.audit.health().writable);
    ticket.outcome(&ok()).await;
    let row = rig.row(id).await;
    assert_eq!(
        (row.status, row.code.as_deref()),
        (CallStatus::Unknown, Some("audit.lost"))
    );
    make_current_writable(&rig.audit.shared.journal);
    accepted_again(&rig).await;
    assert!(rig.audit.health().writable);
    assert_eq!(rig.row(good).await.status, CallStatus::Ok);
    assert_eq!(rig.restarted().await.rows().await.len(), 3);
}

#[tokio::test]
async fn rows_that_the_disk_has_not_confirmed_yet_are_no_new_ones() {
    // fault D2: a reader of the file holds up the checkpoint that follows the rows of a segment.
    let rig = Rig::new(AuditPolicy {
        durability: Durability::Disk,
        ..small()
    })
    .await;
    rig.call().await;
    rig.audit.import_now().await.unwrap();
    let store = rig.audit.shared.store.clone();
    let mut reader = store.audit_snapshot().await.unwrap();
    reader.heads().await.unwrap();
    let journal = &rig.audit.shared.journal;
    let (first, mut calls) = (journal.tail().segment, 1);
    while journal.tail().segment == first {
        rig.call().await;
        calls += 1;
    }
    rig.audit.import_now().await.unwrap_err();
    drop(reader);
    rig.audit.import_now().await.unwrap();
    let report = rig.audit.verify(rig.folder.path(), 10).await.unwrap();
    assert!(report.is_sound(), "{:#?}", report.findings);
    assert_eq!(report.rows, calls);
}
