//! How the engine stops: first the requests, then the servers, then what they leave to write.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Engine;
use crate::error::EngineError;

/// How long to wait for idle tasks to end.
const LAST_TASKS: Duration = Duration::from_secs(5);
/// How long the last spans may take.
const LAST_SPANS: Duration = Duration::from_secs(3);
/// How long the end waits for the last audit records to be pushed.
const LAST_RECORDS: Duration = Duration::from_secs(3);

impl Engine {
    /// Stops: refuses new requests, waits a while for running ones, then stops every server; the
    /// audit is complete.
    pub async fn drain(&self) {
        let machine = &self.inner.machine;
        if machine.draining.is_cancelled() {
            machine.tracker.wait().await;
            return;
        }
        info!("stopping");
        let policy = machine.config.stop;
        let kill_at = Instant::now() + policy.kill_after;
        machine.kill_at.send_replace(Some(kill_at));
        // At once, however long the store takes to record the stop.
        machine.draining.cancel();
        machine.requests.close();
        let waiting = tokio::time::timeout(policy.drain, machine.requests.wait());
        let (stop, waited) = tokio::join!(self.begin_stop(), waiting);
        if waited.is_err() {
            warn!(
                calls = machine.requests.len(),
                "calls are still under way and will be cut off"
            );
            machine.audit.cut_off();
        }
        self.stop_all().await;
        stop.end(&Ok::<_, EngineError>(())).await;
        self.close().await;
        info!("stopped");
    }

    /// Records calls that are dropped from now on as cut off, with an unknown outcome: the process
    /// is about to end.
    pub fn cut_off(&self) {
        self.inner.machine.audit.cut_off();
    }

    /// Stops every server and every task, and closes the store.
    pub(super) async fn finish(&self) {
        self.stop_all().await;
        self.close().await;
    }

    /// Stops every server and every task.
    async fn stop_all(&self) {
        let machine = &self.inner.machine;
        // A project that is being opened is among them by then, and none is opened afterwards.
        let _last = self.inner.opening.lock().await;
        let projects = self.inner.projects.load_full();
        let stopping = projects
            .values()
            .map(|project| project.supervisor.stop_all());
        join_all(stopping).await;
        // Changes end with the servers that they wait for, and are recorded before the rest ends.
        machine.changes.close();
        drop(tokio::time::timeout(LAST_TASKS, machine.changes.wait()).await);
        machine.stop_tasks.cancel();
        machine.tracker.close();
        drop(tokio::time::timeout(LAST_TASKS, machine.tracker.wait()).await);
    }

    async fn close(&self) {
        if let Some(traces) = &self.inner.machine.traces {
            // The audit is whole by now, and every call has its span.
            traces.finish(LAST_SPANS).await;
        }
        for project in self.inner.projects.load_full().values() {
            project.acts.settle().await;
            project.write_key_uses().await;
        }
        if let Some(siem) = &self.inner.machine.siem {
            siem.finish(LAST_RECORDS).await;
        }
        let disks = self.inner.machine.hosted.disks().clone();
        // The next start finds file systems that stay mounted.
        drop(tokio::task::spawn_blocking(move || disks.close()).await);
        if let Err(error) = self.inner.machine.store.close().await {
            warn!(
                error = &error as &dyn std::error::Error,
                "the store did not close cleanly"
            );
        }
    }
}
