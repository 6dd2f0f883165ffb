//! How much memory this process takes at most, above what it took at a beginning.

use std::fs;

/// A measurement that has begun.
pub(crate) struct Peak {
    before: u64,
}

impl Peak {
    /// Forgets what the process took at most so far.
    pub(crate) fn begin() -> Self {
        fs::write("/proc/self/clear_refs", "5").unwrap();
        Self {
            before: bytes("VmRSS:"),
        }
    }

    /// Returns by how much the process has grown at most since.
    pub(crate) fn above(&self) -> u64 {
        bytes("VmHWM:").saturating_sub(self.before)
    }
}

fn bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.unwrap().trim().split(' ').next().unwrap();
    number.parse::<u64>().unwrap() << 10
}
