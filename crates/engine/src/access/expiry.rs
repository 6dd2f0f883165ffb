//! Ends what was started with a key when the key expires.
//!
//! A task sleeps until the next key expires and checks the wall clock at least once a second while
//! there is such a key, since that clock may be set. A key that expired only because the clock was
//! ahead is valid again at its next use. Entry point: [`Access::watch_expiry`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::KeyEnd;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Access;
use crate::clock::unix_ms;

/// How often the wall clock is checked while a key can expire.
const LOOK: Duration = Duration::from_secs(1);

impl Access {
    /// Ends expired keys until stopped.
    pub(crate) async fn watch_expiry(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let wait = self.end_expired(unix_ms());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // It is held by this very task's `Access`.
                _ = changes.changed() => {}
                () = rest(wait) => {}
            }
        }
    }

    /// Ends the keys that have expired by `now_ms`; returns when to check again, if necessary.
    pub(super) fn end_expired(&self, now_ms: u64) -> Option<Duration> {
        let mut next = None;
        let mut ended = false;
        for entry in self.keys.load().all() {
            let Some(at_ms) = entry.expires_ms else {
                continue;
            };
            if at_ms > now_ms {
                let wait = Duration::from_millis(at_ms - now_ms).min(LOOK);
                next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
            } else if entry.caller.validity.end_reason().is_none() {
                entry.caller.validity.end(KeyEnd::Expired);
                ended = true;
            }
        }
        if ended {
            self.note_change();
        }
        next
    }
}

async fn rest(wait: Option<Duration>) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}
