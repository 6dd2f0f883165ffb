//! The fields of a record, in order, each text after its length.

use gantry_model::id::{CallId, ServerId};
use gantry_model::trace::recorded_parts;
use gantry_store::{CallRow, CallStatus, Check, ErrorKind, Phases, UserSource};

use super::{IntentFields, OutcomeFields, cut};
use crate::audit::Surface;
use crate::audit::measured::Measurements;

/// The longest name, key or context value that is recorded; longer ones are truncated.
const LONGEST_NAME: usize = 512;
/// The longest tool name or resource URI.
const LONGEST_TOOL: usize = 2048;
/// The longest error text.
const LONGEST_ERROR: usize = 1024;
/// The longest code.
const LONGEST_CODE: usize = 64;
/// The most bytes of an intent's fields, without its body: three numbers, an id, twelve names, the tool, the
/// schema's version, their lengths and the body's, and who named the user.
pub(super) const LONGEST_INTENT: usize =
    3 * 8 + 16 + 12 * (2 + LONGEST_NAME) + (2 + LONGEST_TOOL) + (2 + LONGEST_CODE) + 4 + 1;
/// The maximum size of an outcome's fields, without its body.
pub(super) const LONGEST_OUTCOME: usize =
    2 * 8 + (2 + LONGEST_CODE) + (2 + LONGEST_ERROR) + 4 + 7 * 4 + 3;
/// The bit in the surface's byte for a trusted user id.
pub(super) const USER_TRUSTED: u8 = 0x80;
const NONE_SHORT: u16 = u16::MAX;
const NONE_LONG: u32 = u32::MAX;
const NO_NUMBER: u64 = u64::MAX;

/// Appends the fields of an intent.
pub(super) fn put_intent(buffer: &mut Vec<u8>, intent: &IntentFields<'_>) {
    buffer.extend_from_slice(&intent.started_ms.to_le_bytes());
    buffer.extend_from_slice(&intent.input_bytes.to_le_bytes());
    put_short(buffer, Some(intent.project), LONGEST_NAME);
    put_short(buffer, Some(intent.agent), LONGEST_NAME);
    put_short(buffer, Some(intent.key), LONGEST_NAME);
    put_short(buffer, intent.user, LONGEST_NAME);
    put_short(buffer, intent.session, LONGEST_NAME);
    put_short(buffer, intent.run, LONGEST_NAME);
    put_short(buffer, intent.step, LONGEST_NAME);
    put_short(buffer, intent.trace, LONGEST_NAME);
    put_short(buffer, Some(intent.server), LONGEST_NAME);
    put_short(buffer, Some(intent.method), LONGEST_NAME);
    put_short(buffer, Some(intent.tool), LONGEST_TOOL);
    put_short(buffer, intent.schema_version, LONGEST_CODE);
    let server_id = intent.server_id.map_or(0, ServerId::to_bits);
    buffer.extend_from_slice(&server_id.to_le_bytes());
    put_long(buffer, intent.input);
    let revision = intent.policy_revision.unwrap_or(NO_NUMBER);
    buffer.extend_from_slice(&revision.to_le_bytes());
    put_short(buffer, intent.grant, LONGEST_NAME);
    put_short(buffer, intent.parent, LONGEST_NAME);
    buffer.push(intent.user_source.map_or(0, UserSource::number));
}

/// Appends the fields of an outcome.
pub(super) fn put_outcome(buffer: &mut Vec<u8>, outcome: &OutcomeFields<'_>) {
    buffer.extend_from_slice(&outcome.duration_us.to_le_bytes());
    buffer.extend_from_slice(&outcome.output_bytes.to_le_bytes());
    put_short(buffer, outcome.code, LONGEST_CODE);
    put_short(buffer, outcome.error, LONGEST_ERROR);
    put_long(buffer, outcome.output);
    let measured = &outcome.measured;
    for (_, us) in measured.phases.in_order() {
        buffer.extend_from_slice(&us.unwrap_or(NONE_LONG).to_le_bytes());
    }
    let attempts = measured.attempts.unwrap_or(NONE_LONG);
    buffer.extend_from_slice(&attempts.to_le_bytes());
    buffer.push(measured.input_check.map_or(0, Check::number));
    buffer.push(measured.output_check.map_or(0, Check::number));
    buffer.push(outcome.error_kind.map_or(0, ErrorKind::number));
}

