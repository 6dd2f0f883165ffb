//! The record of every call: an intent in the journal before it is sent, an outcome before its
//! response.
//!
//! `Audit::intent` returns a `Ticket`, which writes the outcome however the call ends. A background
//! task imports the journal into the database. A slow or unavailable database stops no call; only a
//! journal that cannot be written does. Stores no credentials, and waits for no other call (with
//! durability `disk`, for the disk). Entry point: `Audit::open`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use gantry_model::diagnose::chain;
use gantry_model::id::CallId;
use gantry_model::secret::Redactor;
use gantry_model::trace::TraceParent;
use gantry_store::{CallFilter, CallRow, CallStatus, CallUsage, ClockRecord, Store};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::clock::unix_ms;

mod background;
mod body;
mod chain;
mod codes;
mod damage;
mod error;
mod evidence;
mod health;
mod ids;
mod importer;
mod inspect;
mod intent;
mod journal;
mod mark;
mod measured;
mod places;
mod policy;
mod record;
mod refusals;
mod removal;
mod replay;
mod retention;
mod rounds;
mod scan;
mod segment;
mod sync;
mod ticket;

pub(crate) use codes::RowCode;
pub use error::AuditError;
pub use evidence::public_in as public_audit_key;
pub(crate) use evidence::{ActLog, RecordedAct};
pub use evidence::{
    Finding as AuditFinding, FindingKind, HeadMark, PublicKey, TrustedKeys, Verification,
    VerifyOptions, verify,
};
pub use health::AuditHealth;
pub(crate) use ids::CallIds;
pub use inspect::{JournalCheck, verify_journal};
pub use intent::Surface;
pub(crate) use intent::{Intent, Outcome};
pub(crate) use measured::{Measured, Measurements, Phase, Timing};
use policy::BodyLimit;
pub use policy::{AuditPolicy, Bodies, Durability};
pub use removal::Erased;
pub(crate) use ticket::Ticket;

use damage::DamageLog;
use evidence::ChainWriter;
use importer::{JournalImporter, LostOutcomes, RowPolicy};
use journal::{Claim, Journal};
use places::Places;
use record::{IntentFields, OutcomeFields};
use refusals::{RefusalVerdict, Refusals};
use retention::Retention;
use rounds::Rounds;
use segment::Segment;

thread_local! {
    /// The buffer for encoding records; reused, so that a call allocates nothing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The handle on the record of all calls; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    shared: Arc<AuditState>,
}

#[derive(Debug)]
struct AuditState {
    store: Store,
    journal: Arc<Journal>,
    policy: AuditPolicy,
    importer: tokio::sync::Mutex<JournalImporter>,
    chain: Arc<tokio::sync::Mutex<ChainWriter>>,
    refusals: Mutex<Refusals>,
    /// Stores calls while they wait, with durability `database`.
    rounds: Rounds,
    lost: LostOutcomes,
    damage: DamageLog,
    places: Places,
    import_error: Mutex<Option<String>>,
    store_error: Mutex<Option<String>>,
    /// Whether the gateway is cutting off calls: those that end now are recorded as such.
    cutting_off: AtomicBool,
    retention: Mutex<Retention>,
    /// What projects keep of bodies that chose something.
    body_limits: ArcSwap<HashMap<String, BodyLimit>>,
}

impl Audit {
    /// Opens the journal in `dir` and replays the records of an earlier gateway process.
    ///
    /// Ended calls get their rows; calls that were cut off become `unknown`. If the database is
    /// unavailable, the background task retries.
    pub(crate) async fn open(
        dir: &Path,
        store: Store,
        policy: AuditPolicy,
    ) -> Result<Self, AuditError> {
        replay::open(dir, store, policy.bounded()).await
    }

    /// Has every call that gets or changes its row from now on told to `hook`, once the row is stored; returns
    /// the rows that the start itself stored: calls that a former gateway left.
    pub(crate) async fn on_saved(&self, hook: Box<importer::SavedHook>) -> Vec<CallRow> {
        self.shared.importer.lock().await.on_saved(hook)
    }

