//! The format of a journal record: a sealed header of 32 bytes, then length-prefixed fields.
//!
//! A record is valid only where it was written: its first word and its checksum depend on the
//! segment's random salt and the record's offset, so that neither a leftover nor a forged body
//! counts as a record. Never does I/O; entry points `encode_*`, `seal`, `read`, `decode`.

use gantry_model::caller::UserTrust;
use gantry_model::id::{CallId, ServerId};
use gantry_store::{CallRow, CallStatus, ErrorKind, UserSource};

use super::measured::Measurements;

mod fields;

use fields::{Fields, USER_TRUSTED, put_intent, put_outcome};

/// Records start at multiples of this.
pub(super) const ALIGNMENT: usize = 16;
/// The bytes before a record's fields.
pub(super) const HEADER: usize = 32;
/// The longest body that any policy allows.
pub(super) const LONGEST_BODY: usize = 64 << 10;
/// The largest record that any policy allows: an earlier process may have had another policy.
const LARGEST: usize = largest_record(LONGEST_BODY) as usize;
/// Version 1 had no id of the server, version 2 no details of a call.
const VERSION: u8 = 3;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call is about to be sent.
    Intent,
    /// How that call ended.
    Outcome,
    /// A refused call, complete in one record.
    Whole,
}

/// The properties of a call before it is sent; bodies are already redacted and truncated.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntentFields<'a> {
    pub(super) id: CallId,
    pub(super) surface: u8,
    pub(super) started_ms: u64,
    pub(super) project: &'a str,
    pub(super) agent: &'a str,
    pub(super) key: &'a str,
    pub(super) user: Option<&'a str>,
    pub(super) user_trust: UserTrust,
    pub(super) session: Option<&'a str>,
    pub(super) run: Option<&'a str>,
    pub(super) step: Option<&'a str>,
    /// The call's place in its trace, as a `traceparent`.
    pub(super) trace: Option<&'a str>,
    pub(super) server: &'a str,
    pub(super) server_id: Option<ServerId>,
    pub(super) method: &'a str,
    pub(super) tool: &'a str,
    pub(super) schema_version: Option<&'a str>,
    pub(super) input: Option<&'a str>,
    pub(super) input_bytes: u64,
    pub(super) policy_revision: Option<u64>,
    pub(super) grant: Option<&'a str>,
    pub(super) parent: Option<&'a str>,
    pub(super) user_source: Option<UserSource>,
}

impl IntentFields<'_> {
    /// Returns the byte with the surface of a call, and whether its user id is trusted.
    fn origin(&self) -> u8 {
        match self.user_trust {
            UserTrust::Asserted => self.surface,
            UserTrust::Trusted => self.surface | USER_TRUSTED,
        }
    }
}

/// The outcome of a call; bodies are already redacted and truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutcomeFields<'a> {
    pub(super) status: CallStatus,
    pub(super) duration_us: u64,
    pub(super) code: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) output: Option<&'a str>,
    pub(super) output_bytes: u64,
    pub(super) measured: Measurements,
    pub(super) error_kind: Option<ErrorKind>,
}

