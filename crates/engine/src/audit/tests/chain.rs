//! A journal of which something was taken away: noticed, counted, kept, and shown until somebody has
//! seen it; and what a mere kill leaves, which is none of that.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use gantry_store::{DamageKind, JournalDamage};

use super::damage::{segment_path, segments};
use super::*;
use crate::audit::background::TaskState;
use crate::audit::mark::{self, MARK_EVERY};

/// Records calls until the journal has so many segments in use; nothing of it is imported.
async fn fill(rig: &Rig, segments: u64) -> u64 {
    let journal = &rig.audit.shared.journal;
    let first = journal.stable().segment;
    let mut calls = 0;
    while journal.stable().segment < first + segments - 1 {
        rig.call().await;
        calls += 1;
    }
    for _ in 0..40 {
        rig.call().await;
        calls += 1;
    }
    calls
}

async fn over(killed: TempDir) -> Rig {
    Rig::over(killed, small()).await
}

fn damage_of(rig: &Rig) -> Vec<JournalDamage> {
    rig.audit.health().damage
}

/// Asserts that one thing is wrong, and that no fewer calls are said to be lost than are.
async fn assert_told(rig: &Rig, kind: DamageKind, recorded: u64) -> JournalDamage {
    let damage = damage_of(rig);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].kind, kind);
    let lost = recorded - rig.rows().await.len() as u64;
    let told = damage[0].calls.unwrap();
    assert!(
        told >= lost && told <= lost + MARK_EVERY,
        "{lost} of {recorded} are lost, {told} are told"
    );
    assert!(!rig.audit.is_sound());
    damage.into_iter().next().unwrap()
}

/// Asserts that it stays told over restarts until it is acknowledged, and that calls continue.
async fn assert_acknowledged(rig: Rig) {
    let before = rig.rows().await.len();
    rig.call().await;
    let next = rig.restarted().await;
    assert_eq!(damage_of(&next), damage_of(&rig));
    assert_eq!(next.audit.acknowledge_damage("key_1").await.unwrap(), 1);
    assert!(next.audit.is_sound());
    let last = next.restarted().await;
    assert_eq!(damage_of(&last), []);
    assert_eq!(last.rows().await.len(), before + 1);
}

#[tokio::test]
async fn a_kill_is_no_damage_wherever_it_comes() {
    // fault D2
    for calls in [0, 1, 7, 15, 16, 17, 100, 300] {
        let rig = Rig::new(small()).await;
        for _ in 0..calls {
            rig.call().await;
        }
        let open = rig.begin().await;
        let mut next = rig.restarted().await;
        for _ in 0..3 {
            assert_eq!(damage_of(&next), [], "{calls}");
            assert_eq!(next.rows().await.len(), calls + 1);
            next = next.restarted().await;
        }
        drop(open);
    }
}

#[tokio::test]
async fn records_that_were_being_written_in_the_moment_of_a_kill_are_no_damage() {
    // fault D2
    let rig = Rig::new(small()).await;
    for _ in 0..100 {
        rig.call().await;
    }
    let killed = rig.killed();
    let mark = mark::read(&killed.path().join("marks/journal.mark"))
        .unwrap()
        .unwrap();
    // The mark knows everything but the last few records; whatever is torn is behind it.
    let file = segment_path(killed.path(), mark.current);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0; 4096], mark.stable.offset).unwrap();
    let next = over(killed).await;
    assert_eq!(damage_of(&next), []);
}

#[tokio::test]
async fn the_last_record_is_missed_even_if_the_file_keeps_its_length() {
    // fault D3
    for calls in [1, 2, 5, 9, 40] {
        let rig = Rig::new(small()).await;
        for _ in 1..calls {
            rig.call().await;
        }
        let before = rig.audit.shared.journal.tail();
        rig.call().await;
        let killed = rig.killed();
        let file = segment_path(killed.path(), before.segment);
        let file = OpenOptions::new().write(true).open(file).unwrap();
        let cut = rig.audit.shared.journal.tail().offset - before.offset;
        file.write_all_at(&vec![0; cut as usize], before.offset)
            .unwrap();
        let next = over(killed).await;
        assert_told(&next, DamageKind::Overwritten, calls).await;
    }
}

