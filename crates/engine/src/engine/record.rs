//! What is on record beside calls: administrative acts, refused attempts at them, the gateway's own
//! start and stop, the stored events of servers, and how much of everything is kept. Entry points:
//! `Engine::acts`, `Engine::refuse_act` and `Engine::events_after`.

use std::time::Duration;

use gantry_model::event::ServerEvent;
use gantry_model::id::ServerName;
use gantry_store::{ActFilter, ActRow, CallUsage};
use serde_json::json;

use super::Engine;
use crate::acts::{Actor, Begun, Draft};
use crate::error::EngineError;

/// How long a refusal waits for its record.
const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns the next events after one, of all servers or of one, oldest first.
    pub async fn events_after(
        &self,
        server: Option<&ServerName>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ServerEvent)>, EngineError> {
        let store = &self.inner.store;
        let project = &self.inner.project;
        Ok(store.events_after(project, server, after, limit).await?)
    }

    /// Returns administrative acts, newest first.
    pub async fn acts(&self, filter: &ActFilter) -> Result<Vec<ActRow>, EngineError> {
        self.inner.acts.list(filter).await
    }

    /// Records an attempt at an administrative act that was refused before it was one, whether or not
    /// the returned future is waited for; like attempts are counted.
    pub fn refuse_act(
        &self,
        by: impl Into<Actor>,
        act: &'static str,
        target: &str,
        code: &'static str,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (by, engine, target) = (by.into(), self.clone(), target.to_owned());
        let noting = self.inner.tracker.spawn(async move {
            engine.inner.acts.refused(&by, act, &target, code).await;
        });
        // The answer does not wait for a database that is away; the record goes on.
        async move { drop(tokio::time::timeout(PATIENCE, noting).await) }
    }

    /// Records that a browser signed in or out, or got a code to do so.
    pub async fn record_session(&self, by: &Actor, act: &'static str) {
        let acts = &self.inner.acts;
        let act = acts.begin_anyway(by, Draft::new(act, "browser")).await;
        act.end(&Ok::<_, EngineError>(())).await;
    }

    /// Returns how many calls are kept, from when, and what they take.
    pub async fn call_usage(&self) -> Result<CallUsage, EngineError> {
        Ok(self.inner.audit.usage().await?)
    }

    /// Believes the clock, however far it is ahead of what was recorded: calls that are too old by it
    /// are dropped from now on.
    pub async fn confirm_clock(&self, by: impl Into<Actor>) -> Result<(), EngineError> {
        let (by, engine) = (by.into(), self.clone());
        self.complete(async move {
            let ahead = engine.inner.audit.health().clock_ahead;
            let draft = Draft::new("clock.confirm", "retention");
            let ahead = ahead.map(|by| by.as_secs());
            let draft = draft.before(json!({"ahead_seconds": ahead}));
            let act = engine.inner.acts.begin(&by, draft).await?;
            let confirmed = engine.inner.audit.confirm_clock().await;
            act.end(&confirmed).await;
            Ok(confirmed?)
        })
        .await
    }

    /// Has all damage of the journal acknowledged, so that it no longer degrades the health; tells
    /// how much there was.
    pub async fn acknowledge_damage(&self, by: impl Into<Actor>) -> Result<u64, EngineError> {
        let (by, engine) = (by.into(), self.clone());
        self.complete(async move {
            let audit = &engine.inner.audit;
            let open = audit
                .health()
                .damage
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>();
            let draft =
                Draft::new("journal.acknowledge", "journal").before(json!({"damage": open}));
            let act = engine.inner.acts.begin(&by, draft).await?;
            let count = audit.acknowledge_damage(&by.key()).await;
            act.end(&count).await;
            Ok(count?)
        })
        .await
    }

    /// Records that the gateway has started, or could not.
    pub(super) async fn note_start(&self, booted: &Result<(), EngineError>) {
        let after = json!({"version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        let draft = Draft::new("gateway.start", self.inner.project.as_str()).after(after);
        let act = self.inner.acts.begin_anyway(&Actor::gateway(), draft).await;
        act.end(booted).await;
    }

    /// Records that the gateway is about to stop.
    pub(super) async fn begin_stop(&self) -> Begun {
        let before = json!({"version": env!("CARGO_PKG_VERSION"), "pid": std::process::id()});
        let draft = Draft::new("gateway.stop", self.inner.project.as_str()).before(before);
        self.inner.acts.begin_anyway(&Actor::gateway(), draft).await
    }
}

/// Says what follows from a clock that is too far ahead.
pub(super) fn far_ahead(by: Duration) -> String {
    let days = by.as_secs() / 86_400;
    format!(
        "the clock is {days} days ahead of what was recorded last: no call is dropped for its age; if the \
         clock is right, say so with `gantry audit confirm-clock`"
    )
}
