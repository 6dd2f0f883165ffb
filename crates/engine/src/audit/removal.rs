//! Removal from the audit: calls older than the retention period of their project, and a person's
//! data on request. Calls under a hold are kept in both cases, and the chain records every removal.
//! Entry points: `Audit::drop_step`, `Audit::erase_user`.

use gantry_model::settings::{AuditSettings, ProjectSettings};
use gantry_store::{HoldRow, StoreError, StoredCall};

use super::Audit;
use crate::audit::AuditError;

/// How many calls are erased at once.
const ERASED_AT_ONCE: u32 = 500;
const DAY_MS: u64 = 86_400_000;

/// The result of one step of a run.
pub(super) struct Step {
    pub(super) dropped: u64,
    /// Whether there may be more calls to check.
    pub(super) has_more: bool,
}

/// The result of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// How many calls were erased.
    pub calls: u64,
    /// How many calls were kept because of a hold.
    pub held: u64,
}

impl Audit {
    /// Deletes some calls that are too old; continues where the last step of the run ended.
    pub(super) async fn drop_step(&self, clock_ms: u64, most: u32) -> Result<Step, StoreError> {
        let store = &self.shared.store;
        let looked_at = self.shared.retention.lock().looked_at.clone();
        let (first, mut after) = match looked_at {
            Some((project, call)) => (project, Some(call)),
            None => (String::new(), None),
        };
        for project in store.projects_with_calls().await? {
            if project < first {
                continue;
            }
            let after = after.take().filter(|_| project == first);
            let Some(keep_ms) = self.retention_of(&project).await? else {
                continue;
            };
            let before = clock_ms.saturating_sub(keep_ms);
            let old = store.old_calls(&project, after, before, most).await?;
            let Some(last) = old.last().map(|call| call.row.id) else {
                continue;
            };
            let is_full = old.len() == most as usize;
            let holds = store.holds(&project).await?;
            let (_, free) = split(old, &holds);
            if !free.is_empty() {
                let mut chain = self.shared.chain.lock().await;
                chain.drop_calls(&free).await?;
            }
            if is_full || !free.is_empty() {
                self.shared.retention.lock().looked_at = Some((project, last));
                return Ok(Step {
                    dropped: free.len() as u64,
                    has_more: true,
                });
            }
        }
        Ok(Step {
            dropped: 0,
            has_more: false,
        })
    }

    /// Returns the retention period of a project; `None` if its settings cannot be read: then
    /// nothing is deleted.
    async fn retention_of(&self, project: &str) -> Result<Option<u64>, StoreError> {
        let gateway = u64::try_from(self.shared.policy.retention.as_millis()).unwrap_or(u64::MAX);
        // Rows without a project belong to calls whose beginning was damaged.
        let Ok(name) = project.parse() else {
            return Ok(Some(gateway));
        };
        let stored = self.shared.store.settings(&name).await?;
        let settings = match ProjectSettings::from_stored(stored) {
            Ok(settings) => settings.audit,
            Err(error) => {
                tracing::warn!(project, %error, "no call of a project is dropped: its settings cannot be read");
                return Ok(None);
            }
        };
        let AuditSettings { retention_days, .. } = settings;
        let chosen = retention_days.map(|days| u64::from(days.get()).saturating_mul(DAY_MS));
        Ok(Some(chosen.unwrap_or(gateway)))
    }

    /// Erases a person's data from the calls of a project. The rows stay and can be counted.
    pub(crate) async fn erase_user(&self, project: &str, user: &str) -> Result<Erased, AuditError> {
        self.import_now().await?;
        let store = &self.shared.store;
        let holds = store.holds(project).await.map_err(AuditError::Store)?;
        let mut erased = Erased::default();
        let mut after = None;
        loop {
            let found = store.calls_of_user(project, user, after, ERASED_AT_ONCE);
            let found = found.await.map_err(AuditError::Store)?;
            let Some(last) = found.last().map(|call| call.row.id) else {
                return Ok(erased);
            };
            after = Some(last);
            let (held, free) = split(found, &holds);
            erased.held += held as u64;
            if !free.is_empty() {
                let mut chain = self.shared.chain.lock().await;
                let done = chain.erase_calls(&free).await;
                done.map_err(AuditError::Store)?;
            }
            erased.calls += free.len() as u64;
        }
    }
}

/// Returns the number of held calls, and the others.
fn split(calls: Vec<StoredCall>, holds: &[HoldRow]) -> (usize, Vec<StoredCall>) {
    let all = calls.len();
    let is_free = |call: &StoredCall| !holds.iter().any(|hold| hold.keeps(&call.row));
    let free: Vec<_> = calls.into_iter().filter(is_free).collect();
    (all - free.len(), free)
}
