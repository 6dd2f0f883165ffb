//! What unpacking costs the machine: the bytes of a whole image, and the free space that is left.
//!
//! Both are looked at while a layer is written, not after: a few compressed megabytes can be a disk full
//! of zeros, and the gateway's own journal lies on that disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::fstatvfs;
use tokio::time::Instant;

use super::{LayerError, LayerStore};

/// The most that is kept free for being a share of the disk: a large disk needs no more.
const LARGEST_SHARE: u64 = 16 << 30;

/// What all layers of one image may be, unpacked. Shared by those who unpack them.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let used = AtomicU64::new(0);
        Arc::new(Self { limit, used })
    }

    /// Counts bytes, before they are written; fails if the image becomes too large by them.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), LayerError> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        match before.checked_add(bytes) {
            Some(all) if all <= self.limit => Ok(()),
            _ => Err(LayerError::ImageTooLarge {
                limit_bytes: self.limit,
            }),
        }
    }
}

/// How long a reader has waited for somebody else, such as the network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waited(Arc<AtomicU64>);

impl Waited {
    /// Does what may wait, and counts its time.
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = wait();
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
        done
    }

    pub(crate) fn so_far(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl LayerStore {
    /// Fails if less is free on the store's disk than has to stay free.
    pub(crate) fn check_space(&self) -> Result<(), LayerError> {
        let limits = self.limits();
        let disk = fstatvfs(self.tmp()).map_err(LayerError::store("look at the disk of", "tmp"))?;
        let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        let share = disk.f_blocks.saturating_mul(disk.f_frsize) / 100;
        let share = share.saturating_mul(limits.reserve_percent);
        let kept_bytes = limits.reserve_bytes.max(share.min(LARGEST_SHARE));
        if free_bytes < kept_bytes {
            return Err(LayerError::NoSpace {
                free_bytes,
                kept_bytes,
            });
        }
        Ok(())
    }
}
