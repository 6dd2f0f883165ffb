//! Records the starts of a runner: how each ended, and whether another follows. rows 1.1 and 1.9

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_model::event::EventKind;
use gantry_model::spec::{Profile, RestartWhen, Source};
use gantry_model::status::{Crash, ServerState};
use gantry_store::WorkspaceInstance;
use tracing::debug;

use super::{EndKind, ExitCell, FailedRun, NextState, ServerRunner};
use crate::clock::unix_ms;
use crate::driver::{Control, ExitStatus};
use crate::server::handle::{LinkState, RunnerCommand};

/// Wraps a control so that the exit of the instance is recorded.
pub(super) fn noted(control: Box<dyn Control>, exit: &ExitCell) -> Box<dyn Control> {
    let exit = Arc::clone(exit);
    Box::new(Noted { control, exit })
}

struct Noted {
    control: Box<dyn Control>,
    exit: ExitCell,
}

impl Control for Noted {
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus> {
        Box::pin(async {
            let exit = self.control.exited().await;
            *self.exit.lock() = Some(exit.clone());
            exit
        })
    }

    fn terminate(&mut self) {
        self.control.terminate();
    }

    fn kill(&mut self) {
        self.control.kill();
    }
}

impl ServerRunner {
    /// Records that the start ended on request.
    pub(super) fn end_attempt(&self, how: &str) {
        let (exit, tail) = (self.exit.lock().clone(), self.logs.stderr_tail());
        self.status.send_modify(|status| {
            status.attempts.end(unix_ms(), how, exit.as_ref(), tail);
        });
    }

    /// Stores which instance of a registered server is ready. row 1.1
    pub(super) fn note_instance(&self) {
        if self.spec.source != Source::Api || self.spec.profile() != Some(Profile::Hosted) {
            return;
        }
        let instance = {
            let status = self.status.borrow();
            let hosting = status.hosting.as_ref();
            let image = hosting.and_then(|hosting| hosting.image.as_ref());
            WorkspaceInstance {
                provider: status
                    .isolation
                    .as_ref()
                    .map_or_else(String::new, |isolation| isolation.provider.to_owned()),
                instance: status.generation.to_string(),
                image_digest: image.map(|image| image.digest.clone()),
            }
        };
        let (context, server) = (Arc::clone(&self.context), self.spec.name.clone());
        // In the background: the server does not wait for the database.
        self.context.tracker.spawn(async move {
            let store = &context.store;
            let set = store.set_workspace_instance(&context.project, &server, &instance);
            if let Err(error) = set.await {
                let why = gantry_model::diagnose::chain(&error);
                debug!(%server, why, "the workspace is not up to date");
            }
        });
    }

    /// Returns the state that replaces a restart if the policy excludes one: waiting for a manual
    /// restart.
    pub(super) fn not_restarted(&mut self, ended: &FailedRun) -> Option<BoxFuture<'_, NextState>> {
        let when = self.spec.lifecycle.restart_when;
        let exit = self.exit.lock().clone();
        let code = exit.as_ref().and_then(|exit| exit.code);
        // An instance that could not be started has failed, whatever its exit code.
        let code = code.filter(|_| ended.kind == EndKind::Exit);
        if when.restarts(code) {
            return None;
        }
        let policy = match when {
            RestartWhen::Always => "always",
            RestartWhen::OnFailure => "on-failure",
            RestartWhen::Never => "never",
        };
        let reason = format!(
            "{}; not restarted: `restart_policy` is `{policy}`",
            ended.how
        );
        let crash = Crash {
            at_ms: unix_ms(),
            how: ended.how.clone(),
            stderr_tail: self.logs.stderr_tail(),
        };
        let kind = match ended.kind {
            EndKind::Start => EventKind::StartFailed,
            EndKind::Exit => EventKind::Exited,
            EndKind::Silence => EventKind::Disconnected,
        };
        self.context
            .events
            .report(&self.spec.name, kind, reason.clone());
        let failed = code != Some(0);
        self.status.send_modify(|status| {
            let state = if failed {
                ServerState::Failed
            } else {
                ServerState::Stopped
            };
            status.enter(state, Some(reason.clone()));
            let tail = crash.stderr_tail.clone();
            status
                .attempts
                .end(crash.at_ms, &crash.how, exit.as_ref(), tail);
            if failed {
                status.last_crash = Some(crash);
            }
        });
        self.show(LinkState::Down(Arc::from(reason), None));
        Some(Box::pin(self.awaiting_restart()))
    }

    /// Waits for a manual restart or a stop.
    async fn awaiting_restart(&mut self) -> NextState {
        tokio::select! {
            biased; // Stop overtakes everything.
            () = self.stop.cancelled() => NextState::Stop(None),
            command = self.commands.recv() => match command {
                Some(RunnerCommand::Restart) => {
                    self.forgive();
                    NextState::Start
                }
                None => NextState::Stop(None),
            },
        }
    }
}
