//! Records come back as they went, and nothing else comes back.

use proptest::prelude::{any, proptest};

use gantry_store::{Check, Phases};

use super::*;

const SALT: Salt = Salt(0x1234_5678_9abc_def0);

fn whole(text: &str, repeats: u64) -> Vec<u8> {
    let id = CallId::new(7, 9);
    let begun = IntentFields {
        id,
        surface: 2,
        started_ms: 11,
        project: text,
        agent: "agent",
        key: "key",
        user: None,
        user_trust: UserTrust::Trusted,
        session: Some(text),
        run: None,
        step: None,
        trace: Some(""),
        server: "server",
        server_id: Some(gantry_model::id::ServerId::from_random(7)),
        method: "tools/call",
        tool: text,
        schema_version: None,
        input: Some(text),
        input_bytes: 99,
        policy_revision: Some(3),
        grant: Some("grant"),
        parent: None,
        user_source: Some(UserSource::Token),
    };
    let ended = OutcomeFields {
        status: CallStatus::Refused,
        duration_us: 5_000,
        code: Some("code"),
        error: Some(text),
        output: None,
        output_bytes: 0,
        measured: Measurements {
            phases: Phases {
                auth_us: Some(7),
                ..Phases::default()
            },
            attempts: Some(0),
            input_check: Some(Check::Failed),
            output_check: None,
        },
        error_kind: Some(ErrorKind::Schema),
    };
    let mut buffer = Vec::new();
    encode_whole(&mut buffer, &begun, &ended, repeats);
    buffer
}

fn sealed(text: &str, offset: u64) -> Vec<u8> {
    let mut record = whole(text, 1);
    seal(&mut record, SALT, offset);
    record
}

#[test]
fn a_record_comes_back_whole_and_only_at_its_own_place() {
    let text = "ä".repeat(400);
    let mut record = whole(&text, 1);
    set_repeats(&mut record, 42);
    seal(&mut record, SALT, 4096);
    let Found::Record(Kind::Whole, id, length) = read(&record, SALT, 4096) else {
        panic!("the record is valid");
    };
    let Some(Entry::Whole(row)) = decode(&record) else {
        panic!("its fields are valid");
    };
    assert_eq!((id, row.id), (CallId::new(7, 9), CallId::new(7, 9)));
    assert_eq!((length, length % ALIGNMENT), (record.len(), 0));
    assert_eq!(
        (row.status, row.repeats, row.surface),
        (CallStatus::Refused, 42, "rest")
    );
    assert_eq!((row.started_ms, row.ended_ms), (11, Some(16)));
    assert_eq!((row.user, row.trace), (None, Some("")));
    assert_eq!(row.user_trust, UserTrust::Trusted);
    let details = row.details;
    assert_eq!(
        (details.phases.auth_us, details.phases.queue_us),
        (Some(7), None)
    );
    assert_eq!((details.attempts, details.output_check), (Some(0), None));
    assert_eq!(details.input_check, Some(Check::Failed));
    assert_eq!(details.error_kind, Some(ErrorKind::Schema));
    assert_eq!(
        (details.grant, details.policy_revision),
        (Some("grant"), Some(3))
    );
    assert_eq!(
        (details.parent, details.user_source),
        (None, Some(UserSource::Token))
    );
    assert_eq!(
        row.project,
        "ä".repeat(256),
        "names are cut between characters"
    );
    assert_eq!((row.tool, row.input), (text.as_str(), Some(text.as_str())));
    // A body made of a record, or a leftover in a reused file, is none.
    assert_eq!(read(&record, SALT, 4112), Found::Nothing);
    assert_eq!(read(&record, Salt(SALT.0 ^ 1 << 40), 4096), Found::Nothing);
    assert_eq!(
        read(&record[..record.len() - 16], SALT, 4096),
        Found::Incomplete
    );
    assert_eq!(read(&[0; 64], SALT, 4096), Found::Nothing);
    unseal(&mut record);
    seal(&mut record, SALT, 4112);
    assert!(matches!(read(&record, SALT, 4112), Found::Record(..)));
}