/// A decoded record; its texts are borrowed from the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// An intent, as a row that is still running.
    Intent(CallRow<&'a str>),
    /// An outcome.
    Outcome(OutcomeFields<'a>),
    /// A complete row.
    Whole(CallRow<&'a str>),
}

/// The random part of a segment's seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salt(pub(super) u64);

impl Salt {
    /// Returns the first word of every record in the segment.
    fn magic(self) -> u32 {
        // Never zero: unused space must not look like a record.
        (self.0 as u32) | 1
    }

    fn seal(self, offset: u64) -> u32 {
        let mixed = (self.0 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32
    }
}

/// Returns the maximum size of an outcome, including bodies of `body_bytes`.
pub(super) const fn largest_outcome(body_bytes: usize) -> u64 {
    padded(HEADER + fields::LONGEST_OUTCOME + body_bytes) as u64
}

/// Returns the maximum size of any record.
pub(super) const fn largest_record(body_bytes: usize) -> u64 {
    let repeats = 8;
    largest_outcome(body_bytes) + padded(repeats + fields::LONGEST_INTENT + body_bytes) as u64
}

const fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

/// Encodes an intent into `buffer`, without its seal.
pub(super) fn encode_intent(buffer: &mut Vec<u8>, intent: &IntentFields<'_>) {
    begin(
        buffer,
        Kind::Intent,
        CallStatus::Running,
        intent.origin(),
        intent.id,
    );
    put_intent(buffer, intent);
    finish(buffer);
}

/// Encodes an outcome into `buffer`, without its seal.
pub(super) fn encode_outcome(buffer: &mut Vec<u8>, id: CallId, outcome: &OutcomeFields<'_>) {
    begin(buffer, Kind::Outcome, outcome.status, 0, id);
    put_outcome(buffer, outcome);
    finish(buffer);
}

/// Encodes a complete row into `buffer`, without its seal; `repeats` is how many calls it stands
/// for.
pub(super) fn encode_whole(
    buffer: &mut Vec<u8>,
    intent: &IntentFields<'_>,
    outcome: &OutcomeFields<'_>,
    repeats: u64,
) {
    begin(
        buffer,
        Kind::Whole,
        outcome.status,
        intent.origin(),
        intent.id,
    );
    buffer.extend_from_slice(&repeats.to_le_bytes());
    put_intent(buffer, intent);
    put_outcome(buffer, outcome);
    finish(buffer);
}

/// Changes how many calls an encoded complete row stands for.
pub(super) fn set_repeats(encoded: &mut [u8], repeats: u64) {
    encoded[HEADER..HEADER + 8].copy_from_slice(&repeats.to_le_bytes());
    write_checksum(encoded);
}

/// Seals an encoded record for its position.
pub(super) fn seal(encoded: &mut [u8], salt: Salt, offset: u64) {
    let checksum = word(encoded, 8) ^ salt.seal(offset);
    encoded[0..4].copy_from_slice(&salt.magic().to_le_bytes());
    encoded[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Removes the seal of a record, so that it can be moved.
pub(super) fn unseal(encoded: &mut [u8]) {
    write_checksum(encoded);
}

/// What was found at a position in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A valid record of this kind and call, and its length including padding.
    Record(Kind, CallId, usize),
    /// A possible record of which only the beginning is in `bytes`.
    Incomplete,
    /// No record.
    Nothing,
}

/// Reads the record at the beginning of `bytes`, which are at `offset` of the segment.
pub(super) fn read(bytes: &[u8], salt: Salt, offset: u64) -> Found {
    if bytes.len() < HEADER {
        return Found::Incomplete;
    }
    if word(bytes, 0) != salt.magic() {
        return Found::Nothing;
    }
    let length = word(bytes, 4) as usize;
    if length < HEADER || padded(length) > LARGEST {
        return Found::Nothing;
    }
    if bytes.len() < padded(length) {
        return Found::Incomplete;
    }
    let record = &bytes[..length];
    if word(record, 8) != checksum(record) ^ salt.seal(offset) {
        return Found::Nothing;
    }
    match (Kind::of(record[12]), decode(bytes)) {
        (Some(kind), Some(_)) => Found::Record(kind, id_of(record), padded(length)),
        _ => Found::Nothing,
    }
}

/// Returns what lies between a record found by `read` and the next place for one.
pub(super) fn padding(bytes: &[u8]) -> std::ops::Range<usize> {
    let length = word(bytes, 4) as usize;
    length..padded(length)
}

/// Decodes a record found by `read`; `None` if its fields are invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Entry<'_>> {
    let record = bytes.get(..word(bytes, 4) as usize)?;
    let (kind, version, status, surface) = (record[12], record[13], record[14], record[15]);
    if !(1..=VERSION).contains(&version) {
        return None;
    }
    let (id, status) = (id_of(record), status_of(status)?);
    let mut fields = Fields(&record[HEADER..]);
    Some(match Kind::of(kind)? {
        Kind::Intent => Entry::Intent(fields.row(id, surface, version)?),
        Kind::Outcome => Entry::Outcome(fields.ending(status, version)?),
        Kind::Whole => {
            let repeats = fields.number()?;
            let mut row = fields.row(id, surface, version)?;
            row.repeats = repeats;
            fields.ending(status, version)?.complete(&mut row);
            Entry::Whole(row)
        }
    })
}

fn begin(buffer: &mut Vec<u8>, kind: Kind, status: CallStatus, surface: u8, id: CallId) {
    buffer.clear();
    buffer.extend_from_slice(&[0; 12]);
    buffer.extend_from_slice(&[kind.number(), VERSION, status_number(status), surface]);
    buffer.extend_from_slice(&id.to_bits().to_le_bytes());
}

fn finish(buffer: &mut Vec<u8>) {
    let length = u32::try_from(buffer.len()).expect("a record is far below 4 GiB");
    buffer[4..8].copy_from_slice(&length.to_le_bytes());
    buffer.resize(padded(buffer.len()), 0);
    write_checksum(buffer);
}

fn write_checksum(encoded: &mut [u8]) {
    let length = word(encoded, 4) as usize;
    let checksum = checksum(&encoded[..length]);
    encoded[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the checksum of everything but the first word and the checksum itself.
fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(word(record, 4));
    hasher.update(&record[12..]);
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the first `longest` bytes of `text`, or a little less: characters stay whole.
pub(super) fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

impl<'a> OutcomeFields<'a> {
    /// Completes the row with the outcome.
    pub(super) fn complete(self, row: &mut CallRow<&'a str>) {
        row.status = self.status;
        row.ended_ms = Some(row.started_ms.saturating_add(self.duration_us / 1000));
        row.duration_us = Some(self.duration_us);
        row.code = self.code;
        row.error = self.error;
        row.output = self.output;
        row.output_bytes = self.output_bytes;
        row.details.phases = self.measured.phases;
        row.details.attempts = self.measured.attempts;
        row.details.input_check = self.measured.input_check;
        row.details.output_check = self.measured.output_check;
        row.details.error_kind = self.error_kind;
    }
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Intent => 1,
            Self::Outcome => 2,
            Self::Whole => 3,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Intent,
            2 => Self::Outcome,
            3 => Self::Whole,
            _ => return None,
        })
    }
}

fn id_of(record: &[u8]) -> CallId {
    let mut bits = [0; 16];
    bits.copy_from_slice(&record[16..32]);
    CallId::from_bits(u128::from_le_bytes(bits))
}

const fn status_number(status: CallStatus) -> u8 {
    match status {
        CallStatus::Running => 0,
        CallStatus::Ok => 1,
        CallStatus::Error => 2,
        CallStatus::Timeout => 3,
        CallStatus::Cancelled => 4,
        CallStatus::Refused => 5,
        CallStatus::Unknown => 6,
    }
}

const fn status_of(number: u8) -> Option<CallStatus> {
    Some(match number {
        0 => CallStatus::Running,
        1 => CallStatus::Ok,
        2 => CallStatus::Error,
        3 => CallStatus::Timeout,
        4 => CallStatus::Cancelled,
        5 => CallStatus::Refused,
        6 => CallStatus::Unknown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
