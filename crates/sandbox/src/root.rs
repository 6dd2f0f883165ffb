//! The root of a tree: which files it sees, and whom it runs as among them.
//!
//! Plain values; `plan` turns them into steps for the init.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which files a tree sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// The host's, as far as the profile lets it.
    #[default]
    Host,
    /// A root of its own. Never exchanged for the host's: a host that cannot give it runs nothing.
    Own(OwnRoot),
}

/// A root of a tree's own: nothing of the host is there but what is named here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRoot {
    /// What it is made of.
    pub base: RootBase,
    /// What is mounted in it, outer before inner.
    pub mounts: Vec<Mount>,
    /// The name of the machine that the tree sees.
    pub hostname: String,
    /// Where its `/tmp`, its home and, with `writable`, its changes to the root are kept.
    pub scratch: Scratch,
    /// Whether the tree may change its root, for as long as it lives. Only over [`RootBase::Layers`].
    pub writable: bool,
}

/// What a root is made of.
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
    /// One flat folder, read-only: for hosts without overlay. Mount points that it lacks are made in it.
    Folder(PathBuf),
}

/// Something mounted in a root; always without devices and set-user-id programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where, as the tree sees it.
    pub target: PathBuf,
    /// What.
    pub kind: MountKind,
    /// Whether the tree may only read it.
    pub read_only: bool,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A folder or file of the host. An empty folder of the gateway's own is given to the tree's user.
    Bind(PathBuf),
    /// Memory, which counts as the tree's.
    Tmpfs {
        /// How much it holds.
        bytes: u64,
        /// How many files.
        inodes: u64,
    },
}

/// The room for what a tree writes beside its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// A folder that its maker has bounded; without one it is memory, bounded by what follows.
    pub folder: Option<PathBuf>,
    /// How much memory it may take.
    pub bytes: u64,
    /// How many files it may hold.
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

/// Whom to run as, as an image says it: `name`, `uid`, `name:group`, `uid:gid`. Names are looked up in
/// the tree's own root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUser {
    user: String,
    group: Option<String>,
}

/// Why a text names no user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no user: expected `name`, `uid`, `name:group` or `uid:gid`")]
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
