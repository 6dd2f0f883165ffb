//! A file system of fixed size in one file, mounted through a loop device, so that the kernel
//! limits its bytes and inodes. Requires a gateway that runs as root, `mkfs.ext4` and loop devices.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{run, run_within};
use super::{BYTES_PER_INODE, FEWEST_INODES, SMALLEST};

/// The folder of a probe; not a valid name of a server or a project.
const TRIAL: &str = ".probe";
/// How long a file system may stay in use after it was unmounted.
const RELEASED: Duration = Duration::from_secs(5);
/// How often that is checked.
const LOOK: Duration = Duration::from_millis(20);
/// The minimum deadline of a check or a change, and the time added for each GiB.
const LEAST_CHANGE: Duration = Duration::from_mins(5);
const PER_GIB: Duration = Duration::from_mins(1);
/// How many file systems are unmounted at once, beside the first.
const MOST_THREADS: usize = 15;
/// The offset of an ext4 superblock, and how much of it is read.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 0x154;

/// Tries to create and mount a small file system; returns why that fails.
///
/// Runs in a separate mount namespace, so that nothing stays mounted if the gateway is killed.
pub(super) fn probe(folder: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount a file system of fixed size".to_owned());
    }
    let trial = tempdir(folder).map_err(|error| error.to_string())?;
    let (image, root) = (trial.join("probe.img"), trial.join("mnt"));
    let tried = std::fs::create_dir(&root)
        .and_then(|()| make(&image, SMALLEST, FEWEST_INODES))
        .and_then(|()| {
            let apart = ["--mount", "--propagation", "private", "mount"].map(OsStr::new);
            let words = mount_words(&image, &root);
            let words: Vec<&OsStr> = apart
                .into_iter()
                .chain(words.iter().map(AsRef::as_ref))
                .collect();
            run("unshare", &words, 0)
        });
    drop(std::fs::remove_dir_all(&trial));
    tried.map_err(|error| error.to_string())
}

/// Removes the leftovers of an interrupted probe.
pub(super) fn remove_trial(folder: &Path) {
    let trial = folder.join(TRIAL);
    if trial.is_dir()
        && let Err(error) = std::fs::remove_dir_all(&trial)
    {
        tracing::warn!(path = %trial.display(), %error, "a trial of disks stays");
    }
}

fn tempdir(near: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let path = near.join(TRIAL);
    drop(std::fs::remove_dir_all(&path));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(&path)?;
    Ok(path)
}

/// A mounted file system.
pub(super) struct Made {
    pub(super) bytes: u64,
    /// How its size is enforced.
    pub(super) detail: String,
}

/// Creates the file system if it is missing, mounts it, and enlarges it to its size.
pub(super) fn provide(image: &Path, root: &Path, bytes: u64, is_mounted: bool) -> io::Result<Made> {
    let bytes = bytes.next_multiple_of(1 << 20);
    let inodes = (bytes / BYTES_PER_INODE).max(FEWEST_INODES);
    let has = match std::fs::metadata(image) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(image, bytes, inodes)?;
            bytes
        }
        found => found?.len(),
    };
    if !is_mounted {
        mount(image, root)?;
    }
    let size = has.max(bytes);
    // Also completes an interrupted enlargement: then the file is already long enough, but the file
    // system is not.
    if has < size || file_system_bytes(image)? < size {
        grow(image, root, size)?;
    }
    Ok(held(size, bytes))
}

fn held(bytes: u64, wanted: u64) -> Made {
    let smaller = match bytes > wanted {
        true => "; it does not shrink: a smaller limit holds once its volumes are removed",
        false => "",
    };
    Made {
        bytes,
        detail: format!(
            "an ext4 file system of {} MiB, its inodes bounded{smaller}",
            bytes >> 20
        ),
    }
}