#[test]
fn no_record_is_larger_than_what_is_set_aside_for_it() {
    let long = "x".repeat(100_000);
    let body = &long[..64];
    let record = whole(&long, 1).len() as u64;
    // The bodies of `whole` are not cut by the record itself.
    assert!(record - 100_000 <= largest_record(0));
    let outcome = OutcomeFields {
        status: CallStatus::Error,
        duration_us: u64::MAX,
        code: Some(&long),
        error: Some(&long),
        output: Some(body),
        output_bytes: u64::MAX,
        measured: Measurements::default(),
        error_kind: Some(ErrorKind::Gateway),
    };
    let mut buffer = Vec::new();
    encode_outcome(&mut buffer, CallId::new(1, 1), &outcome);
    assert!(buffer.len() as u64 <= largest_outcome(64));
}

// Journals of earlier releases are read as they are: fields that came later are not there.
#[test]
fn records_of_earlier_versions_are_read() {
    // What version 3 added stands behind what was there: 1 + 4 + 8 bytes and the names of an intent, then
    // 31 bytes of an outcome.
    let added_to_intent = 8 + (2 + "grant".len()) + 2 + 1;
    let added_to_outcome = 7 * 4 + 3;
    let id = CallId::new(7, 9);
    let mut intent = Vec::new();
    let text = "text";
    let fields = IntentFields {
        id,
        surface: 2,
        started_ms: 11,
        project: text,
        agent: "agent",
        key: "key",
        user: None,
        user_trust: UserTrust::Asserted,
        session: None,
        run: None,
        step: None,
        trace: None,
        server: "server",
        server_id: Some(ServerId::from_random(7)),
        method: "tools/call",
        tool: text,
        schema_version: None,
        input: Some(text),
        input_bytes: 4,
        policy_revision: Some(3),
        grant: Some("grant"),
        parent: None,
        user_source: None,
    };
    encode_intent(&mut intent, &fields);
    let mut outcome = Vec::new();
    let ended = OutcomeFields {
        status: CallStatus::Ok,
        duration_us: 5,
        code: None,
        error: None,
        output: Some(text),
        output_bytes: 4,
        measured: Measurements::default(),
        error_kind: None,
    };
    encode_outcome(&mut outcome, id, &ended);
    for (record, added) in [
        (&mut intent, added_to_intent),
        (&mut outcome, added_to_outcome),
    ] {
        let length = word(record, 4) as usize - added;
        record.truncate(length);
        record[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        record[13] = 2;
        record.resize(padded(length), 0);
        write_checksum(record);
        seal(record, SALT, 64);
        assert!(matches!(read(record, SALT, 64), Found::Record(..)));
    }
    let Some(Entry::Intent(mut row)) = decode(&intent) else {
        panic!("an intent");
    };
    let Some(Entry::Outcome(ending)) = decode(&outcome) else {
        panic!("an outcome");
    };
    ending.complete(&mut row);
    assert_eq!(
        (row.project, row.input, row.output),
        (text, Some(text), Some(text))
    );
    assert_eq!(row.details, gantry_store::CallDetails::default());
}

proptest! {
    #[test]
    fn a_changed_record_is_none(at in 0..512_usize, flip in 1..=255_u8) {
        let mut record = sealed("some text", 64);
        let length = word(&record, 4) as usize;
        let at = at % length;
        record[at] ^= flip;
        assert!(!matches!(read(&record, SALT, 64), Found::Record(..)));
    }

    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut record = sealed("some text", 64);
        record[32..].iter_mut().zip(&bytes).for_each(|(byte, other)| *byte = *other);
        write_checksum(&mut record);
        seal(&mut record, SALT, 64);
        // Valid by its checksum, senseless in its fields: read or not, but without a panic.
        let _found = read(&record, SALT, 64);
    }
}
