//! What a tree uses, from `/proc`, for what no cgroup counts.

use std::fs;
use std::time::Duration;

use crate::exit::Usage;

/// `/proc/<pid>/stat` counts in hundredths of a second on every platform we run on.
const TICK: Duration = Duration::from_millis(10);
const PAGE: u64 = 4096;
/// A bound on the walk: beyond it the figures are a lower bound.
const MOST: usize = 4096;

/// Sums up the tree below its init, the init itself left out.
pub(crate) fn usage(init: u32) -> Usage {
    let mut usage = Usage::default();
    // What has been reaped counts to the init.
    if let Some(times) = times(init) {
        usage.cpu += ticks(times[2] + times[3]);
    }
    let mut found = children(init);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied().filter(|_| next < MOST) {
        next += 1;
        if let Some(times) = times(pid) {
            usage.cpu += ticks(times.iter().sum());
            usage.memory_bytes += resident(pid).unwrap_or(0);
            usage.pids += 1;
        }
        found.extend(children(pid));
    }
    usage
}

fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// User and system time, own and of reaped children, in ticks.
fn times(pid: u32) -> Option<[u64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; behind it the fields are plain.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields
        .split_whitespace()
        .skip(11)
        .map(|field| field.parse().unwrap_or(0));
    Some([
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    ])
}

fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}