#[tokio::test]
async fn a_segment_that_is_missing_is_told_whichever_it_is() {
    // fault D3
    for gone in [&[0_u64][..], &[1], &[2], &[3], &[1, 2], &[0, 1], &[2, 3]] {
        let rig = Rig::new(small()).await;
        let first = rig.audit.shared.journal.stable().segment;
        let recorded = fill(&rig, 4).await;
        let killed = rig.killed();
        for place in gone {
            fs::remove_file(segment_path(killed.path(), first + place)).unwrap();
        }
        let next = over(killed).await;
        let told = assert_told(&next, DamageKind::Missing, recorded).await;
        assert_eq!(told.segment, first + gone.last().unwrap());
        assert_acknowledged(next).await;
    }
}

#[tokio::test]
async fn a_check_misses_the_only_segment_unless_the_gateway_was_stopped() {
    // fault D3
    let rig = Rig::new(small()).await;
    for _ in 0..5 {
        rig.call().await;
    }
    let findings = |folder: &TempDir| {
        let check = verify_journal(&folder.path().join("journal"));
        check.unwrap().findings
    };
    let killed = rig.killed();
    assert_eq!(findings(&killed), Vec::<String>::new());
    let segment = rig.audit.shared.journal.stable().segment;
    fs::remove_file(segment_path(killed.path(), segment)).unwrap();
    assert_eq!(segments(killed.path()), Vec::<PathBuf>::new());
    assert_eq!(
        findings(&killed),
        [format!("journal segment {segment} is missing")]
    );
    let stop = CancellationToken::new();
    stop.cancel();
    rig.audit.clone().run(stop, |_| {}).await;
    assert_eq!(segments(rig.folder.path()), Vec::<PathBuf>::new());
    assert_eq!(findings(&rig.folder), Vec::<String>::new());
    // The mark of an earlier release does not say whether the gateway was stopped.
    let path = mark::path_of(&killed.path().join("journal"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[56..60].fill(0);
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    assert_eq!(findings(&killed), Vec::<String>::new());
}

#[tokio::test]
async fn a_journal_that_is_gone_as_a_whole_is_told() {
    // fault D3
    let rig = Rig::new(small()).await;
    rig.audit.import_now().await.unwrap();
    let recorded = fill(&rig, 2).await;
    let killed = rig.killed();
    fs::remove_dir_all(killed.path().join("journal")).unwrap();
    let next = over(killed).await;
    assert_told(&next, DamageKind::Missing, recorded).await;
    assert_acknowledged(next).await;
    // And with it what knows how much there was.
    let killed = rig.killed();
    fs::remove_dir_all(killed.path().join("journal")).unwrap();
    fs::remove_file(killed.path().join("marks/journal.mark")).unwrap();
    let next = over(killed).await;
    let damage = damage_of(&next);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(
        (damage[0].kind, damage[0].calls),
        (DamageKind::NoMark, None)
    );
    assert_acknowledged(next).await;
}

/// Cuts a segment's file off, and says what must be told.
type Injury = (&'static str, fn(&PathBuf), DamageKind);

const INJURIES: [Injury; 7] = [
    ("cut off", |path| resize(path, 3_000), DamageKind::Truncated),
    (
        "cut in its header",
        |path| resize(path, 40),
        DamageKind::Unreadable,
    ),
    ("emptied", |path| resize(path, 0), DamageKind::Unreadable),
    (
        "cut off and as long as before",
        |path| {
            let length = fs::metadata(path).unwrap().len();
            resize(path, 3_000);
            resize(path, length);
        },
        DamageKind::Overwritten,
    ),
    (
        "overwritten",
        |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[0xab; 9_000], 2_000).unwrap();
        },
        DamageKind::Overwritten,
    ),
    (
        "zeroed",
        |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let length = fs::metadata(path).unwrap().len();
            file.write_all_at(&vec![0; length as usize - 2_128], 2_064)
                .unwrap();
        },
        DamageKind::Overwritten,
    ),
    (
        "another file",
        |path| fs::write(path, vec![0xff; 90_000]).unwrap(),
        DamageKind::Unreadable,
    ),
];

