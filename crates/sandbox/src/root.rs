//! The root file system of a tree, and the user it runs as.
//!
//! Plain values; `plan` turns them into steps for the init.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The root file system of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// The host's, as far as the profile allows.
    #[default]
    Host,
    /// A separate root. The host's root is never used instead: if this host does not support it,
    /// nothing runs.
    Own(OwnRoot),
}

/// A separate root: contains nothing of the host except what is listed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRoot {
    /// Its content.
    pub base: RootBase,
    /// Its mounts, outer before inner.
    pub mounts: Vec<Mount>,
    /// The host name that the tree sees.
    pub hostname: String,
    /// The storage of `/tmp`, the home and, with `writable`, changes to the root.
    pub scratch: Scratch,
    /// Whether the tree may change its root while it runs. Only for [`RootBase::Layers`].
    pub writable: bool,
}

/// The content of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootBase {
    /// The programs and libraries of the host, read-only, with an own `/etc`: for hosted commands.
    HostParts,
    /// The unpacked layers of an image, in overlay form with `user.overlay` attributes.
    Layers {
        /// The folder that the names are relative to.
        base: PathBuf,
        /// Short relative names, the top layer first.
        lower: Vec<String>,
    },
    /// One merged folder, read-only: for hosts without overlay. Missing mount points are created in
    /// it.
    Folder(PathBuf),
}

/// A mount in a root; always without devices and set-user-id programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path, as the tree sees it.
    pub target: PathBuf,
    /// The kind.
    pub kind: MountKind,
    /// Whether it is read-only for the tree.
    pub read_only: bool,
}

/// The kind of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A folder or file of the host. An empty folder of the gateway is given to the tree's user.
    Bind(PathBuf),
    /// Memory, which counts against the tree's limit.
    Tmpfs {
        /// Its size.
        bytes: u64,
        /// Its maximum number of files.
        inodes: u64,
    },
}

/// The storage for files that a tree writes outside its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// A folder of limited size; if `None`, memory with the following limits.
    pub folder: Option<PathBuf>,
    /// The maximum size in memory.
    pub bytes: u64,
    /// The maximum number of files.
    pub inodes: u64,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            folder: None,
            bytes: 64 << 20,
            inodes: 16_384,
        }
    }
}

/// The user to run as, in the forms of image configurations: `name`, `uid`, `name:group`,
/// `uid:gid`. Names are looked up in the tree's own root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUser {
    user: String,
    group: Option<String>,
}

/// The error of an invalid user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a user: expected `name`, `uid`, `name:group` or `uid:gid`")]
pub struct ImageUserError {
    text: String,
}

impl FromStr for ImageUser {
    type Err = ImageUserError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ImageUserError {
            text: text.to_owned(),
        };
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let is_word = |word: &str| {
            !word.is_empty()
                && word.len() <= 256
                && !word.contains(|letter: char| letter == ':' || letter.is_control())
        };
        if !is_word(user) || !group.is_none_or(is_word) {
            return Err(error());
        }
        Ok(Self {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        })
    }
}

impl fmt::Display for ImageUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{}:{group}", self.user),
            None => f.write_str(&self.user),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_as_images_write_them() {
        for text in ["node", "1000", "1000:1000", "www-data:adm"] {
            let user: ImageUser = text.parse().unwrap();
            assert_eq!(user.to_string(), text);
        }
        for text in ["", ":", "a:", ":b", "a:b:c", "a\nb", "a\0"] {
            assert!(text.parse::<ImageUser>().is_err(), "{text}");
        }
    }
}
