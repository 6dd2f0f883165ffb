//! Follows what other gateways change in a shared store: keys, agents, grants, registered servers and
//! leases. Entry point: [`Project::follow_store`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::Project;

/// How often leases are renewed while there are other gateways.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked what other gateways have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Project {
    /// Looks for changes of other gateways until the engine stops.
    pub(crate) async fn follow_store(self: Arc<Self>) {
        let (store, access, supervisor) = (&self.machine.store, &self.access, &self.supervisor);
        let stop = self.machine.stop_tasks.clone();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut servers = None;
        let mut renew_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            let changes = match store.changes(&self.name).await {
                Ok(changes) => changes,
                Err(error) => {
                    debug!(%error, "the store cannot be asked for changes");
                    continue;
                }
            };
            if let Err(error) = access.refresh(changes.access).await {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "changed keys and grants cannot be read"
                );
            }
            let leases = supervisor.leases();
            if changes.others && Instant::now() >= renew_at {
                renew_at = Instant::now() + RENEW_EVERY;
                if let Err(error) = leases.renew().await {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "leases on servers cannot be renewed"
                    );
                }
            }
            let mut is_new = servers != Some(changes.servers);
            if changes.others || leases.any_elsewhere() {
                is_new |= leases.take().await;
            }
            if !is_new {
                continue;
            }
            match supervisor.follow_registered().await {
                Ok(true) => servers = Some(changes.servers),
                Ok(false) => servers = None,
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "registered servers cannot be read"
                    );
                }
            }
        }
    }
}
