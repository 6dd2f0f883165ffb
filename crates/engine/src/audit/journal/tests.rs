//! The journal without a database: promises of room are kept, whatever the order of things.

use std::fs::{File, OpenOptions};

use gantry_model::id::CallId;
use gantry_store::CallStatus;
use proptest::prelude::{ProptestConfig, proptest};

use super::*;
use crate::audit::policy::Bodies;
use crate::audit::record::{IntentFields, OutcomeFields};

/// Makes every further write of this segment fail.
pub(in crate::audit) fn make_current_read_only(journal: &Journal) {
    replace_file(journal, |path| File::open(path).unwrap());
}

/// Heals what `make_current_read_only` did.
pub(in crate::audit) fn make_current_writable(journal: &Journal) {
    replace_file(journal, |path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    });
}

fn replace_file(journal: &Journal, open: impl Fn(&Path) -> File) {
    let mut state = journal.state.lock();
    let Segment {
        id,
        salt,
        size,
        journal: identity,
        ..
    } = *state.current;
    let file = open(&journal.path().join(format!("journal-{id:016x}.seg")));
    state.current = Arc::new(Segment {
        id,
        salt,
        size,
        file,
        journal: identity,
        damaged: false,
    });
}

fn encoded(intent: bool, text: &str) -> Vec<u8> {
    let id = CallId::new(1, 2);
    let mut buffer = Vec::new();
    if intent {
        let fields = IntentFields {
            id,
            surface: 1,
            started_ms: 5,
            project: text,
            agent: text,
            key: text,
            user: Some(text),
            user_trust: Default::default(),
            session: Some(text),
            run: Some(text),
            step: Some(text),
            trace: Some(text),
            server: text,
            server_id: None,
            method: text,
            tool: text,
            schema_version: Some(text),
            input: None,
            input_bytes: 0,
            policy_revision: None,
            grant: Some(text),
            parent: Some(text),
            user_source: None,
        };
        record::encode_intent(&mut buffer, &fields);
    } else {
        let fields = OutcomeFields {
            status: CallStatus::Ok,
            duration_us: 7,
            code: Some(text),
            error: Some(text),
            output: None,
            output_bytes: 0,
            measured: Default::default(),
            error_kind: None,
        };
        record::encode_outcome(&mut buffer, id, &fields);
    }
    buffer
}

fn journal(folder: &Path, segments: u64) -> Journal {
    let policy = AuditPolicy {
        bodies: Bodies::Off,
        segment_bytes: 0,
        reserve: 0,
        ..AuditPolicy::default()
    };
    let policy = policy.bounded();
    let policy = AuditPolicy {
        journal_bytes: segments * policy.segment_bytes,
        ..policy
    };
    let directory = Directory::open(&folder.join("journal")).unwrap();
    let beginning = Beginning {
        first: 1,
        left: VecDeque::new(),
        identity: 5,
        link: ChainLink::default(),
        shares_disk: false,
    };
    Journal::start(directory, &policy, beginning).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// fault F1
    #[test]
    fn whoever_got_in_gets_out(
        steps in proptest::collection::vec((0..3_u8, 0..3_000_usize), 1..400),
        segments in 2..6_u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), segments);
        let mut open = 0;
        for (kind, length) in steps {
            let text = "x".repeat(length);
            if kind == 0 && open > 0 {
                journal.append(&mut encoded(false, &text), Claim::Outcome).unwrap();
                open -= 1;
            } else if journal.append(&mut encoded(true, &text), Claim::Intent).is_ok() {
                open += 1;
            }
        }
        let longest = "x".repeat(3_000);
        for _ in 0..open {
            journal.append(&mut encoded(false, &longest), Claim::Outcome).unwrap();
        }
        assert_eq!(journal.state.lock().promised, 0);
        assert!(journal.condition().bytes <= journal.journal_bytes);
    }
}

#[test]
fn the_next_segment_is_there_before_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path(), 8);
    let mut record = encoded(true, "x");
    while journal.state.lock().current.id == 1 {
        journal.append(&mut record, Claim::Whole).unwrap();
        record::unseal(&mut record);
        journal.provide().unwrap();
        assert!(journal.state.lock().spares.len() <= 1);
    }
    let before = journal.state.lock().current.id;
    assert_eq!(before, 2);
    // What is imported is used again instead of being allocated anew.
    journal.forget_before(2);
    let state = journal.state.lock();
    assert_eq!((state.older.len(), state.spares.len()), (0, 1));
    drop(state);
    let names = journal.directory.segments().unwrap();
    assert_eq!(names.len(), 2);
    assert!(names[0] == 2 && names[1] > 2);
}

#[test]
fn nothing_is_stable_behind_a_write_that_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path(), 4);
    let start = journal.stable();
    journal
        .append(&mut encoded(true, "x"), Claim::Whole)
        .unwrap();
    let end = journal.stable();
    journal.state.lock().writing.push(start);
    journal
        .append(&mut encoded(true, "x"), Claim::Whole)
        .unwrap();
    assert_eq!(journal.stable(), start);
    journal.state.lock().writing.clear();
    assert!(journal.stable() > end);
}
