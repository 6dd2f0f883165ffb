//! Samples what servers use, every few seconds, for the short history that their status shows.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::server::usage_history::EVERY;

/// Samples until it is stopped.
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
