//! The folders that no tree may see, such as the one with the gateway's keys: which directories are
//! covered for a command, and which paths below them stay visible.
//!
//! A directory may be reachable by several paths, through symbolic links and bind mounts: each is
//! covered. Only decides; the init mounts. Entry point: [`Hidden::directories`].
#![cfg_attr(not(gantry_init), expect(dead_code, reason = "only the init can hide"))]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders that no tree may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The folders; missing ones are ignored.
    pub folders: Vec<PathBuf>,
    /// Below this one of them, a tree's working directory, program and home stay visible …
    pub shared: Option<PathBuf>,
    /// … unless they are inside one of these.
    pub private: Vec<PathBuf>,
}

impl Hidden {
    /// Returns the directories to cover, outer ones first.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let found = self.folders.iter();
        let found: Vec<PathBuf> = found
            .filter_map(|folder| fs::canonicalize(folder).ok())
            .filter(|folder| folder != Path::new("/"))
            .collect();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts: Vec<Mount> = table.lines().filter_map(Mount::parse).collect();
        let others = found.iter().flat_map(|folder| aliases(&mounts, folder));
        let all: BTreeSet<PathBuf> = found.iter().cloned().chain(others).collect();
        let mut all: Vec<PathBuf> = all.into_iter().collect();
        all.sort_by_key(|path| path.components().count());
        all
    }

    /// Returns which of these paths stay visible below the covered directories.
    pub(crate) fn kept(&self, wanted: &[&Path]) -> Vec<PathBuf> {
        let Some(shared) = self.shared.as_deref().and_then(real) else {
            return Vec::new();
        };
        let private: Vec<PathBuf> = self.private.iter().filter_map(|path| real(path)).collect();
        let mut kept: Vec<PathBuf> = Vec::new();
        for path in wanted.iter().filter_map(|path| real(path)) {
            let is_private = private.iter().any(|private| path.starts_with(private));
            // A file directly in the folder belongs to the gateway.
            let is_own = path.parent() == Some(&shared) && !path.is_dir();
            let is_below = path.starts_with(&shared) && path != shared;
            if is_below && !is_own && !is_private && !kept.contains(&path) {
                kept.push(path);
            }
        }
        // Outer before inner, so that an inner one is not covered again.
        kept.sort_by_key(|path| path.components().count());
        kept
    }
}

fn real(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

/// One line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    /// The mounted part of its file system.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        Some(Self {
            device: fields.next()?.to_owned(),
            root: unescaped(fields.next()?),
            point: unescaped(fields.next()?),
        })
    }
}

/// Decodes the octal escapes of spaces and the like.
fn unescaped(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let octal = bytes.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(letter) => {
                plain.push(letter);
                at += 4;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Returns the other paths of a directory, or of its content, through other mounts.
fn aliases(mounts: &[Mount], directory: &Path) -> Vec<PathBuf> {
    let holder = mounts
        .iter()
        .filter(|mount| directory.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().as_bytes().len());
    let Some(holder) = holder else {
        return Vec::new();
    };
    let Ok(inner) = directory.strip_prefix(&holder.point) else {
        return Vec::new();
    };
    // The path inside its own file system.
    let place = joined(&holder.root, inner);
    let same = mounts.iter().filter(|mount| mount.device == holder.device);
    let mut found = Vec::new();
    for mount in same {
        if let Ok(below) = place.strip_prefix(&mount.root) {
            let alias = joined(&mount.point, below);
            // Another mount may cover it, or another directory may have replaced it.
            if alias != directory && is_same(&alias, directory) {
                found.push(alias);
            }
        } else if mount.root.starts_with(&place)
            && !mount.point.starts_with(directory)
            && mount.point.is_dir()
        {
            found.push(mount.point.clone());
        }
    }
    found
}

fn joined(base: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        return base.to_owned();
    }
    base.join(below)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(
            mount,
            Mount {
                device: "98:0".to_owned(),
                root: "/mnt1".into(),
                point: "/mnt 2".into()
            }
        );
        assert_eq!(Mount::parse("36 35"), None);
    }

    #[test]
    fn only_what_the_tree_works_with_stays_visible() {
        let data = tempfile::tempdir().unwrap();
        let at = |path: &str| data.path().canonicalize().unwrap().join(path);
        for folder in ["servers/a", "keys", "other"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("gantry.db"), "").unwrap();
        let hidden = Hidden {
            folders: vec![data.path().to_owned()],
            shared: Some(data.path().to_owned()),
            private: vec![at("keys")],
        };
        let kept = |path: &str| hidden.kept(&[&at(path)]);
        assert_eq!(kept("servers/a"), [at("servers/a")]);
        assert_eq!(kept("other"), [at("other")]);
        for path in ["", "keys", "servers/../keys", "gantry.db", "none"] {
            assert!(kept(path).is_empty(), "{path}");
        }
        assert!(hidden.kept(&[Path::new("/usr")]).is_empty());
    }
}
