//! Reads the usage of a tree, independent of the task that waits for its end.

use std::sync::Arc;

use crate::cgroup::Group;
use crate::exit::Usage;
use crate::procfs;
use crate::queues;
use crate::reaper::Init;

/// Reads the usage of one tree while it runs.
#[derive(Debug)]
pub struct Meter {
    init: Arc<Init>,
    group: Group,
}

impl Meter {
    pub(crate) fn new(init: Arc<Init>, group: Group) -> Self {
        Self { init, group }
    }

    /// Returns the current usage, from the tree's cgroups or from `/proc`.
    pub fn read(&self) -> Usage {
        // The id of a reaped process may be reused.
        let gone = self.init.ended().borrow().is_some();
        let mut usage = if gone {
            Usage::default()
        } else {
            procfs::usage(self.init.pid)
        };
        usage.memory_bytes = self.memory_bytes();
        usage.prefer(&self.group);
        usage
    }

    /// Returns the current memory alone, which is cheaper. Blocks.
    pub fn memory_bytes(&self) -> u64 {
        let counted = self.group.usage().1;
        counted.unwrap_or_else(|| match self.init.ended().borrow().is_some() {
            true => 0,
            false => procfs::memory(self.init.pid),
        })
    }

    /// Estimates the memory of the TCP and UDP sockets in the tree's own network; beyond `most` it may
    /// be more. Blocks.
    pub fn socket_bytes(&self, most: u64) -> u64 {
        match self.init.ended().borrow().is_some() {
            true => 0,
            false => queues::bytes(self.init.pid, most),
        }
    }

    /// Returns how many bytes and files the tree holds on these devices without a name: deleted,
    /// but open or mapped. Blocks.
    pub fn unnamed_files(&self, devices: &[u64]) -> (u64, u64) {
        if self.init.ended().borrow().is_some() {
            return (0, 0);
        }
        procfs::unnamed(self.init.pid, devices)
    }
}
