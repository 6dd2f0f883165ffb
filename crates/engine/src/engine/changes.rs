//! What administrators change about servers, and how every change runs. Each change runs as a task of its own to its end,
//! its record included, even if who asked for it has left (fault P10): dropping the future leaves
//! nothing half-done. Entry point: `Engine::complete`.

use std::io;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::spec::ServerSpec;

use super::Engine;
use crate::access::FirstKeys;
use crate::clock::unix_ms;
use crate::config::{OnStartFailure, Startup};
use crate::error::EngineError;
use crate::server::handle::Live;
use crate::server::logs::LogLine;
use crate::supervisor::Applied;
use crate::view::ServerView;

/// How long a start that must succeed is waited for; each server's own handshake bound is shorter.
const START_BOUND: Duration = Duration::from_secs(120);

impl Engine {
    /// Makes the first admin and agent key of a data folder; `None` if there are keys already.
    ///
    /// `keep` puts them where their owner finds them, before they are valid.
    pub async fn first_start(
        &self,
        keep: impl FnOnce(&FirstKeys) -> io::Result<()> + Send + 'static,
    ) -> Result<Option<FirstKeys>, EngineError> {
        let engine = self.clone();
        self.complete(async move {
            let keep = |keys: &FirstKeys| {
                keep(keys).map_err(|source| EngineError::Folder {
                    folder: engine.data_dir().to_owned(),
                    source,
                })
            };
            engine.inner.access.first_start(keep).await
        })
        .await
    }

    /// Registers a server and starts it, or leaves it asleep if it is lazy.
    pub async fn register(&self, by: &Caller, spec: ServerSpec) -> Result<ServerView, EngineError> {
        self.admit()?;
        let (engine, by) = (self.clone(), by.clone());
        self.complete(async move {
            let handle = engine.inner.supervisor.register(spec).await?;
            let target = handle.name.as_str();
            engine.note(&by, "server.register", target, "").await?;
            Ok(ServerView::of(&handle))
        })
        .await
    }

    /// Gives a server that was registered by API another spec, and starts it anew if it changed.
    pub async fn replace(&self, by: &Caller, spec: ServerSpec) -> Result<ServerView, EngineError> {
        self.admit()?;
        let (engine, by) = (self.clone(), by.clone());
        self.complete(async move {
            let handle = engine.inner.supervisor.replace(spec).await?;
            let target = handle.name.as_str();
            engine.note(&by, "server.replace", target, "").await?;
            Ok(ServerView::of(&handle))
        })
        .await
    }

    /// Checks a spec of which nothing is started or kept, and records that somebody looked. fault G8
    pub async fn preview(&self, by: &Caller, spec: &ServerSpec) -> Result<(), EngineError> {
        self.admit()?;
        spec.check()?;
        let (engine, by, name) = (self.clone(), by.clone(), spec.name.clone());
        self.complete(async move {
            engine
                .note(&by, "server.preview", name.as_str(), "")
                .await?;
            engine.inner.supervisor.previewed(&name);
            Ok(())
        })
        .await
    }

    /// Starts a server that stays unregistered, lists what it offers, and stops it again. fault G8
    pub async fn try_out(
        &self,
        by: &Caller,
        spec: ServerSpec,
    ) -> Result<(ServerView, Vec<LogLine>), EngineError> {
        self.admit()?;
        let (engine, by) = (self.clone(), by.clone());
        self.complete(async move {
            let target = spec.name.clone();
            let target = target.as_str();
            engine.note(&by, "server.test", target, "").await?;
            engine.inner.supervisor.try_out(spec).await
        })
        .await
    }

    /// Makes the servers of files what `specs` says, touching only those that changed.
    pub async fn apply(&self, specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        self.admit()?;
        let engine = self.clone();
        self.complete(async move { engine.apply_all(specs).await })
            .await
    }

    async fn apply_all(&self, mut specs: Vec<ServerSpec>) -> Result<Applied, EngineError> {
        let inner = &self.inner;
        let abort = inner.on_start_failure == OnStartFailure::Abort;
        let sequential = inner.startup == Startup::Sequential;
        let names: Vec<_> = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut applied = Applied::default();
        let stored = inner.supervisor.begin(&specs, &mut applied).await?;
        // A server that is started anew waits for its old process; nobody waits for that behind it.
        specs.sort_by_key(|spec| inner.supervisor.is_replaced(spec));
        for spec in specs {
            let name = spec.name.clone();
            inner.supervisor.place(spec, &stored, &mut applied).await?;
            if sequential {
                inner.supervisor.settled(START_BOUND).await;
                if abort {
                    self.require_started(name.as_str())?;
                }
            }
        }
        if abort && !sequential {
            inner.supervisor.settled(START_BOUND).await;
            for name in &names {
                self.require_started(name.as_str())?;
            }
        }
        Ok(applied)
    }

    fn require_started(&self, name: &str) -> Result<(), EngineError> {
        let Some(handle) = self.inner.supervisor.find(name) else {
            return Ok(());
        };
        match &*handle.live.borrow() {
            Live::Ready(_) | Live::Cold => Ok(()),
            // It is not to start yet, so that it has not failed to.
            Live::Down(..) if handle.spec.needs_approval.is_some() => Ok(()),
            Live::Starting => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: "still starting".into(),
            }),
            Live::Down(reason, _) => Err(EngineError::StartFailed {
                server: handle.name.clone(),
                reason: reason.to_string(),
            }),
        }
    }

    /// Removes a server by name or id and waits until its process is gone; false if there was none.
    pub async fn remove(&self, by: &Caller, server: &str) -> Result<bool, EngineError> {
        let (engine, by, server) = (self.clone(), by.clone(), server.to_owned());
        self.complete(async move {
            let removed = engine.inner.supervisor.remove(&server).await?;
            if removed {
                engine.note(&by, "server.remove", &server, "").await?;
            }
            Ok(removed)
        })
        .await
    }

    /// Ends a server's process and starts it anew, its counters reset.
    pub async fn restart(&self, by: &Caller, server: &str) -> Result<ServerView, EngineError> {
        self.admit()?;
        let (engine, by, server) = (self.clone(), by.clone(), server.to_owned());
        self.complete(async move {
            // A server that hangs is restarted whatever the database does.
            if let Err(error) = engine.note(&by, "server.restart", &server, "").await {
                let error = gantry_model::diagnose::chain(&error);
                tracing::warn!(%server, key = %by.key, error, "a restart could not be recorded");
            }
            let handle = engine.inner.supervisor.restart(&server).await?;
            Ok(ServerView::of(&handle))
        })
        .await
    }

    /// Runs a change to its end, whether or not its asker waits for that.
    pub(super) async fn complete<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        match self.inner.changes.spawn(change).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                // The asker sees it as if it had run there.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => Err(EngineError::Stopping),
            },
        }
    }

    pub(super) fn admit(&self) -> Result<(), EngineError> {
        if self.inner.draining.is_cancelled() {
            Err(EngineError::Stopping)
        } else {
            Ok(())
        }
    }

    /// Records what an administrator did.
    pub(super) async fn note(
        &self,
        by: &Caller,
        act: &str,
        target: &str,
        detail: &str,
    ) -> Result<(), EngineError> {
        let key = by.key.to_string();
        Ok(self
            .inner
            .store
            .put_admin_act(unix_ms(), &key, act, target, detail)
            .await?)
    }
}
