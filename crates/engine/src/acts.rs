//! The log of administrative acts: each is written before its effect and completed after it, so that
//! one that was interrupted shows as unfinished. Values are JSON with a fingerprint in place of every
//! secret (`values`). Refused attempts are counted, so that a flood of them stays a few rows
//! (`refused`); an end that the database cannot take is tried again (`ending`). Entry points: [`Acts::begin`] and [`Acts::refused`].

mod ending;
mod refused;
pub(crate) mod values;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind, Role};
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::{KeyId, ProjectName};
use gantry_model::settings::Sensitive;
use gantry_store::{ActFilter, ActOutcome, ActRow, Store};
use serde_json::Value;

use self::ending::Endings;
use self::refused::Refused;
pub(crate) use self::values::Values;
use crate::audit::{ActLog, RecordedAct};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};

/// The longest target of an act that is kept, in characters.
const LONGEST_TARGET: usize = 256;
/// The longest value that is kept, in bytes.
const LONGEST_VALUE: usize = 16 << 10;
/// How long a mandatory act waits for its record.
const PATIENCE: Duration = Duration::from_secs(1);

/// The actor of an administrative act, and the origin of the request.
#[derive(Debug, Clone)]
pub struct Actor {
    key: Option<KeyId>,
    name: String,
    /// The role of an administrator's key; `None` for the gateway, a file or an embedding program.
    role: Option<Role>,
    address: Option<IpAddr>,
    via: Via,
    /// Whether it carries out another actor's request, as an approver.
    approves: bool,
    /// Whether one of its acts was recorded.
    recorded: Arc<AtomicBool>,
}

/// The surface of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Via {
    Rest,
    File,
    Gateway,
    Library,
}

impl Via {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::File => "file",
            Self::Gateway => "gateway",
            Self::Library => "library",
        }
    }
}

impl Actor {
    /// Returns whether it acts with this key.
    pub fn acts_with(&self, key: KeyId) -> bool {
        self.key == Some(key)
    }

