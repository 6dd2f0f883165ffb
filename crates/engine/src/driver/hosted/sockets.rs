//! Stops a server whose connections to itself hold too much: the kernel has one amount of memory for the
//! TCP connections of the whole machine, and charges those that nobody accepts to nobody. Entry
//! point: [`watch`].

use std::sync::Weak;
use std::time::Duration;

use gantry_sandbox::Meter;

use crate::disk::Place;

/// How often the sockets are counted.
const EVERY: Duration = Duration::from_millis(500);
/// The share of the memory limit that they may hold, as a divisor; cgroups have the same for what
/// they count.
const SHARE: u64 = 8;
/// What they may hold at least, and without a memory limit.
const LEAST: u64 = 64 << 20;

/// Watches until aborted, or until the server was told to stop.
pub(super) async fn watch(meter: Meter, memory: Option<u64>, place: Weak<Place>) {
    let limit = LEAST.max(memory.unwrap_or(0) / SHARE);
    let mut meter = meter;
    loop {
        tokio::time::sleep(EVERY).await;
        let reading = tokio::task::spawn_blocking(move || (meter.socket_bytes(limit), meter));
        let Ok((used, back)) = reading.await else {
            return;
        };
        meter = back;
        if used > limit {
            if let Some(place) = place.upgrade() {
                let limit = limit >> 20;
                place.stop(format!(
                    "stopped: its network connections hold more than {limit} MiB that nobody reads"
                ));
            }
            return;
        }
    }
}
