//! How a tree ended, and its resource usage.

use std::time::Duration;

/// How a server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the tree was killed for exceeding its memory limit.
    pub oom_killed: bool,
    /// Whether the tree reached its process limit at some time.
    pub pids_limit_hit: bool,
}

impl Exit {
    /// Decodes a wait status.
    pub(crate) fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self {
                code: Some((status >> 8) & 0xff),
                ..Self::default()
            },
            signal => Self {
                signal: Some(signal),
                ..Self::default()
            },
        }
    }

    /// Returns whether the server exited with code zero.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

/// The resource usage of a tree at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the start, of all its processes.
    pub cpu: Duration,
    /// Memory in bytes, without reclaimable file cache.
    pub memory_bytes: u64,
    /// Processes, and threads where a cgroup counts them. With gVisor the guest's processes, as far
    /// as they are visible from outside.
    pub pids: u64,
    /// Whether the tree reached its process limit recently.
    pub pids_limit_hit: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_read() {
        let read = |status| {
            let exit = Exit::from_wait_status(status);
            (exit.code, exit.signal)
        };
        assert_eq!(read(0), (Some(0), None));
        assert_eq!(read(1 << 8), (Some(1), None));
        assert_eq!(read(9), (None, Some(9)));
        assert_eq!(read(0x80 | 11), (None, Some(11)));
    }
}
