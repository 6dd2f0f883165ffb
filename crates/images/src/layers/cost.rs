//! Limits of unpacking: the total bytes of an image, and the free space on the disk.
//!
//! Both are checked while a layer is written, not after: a few compressed megabytes can expand to
//! fill the disk, and the gateway's journal is on the same disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::fstatvfs;
use tokio::time::Instant;

use super::{LayerError, LayerStore};

/// The maximum of the reserve that is a percentage of the disk.
const LARGEST_SHARE: u64 = 2 << 30;

/// The limit of an image's unpacked size, shared by the tasks that unpack its layers.
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

    /// Counts bytes before they are written; fails if the image exceeds its limit.
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

/// How long a reader has waited for others, such as the network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waited(Arc<AtomicU64>);

impl Waited {
    /// Runs an operation that may wait, and adds its duration.
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
    /// Fails if the store's disk has less free space than the reserve.
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Read};
    use std::path::Path;

    use rustix::fs::{FallocateFlags, fallocate, statvfs};
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::digest::Digest;
    use crate::layers::Present;
    use crate::store::{Limits, Owners};
    use crate::tarball::{file, layer};

    /// A reader that counts bytes and runs a callback after some of them.
    struct Watched<'a> {
        bytes: &'a [u8],
        read: usize,
        at: usize,
        then: Option<Box<dyn FnOnce() + 'a>>,
    }

    impl Read for Watched<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = (&self.bytes[self.read..]).read(into)?;
            self.read += count;
            if self.read >= self.at
                && let Some(then) = self.then.take()
            {
                then();
            }
            Ok(count)
        }
    }

    fn open(path: &Path, reserve_bytes: u64) -> LayerStore {
        let limits = Limits {
            reserve_bytes,
            reserve_percent: 0,
            ..Limits::default()
        };
        LayerStore::open(path, Owners::Single, &limits).unwrap()
    }

    fn content() -> Vec<u8> {
        layer(&[file("zeros", vec![0; 16 << 20])])
    }

    #[test]
    fn an_image_ends_at_its_budget_and_not_after_its_layers() {
        let folder = TempDir::new().unwrap();
        let store = open(folder.path(), 0);
        let stop = CancellationToken::new();
        let budget = Budget::new(3 << 20);
        let first = layer(&[file("first", vec![1; 2 << 20])]);
        let first_id = Digest::of(&first);
        store
            .add_to(&budget, (&first_id, Present::Use), &mut &first[..], &stop)
            .unwrap();
        let bytes = content();
        let mut tar = Watched {
            bytes: &bytes,
            read: 0,
            at: usize::MAX,
            then: None,
        };
        let error = store.add_to(
            &budget,
            (&Digest::of(&bytes), Present::Use),
            &mut tar,
            &stop,
        );
        assert!(matches!(error, Err(LayerError::ImageTooLarge { .. })));
        assert!(tar.read < 2 << 20, "{} bytes were read", tar.read);
        // A layer already in the store counts as well.
        let budget = Budget::new(1 << 20);
        let error = store.add_to(&budget, (&first_id, Present::Use), &mut io::empty(), &stop);
        assert!(matches!(error, Err(LayerError::ImageTooLarge { .. })));
    }

    #[test]
    fn the_reserve_is_looked_at_before_and_while_a_layer_is_unpacked() {
        let folder = TempDir::new().unwrap();
        let stop = CancellationToken::new();
        let bytes = content();
        let unpack = |reserve: u64, then: Option<Box<dyn FnOnce() + '_>>| {
            let store = open(folder.path(), reserve);
            let mut tar = Watched {
                bytes: &bytes,
                read: 0,
                at: 4 << 20,
                then,
            };
            let budget = Budget::new(u64::MAX);
            let added = store.add_to(
                &budget,
                (&Digest::of(&bytes), Present::Use),
                &mut tar,
                &stop,
            );
            (added.map(drop), tar.read)
        };
        let (refused, read) = unpack(u64::MAX, None);
        assert!(matches!(refused, Err(LayerError::NoSpace { .. })));
        assert_eq!(read, 0);

        // Another program takes a gigabyte in the middle of it.
        let disk = statvfs(folder.path()).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let other = File::create(folder.path().join("other")).unwrap();
        let take = || fallocate(&other, FallocateFlags::empty(), 0, 1 << 30).unwrap();
        let (refused, read) = unpack(free.saturating_sub(512 << 20), Some(Box::new(take)));
        assert!(matches!(refused, Err(LayerError::NoSpace { .. })));
        assert!((4 << 20..6 << 20).contains(&read), "{read} bytes were read");
        let left = std::fs::read_dir(folder.path().join("tmp")).unwrap();
        assert_eq!(left.count(), 0);
        other.set_len(0).unwrap();
        assert!(unpack(0, None).0.is_ok());
    }
}