    /// Records that a call is about to be sent; if that fails, it must not be sent.
    pub(crate) async fn intent<'m>(&self, intent: &Intent<'_>) -> Result<Ticket<'m>, AuditError> {
        let begun = Instant::now();
        let segment = self.write_intent(intent)?;
        let limit = self.body_limit(intent.project);
        let mut ticket = Ticket::new(self.clone(), intent.id, begun, limit);
        let durability = self.shared.policy.durability;
        if matches!(durability, Durability::Disk | Durability::Database) {
            ticket.on_drop(CallStatus::Cancelled, RowCode::Dropped);
            if let Err(error) = self.settle(segment).await {
                ticket.on_drop(CallStatus::Refused, RowCode::Unsynced);
                return Err(error);
            }
            ticket.on_drop(CallStatus::Unknown, RowCode::Dropped);
        }
        Ok(ticket)
    }

    /// Records a call that was refused and never sent; returns whether it has its own row.
    ///
    /// Beyond twenty a second of one agent, server, tool and code, they are counted in one row.
    pub(crate) async fn refusal(
        &self,
        intent: &Intent<'_>,
        outcome: &Outcome<'_>,
    ) -> Result<bool, AuditError> {
        let code = outcome.code.unwrap_or_default();
        let now = Instant::now();
        let verdict = self.refusals().judge(
            (intent.project, intent.agent),
            intent.server,
            intent.tool,
            code,
            now,
        );
        match verdict {
            RefusalVerdict::Counted => Ok(false),
            RefusalVerdict::Count(kind) => {
                let mut encoded = Vec::new();
                self.encode_refusal(&mut encoded, intent, outcome);
                Ok(self.refusals().count(&kind, encoded))
            }
            RefusalVerdict::Row => {
                let segment = BUFFER.with_borrow_mut(|buffer| {
                    self.encode_refusal(buffer, intent, outcome);
                    self.shared.journal.append(buffer, Claim::Whole)
                })?;
                self.settle(segment).await?;
                Ok(true)
            }
        }
    }

    /// Imports everything recorded so far into the database.
    pub(crate) async fn import_now(&self) -> Result<(), AuditError> {
        self.write_refusals();
        self.import(RowPolicy::Ended).await
    }

    /// Returns the calls that match the filter, newest first; open ones are `running`.
    pub(crate) async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, AuditError> {
        self.import_for_reading().await?;
        self.shared
            .store
            .calls(filter)
            .await
            .map_err(AuditError::Store)
    }

    /// Returns one call.
    pub(crate) async fn call(&self, id: CallId) -> Result<Option<CallRow>, AuditError> {
        self.import_for_reading().await?;
        self.shared.store.call(id).await.map_err(AuditError::Store)
    }

    /// Counts the calls that match the filter, ignoring its limit.
    pub(crate) async fn count(&self, filter: &CallFilter) -> Result<u64, AuditError> {
        self.import_for_reading().await?;
        self.shared
            .store
            .count_calls(filter)
            .await
            .map_err(AuditError::Store)
    }

    /// Returns whether there is no problem besides whether calls can be recorded.
    pub(crate) fn is_sound(&self) -> bool {
        self.shared.damage.is_empty()
            && self.shared.import_error.lock().is_none()
            && self.shared.store_error.lock().is_none()
    }

    /// Acknowledges all damage of the journal; returns how much there was.
    pub(crate) async fn acknowledge_damage(&self, by: &str) -> Result<u64, AuditError> {
        let (damage, store) = (&self.shared.damage, &self.shared.store);
        damage
            .acknowledge(store, by)
            .await
            .map_err(AuditError::Store)
    }

    /// Makes calls that are dropped from now on count as cut off by the gateway, with an unknown
    /// outcome.
    pub(crate) fn cut_off(&self) {
        self.shared.cutting_off.store(true, Ordering::Release);
    }

    /// Releases the space that an earlier gateway process had allocated in advance, if the disk is
    /// nearly full.
    pub(crate) fn make_room(dir: &Path) {
        if let Err(error) = journal::make_room(dir) {
            tracing::warn!(path = %dir.display(), %error, "cannot give back unused space of the journal");
        }
    }

    /// Returns how many calls are kept, since when, and their size.
    pub(crate) async fn usage(&self) -> Result<CallUsage, AuditError> {
        self.shared
            .store
            .call_usage()
            .await
            .map_err(AuditError::Store)
    }

    /// Trusts the clock, however far it is ahead: rows that are too old by it may be deleted.
    pub(crate) async fn confirm_clock(&self) -> Result<(), AuditError> {
        let now_ms = unix_ms();
        self.shared
            .store
            .put_clock(ClockRecord::at(now_ms))
            .await
            .map_err(AuditError::Store)?;
        self.shared.retention.lock().believe(now_ms, Instant::now());
        Ok(())
    }

    /// Checks the chain against the rows.
    pub(crate) async fn verify(
        &self,
        data_folder: &Path,
        most: usize,
    ) -> Result<Verification, AuditError> {
        self.import_now().await?;
        let known = self.shared.chain.lock().await.public_key();
        let mark = HeadMark::read(data_folder).map_err(|source| AuditError::Read {
            path: data_folder.to_owned(),
            source,
        })?;
        let options = VerifyOptions {
            trusted: TrustedKeys::AtLeast(vec![known]),
            marks: mark.into_iter().collect(),
            most,
            tables: false,
        };
        let snapshot = self.shared.store.audit_snapshot().await;
        let mut snapshot = snapshot.map_err(AuditError::Store)?;
        verify(&mut snapshot, &options)
            .await
            .map_err(AuditError::Store)
    }

    /// Returns the log of administrative acts, which the chain covers.
    pub(crate) fn act_log(&self) -> ActLog {
        ActLog::new(Arc::clone(&self.shared.chain))
    }

    /// Returns the public key that the chain is signed with.
    pub(crate) async fn public_key(&self) -> PublicKey {
        self.shared.chain.lock().await.public_key()
    }

    /// Returns whether calls can be recorded, and hence are accepted.
    pub(crate) fn is_writable(&self) -> bool {
        self.shared.journal.is_writable() && self.not_stored().is_none()
    }

    /// Waits until the disk fails to confirm a write of the journal or the database, and returns
    /// which.
    pub(crate) async fn disk_failed(&self) -> String {
        tokio::select! {
            error = self.shared.journal.disk_failed() => chain(&error),
            () = self.shared.store.unconfirmed() => {
                "the disk did not confirm what was written to the database".to_owned()
            }
        }
    }

    async fn import_for_reading(&self) -> Result<(), AuditError> {
        self.write_refusals();
        self.import(RowPolicy::Open).await
    }

    async fn import(&self, show: RowPolicy) -> Result<(), AuditError> {
        let imported = self.shared.importer.lock().await.import(show).await;
        *self.shared.import_error.lock() = imported.as_ref().err().map(|error| chain(error));
        imported
    }

    fn write_intent(&self, intent: &Intent<'_>) -> Result<Arc<Segment>, AuditError> {
        self.with_intent(intent, |fields| {
            BUFFER.with_borrow_mut(|buffer| {
                record::encode_intent(buffer, fields);
                self.shared.journal.append(buffer, Claim::Intent)
            })
        })
    }

    /// Writes the outcome of a call; if that fails, its row will say `unknown`.
    fn write_outcome(
        &self,
        id: CallId,
        outcome: &Outcome<'_>,
        limit: BodyLimit,
    ) -> Option<Arc<Segment>> {
        let written = self.with_outcome(outcome, limit, |fields| {
            BUFFER.with_borrow_mut(|buffer| {
                record::encode_outcome(buffer, id, fields);
                self.shared.journal.append(buffer, Claim::Outcome)
            })
        });
        match written {
            Ok(segment) => Some(segment),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(call = %id, error, "the end of a call could not be recorded");
                self.shared.lost.lock().push(id);
                None
            }
        }
    }

    fn encode_refusal(&self, buffer: &mut Vec<u8>, intent: &Intent<'_>, outcome: &Outcome<'_>) {
        self.with_intent(intent, |begun| {
            let limit = self.body_limit(intent.project);
            self.with_outcome(outcome, limit, |ended| {
                record::encode_whole(buffer, begun, ended, 1);
            });
        });
    }

    fn with_intent<T>(
        &self,
        intent: &Intent<'_>,
        use_fields: impl FnOnce(&IntentFields<'_>) -> T,
    ) -> T {
        let input = body::keep(
            self.body_limit(intent.project),
            intent.redactor,
            intent.input.map(str::as_bytes),
        );
        let tool = intent.redactor.redact(intent.tool);
        // A client's own context is not secret, except for Gantry's own keys.
        let own_keys = Redactor::own_keys();
        let context = intent.context;
        let said = [
            &context.user,
            &context.session,
            &context.run,
            &context.step,
            &context.parent,
        ];
        let said = said.map(|text| text.as_deref().map(|text| own_keys.redact(text)));
        let [user, session, run, step, parent] = &said;
        let began = || TraceParent::of_call(intent.id);
        let trace = context.trace.unwrap_or_else(began).text();
        let method = own_keys.redact(intent.method);
        let grant = intent.grant.map(|grant| grant.to_string());
        use_fields(&IntentFields {
            id: intent.id,
            surface: intent.surface.number(),
            started_ms: intent.started_ms,
            project: intent.project,
            agent: intent.agent,
            key: intent.key,
            user: user.as_deref(),
            user_trust: intent.users,
            session: session.as_deref(),
            run: run.as_deref(),
            step: step.as_deref(),
            trace: Some(trace.as_str()),
            server: intent.server,
            server_id: intent.server_id,
            method: &method,
            tool: &tool,
            schema_version: intent.schema_version,
            input: input.as_deref(),
            input_bytes: intent.input.map_or(0, str::len) as u64,
            policy_revision: intent.policy_revision,
            grant: grant.as_deref(),
            parent: parent.as_deref(),
            user_source: intent.user_source.filter(|_| user.is_some()),
        })
    }

    fn with_outcome<T>(
        &self,
        outcome: &Outcome<'_>,
        limit: BodyLimit,
        use_fields: impl FnOnce(&OutcomeFields<'_>) -> T,
    ) -> T {
        let output = body::keep(limit, outcome.redactor, outcome.output);
        let error = outcome.error.map(|error| outcome.redactor.redact(error));
        use_fields(&OutcomeFields {
            status: outcome.status,
            duration_us: u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX),
            code: outcome.code,
            error: error.as_deref(),
            output: output.as_deref(),
            output_bytes: outcome.output.map_or(0, <[u8]>::len) as u64,
            measured: outcome.measured,
            error_kind: outcome.error_kind,
        })
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.shared.refusals.lock()
    }
}

#[cfg(test)]
mod tests;
