//! The usage of a tree from `/proc`, for values that no cgroup counts.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::exit::Usage;

/// The unit of CPU times in `/proc/<pid>/stat` on all supported platforms.
const TICK: Duration = Duration::from_millis(10);
/// The most processes that are visited; with more, the result is a lower bound.
const MOST: usize = 4096;
/// The most descriptors that are examined.
const MOST_OPEN: u64 = 1 << 17;
/// The most that are examined for files in memory.
const MOST_IN_MEMORY: usize = 4096;

/// Sums up the usage of the tree below its init, without the init itself and without memory.
pub(crate) fn usage(init: u32) -> Usage {
    let mut usage = Usage::default();
    // The usage of reaped processes is added to the init.
    if let Some(times) = times(init) {
        usage.cpu += ticks(times[2] + times[3]);
    }
    for pid in descendants(init) {
        if let Some(times) = times(pid) {
            usage.cpu += ticks(times.iter().sum());
            usage.pids += 1;
        }
    }
    usage
}

/// Sums up the memory of the tree below its init, without what the kernel can read again from
/// files. What processes share counts once.
pub(crate) fn memory(init: u32) -> u64 {
    let (mut own, mut shared) = (0, 0);
    let (mut in_memory, mut looked) = (HashMap::new(), 0);
    for pid in descendants(init) {
        let resident = Resident::of(pid).unwrap_or_default();
        own += resident.own;
        shared = resident.shared.max(shared);
        // In gVisor these are the guest's memory, most of which no process has mapped.
        for file in open_files(pid).take(MOST_IN_MEMORY - looked) {
            looked += 1;
            if file.nlink() == 0 && Some(file.dev()) == memory_device() {
                in_memory.insert(file.ino(), file.blocks() * 512);
            }
        }
    }
    own + shared.max(in_memory.values().sum())
}

/// The device of files that are in memory alone.
fn memory_device() -> Option<u64> {
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let file = memfd_create("device", MemfdFlags::CLOEXEC).ok()?;
        Some(File::from(file).metadata().ok()?.dev())
    })
}

/// The open files of a process themselves, not those at their paths.
fn open_files(pid: u32) -> impl Iterator<Item = fs::Metadata> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let open = open.into_iter().flatten().flatten();
    open.filter_map(|entry| fs::metadata(entry.path()).ok())
}

/// The processes below an init.
fn descendants(init: u32) -> Vec<u32> {
    let mut found = children(init);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied().filter(|_| next < MOST) {
        next += 1;
        found.extend(children(pid));
    }
    found.truncate(MOST);
    found
}

/// Sums up the deleted files that a tree holds open or mapped on these devices: bytes and number.
/// Files of the host's root do not count.
pub(crate) fn unnamed(init: u32, devices: &[u64]) -> (u64, u64) {
    let mut seen: HashMap<(u64, u64), u64> = HashMap::new();
    let mut looked = 0;
    for pid in descendants(init) {
        for file in open_files(pid) {
            looked += 1;
            if file.nlink() == 0
                && file.uid() != 0
                && file.is_file()
                && devices.contains(&file.dev())
            {
                seen.insert((file.dev(), file.ino()), file.blocks() * 512);
            }
        }
        mapped(pid, devices, &mut seen);
        if looked > MOST_OPEN {
            break;
        }
    }
    (seen.values().sum(), seen.len() as u64)
}

/// Adds mapped files without a name, by the length of their mappings.
fn mapped(pid: u32, devices: &[u64], seen: &mut HashMap<(u64, u64), u64>) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut lengths: HashMap<(u64, u64), u64> = HashMap::new();
    for line in maps.lines().filter(|line| line.ends_with(" (deleted)")) {
        let mut fields = line.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let writable = fields.next().is_some_and(|rights| rights.contains('w'));
        let device = fields.nth(1).and_then(|device| device.split_once(':'));
        let inode = fields.next().and_then(|inode| inode.parse().ok());
        let (Some((from, to)), Some((major, minor)), Some(inode)) = (range, device, inode) else {
            continue;
        };
        let (Some(from), Some(to)) = (hex(from), hex(to)) else {
            continue;
        };
        let number = |text| hex(text).and_then(|number| u32::try_from(number).ok());
        let (Some(major), Some(minor)) = (number(major), number(minor)) else {
            continue;
        };
        let device = rustix::fs::makedev(major, minor);
        // A replaced program or library is mapped without write permission.
        if writable && devices.contains(&device) {
            *lengths.entry((device, inode)).or_default() += to.saturating_sub(from);
        }
    }
    for (file, length) in lengths {
        seen.entry(file).or_insert(length);
    }
}

fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns user and system time, own and of reaped children, in ticks.
fn times(pid: u32) -> Option<[u64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields after it are plain.
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

/// The resident bytes of a process.
#[derive(Default)]
struct Resident {
    own: u64,
    /// Memory that other processes may map as well.
    shared: u64,
}

impl Resident {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes = line.trim().strip_suffix(" kB")?.trim();
            Some(kibibytes.parse::<u64>().ok()? * 1024)
        };
        Some(Self {
            own: bytes("RssAnon:")?,
            shared: bytes("RssShmem:")?,
        })
    }
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
