//! The ticket of a recorded call: an outcome is written whatever happens to its holder.

use std::sync::atomic::Ordering;

use gantry_model::caller::KeyValidity;
use gantry_model::id::CallId;
use gantry_model::secret::Redactor;
use gantry_store::{CallStatus, ErrorKind};
use tokio::time::Instant;

use super::measured::{Measured, Measurements};
use super::policy::BodyLimit;
use super::{Audit, Outcome, RowCode};

/// A recorded call that has not ended yet.
///
/// If it is dropped without an outcome (the client is gone, a task was cancelled), it writes the
/// one set by `on_drop`; if it is dropped by a panic, or by a gateway that stops, it records that.
#[derive(Debug)]
#[must_use = "a dropped ticket ends its call as unknown"]
pub(crate) struct Ticket<'m> {
    audit: Audit,
    id: CallId,
    begun: Instant,
    status: CallStatus,
    code: RowCode,
    /// The validity of the call's key: if it is over, that ended the call.
    key: Option<KeyValidity>,
    /// What the call was measured by, so that it is recorded also if its caller leaves.
    measured: Option<&'m Measured>,
    /// What is kept of the result.
    bodies: BodyLimit,
    open: bool,
}

impl<'m> Ticket<'m> {
    pub(super) fn new(audit: Audit, id: CallId, begun: Instant, bodies: BodyLimit) -> Self {
        let (status, code) = (CallStatus::Unknown, RowCode::Dropped);
        Self {
            audit,
            id,
            begun,
            status,
            code,
            key: None,
            measured: None,
            bodies,
            open: true,
        }
    }

    /// Returns the identity of the call.
    #[cfg(test)]
    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Sets the outcome to record if the ticket is dropped.
    pub(crate) fn on_drop(&mut self, status: CallStatus, code: RowCode) {
        self.status = status;
        self.code = code;
    }

    /// Sets the key of the call.
    pub(crate) fn made_with(&mut self, key: &KeyValidity) {
        self.key = Some(key.clone());
    }

    /// Names what the call is measured by.
    pub(crate) fn measured_by(&mut self, measured: &'m Measured) {
        self.measured = Some(measured);
    }

    /// Records the outcome of the call; the reply may be sent afterwards.
    ///
    /// Space was reserved with the intent. If the disk fails nevertheless, that is logged and the
    /// call's row will be `unknown`.
    pub(crate) fn outcome(mut self, outcome: &Outcome<'_>) -> impl Future<Output = ()> + use<'m> {
        self.open = false;
        // Written at once, so that nothing of the outcome is kept while its caller waits.
        let written = self.audit.write_outcome(self.id, outcome, self.bodies);
        async move {
            if let Some(segment) = written
                && let Err(error) = self.audit.settle(segment).await
            {
                let error = super::chain(&error);
                tracing::error!(call = %self.id, error, "the end of a call may not be recorded as promised");
            }
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let cut_off = self.audit.shared.cutting_off.load(Ordering::Acquire);
        let (status, code) = match (std::thread::panicking(), cut_off) {
            (true, _) => (CallStatus::Error, RowCode::Panicked.code()), // fault P12
            // The call was not cancelled: the server may have done it. fault P4
            (false, true) => (CallStatus::Unknown, RowCode::CutOff.code()),
            (false, false) => match self.key.as_ref().and_then(KeyValidity::end_reason) {
                Some(end) if self.status == CallStatus::Cancelled => (self.status, end.code()),
                Some(_) | None => (self.status, self.code.code()),
            },
        };
        let outcome = Outcome {
            status,
            code: Some(code),
            error: None,
            output: None,
            duration: self.begun.elapsed(),
            redactor: Redactor::own_keys(),
            measured: self
                .measured
                .map_or_else(Measurements::default, Measured::read),
            error_kind: Some(if status == CallStatus::Cancelled {
                ErrorKind::Caller
            } else {
                ErrorKind::Gateway
            }),
        };
        if let Some(segment) = self.audit.write_outcome(self.id, &outcome, self.bodies) {
            self.audit.settle_soon(segment);
        }
    }
}