fn resize(path: &PathBuf, length: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
}

#[tokio::test]
async fn a_segment_that_is_damaged_is_told_and_kept() {
    // fault D3
    for (what, injure, kind) in INJURIES {
        for place in [0, 1] {
            let rig = Rig::new(small()).await;
            let first = rig.audit.shared.journal.stable().segment;
            let recorded = fill(&rig, 2).await;
            let killed = rig.killed();
            let path = segment_path(killed.path(), first + place);
            injure(&path);
            let left = fs::read(&path).unwrap();
            let next = over(killed).await;
            eprintln!("{what}, segment {place}");
            let told = assert_told(&next, kind, recorded).await;
            assert_eq!(told.segment, first + place);
            let kept = next.folder.path().join("journal").join(told.file.unwrap());
            assert!(
                fs::read(kept).unwrap() == left,
                "{what}: the file is kept as it was"
            );
            assert_acknowledged(next).await;
        }
    }
}

#[tokio::test]
async fn segments_that_changed_places_or_come_from_elsewhere_are_not_read() {
    // fault D3
    let rig = Rig::new(small()).await;
    let first = rig.audit.shared.journal.stable().segment;
    let recorded = fill(&rig, 2).await as usize;
    let path = |folder: &TempDir, place: u64| segment_path(folder.path(), first + place);

    let killed = rig.killed();
    let (one, other) = (path(&killed, 0), path(&killed, 1));
    let aside = killed.path().join("aside");
    fs::rename(&one, &aside).unwrap();
    fs::rename(&other, &one).unwrap();
    fs::rename(&aside, &other).unwrap();
    let next = over(killed).await;
    let kinds: Vec<_> = damage_of(&next).iter().map(|damage| damage.kind).collect();
    assert_eq!(kinds, [DamageKind::Foreign, DamageKind::Foreign]);
    let lost: u64 = damage_of(&next)
        .iter()
        .filter_map(|damage| damage.calls)
        .sum();
    assert!(lost >= recorded as u64, "{lost} of {recorded}");
    assert_eq!(next.rows().await, []);

    // One of another gateway, under the name of ours.
    let stranger = Rig::new(small()).await;
    fill(&stranger, 2).await;
    let killed = rig.killed();
    fs::copy(path(&stranger.folder, 0), path(&killed, 0)).unwrap();
    let next = over(killed).await;
    let damage = damage_of(&next);
    assert_eq!((damage.len(), damage[0].kind), (1, DamageKind::Foreign));
    let own: Vec<_> = rig.rows().await.iter().map(|row| row.id).collect();
    assert!(next.rows().await.iter().all(|row| own.contains(&row.id)));

    // A copy of one beside it: nothing is lost, and nothing is read twice.
    let rig = Rig::new(small()).await;
    let recorded = fill(&rig, 2).await as usize;
    let killed = rig.killed();
    let first = rig.audit.shared.journal.stable().segment - 1;
    fs::copy(
        segment_path(killed.path(), first),
        segment_path(killed.path(), first + 9),
    )
    .unwrap();
    let next = over(killed).await;
    let damage = damage_of(&next);
    assert_eq!(
        (damage.len(), damage[0].kind, damage[0].calls),
        (1, DamageKind::Foreign, Some(0))
    );
    assert_eq!(next.rows().await.len(), recorded);
}

#[tokio::test]
async fn an_older_copy_of_a_segment_is_told() {
    // fault D3
    let rig = Rig::new(small()).await;
    for _ in 0..20 {
        rig.call().await;
    }
    let early = rig.killed();
    for _ in 0..20 {
        rig.call().await;
    }
    let killed = rig.killed();
    let id = rig.audit.shared.journal.stable().segment;
    fs::copy(
        segment_path(early.path(), id),
        segment_path(killed.path(), id),
    )
    .unwrap();
    let next = over(killed).await;
    assert_told(&next, DamageKind::Overwritten, 40).await;
}