/// Creates the file under a temporary name, so that an existing image is always complete.
fn make(image: &Path, bytes: u64, inodes: u64) -> io::Result<()> {
    let unfinished = image.with_extension("new");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&unfinished)?.set_len(bytes)?;
    let inodes = inodes.to_string();
    let args = [
        OsStr::new("-q"),
        OsStr::new("-F"),
        OsStr::new("-m"),
        OsStr::new("0"),
        OsStr::new("-N"),
        OsStr::new(&inodes),
        OsStr::new("-E"),
        OsStr::new("lazy_itable_init=1,lazy_journal_init=1,nodiscard"),
        unfinished.as_os_str(),
    ];
    run("mkfs.ext4", &args, 0)?;
    std::fs::rename(&unfinished, image)
}

/// Enlarges a mounted file system.
///
/// Online, by the kernel, if it supports that; otherwise after unmounting, for as long as that
/// takes. An enlargement that was interrupted before it began is completed at the next use.
fn grow(image: &Path, root: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(image)?;
    if file.metadata()?.len() < bytes {
        file.set_len(bytes)?;
    }
    let online = device(root).and_then(|device| {
        run("losetup", &[OsStr::new("-c"), device.as_os_str()], 0)?;
        run("resize2fs", &[device.as_os_str()], 0)
    });
    let Err(error) = online else {
        return Ok(());
    };
    tracing::debug!(%error, "a file system grows while it is not mounted");
    unmount(root);
    let mut waited = Duration::ZERO;
    // A mount stays in use while other processes have files open in it.
    while is_attached(image) {
        if waited >= RELEASED {
            mount(image, root)?;
            return Err(io::Error::other(
                "its file system is still in use, and cannot grow now",
            ));
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    // Exit code 1 means that errors were repaired.
    change("e2fsck", &["-fp"], image, 1)?;
    change("resize2fs", &[], image, 0)?;
    mount(image, root)
}

/// Runs a program that changes an unmounted file system, with a deadline that depends on its size.
/// The program holds a lock on the image: if the gateway is killed meanwhile, the next one does not
/// mount an image that is being changed.
fn change(program: &str, options: &[&str], image: &Path, most: i32) -> io::Result<()> {
    let file = locked(image)?;
    let gibibytes = u32::try_from(file.metadata()?.len() >> 30).unwrap_or(u32::MAX);
    let mut words: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    words.push(image.as_os_str());
    let deadline = LEAST_CHANGE + PER_GIB.saturating_mul(gibibytes);
    run_within(program, &words, most, deadline, file)
}

/// Opens and locks an image that is not being changed.
fn locked(image: &Path) -> io::Result<File> {
    use rustix::fs::{FlockOperation, flock};
    let file = File::open(image)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        io::Error::other("its file system is still being checked or enlarged; try again later")
    })?;
    Ok(file)
}

/// Returns whether a loop device uses the file.
fn is_attached(image: &Path) -> bool {
    let Ok(image) = image.canonicalize() else {
        return false;
    };
    let devices = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten();
    let mut files = devices.filter_map(|device| {
        let file = device.path().join("loop/backing_file");
        std::fs::read_to_string(file).ok()
    });
    files.any(|file| Path::new(file.trim_end()) == image)
}

/// Returns the loop device that is mounted at a path.
fn device(root: &Path) -> io::Result<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let root = root.canonicalize()?;
    let mounted = table.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        (Path::new(&unescaped(point)) == root)
            .then(|| after.split(' ').nth(1).map(PathBuf::from))?
    });
    mounted.ok_or_else(|| io::Error::other("its file system is not mounted"))
}

/// Returns the size of the file system in an image, from its superblock.
fn file_system_bytes(image: &Path) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let mut block = [0; SUPERBLOCK_BYTES];
    File::open(image)?.read_exact_at(&mut block, SUPERBLOCK)?;
    let number = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&block[at..at + 4]);
        u64::from(u32::from_le_bytes(bytes))
    };
    let (low, log_size, high) = (number(0x4), number(0x18), number(0x150));
    // The high words are valid only with the 64-bit feature.
    let is_64 = number(0x60) & 0x80 != 0;
    let blocks = low | if is_64 { high << 32 } else { 0 };
    Ok(blocks << (10 + log_size.min(6)))
}

