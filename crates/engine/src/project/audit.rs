//! Administration of the record of a project's calls: verify its chain, place and release holds,
//! erase a person's data, read the bodies of a call. Each is recorded as an act. Entry points: the
//! methods of [`Project`].

use std::sync::Arc;

use gantry_model::hex::hex;
use gantry_model::id::CallId;
use gantry_store::{CallFilter, CallRow, HoldRow};
use serde_json::{Value, json};

use super::Project;
use crate::acts::{Actor, Draft};
use crate::audit::{Erased, PublicKey, Verification};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::random::random;

/// The maximum number of returned findings; all are counted.
const MOST_FINDINGS: usize = 1000;
/// The maximum number of active holds of a project.
const MOST_HOLDS: usize = 1000;

/// The calls to hold; `None` matches any call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewHold {
    /// Only calls of this agent.
    pub agent: Option<String>,
    /// Only calls on behalf of this user.
    pub user: Option<String>,
    /// Only calls to this server.
    pub server: Option<String>,
    /// Only calls that were received at this time or later.
    pub since_ms: Option<u64>,
    /// Only calls that were received before this time.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: String,
}

impl Project {
    /// Verifies the chain of the audit against its rows. A project other than the gateway's own
    /// gets only the findings about its calls and acts, and whether there are any others: how much others
    /// call is not its business. fault T8
    pub async fn verify_audit(&self) -> Result<Verification, EngineError> {
        let machine = &self.machine;
        let audit = machine.audit.clone();
        let mut report = audit.verify(machine.folder.path(), MOST_FINDINGS).await?;
        if machine.config.project != self.name {
            let is_own = |project: &Option<String>| project.as_deref() == Some(self.name.as_str());
            report.findings.retain(|finding| is_own(&finding.project));
            let own = report.findings.len() as u64;
            report.count = own + u64::from(report.count > own);
            report.rows = self.count_calls(&CallFilter::default()).await?;
            report.acts = machine.store.count_acts(self.name.as_str()).await?;
            (report.blocks, report.not_covered, report.acts_not_covered) = (0, 0, 0);
            report.heads.clear();
            report.keys_from_store.clear();
        }
        Ok(report)
    }

    /// Returns the public key of the audit's signatures by this gateway.
    pub async fn audit_key(&self) -> PublicKey {
        self.machine.audit.public_key().await
    }

    /// Returns the holds on the project's calls, including released ones.
    pub async fn holds(&self) -> Result<Vec<HoldRow>, EngineError> {
        Ok(self.machine.store.holds(self.name.as_str()).await?)
    }

    /// Protects calls from deletion by age and from erasure.
    pub async fn hold(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        new: NewHold,
    ) -> Result<HoldRow, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let holds = project.holds().await?;
            let open = holds.iter().filter(|hold| hold.released_ms.is_none());
            if open.count() >= MOST_HOLDS {
                return Err(AdminError::TooManyHolds { limit: MOST_HOLDS }.into());
            }
            let hold = HoldRow {
                id: format!("hold_{}", hex(&random::<8>())),
                project: project.name.to_string(),
                agent: new.agent,
                user: new.user,
                server: new.server,
                since_ms: new.since_ms,
                until_ms: new.until_ms,
                reason: new.reason,
                created_ms: unix_ms(),
                created_by: by.name().to_owned(),
                released_ms: None,
                released_by: None,
            };
            let draft = Draft::new("audit.hold", hold.id.clone()).after(held(&hold));
            let place = async {
                project.machine.store.put_hold(&hold).await?;
                Ok(())
            };
            project.acts.run(&by, draft, place).await?;
            Ok(hold)
        })
        .await
    }

    /// Releases a hold.
    pub async fn release_hold(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: String,
    ) -> Result<(), EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let holds = project.holds().await?;
            let mut open = holds.iter().filter(|hold| hold.released_ms.is_none());
            let mut draft = Draft::new("audit.release", id.clone());
            draft.before = open.find(|hold| hold.id == id).map(held);
            let release = async {
                let (store, name) = (&project.machine.store, project.name.as_str());
                match store.release_hold(name, &id, unix_ms(), by.name()).await? {
                    true => Ok(()),
                    false => Err(AdminError::UnknownHold { id }.into()),
                }
            };
            project.acts.run(&by, draft, release).await
        })
        .await
    }

    /// Erases a person's data from the project's calls; the rows stay, and held calls are
    /// unchanged. The act does not name the person.
    pub async fn erase_user(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        user: String,
    ) -> Result<Erased, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("audit.erase", "user");
            let audit = &project.machine.audit;
            let erase = async { Ok(audit.erase_user(project.name.as_str(), &user).await?) };
            project.acts.run(&by, draft, erase).await
        })
        .await
    }

    /// Returns a call to a reader other than its agent; the access is recorded first if the reader
    /// sees bodies: those of the row, or an outcome that is still kept beside it.
    pub async fn read_call(
        &self,
        by: impl Into<Actor>,
        id: CallId,
        is_outcome_kept: bool,
    ) -> Result<Option<CallRow>, EngineError> {
        let Some(row) = self.call(id).await? else {
            return Ok(None);
        };
        if is_outcome_kept || row.input.is_some() || row.output.is_some() {
            let by = by.into();
            let draft = Draft::new("call.read", id.to_string());
            let act = self.acts.begin(&by, draft).await?;
            act.end(&Ok::<(), EngineError>(())).await;
        }
        Ok(Some(row))
    }

    /// Records an export of calls with their bodies.
    pub async fn record_export(
        &self,
        by: impl Into<Actor>,
        filter: Value,
    ) -> Result<(), EngineError> {
        let by = by.into();
        let draft = Draft::new("calls.export", self.name.as_str()).after(filter);
        let act = self.acts.begin(&by, draft).await?;
        act.end(&Ok::<(), EngineError>(())).await;
        Ok(())
    }
}

/// Returns what a hold says, for the log of acts.
fn held(hold: &HoldRow) -> Value {
    json!({
        "agent": hold.agent, "user": hold.user, "server": hold.server,
        "since_ms": hold.since_ms, "until_ms": hold.until_ms, "reason": hold.reason,
    })
}
