//! A file system of a fixed size in one file, mounted through a loop device: the kernel then bounds
//! its bytes and inodes. For a gateway that is root on a host with `mkfs.ext4` and loop devices.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::run;
use super::{BYTES_PER_INODE, FEWEST_INODES, SMALLEST};

/// How long a file system may be in use after it was unmounted.
const RELEASED: Duration = Duration::from_secs(5);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Tries to make, mount and unmount a small file system; says why that does not work.
pub(super) fn probe(folder: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount a file system of fixed size".to_owned());
    }
    let trial = tempdir(folder).map_err(|error| error.to_string())?;
    let (image, root) = (trial.join("probe.img"), trial.join("mnt"));
    let tried = std::fs::create_dir(&root)
        .and_then(|()| provide(&image, &root, SMALLEST, false))
        .map(drop);
    unmount(&root);
    drop(std::fs::remove_dir_all(&trial));
    tried.map_err(|error| error.to_string())
}

fn tempdir(near: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    // No server and no project has such a name.
    let path = near.join(".probe");
    drop(std::fs::remove_dir_all(&path));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(&path)?;
    Ok(path)
}

/// A file system that is mounted.
pub(super) struct Made {
    pub(super) bytes: u64,
    /// How its size is held.
    pub(super) detail: String,
}

/// Makes the file system if it is not there, lets it grow to its size, and mounts it.
pub(super) fn provide(image: &Path, root: &Path, bytes: u64, is_mounted: bool) -> io::Result<Made> {
    let bytes = bytes.next_multiple_of(1 << 20);
    let has = std::fs::metadata(image).map(|found| found.len());
    let inodes = (bytes / BYTES_PER_INODE).max(FEWEST_INODES);
    match has {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(image, bytes, inodes)?,
        Err(error) => return Err(error),
        Ok(has) if has >= bytes => {
            if !is_mounted {
                mount(image, root)?;
            }
            return Ok(held(has, bytes));
        }
        Ok(_) => {
            if is_mounted {
                unmount(root);
            }
            grow(image, bytes)?;
            mount(image, root)?;
            return Ok(held(bytes, bytes));
        }
    }
    if !is_mounted {
        mount(image, root)?;
    }
    Ok(held(bytes, bytes))
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

/// Made under another name first, so that one that is there is whole.
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

fn grow(image: &Path, bytes: u64) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    // A mount that somebody still looks into is in use until they leave.
    while is_attached(image) {
        if waited >= RELEASED {
            return Err(io::Error::other(
                "its file system is still in use, and cannot grow now",
            ));
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    // 1 says that something was repaired.
    run("e2fsck", &[OsStr::new("-fp"), image.as_os_str()], 1)?;
    File::options().write(true).open(image)?.set_len(bytes)?;
    run("resize2fs", &[image.as_os_str()], 0)
}

/// Tells whether a loop device has the file.
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

fn mount(image: &Path, root: &Path) -> io::Result<()> {
    let args = |image: &Path| {
        let words = ["-t", "ext4", "-o", "loop,nosuid,nodev,noatime"];
        let words = words.map(OsStr::new).to_vec();
        let mut words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
        words.extend([image.as_os_str().to_owned(), root.as_os_str().to_owned()]);
        words
    };
    let words = args(image);
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    if run("mount", &words, 0).is_ok() {
        return Ok(());
    }
    // After a power loss it may need a check first.
    run("e2fsck", &[OsStr::new("-p"), image.as_os_str()], 1)?;
    run("mount", &words, 0)
}

/// Unmounts, also while somebody still looks into it.
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
    // From the last on: what is mounted later may lie on what was mounted before.
    for root in mounts_below(&table, &folder).iter().rev() {
        tracing::info!(path = %root.display(), "unmounting what an earlier process left");
        unmount(root);
    }
}

/// Returns the mount points below a folder, in the order of the table.
fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescaped(point)));
    points
        .filter(|point| point.starts_with(folder) && point != folder)
        .collect()
}

/// Reads a path as the kernel writes it: blanks and backslashes in octal.
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
