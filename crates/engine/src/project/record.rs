//! The record of a project besides calls: administrative acts, refused attempts, and the events of
//! servers. Entry points: `Project::acts`, `Project::refuse_act` and `Project::events_after`.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::event::ServerEvent;
use gantry_model::id::ServerName;
use gantry_store::{ActFilter, ActRow};
use tokio::sync::watch;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::error::EngineError;

/// How long a refusal waits for its record.
const PATIENCE: Duration = Duration::from_secs(1);

impl Project {
    /// Returns the next events after one, of all servers or of one, oldest first.
    pub async fn events_after(
        &self,
        server: Option<&ServerName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, EngineError> {
        let store = &self.machine.store;
        let project = &self.name;
        Ok(store.events_after(project, server, after, limit).await?)
    }

    /// Returns a counter that changes whenever there are new events.
    pub fn events_written(&self) -> watch::Receiver<u64> {
        self.router.events.written()
    }

    /// Returns administrative acts, newest first.
    pub async fn acts(&self, filter: &ActFilter) -> Result<Vec<ActRow>, EngineError> {
        self.acts.list(filter).await
    }

    /// Records an attempt at an administrative act that was refused, even if the returned future is
    /// not awaited; equal attempts are counted.
    pub fn refuse_act(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        act: &'static str,
        target: &str,
        code: &'static str,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (by, project, target) = (by.into(), Arc::clone(self), target.to_owned());
        let noting = self.machine.tracker.spawn(async move {
            project.acts.refused(&by, act, &target, code).await;
        });
        // The response does not wait for an unavailable database; recording continues.
        async move { drop(tokio::time::timeout(PATIENCE, noting).await) }
    }

    /// Records that a browser signed in or out, or got a code to do so.
    pub async fn record_session(&self, by: &Actor, act: &'static str) {
        let acts = &self.acts;
        let act = acts.begin_anyway(by, Draft::new(act, "browser")).await;
        act.end(&Ok::<_, EngineError>(())).await;
    }
}
