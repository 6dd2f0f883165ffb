//! Periodically checks at registries whether images of servers changed under their tags: first some
//! minutes after the start, then at the configured interval. Pulls nothing. fault C6

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::random::random;

/// How long after the start the first check is.
const FIRST: Duration = Duration::from_secs(5 * 60);

/// Checks until stopped.
pub(super) async fn watch(engine: Weak<Inner>, every: Duration, stop: CancellationToken) {
    let mut wait = FIRST.min(every);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
        }
        let Some(engine) = engine.upgrade() else {
            return;
        };
        for project in engine.projects.load_full().values() {
            project.check_tags(&stop).await;
        }
        // Gateways that were started together check at different times.
        let jitter = f64::from(u16::from_le_bytes(random())) / f64::from(u16::MAX);
        wait = every.mul_f64(0.9 + 0.2 * jitter);
    }
}
