//! The project's secrets of an instance: resolved at each start, recorded, and redacted from all
//! its output. The server waits for a missing secret. row 0.4, faults K1 and K7

use std::sync::Arc;

use gantry_model::event::EventKind;
use gantry_model::status::ServerState;

use super::{EndKind, FailedRun, NextState, ServerRunner};
use crate::secrets::ResolveError;
use crate::server::handle::{LinkState, RunnerCommand};

impl ServerRunner {
    /// Resolves the project's secrets in the spec of the next instance; returns the waiting state
    /// if that is not possible.
    pub(super) async fn take_secrets(&mut self) -> Option<NextState> {
        match self.context.secrets.resolve(&self.wanted).await {
            Ok(None) => None,
            Ok(Some(resolved)) => {
                // Before any of them is sent.
                self.known.given(resolved.known);
                self.spec = Arc::new(resolved.spec);
                let used = resolved.used.iter();
                let used = used.map(|(name, version)| format!("{name} (version {version})"));
                let what = format!("given {}", used.collect::<Vec<_>>().join(", "));
                *self.secrets_used.lock() = resolved.used;
                self.context
                    .events
                    .report(&self.spec.name, EventKind::SecretsUsed, what);
                None
            }
            Err(ResolveError::Unusable(why)) => Some(NextState::Unresolved(why)),
            Err(ResolveError::Failed(why)) => Some(NextState::Crashed(FailedRun {
                how: format!("its secrets cannot be read: {why}"),
                kind: EndKind::Start,
                retry_after: None,
            })),
        }
    }

    /// Waits until the missing secret is set or bound, which restarts the server.
    pub(super) async fn awaiting_secrets(&mut self, why: String) -> NextState {
        self.secrets_used.lock().clear();
        self.end_attempt(&why);
        self.publish(ServerState::Misconfigured, Some(why.clone()));
        self.show(LinkState::Down(Arc::from(why.as_str()), None));
        self.context
            .events
            .report(&self.spec.name, EventKind::StartFailed, why);
        tokio::select! {
            biased; // Stop overtakes everything.
            () = self.stop.cancelled() => NextState::Stop(None),
            order = self.commands.recv() => match order {
                Some(RunnerCommand::Restart) => NextState::Start,
                None => NextState::Stop(None),
            },
        }
    }
}
