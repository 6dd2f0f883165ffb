//! Replaces the spec of a server, and tests one without registering it.
//!
//! A test run is in no list, and reserves its name until it has stopped. Entry points:
//! `Supervisor::replace` and `Supervisor::try_out`.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::id::{ServerId, ServerName};
use gantry_model::spec::{ServerSpec, Source, Start};

use super::Supervisor;
use crate::clock::unix_ms;
use crate::error::EngineError;
use crate::random::random;
use crate::server::handle::{LinkState, ServerHandle};
use crate::server::logs::LogLine;
use crate::view::ServerView;

/// How many log lines are returned.
const LINES: usize = 50;
/// How much longer than the handshake a test run may take, to start the instance and list its tools.
const BESIDE_HANDSHAKE: Duration = Duration::from_secs(5);

/// Refuses a server that was not registered over the API: the next start would load it again.
pub(crate) fn of_api(spec: &ServerSpec) -> Result<(), EngineError> {
    let name = spec.name.clone();
    match spec.source {
        Source::Api => Ok(()),
        Source::File => Err(EngineError::OfFile {
            name,
            file: spec.file.clone(),
        }),
        Source::Builtin => Err(EngineError::Builtin { name }),
    }
}

impl Supervisor {
    /// Replaces the spec of a server that was registered over the API; name, id and position stay.
    pub(crate) async fn replace(&self, spec: ServerSpec) -> Result<Arc<ServerHandle>, EngineError> {
        spec.check()?;
        let name = spec.name.clone();
        let turn = self.turn(&name).await?;
        let unknown = || EngineError::UnknownServer {
            name: name.to_string(),
        };
        let handle = self.find(name.as_str()).ok_or_else(unknown)?;
        of_api(&handle.spec)?;
        if *handle.spec == spec {
            return Ok(handle);
        }
        let mut row = self.new_row(&spec).await?;
        (row.id, row.created_ms) = (handle.id, handle.created_ms);
        self.store.replace_server(&row).await?;
        let successor = self.succeed(&handle, &row, spec).await;
        drop(turn);
        self.report_registered(&successor);
        self.gone(&handle).await?;
        Ok(successor)
    }

    /// Starts a server that is not registered, lists its tools, and stops it.
    pub(crate) async fn try_out(
        &self,
        mut spec: ServerSpec,
    ) -> Result<(ServerView, Vec<LogLine>), EngineError> {
        spec.check()?;
        spec.start = Start::Eager;
        // One that fails is not started again before its status was read.
        spec.lifecycle.restart.at_once = 0;
        let bound = spec.lifecycle.handshake + BESIDE_HANDSHAKE;
        let turn = self.turn(&spec.name).await?;
        if self.find(spec.name.as_str()).is_some() {
            return Err(EngineError::Conflict { name: spec.name });
        }
        let id = ServerId::from_random(u128::from_le_bytes(random()));
        let handle = self.launch(id, spec, unix_ms(), None).await;
        self.leaving.lock().push(handle.clone());
        drop(turn);
        let mut live = handle.live.clone();
        let is_told =
            |state: &LinkState| matches!(state, LinkState::Ready(_) | LinkState::Down(..));
        // A server that is not ready in time is shown in its current state.
        drop(tokio::time::timeout(bound, live.wait_for(is_told)).await);
        let view = ServerView::of(&handle);
        handle.stop.cancel();
        handle.stopped.cancelled().await;
        let state = view.status.state.as_str();
        self.context
            .events
            .report(&handle.name, EventKind::Tested, format!("tested: {state}"));
        Ok((view, handle.logs.last(LINES)))
    }

    /// Reports that a spec was previewed; nothing was started.
    pub(crate) fn previewed(&self, name: &ServerName) {
        let detail = "previewed: nothing was started".to_owned();
        self.context
            .events
            .report(name, EventKind::Previewed, detail);
    }
}
