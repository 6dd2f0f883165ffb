//! Follows the changes of other gateways in a shared store: keys, agents, grants, registered
//! servers and leases. Entry point: [`Project::follow_store`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, warn};

use super::Project;
use crate::clock::unix_ms;

/// How often leases are renewed while there are other gateways, or may be.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How often to check for changes of other gateways.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how many checks another gateway counts as present after it was last seen. Checks are
/// counted, not time: nothing is renewed while the machine or this process is paused.
const REMEMBERED: u32 = 60;
/// After a longer gap between two checks this process was paused, and others may have taken its
/// leases.
const PAUSED_MS: u64 = 5_000;

impl Project {
    /// Checks for changes of other gateways until the engine stops.
    pub(crate) async fn follow_store(self: Arc<Self>) {
        let (looked, looks) = watch::channel(0);
        // Keys and leases must not wait for ending processes.
        tokio::join!(self.look(looked), self.follow_servers(looks));
    }

    /// Refreshes keys, renews and takes leases, and publishes the revision of the registered
    /// servers at each check.
    async fn look(&self, looked: watch::Sender<u64>) {
        let (store, access, supervisor) = (&self.machine.store, &self.access, &self.supervisor);
        let leases = supervisor.leases();
        let stop = self.stop.clone();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renew_at = Instant::now();
        let mut remembered = 0;
        let mut looked_ms = unix_ms();
        loop {
            let next_end = leases.next_end();
            let lease_end = async {
                match next_end {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
                () = lease_end => {}
            }
            let was_paused = unix_ms().saturating_sub(looked_ms) > PAUSED_MS;
            looked_ms = unix_ms();
            remembered = if was_paused {
                REMEMBERED
            } else {
                remembered.saturating_sub(1)
            };
            let before = Instant::now();
            let changes = match store.changes(&self.name).await {
                Ok(changes) => changes,
                Err(error) => {
                    debug!(%error, "the store cannot be asked for changes");
                    continue;
                }
            };
            match access.refresh(changes.access).await {
                Ok(()) => access.confirm(before),
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "changed keys and grants cannot be read"
                ),
            }
            let settings = self.settings.refresh(store, &self.name, changes.settings);
            if let Err(error) = settings.await {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "changed settings cannot be read; the last ones hold"
                );
            }
            if let Err(error) = access.write_key_uses().await {
                debug!(%error, "last uses of keys cannot be written");
            }
            if changes.suspensions != self.suspended.revision()
                && let Err(error) = self.follow_suspensions().await
            {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "what is suspended cannot be read"
                );
            }
            self.follow_hooks();
            let pins = async {
                self.follow_pin_policy().await?;
                match changes.pins == self.pins.revision() {
                    true => Ok(()),
                    false => self.follow_pins().await,
                }
            };
            if let Err(error) = pins.await {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "what is approved of tools cannot be read"
                );
            }
            // Clients of this gateway are notified of their changed lists.
            for agent in access.take_regranted() {
                self.catalog.grants_changed(&agent);
            }
            if changes.others {
                remembered = REMEMBERED;
            }
            // A remote store may be lost to this machine alone, so leases there always expire.
            let is_needed = remembered > 0 || store.is_remote();
            // The check nearest to the due time, not the one after it.
            let is_due = Instant::now() + LOOK_EVERY / 2 >= renew_at;
            if is_needed && is_due {
                renew_at = Instant::now() + RENEW_EVERY;
                if let Err(error) = leases.renew(remembered == 0).await {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "leases on servers cannot be renewed"
                    );
                }
            }
            // A running server keeps its lease until it has stopped; nothing else is started.
            if supervisor.is_stopping() {
                continue;
            }
            if remembered > 0 || leases.any_elsewhere() {
                leases.take().await;
            }
            looked.send_replace(changes.servers);
        }
    }

    /// Applies the registered servers of the store after each check that found a change, until that
    /// succeeds; ends with the checks.
    async fn follow_servers(&self, mut looks: watch::Receiver<u64>) {
        let supervisor = &self.supervisor;
        let mut followed = None;
        while looks.changed().await.is_ok() {
            let revision = *looks.borrow_and_update();
            let have_moved = supervisor.leases().have_moved();
            if !have_moved && followed == Some(revision) {
                continue;
            }
            followed = match supervisor.follow_registered().await {
                Ok(()) => Some(revision),
                Err(_) if supervisor.is_stopping() => return,
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "registered servers cannot be read"
                    );
                    None
                }
            };
        }
    }
}
