//! Stops a server that uses more memory than its limit, on hosts where no cgroup enforces the limit:
//! otherwise one server could use up the memory of the machine. Entry point: [`watch`].

use std::sync::Weak;
use std::time::Duration;

use gantry_sandbox::Meter;

use crate::disk::Place;

/// How often the use is read.
const EVERY: Duration = Duration::from_secs(1);
/// How often while more than half of the limit is used.
const OFTEN: Duration = Duration::from_millis(100);

/// Watches until aborted, or until the server was told to stop.
pub(super) async fn watch(meter: Meter, limit: u64, place: Weak<Place>) {
    let mut meter = meter;
    let mut pause = EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let reading = tokio::task::spawn_blocking(move || (meter.memory_bytes(), meter));
        let Ok((used, back)) = reading.await else {
            return;
        };
        meter = back;
        if used > limit {
            if let Some(place) = place.upgrade() {
                let (used, limit) = (used >> 20, limit >> 20);
                place.stop(format!("stopped: it uses {used} of {limit} MiB of memory"));
            }
            return;
        }
        pause = match used > limit / 2 {
            true => OFTEN,
            false => EVERY,
        };
    }
}
