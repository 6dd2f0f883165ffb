//! What a kill, a torn write or a bad disk leaves behind: never a wrong row, never a lost good one.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::audit::journal::Position;

pub(super) fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("journal")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub(super) fn segment_path(folder: &Path, id: u64) -> PathBuf {
    folder
        .join("journal")
        .join(format!("journal-{id:016x}.seg"))
}

/// Where a call's records end in the journal.
struct Recorded {
    id: CallId,
    intent_end: Position,
    outcome_end: Option<Position>,
}

/// Records calls one after the other, some of which stay open.
async fn record(rig: &Rig, calls: &[bool]) -> (Vec<Recorded>, Vec<Ticket<'static>>) {
    let journal = &rig.audit.shared.journal;
    let (mut recorded, mut held) = (Vec::new(), Vec::new());
    for ends in calls {
        let ticket = rig.begin().await;
        let (id, intent_end) = (ticket.id(), journal.stable());
        let outcome_end = if *ends {
            ticket.outcome(&ok()).await;
            Some(journal.stable())
        } else {
            held.push(ticket);
            None
        };
        recorded.push(Recorded {
            id,
            intent_end,
            outcome_end,
        });
    }
    (recorded, held)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn damage() -> impl Strategy<Value = Vec<(u8, u16, u16, u8)>> {
    let one = (0..3_u8, any::<u16>(), 1..600_u16, 1..=255_u8);
    proptest::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// fault D2: a kill lets everything before it stand, and nothing after it.
    #[test]
    fn a_kill_at_any_byte_leaves_exactly_what_was_written(
        calls in proptest::collection::vec(any::<bool>(), 1..40),
        import_after in 0..40_usize,
        kill_at in 0..1000_u64,
        torn in 0..200_u64,
    ) {
        block_on(async {
            let rig = Rig::new(small()).await;
            let split = import_after.min(calls.len());
            let (mut recorded, mut held) = record(&rig, &calls[..split]).await;
            rig.audit.import_now().await.unwrap();
            let imported = rig.audit.shared.journal.stable();
            let (more, more_held) = record(&rig, &calls[split..]).await;
            recorded.extend(more);
            held.extend(more_held);
            let end = rig.audit.shared.journal.stable();
            let killed = rig.killed();

            // The kill came when `kill_at` thousandths of what follows the import were written, and
            // a record that another thread had already written behind a torn one stands.
            let from = if imported.segment == end.segment { imported.offset } else { 64 };
            let kill = from + (end.offset - from) * kill_at / 1000;
            let file = segment_path(killed.path(), end.segment);
            let file = OpenOptions::new().write(true).open(file).unwrap();
            let length = (end.offset - kill).min(torn + 1);
            file.write_all_at(&vec![0; length as usize], kill).unwrap();
            let hole = Position { segment: end.segment, offset: kill }
                ..Position { segment: end.segment, offset: kill + length };

            let next = Rig::over(killed, rig.audit.shared.policy.clone()).await;
            let rows: BTreeMap<CallId, CallRow> =
                next.rows().await.into_iter().map(|row| (row.id, row)).collect();
            prop_assert!(rows.len() <= recorded.len());
            let mut begun_at = Position::start_of(0);
            for call in &recorded {
                let touched = |start: Position, end: Position| start < hole.end && hole.start < end;
                let intent_gone = touched(begun_at, call.intent_end);
                let ended = call.outcome_end.is_some_and(|end| !touched(call.intent_end, end));
                begun_at = call.outcome_end.unwrap_or(call.intent_end);
                match rows.get(&call.id) {
                    None => prop_assert!(intent_gone && !ended),
                    Some(row) if row.status == CallStatus::Ok => {
                        prop_assert!(call.outcome_end.is_some());
                        prop_assert_eq!(row.output.as_deref().map(str::as_bytes), ok().output);
                        prop_assert!(row.tool == "read" || intent_gone);
                    }
                    Some(row) => {
                        prop_assert_eq!(row.status, CallStatus::Unknown);
                        prop_assert!(!ended);
                    }
                }
            }
            drop(held);
            Ok(())
        })?;
    }

    /// fault D3: whatever is zeroed, flipped or cut off, no row is wrong.
    #[test]
    fn damage_anywhere_makes_no_wrong_row(
        calls in proptest::collection::vec(any::<bool>(), 1..120),
        damage in damage(),
    ) {
        block_on(async {
            let rig = Rig::new(small()).await;
            let (recorded, held) = record(&rig, &calls).await;
            let killed = rig.killed();
            let files = segments(killed.path());
            for (kind, place, length, flip) in damage {
                let path = &files[usize::from(place) % files.len()];
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                let size = file.metadata().unwrap().len();
                let at = u64::from(place) * size / 65536;
                let length = u64::from(length).min(size - at) as usize;
                let mut bytes = vec![0; length];
                match kind {
                    0 => file.write_all_at(&bytes, at).unwrap(),
                    1 => {
                        file.read_exact_at(&mut bytes, at).unwrap();
                        bytes.iter_mut().for_each(|byte| *byte ^= flip);
                        file.write_all_at(&bytes, at).unwrap();
                    }
                    _ => file.set_len(at).unwrap(),
                }
            }
            let next = Rig::over(killed, rig.audit.shared.policy.clone()).await;
            let known: BTreeMap<CallId, bool> =
                recorded.iter().map(|call| (call.id, call.outcome_end.is_some())).collect();
            for row in next.rows().await {
                let ended = known.get(&row.id);
                prop_assert!(ended.is_some(), "a row for a call that never was");
                if row.status == CallStatus::Ok {
                    prop_assert!(ended == Some(&true));
                } else {
                    prop_assert_eq!(row.status, CallStatus::Unknown);
                }
                let named = (row.project.as_str(), row.tool.as_str(), row.key.as_str());
                let nameless = named == ("", "", "") && row.status == CallStatus::Ok;
                prop_assert!(nameless || named == ("local", "read", "key_1"));
            }
            drop(held);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn one_damaged_header_costs_nothing() {
    let rig = Rig::new(small()).await;
    let id = rig.call().await;
    let killed = rig.killed();
    let files = segments(killed.path());
    let file = OpenOptions::new()
        .write(true)
        .open(files.last().unwrap())
        .unwrap();
    file.write_all_at(&[0xff; 64], 0).unwrap();
    let next = Rig::over(killed, small()).await;
    assert_eq!(next.row(id).await.status, CallStatus::Ok);
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_is_set_aside_and_the_rest_goes_on() {
    let rig = Rig::new(small()).await;
    rig.call().await;
    let killed = rig.killed();
    let path = segments(killed.path()).pop().unwrap();
    std::fs::write(&path, vec![0xff; 5_000]).unwrap();
    // Another one whose making was cut off.
    std::fs::write(segment_path(killed.path(), 77), []).unwrap();
    let next = Rig::over(killed, small()).await;
    next.call().await;
    assert_eq!(next.rows().await.len(), 1);
    assert!(path.with_extension("seg.damaged").exists());
    assert!(!segment_path(next.folder.path(), 77).exists());
}

#[tokio::test]
async fn only_the_owner_sees_the_journal_and_no_link_is_followed() {
    // fault F5
    let rig = Rig::new(small()).await;
    let journal = rig.folder.path().join("journal");
    assert_eq!(std::fs::metadata(&journal).unwrap().mode() & 0o777, 0o700);
    for file in segments(rig.folder.path()) {
        assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    }
    let folder = tempfile::tempdir().unwrap();
    let store = crate::folder::store_in(folder.path()).await;
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&journal, &link).unwrap();
    let refused = Audit::open(&link, store.clone(), small())
        .await
        .unwrap_err();
    assert!(matches!(refused, AuditError::Open { .. }));
    let wide = folder.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    std::fs::set_permissions(&wide, std::fs::Permissions::from_mode(0o755)).unwrap();
    Audit::open(&wide, store, small()).await.unwrap();
    assert_eq!(std::fs::metadata(&wide).unwrap().mode() & 0o777, 0o700);
}