#[tokio::test]
async fn rows_that_are_in_the_database_are_not_said_to_be_lost() {
    let rig = Rig::new(small()).await;
    for _ in 0..20 {
        rig.call().await;
    }
    rig.audit.import_now().await.unwrap();
    for _ in 0..20 {
        rig.call().await;
    }
    let killed = rig.killed();
    let path = segments(killed.path()).pop().unwrap();
    fs::remove_file(path).unwrap();
    let next = over(killed).await;
    assert_told(&next, DamageKind::Missing, 40).await;
}

#[tokio::test]
async fn a_segment_that_goes_or_is_cut_while_it_is_in_use_is_told_and_left() {
    // fault D3
    for cut in [true, false] {
        let rig = Rig::new(small()).await;
        for _ in 0..30 {
            rig.call().await;
        }
        let before = rig.audit.shared.journal.stable().segment;
        let path = segment_path(rig.folder.path(), before);
        match cut {
            true => File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(2_000)
                .unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
        rig.audit.check(&mut TaskState::due()).await;
        rig.audit.import_now().await.unwrap();
        let kind = if cut {
            DamageKind::Truncated
        } else {
            DamageKind::Missing
        };
        let damage = damage_of(&rig);
        assert_eq!((damage.len(), damage[0].kind), (1, kind), "{damage:?}");
        // What was removed can still be read by who has it open; what was cut off cannot.
        let lost = damage[0].calls.unwrap();
        assert_eq!(lost, 30 - rig.rows().await.len() as u64);
        assert_eq!(lost > 0, cut);
        assert!(rig.audit.shared.journal.stable().segment > before);
        let id = rig.call().await;
        let next = rig.restarted().await;
        assert_eq!(next.row(id).await.status, CallStatus::Ok);
        assert_eq!(damage_of(&next).len(), 1);
    }
}

#[tokio::test]
async fn what_an_earlier_release_left_is_read_and_no_damage() {
    let rig = Rig::new(small()).await;
    let recorded = fill(&rig, 2).await as usize;
    let killed = rig.killed();
    unchain(killed.path());
    // It may have been killed while it made a segment.
    fs::write(segment_path(killed.path(), 99), []).unwrap();
    let next = over(killed).await;
    assert_eq!(damage_of(&next), []);
    assert_eq!(next.rows().await.len(), recorded);
    let last = next.restarted().await;
    assert_eq!(
        (last.rows().await.len(), damage_of(&last)),
        (recorded, vec![])
    );
}

/// Makes a folder look as earlier releases left it.
fn unchain(folder: &Path) {
    fs::remove_file(folder.join("marks/journal.mark")).unwrap();
    for path in segments(folder) {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let length = file.metadata().unwrap().len();
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).unwrap();
        header[..8].copy_from_slice(b"gantryJ1");
        header[32..].fill(0);
        let checksum = crc32fast::hash(&header[..32]);
        header[32..36].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&header, 0).unwrap();
        file.write_all_at(&header, length - 64).unwrap();
    }
    // Nothing was imported yet: a new database knows as little as theirs.
    for name in ["gantry.db", "gantry.db-wal"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
}

#[tokio::test]
async fn what_calls_are_recorded_in_must_stay_where_it_is() {
    // fault F4
    for what in ["", "journal", "gantry.db"] {
        let rig = Rig::new(small()).await;
        let recorded = rig.call().await;
        let path = rig.folder.path().join(what);
        let moved = rig.folder.path().with_extension("moved");
        fs::rename(&path, &moved).unwrap();
        rig.audit.check(&mut TaskState::due()).await;
        let error = rig.try_begin().await.unwrap_err();
        assert!(
            matches!(error, AuditError::Gone { .. }),
            "{what}: {error:?}"
        );
        assert!(!rig.audit.is_writable());
        assert!(rig.audit.import_now().await.is_err());
        assert!(!path.exists(), "nothing is made in its place");
        fs::rename(&moved, &path).unwrap();
        rig.audit.check(&mut TaskState::due()).await;
        rig.call().await;
        assert_eq!(rig.row(recorded).await.status, CallStatus::Ok);
    }
}
