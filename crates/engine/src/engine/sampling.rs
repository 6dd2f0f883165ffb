//! Samples the resource usage of servers every few seconds, for the history in their status.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::server::usage_history::EVERY;

/// Samples until stopped.
pub(super) async fn sample(engine: Weak<Inner>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let projects = engine.projects.load_full();
        let handles = projects
            .values()
            .flat_map(|project| project.supervisor.all());
        for handle in handles {
            let usage = (handle.usage)();
            Arc::clone(&handle.usage_history).take(usage);
        }
    }
}
