//! Watches the places of running servers: a server that exceeds its limit is stopped with the
//! reason. When the gateway's own disk is nearly full, the server that fills it is stopped, so that
//! calls of other servers can still be recorded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Disks, Owner, Place, measure};

/// How much space stays reserved on the gateway's disk for its journal and store; less on a small
/// disk.
const KEPT_FREE: u64 = 256 << 20;
const KEPT_PART: u64 = 10;
/// How often the places are checked.
const EVERY: Duration = Duration::from_secs(1);
/// How often while less than [`SCARCE`] times the reserve is free: a disk can be filled within a
/// second.
const OFTEN: Duration = Duration::from_millis(50);
const SCARCE: u64 = 8;
/// The share of time that measuring may take, as a divisor.
const SHARE: u32 = 20;

impl Disks {
    /// Watches until stopped.
    pub(crate) async fn watch(self, stop: CancellationToken) {
        // By place: each instance of a server has its own, and its own deleted files.
        let mut due: HashMap<usize, Instant> = HashMap::new();
        let mut before: HashMap<Owner, u64> = HashMap::new();
        let (mut pause, mut is_scarce) = (EVERY, false);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let places = self.places();
            pause = EVERY;
            if places.is_empty() {
                continue;
            }
            due.retain(|key, _| places.iter().any(|place| Arc::as_ptr(place).addr() == *key));
            for place in places.iter().filter(|place| !place.loose.is_empty()) {
                let now = Instant::now();
                let key = Arc::as_ptr(place).addr();
                if is_scarce || due.get(&key).is_none_or(|due| *due <= now) {
                    let (walked, took) = walk(place).await;
                    place.judge(walked);
                    due.insert(key, now + (took * SHARE).max(EVERY));
                }
            }
            let disks = self.clone();
            let now: HashMap<Owner, u64> = places
                .iter()
                .map(|place| (place.owner.clone(), place.on_disk()))
                .collect();
            let free = tokio::task::spawn_blocking(move || disks.free()).await;
            let (free, kept) = free.unwrap_or((u64::MAX, 0));
            if free < kept {
                stop_who_fills(&places, &before, &now);
            }
            is_scarce = free / SCARCE < kept;
            if is_scarce {
                pause = OFTEN;
            }
            before = now;
        }
    }

    /// Returns how many bytes are free on the gateway's disk, and how many are reserved.
    pub(super) fn free(&self) -> (u64, u64) {
        let folder = self.inner.folder.ancestors().find(|path| path.is_dir());
        let Some(found) = folder.and_then(|folder| rustix::fs::statvfs(folder).ok()) else {
            return (u64::MAX, 0);
        };
        let all = found.f_blocks.saturating_mul(found.f_frsize);
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        (free, KEPT_FREE.min(all / KEPT_PART))
    }

    /// Describes the servers that use most of the disk.
    pub(super) fn most_used(&self) -> String {
        let places = self.places();
        let by_owner: HashMap<&Owner, u64> = places
            .iter()
            .map(|place| (&place.owner, place.on_disk()))
            .collect();
        let used = by_owner.into_iter();
        let used = used.map(|(owner, bytes)| (bytes, owner.server.to_string()));
        let mut used: Vec<(u64, String)> = used.collect();
        used.sort_unstable_by(|one, other| other.cmp(one));
        let most = used.iter().take(3);
        let most: Vec<String> = most
            .map(|(bytes, server)| format!("`{server}` ({} MiB)", bytes >> 20))
            .collect();
        match most.is_empty() {
            true => "no hosted server".to_owned(),
            false => most.join(", "),
        }
    }

    /// Returns a warning that names the largest users, if the disk is nearly full.
    pub(crate) fn warning(&self) -> Option<String> {
        let (free, kept) = self.free();
        (free < kept).then(|| {
            format!(
                "the disk of the data folder has {} MiB free; of hosted servers most is used by {}",
                free >> 20,
                self.most_used()
            )
        })
    }
}

impl Place {
    /// Stops the server if it exceeds its limit.
    fn judge(&self, found: measure::Found) {
        let inodes = self.inodes();
        if let Some(hides) = found.hides {
            return self.stop(format!(
                "stopped: what it uses on disk cannot be measured: {hides}"
            ));
        }
        let what = if found.bytes > self.limit {
            format!("{} of {} bytes on disk", found.bytes, self.limit)
        } else if found.files > inodes {
            format!("{} of {inodes} files on disk", found.files)
        } else {
            return;
        };
        self.stop(format!("stopped: it uses {what}"));
    }

    /// Ends the server in this place, with the reason.
    pub(crate) fn stop(&self, why: String) {
        warn!(server = %self.owner.server, project = %self.owner.project, why, "over a limit");
        self.over.send_replace(Some(why));
    }

    /// Returns how many bytes of the gateway's own disk the place occupies.
    fn on_disk(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let loose = self.measured.last().map_or(0, |found| found.bytes);
        let image = self.image.as_ref().map(std::fs::metadata);
        let own = image.and_then(Result::ok);
        own.map_or(0, |found| found.blocks() * 512) + loose
    }
}

/// Measures a place on a blocking thread; also returns how long that took.
async fn walk(place: &Arc<Place>) -> (measure::Found, Duration) {
    let (begun, place) = (Instant::now(), Arc::clone(place));
    let walked = tokio::task::spawn_blocking(move || place.measure()).await;
    (walked.unwrap_or_default(), begun.elapsed())
}

/// Stops the server that grew most since the last check, if one grew much.
fn stop_who_fills(places: &[Arc<Place>], before: &HashMap<Owner, u64>, now: &HashMap<Owner, u64>) {
    let grown = |place: &&Arc<Place>| {
        let now = now.get(&place.owner).copied().unwrap_or_default();
        now.saturating_sub(before.get(&place.owner).copied().unwrap_or(now))
    };
    let running = places.iter().filter(|place| place.over.borrow().is_none());
    let Some(most) = running.clone().max_by_key(grown) else {
        return;
    };
    // Growth that no measurement shows, such as a deleted file, is attributed to a server that is
    // only measured.
    let place = match grown(&most) {
        0 => running
            .filter(|place| !place.loose.is_empty())
            .max_by_key(|place| now.get(&place.owner).copied()),
        _ => Some(most),
    };
    if let Some(place) = place {
        let used = now.get(&place.owner).copied().unwrap_or_default() >> 20;
        place.stop(format!(
            "stopped: the disk of the data folder is nearly full, and this server fills it ({used} MiB)"
        ));
    }
}