/// Returns the arguments of `mount`.
fn mount_words(image: &Path, root: &Path) -> Vec<std::ffi::OsString> {
    let options = ["-t", "ext4", "-o", "loop,nosuid,nodev,noatime"];
    let places = [image, root].map(|path| path.as_os_str().to_owned());
    options.into_iter().map(Into::into).chain(places).collect()
}

fn mount(image: &Path, root: &Path) -> io::Result<()> {
    drop(locked(image)?);
    let words = mount_words(image, root);
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    if run("mount", &words, 0).is_ok() {
        return Ok(());
    }
    // After a power loss the file system may need a check.
    change("e2fsck", &["-p"], image, 1)?;
    run("mount", &words, 0)
}

/// Unmounts, even while the file system is in use.
pub(super) fn unmount(root: &Path) {
    use rustix::mount::{UnmountFlags, unmount};
    if let Err(error) = unmount(root, UnmountFlags::DETACH)
        && error != rustix::io::Errno::INVAL
        && error != rustix::io::Errno::NOENT
    {
        tracing::warn!(path = %root.display(), %error, "cannot unmount");
    }
}

/// Unmounts everything that is mounted below a folder.
pub(super) fn unmount_below(folder: &Path) {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else {
        return;
    };
    let Ok(folder) = folder.canonicalize() else {
        return;
    };
    let left = mounts_below(&table, &folder);
    if !left.is_empty() {
        tracing::info!(
            count = left.len(),
            "unmounting what an earlier process left"
        );
    }
    // A later mount may be on an earlier one, which `DETACH` removes with it.
    unmount_each(left);
}

/// Unmounts several file systems at once: each writes its journal, which waits for the disk.
pub(super) fn unmount_each(roots: Vec<PathBuf>) {
    let threads = roots.len().saturating_sub(1).min(MOST_THREADS);
    let roots = parking_lot::Mutex::new(roots);
    let work = || {
        loop {
            let next = roots.lock().pop();
            let Some(root) = next else { break };
            unmount(&root);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // If there is no thread, the others do its work.
            drop(std::thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
}

/// Returns the mount points below a folder, in the order of the table.
fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescaped(point)));
    points
        .filter(|point| point.starts_with(folder) && point != folder)
        .collect()
}

/// Decodes the kernel's octal escapes of spaces and backslashes.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                path.push(char::from(code));
                path.push_str(&part[3..]);
            }
            None => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    path
}

/// Returns how many bytes are used in a mounted file system.
pub(super) fn used(root: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(root).ok()?;
    Some((found.f_blocks - found.f_bfree) * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_file_system_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if make(&image, 8 << 20, FEWEST_INODES).is_err() {
            // No `mkfs.ext4` here.
            return;
        }
        assert_eq!(file_system_bytes(&image).unwrap(), 8 << 20);
        // As after an interrupted enlargement.
        let file = File::options().write(true).open(&image).unwrap();
        file.set_len(16 << 20).unwrap();
        assert_eq!(file_system_bytes(&image).unwrap(), 8 << 20);
    }

    // row 1.20
    #[test]
    fn what_is_being_changed_is_not_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, "").unwrap();
        let held = locked(&image).unwrap();
        let refused = mount(&image, folder.path()).unwrap_err();
        assert!(refused.to_string().contains("still being"), "{refused}");
        drop(held);
        locked(&image).unwrap();
    }

    #[test]
    fn the_table_of_mounts_is_read() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
                     23 22 7:0 / /data/hosted/local/a/mnt rw shared:1 - ext4 /dev/loop0 rw\n\
                     24 22 7:1 / /data/hosted/local/a\\040b/mnt rw - ext4 /dev/loop1 rw\n\
                     25 22 7:2 / /data/hosted-other/mnt rw - ext4 /dev/loop2 rw\n";
        let found = mounts_below(table, Path::new("/data/hosted"));
        let expected = ["/data/hosted/local/a/mnt", "/data/hosted/local/a b/mnt"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
