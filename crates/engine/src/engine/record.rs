//! Administrative acts of the gateway itself: start and stop, retention, and decisions about a
//! damaged journal or a wrong clock. They are in the log of the data folder's project.

use gantry_store::CallUsage;
use serde_json::json;

use super::Engine;
use crate::acts::{Actor, Draft, OpenAct};
use crate::error::EngineError;

impl Engine {
    /// Waits until the disk fails to confirm a write to the journal or the database, and returns
    /// which. Earlier writes may be lost: the caller must drain this engine and start another,
    /// which recovers what is on disk. Writes are refused meanwhile. fault F3
    pub async fn disk_failed(&self) -> String {
        self.inner.machine.audit.disk_failed().await
    }

    /// Returns how many calls of all projects are stored, since when, and their size.
    pub async fn call_usage(&self) -> Result<CallUsage, EngineError> {
        Ok(self.inner.machine.audit.usage().await?)
    }

    /// Accepts the clock, however far it is ahead of the last record: calls older than the
    /// retention period are deleted from now on.
    pub async fn confirm_clock(&self, by: impl Into<Actor>) -> Result<(), EngineError> {
        let (by, project) = (by.into(), self.default_project());
        self.inner
            .default
            .complete(async move {
                let ahead = project.machine.audit.health().clock_ahead;
                let draft = Draft::new("clock.confirm", "retention");
                let ahead = ahead.map(|by| by.as_secs());
                let draft = draft.before(json!({"ahead_seconds": ahead}));
                let act = project.acts.begin(&by, draft).await?;
                let confirmed = project.machine.audit.confirm_clock().await;
                act.end(&confirmed).await;
                Ok(confirmed?)
            })
            .await
    }

    /// Acknowledges all damage of the journal, so that it no longer degrades the health; returns
    /// how much there was.
    pub async fn acknowledge_damage(&self, by: impl Into<Actor>) -> Result<u64, EngineError> {
        let (by, project) = (by.into(), self.default_project());
        self.inner
            .default
            .complete(async move {
                let audit = &project.machine.audit;
                let open = audit
                    .health()
                    .damage
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>();
                let draft =
                    Draft::new("journal.acknowledge", "journal").before(json!({"damage": open}));
                let act = project.acts.begin(&by, draft).await?;
                let count = audit.acknowledge_damage(&by.key()).await;
                act.end(&count).await;
                Ok(count?)
            })
            .await
    }

    /// Records that the gateway has started, or could not.
    pub(super) async fn note_start(&self, booted: &Result<(), EngineError>) {
        let after = json!({"version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        let draft = Draft::new("gateway.start", self.inner.default.name().as_str()).after(after);
        let act = self
            .inner
            .default
            .acts
            .begin_anyway(&Actor::gateway(), draft)
            .await;
        act.end(booted).await;
    }

    /// Records that the gateway is about to stop.
    pub(super) async fn begin_stop(&self) -> OpenAct {
        let before = json!({"version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        let draft = Draft::new("gateway.stop", self.inner.default.name().as_str()).before(before);
        self.inner
            .default
            .acts
            .begin_anyway(&Actor::gateway(), draft)
            .await
    }
}