fn put_short(buffer: &mut Vec<u8>, text: Option<&str>, longest: usize) {
    let Some(text) = text else {
        buffer.extend_from_slice(&NONE_SHORT.to_le_bytes());
        return;
    };
    let text = cut(text, longest);
    buffer.extend_from_slice(&(text.len() as u16).to_le_bytes());
    buffer.extend_from_slice(text.as_bytes());
}

fn put_long(buffer: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else {
        buffer.extend_from_slice(&NONE_LONG.to_le_bytes());
        return;
    };
    buffer.extend_from_slice(&(text.len() as u32).to_le_bytes());
    buffer.extend_from_slice(text.as_bytes());
}

/// Decodes the fields of a record; returns `None` where they are invalid.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Decodes a number.
    pub(super) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Decodes the id of a server, if there is one.
    fn server_id(&mut self) -> Option<Option<ServerId>> {
        let bits = u128::from_le_bytes(self.take(16)?.try_into().ok()?);
        Some((bits != 0).then(|| ServerId::from_random(bits)))
    }

    fn small(&mut self) -> Option<Option<u32>> {
        let number = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        Some((number != NONE_LONG).then_some(number))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn short(&mut self) -> Option<Option<&'a str>> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        if length == NONE_SHORT {
            return Some(None);
        }
        std::str::from_utf8(self.take(usize::from(length))?)
            .ok()
            .map(Some)
    }

    fn long(&mut self) -> Option<Option<&'a str>> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        if length == NONE_LONG {
            return Some(None);
        }
        std::str::from_utf8(self.take(length as usize)?)
            .ok()
            .map(Some)
    }

    /// Decodes an intent as the row of a running call.
    pub(super) fn row(&mut self, id: CallId, surface: u8, version: u8) -> Option<CallRow<&'a str>> {
        let started_ms = self.number()?;
        let input_bytes = self.number()?;
        let mut row = CallRow {
            started_ms,
            input_bytes,
            project: self.short()??,
            agent: self.short()??,
            key: self.short()??,
            user: self.short()?,
            user_trust: (surface & USER_TRUSTED != 0).into(),
            session: self.short()?,
            run: self.short()?,
            step: self.short()?,
            trace: self.short()?,
            server: self.short()??,
            method: self.short()??,
            tool: self.short()??,
            schema_version: self.short()?,
            server_id: if version == 1 {
                None
            } else {
                self.server_id()?
            },
            input: self.long()?,
            surface: Surface::from_number(surface & !USER_TRUSTED)?.as_str(),
            status: CallStatus::Running,
            ..CallRow::of_id(id)
        };
        if let Some(place) = row.trace {
            let (trace, parent_span) = recorded_parts(place);
            (row.trace, row.parent_span) = (Some(trace), parent_span);
        }
        if version >= 3 {
            let revision = self.number()?;
            row.details.policy_revision = (revision != NO_NUMBER).then_some(revision);
            row.details.grant = self.short()?;
            row.details.parent = self.short()?;
            row.details.user_source = UserSource::from_number(self.byte()?);
        }
        Some(row)
    }

    /// Takes how a call ended.
    pub(super) fn ending(&mut self, status: CallStatus, version: u8) -> Option<OutcomeFields<'a>> {
        let mut ending = OutcomeFields {
            status,
            duration_us: self.number()?,
            output_bytes: self.number()?,
            code: self.short()?,
            error: self.short()?,
            output: self.long()?,
            measured: Measurements::default(),
            error_kind: None,
        };
        if version >= 3 {
            ending.measured = Measurements {
                phases: Phases {
                    auth_us: self.small()?,
                    grant_us: self.small()?,
                    schema_us: self.small()?,
                    queue_us: self.small()?,
                    server_us: self.small()?,
                    output_us: self.small()?,
                },
                attempts: self.small()?,
                input_check: Check::from_number(self.byte()?),
                output_check: Check::from_number(self.byte()?),
            };
            ending.error_kind = ErrorKind::from_number(self.byte()?);
        }
        Some(ending)
    }
}
