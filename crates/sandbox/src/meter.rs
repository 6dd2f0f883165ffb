//! Reads what a tree uses, apart from the tree itself, which somebody else waits for.

use std::sync::Arc;

use crate::cgroup::Group;
use crate::exit::Usage;
use crate::procfs;
use crate::reaper::Init;

/// Reads what one tree uses, for as long as it lives.
#[derive(Debug)]
pub struct Meter {
    init: Arc<Init>,
    group: Group,
}

impl Meter {
    pub(crate) fn new(init: Arc<Init>, group: Group) -> Self {
        Self { init, group }
    }

    /// Returns what the tree uses now, from its cgroups or from `/proc`.
    pub fn read(&self) -> Usage {
        // A process that has been reaped has no number any more.
        let gone = self.init.ended().borrow().is_some();
        let mut usage = if gone {
            Usage::default()
        } else {
            procfs::usage(self.init.pid)
        };
        usage.prefer(&self.group);
        usage
    }

    /// Returns how many bytes and files the tree keeps on these devices without a name: removed, but open
    /// or mapped. Blocks.
    pub fn unnamed_files(&self, devices: &[u64]) -> (u64, u64) {
        if self.init.ended().borrow().is_some() {
            return (0, 0);
        }
        procfs::unnamed(self.init.pid, devices)
    }
}