    /// Returns where it acts from, if that is known.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn named(name: impl Into<String>, via: Via) -> Self {
        Self {
            key: None,
            role: None,
            name: name.into(),
            address: None,
            via,
            approves: false,
            recorded: Arc::default(),
        }
    }

    /// Returns the holder of a key that sends a request from an address.
    pub fn over_http(caller: &Caller, address: Option<IpAddr>) -> Self {
        Self {
            address,
            via: Via::Rest,
            ..Self::from(caller)
        }
    }

    /// Returns a browser that brings the answer of a sign-in, without a key.
    pub fn browser(address: Option<IpAddr>) -> Self {
        Self {
            address,
            ..Self::named("browser", Via::Rest)
        }
    }

    /// Returns the author of configuration files.
    pub fn files(who: impl Into<String>) -> Self {
        Self::named(who, Via::File)
    }

    /// Returns the gateway itself.
    pub(crate) fn gateway() -> Self {
        Self::named("gateway", Via::Gateway)
    }

    /// Returns the id of its key; empty if it has none.
    pub(crate) fn key(&self) -> String {
        self.key.map(|key| key.to_string()).unwrap_or_default()
    }

    /// Returns its name for display.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the role of its key; `None` for the gateway, a file or an embedding program.
    pub(crate) fn role(&self) -> Option<Role> {
        self.role
    }

    /// Returns the same actor as an approver of another actor's request.
    pub(crate) fn approving(&self) -> Self {
        Self {
            approves: true,
            recorded: Arc::default(),
            ..self.clone()
        }
    }

    /// Refuses a change that needs a second person, unless this is one. An actor without a key is
    /// the gateway, a file or an embedding program, and is exempt.
    pub(crate) fn second_person(&self, reasons: Vec<Sensitive>) -> Result<(), EngineError> {
        match reasons.is_empty() || self.approves || self.role.is_none() {
            true => Ok(()),
            false => Err(AdminError::NeedsSecondPerson { reasons }.into()),
        }
    }

    /// Returns whether the actor may bind secrets to servers without knowing their values: an
    /// approver, or an administrator of the installation. Permission to edit servers does not
    /// suffice, since it would allow reading every secret.
    pub fn may_bind_secrets(&self) -> bool {
        match self.role {
            None | Some(Role::Installation | Role::Approver) => true,
            Some(Role::Admin | Role::Operator | Role::Auditor) => false,
        }
    }

    /// Refuses to create or revoke a key whose role is above the actor's own.
    pub(crate) fn over_key(&self, kind: KeyKind) -> Result<(), EngineError> {
        match (self.role, kind.role()) {
            (Some(own), Some(role)) if !own.may_give(role) => {
                Err(AdminError::RoleAbove { role }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether an act of this actor, or of a clone of it, was recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        Self {
            key: Some(caller.key),
            role: caller.kind.role(),
            ..Self::named(caller.agent.to_string(), Via::Library)
        }
    }
}

impl From<&Self> for Actor {
    fn from(actor: &Self) -> Self {
        actor.clone()
    }
}

/// An act that is about to be done.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) act: &'static str,
    pub(crate) target: String,
    pub(crate) detail: String,
    pub(crate) before: Option<Value>,
    /// The new value.
    pub(crate) after: Option<Value>,
}

impl Draft {
    pub(crate) fn new(act: &'static str, target: impl Into<String>) -> Self {
        let target = target.into();
        Self {
            act,
            target,
            ..Self::default()
        }
    }

    pub(crate) fn before(mut self, value: Value) -> Self {
        self.before = Some(value);
        self
    }

    pub(crate) fn after(mut self, value: Value) -> Self {
        self.after = Some(value);
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    fn row(self, project: &ProjectName, by: &Actor) -> ActRow {
        ActRow {
            project: project.to_string(),
            at_ms: unix_ms(),
            key: by.key(),
            actor: by.name.clone(),
            address: by.address.map(|address| address.to_string()),
            via: by.via.as_str().to_owned(),
            act: self.act.to_owned(),
            target: short(&self.target),
            detail: short(&self.detail),
            before: self.before.as_ref().map(bounded),
            after: self.after.as_ref().map(bounded),
            outcome: ActOutcome::Unfinished,
            repeats: 1,
            ..ActRow::default()
        }
    }
}

/// The log of a project's administrative acts.
pub(crate) struct Acts {
    store: Store,
    log: ActLog,
    project: ProjectName,
    /// Converts values for the log.
    pub(crate) values: Values,
    refused: Refused,
    endings: Endings,
}

/// A running act; without an end it stays unfinished.
#[must_use]
pub(crate) struct OpenAct {
    endings: Endings,
    /// What is written, or the row to write if there is none yet.
    record: Result<Box<RecordedAct>, Box<ActRow>>,
}

impl Acts {
    pub(crate) fn new((store, log): (Store, ActLog), project: ProjectName, values: Values) -> Self {
        Self {
            refused: Refused::new(log.clone()),
            endings: Endings::new(log.clone()),
            log,
            store,
            project,
            values,
        }
    }

    /// Records an act before it is done; if that fails, it must not be done.
    pub(crate) async fn begin(&self, by: &Actor, draft: Draft) -> Result<OpenAct, EngineError> {
        let act = self.log.put(draft.row(&self.project, by)).await?;
        by.recorded.store(true, Ordering::Release);
        Ok(OpenAct {
            endings: self.endings.clone(),
            record: Ok(Box::new(act)),
        })
    }

    /// Records an act, does it, and records its outcome.
    pub(crate) fn run<T>(
        &self,
        by: &Actor,
        draft: Draft,
        change: impl Future<Output = Result<T, EngineError>>,
    ) -> impl Future<Output = Result<T, EngineError>> {
        // Changes are large; no async function, whose future would hold it twice.
        let change = Box::pin(change);
        async move {
            let act = self.begin(by, draft).await?;
            let done = change.await;
            act.end(&done).await;
            done
        }
    }

    /// Records an act that must not wait for an unavailable database.
    pub(crate) async fn begin_anyway(&self, by: &Actor, draft: Draft) -> OpenAct {
        let row = draft.row(&self.project, by);
        let put = tokio::time::timeout(PATIENCE, self.log.put(row.clone())).await;
        by.recorded.store(true, Ordering::Release);
        let record = match put {
            Ok(Ok(act)) => Ok(Box::new(act)),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(
                    act = row.act,
                    target = row.target,
                    actor = row.actor,
                    key = row.key,
                    "an administrative act could not be recorded before its effect"
                );
                Err(Box::new(row))
            }
        };
        OpenAct {
            endings: self.endings.clone(),
            record,
        }
    }

    /// Records an attempt that was refused before it became an act; equal ones are counted.
    pub(crate) async fn refused(&self, by: &Actor, act: &'static str, target: &str, code: &str) {
        by.recorded.store(true, Ordering::Release);
        let row = Draft::new(act, target).row(&self.project, by);
        self.refused.note(row, code).await;
    }

    /// Returns the project's acts that match the filter, newest first; includes the counts of
    /// refused attempts.
    pub(crate) async fn list(&self, filter: &ActFilter) -> Result<Vec<ActRow>, EngineError> {
        self.refused.settle().await;
        let filter = ActFilter {
            project: Some(self.project.to_string()),
            ..filter.clone()
        };
        Ok(self.store.acts(&filter).await?)
    }

    /// Writes the counts of refused attempts, and ends that wait, before the store is closed.
    pub(crate) async fn settle(&self) {
        self.refused.settle().await;
        self.endings.settle().await;
    }
}

impl OpenAct {
    /// Records the outcome of the act.
    pub(crate) async fn end<T, E: Diagnose>(self, result: &Result<T, E>) {
        self.end_with(result, None, None).await;
    }

    /// Records the outcome of the act, with values that are known only afterwards.
    pub(crate) async fn end_with<T, E: Diagnose>(
        self,
        result: &Result<T, E>,
        target: Option<String>,
        after: Option<Value>,
    ) {
        let (outcome, code) = match result {
            Ok(_) => (ActOutcome::Done, None),
            Err(error) => {
                let outcome = match error.fault() {
                    Fault::Client => ActOutcome::Refused,
                    Fault::Server | Fault::Gateway => ActOutcome::Failed,
                };
                (outcome, Some(error.code().to_owned()))
            }
        };
        let ended = |row: ActRow| ActRow {
            ended_ms: Some(unix_ms()),
            outcome,
            code,
            target: target.as_deref().map_or(row.target, short),
            after: after.as_ref().map(bounded).or(row.after),
            ..row
        };
        let (act, row) = match self.record {
            Ok(act) => {
                let row = ended(act.row.clone());
                (Some(act), row)
            }
            Err(row) => (None, ended(*row)),
        };
        // The effect is done; the caller does not wait for an unavailable database.
        self.endings.write(act, row).await;
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_TARGET).collect()
}

/// Returns a value for storage; for one that is too long, only its length.
fn bounded(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= LONGEST_VALUE {
        return text;
    }
    let fingerprint = value.get("fingerprint");
    serde_json::json!({"left_out_bytes": text.len(), "fingerprint": fingerprint}).to_string()
}
