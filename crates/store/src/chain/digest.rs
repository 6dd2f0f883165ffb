//! The digest of a row: over all of its values, in the same form for both databases.

use sha2::{Digest as _, Sha256};

use super::{Hash, Salt};
use crate::act::ActRow;
use crate::call::{CallRow, Check, ErrorKind, UserSource};

/// The prefix of everything that is hashed as a row.
const ROW: &[u8] = b"gantry audit row 1\0";
/// The prefix of everything that is hashed as an act.
const ACT: &[u8] = b"gantry audit act 1\0";
const LARGEST: u64 = i64::MAX as u64;

/// The gateway and its start that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowOrigin {
    /// The gateway, by its number in the store.
    pub gateway: i64,
    /// The number of its start.
    pub boot: i64,
}

/// Returns the digest of a row; `buffer` is reused between rows.
pub fn row_digest<T: AsRef<str>>(
    buffer: &mut Vec<u8>,
    origin: RowOrigin,
    salt: &Salt,
    row: &CallRow<T>,
) -> Hash {
    buffer.clear();
    buffer.extend_from_slice(ROW);
    buffer.extend_from_slice(salt);
    let mut form = Form(buffer);
    form.number(Some(origin.gateway as u64));
    form.number(Some(origin.boot as u64));
    form.bytes(&row.id.to_bits().to_le_bytes());
    form.number(Some(row.seq));
    for text in [&row.project, &row.agent, &row.key] {
        form.text(Some(text.as_ref()));
    }
    for text in [&row.user, &row.session, &row.run, &row.step, &row.trace] {
        form.text(text.as_ref().map(AsRef::as_ref));
    }
    form.number(Some(u64::from(row.user_trust.is_trusted())));
    form.text(Some(row.surface.as_ref()));
    form.text(Some(row.server.as_ref()));
    let server_id = row.server_id.map(|id| id.to_bits().to_le_bytes());
    form.bytes(server_id.as_ref().map_or(&[], |bytes| bytes.as_slice()));
    form.text(Some(row.method.as_ref()));
    form.text(Some(row.tool.as_ref()));
    form.text(row.schema_version.as_ref().map(AsRef::as_ref));
    form.number(Some(row.started_ms));
    form.number(row.ended_ms);
    form.number(row.duration_us);
    form.text(Some(row.status.as_str()));
    for text in [&row.code, &row.error, &row.input, &row.output] {
        form.text(text.as_ref().map(AsRef::as_ref));
    }
    for number in [row.input_bytes, row.output_bytes, row.repeats] {
        form.number(Some(number));
    }
    let details = &row.details;
    for (_, us) in details.phases.in_order() {
        form.number(us.map(u64::from));
    }
    form.number(details.attempts.map(u64::from));
    form.text(details.input_check.map(Check::as_str));
    form.text(details.output_check.map(Check::as_str));
    form.text(details.error_kind.map(ErrorKind::as_str));
    form.number(details.policy_revision);
    form.text(details.grant.as_ref().map(AsRef::as_ref));
    form.text(details.parent.as_ref().map(AsRef::as_ref));
    form.text(details.user_source.map(UserSource::as_str));
    Sha256::digest(&*buffer).into()
}

/// Returns the digest of an administrative act of a gateway; `buffer` is reused between acts.
pub fn act_digest(buffer: &mut Vec<u8>, gateway: i64, salt: &Salt, row: &ActRow) -> Hash {
    buffer.clear();
    buffer.extend_from_slice(ACT);
    buffer.extend_from_slice(salt);
    let mut form = Form(buffer);
    for number in [gateway as u64, row.id, row.at_ms, row.repeats] {
        form.number(Some(number));
    }
    form.number(row.ended_ms);
    for text in [
        &row.project,
        &row.key,
        &row.actor,
        &row.via,
        &row.act,
        &row.target,
        &row.detail,
    ] {
        form.text(Some(text));
    }
    form.text(Some(row.outcome.as_str()));
    for text in [&row.address, &row.before, &row.after, &row.code] {
        form.text(text.as_deref());
    }
    Sha256::digest(&*buffer).into()
}

/// Appends values such that different lists of values have different bytes.
struct Form<'b>(&'b mut Vec<u8>);

impl Form<'_> {
    /// Appends a number as databases store it: larger values are capped.
    fn number(&mut self, number: Option<u64>) {
        match number {
            Some(number) => {
                self.0.push(1);
                let number = number.min(LARGEST);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
            None => self.0.push(0),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0
            .extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// Appends a text as PostgreSQL stores it, without NUL.
    fn text(&mut self, text: Option<&str>) {
        let Some(text) = text else {
            return self.0.push(0);
        };
        self.0.push(1);
        match text.contains('\0') {
            true => self.bytes(text.replace('\0', "\u{2400}").as_bytes()),
            false => self.bytes(text.as_bytes()),
        }
    }
}
