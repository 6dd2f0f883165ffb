//! Durability `disk`: one thread that syncs for all waiting calls at once.
//!
//! A failed sync is not retried: the kernel may have dropped the pages, so from then on every wait
//! fails. Entry point: `GroupSync::start`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::segment::Segment;

/// The handle of the sync thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct GroupSync {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// The error number of the failed sync, or 0.
    failed: AtomicI32,
    gave_up: CancellationToken,
    #[cfg(test)]
    rounds: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    dirty: Vec<Arc<Segment>>,
    waiting: Vec<oneshot::Sender<()>>,
    closing: bool,
}

impl GroupSync {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("audit-sync".to_owned())
            .spawn(move || theirs.run())?;
        Ok(Self { shared })
    }

    /// Returns the error of the failed sync, if any.
    pub(super) fn failure(&self) -> Option<io::Error> {
        match self.shared.failed.load(Ordering::Acquire) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    /// Waits until a sync has failed and returns its error.
    pub(super) async fn failed(&self) -> io::Error {
        self.shared.gave_up.cancelled().await;
        let lost = || io::Error::other("a sync failed");
        self.failure().unwrap_or_else(lost)
    }

    #[cfg(test)]
    pub(super) fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Requests a sync of `segment`, without waiting.
    pub(super) fn request(&self, segment: Arc<Segment>) {
        let mut queue = self.shared.queue.lock();
        queue.mark(segment);
        self.shared.ready.notify_one();
    }

    /// Waits until everything written to `segment` so far is on the disk.
    pub(super) async fn wait(&self, segment: Arc<Segment>) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            queue.mark(segment);
            queue.waiting.push(tx);
            self.shared.ready.notify_one();
        }
        let answered = rx.await;
        match self.failure() {
            Some(error) => Err(error),
            None => answered.map_err(|_| io::Error::other("the syncing thread has ended")),
        }
    }
}

impl Drop for GroupSync {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.ready.notify_one();
    }
}

impl Queue {
    fn mark(&mut self, segment: Arc<Segment>) {
        if !self.dirty.iter().any(|known| Arc::ptr_eq(known, &segment)) {
            self.dirty.push(segment);
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let (dirty, waiting) = {
                let mut queue = self.queue.lock();
                while queue.dirty.is_empty() {
                    if queue.closing {
                        return;
                    }
                    self.ready.wait(&mut queue);
                }
                (
                    std::mem::take(&mut queue.dirty),
                    std::mem::take(&mut queue.waiting),
                )
            };
            #[cfg(test)]
            self.rounds.fetch_add(1, Ordering::Relaxed);
            for segment in dirty {
                if self.failed.load(Ordering::Relaxed) != 0 {
                    break;
                }
                if let Err(error) = segment.file.sync_data() {
                    tracing::error!(segment = segment.id, %error, "the disk did not confirm the audit journal");
                    self.failed
                        .store(error.raw_os_error().unwrap_or(-1), Ordering::Release);
                    self.gave_up.cancel();
                }
            }
            for waiter in waiting {
                // A caller that no longer waits needs no answer.
                waiter.send(()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::audit::record::Salt;

    fn segment(file: File) -> Arc<Segment> {
        Arc::new(Segment {
            id: 1,
            salt: Salt(1),
            size: 1024,
            file,
            journal: 0,
            damaged: false,
        })
    }

    #[tokio::test]
    async fn a_sync_that_failed_is_never_trusted_again() {
        // fault F3
        let sync = GroupSync::start().unwrap();
        let good = segment(tempfile::tempfile().unwrap());
        sync.wait(Arc::clone(&good)).await.unwrap();
        assert!(sync.failure().is_none());
        // A socket cannot be synced.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let bad = segment(File::from(std::os::fd::OwnedFd::from(socket)));
        assert!(sync.wait(bad).await.is_err());
        assert!(sync.failure().is_some());
        assert!(sync.wait(good).await.is_err());
    }
}
