//! Finds the mounted cgroup hierarchies and this process's own group. Only parses text.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Controller;

/// The version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    /// The controllers of this hierarchy; in version 2 they must still be enabled.
    pub(crate) controllers: Vec<Controller>,
    pub(crate) mount: PathBuf,
    /// The directory of the group that contains this process.
    pub(crate) own: PathBuf,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; version 2 comes first.
pub(crate) fn hierarchies(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = mountinfo
        .lines()
        .filter_map(|line| hierarchy(line, cgroup))
        .collect();
    found.sort_by_key(|hierarchy| hierarchy.version == Version::V1);
    found
}

fn hierarchy(line: &str, cgroup: &str) -> Option<Hierarchy> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let root = unescape(place.next()?);
    let mount = PathBuf::from(unescape(place.next()?));
    let mut kind = kind.split(' ');
    let (version, options) = match (kind.next()?, kind.next(), kind.next()) {
        ("cgroup2", _, _) => (Version::V2, ""),
        ("cgroup", _, Some(options)) => (Version::V1, options),
        _ => return None,
    };
    let controllers: Vec<Controller> = match version {
        Version::V2 => Controller::ALL.to_vec(),
        Version::V1 => Controller::ALL
            .into_iter()
            .filter(|controller| options.split(',').any(|option| option == controller.name()))
            .collect(),
    };
    if controllers.is_empty() {
        return None;
    }
    // Lines are `id:controllers:path`; version 2 has no controllers there.
    let path = cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let ours = match version {
            Version::V2 => names.is_empty(),
            Version::V1 => names.split(',').any(|name| name == controllers[0].name()),
        };
        ours.then_some(path)
    })?;
    let own = match Path::new(path).strip_prefix(&root) {
        Ok(below) => mount.join(below),
        Err(_) => mount.clone(),
    };
    Some(Hierarchy {
        version,
        controllers,
        mount,
        own,
    })
}

/// Returns the directories to cover so that no cgroup is visible: outermost ones only, and the
/// whole usual parent directory.
pub(crate) fn tops(mountinfo: &str) -> Vec<PathBuf> {
    let usual = Path::new("/sys/fs/cgroup");
    let mut tops: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let is_cgroup = kind.starts_with("cgroup ") || kind.starts_with("cgroup2 ");
            let mount = PathBuf::from(unescape(place.split(' ').nth(4)?));
            is_cgroup.then_some(mount)
        })
        .map(|mount| match mount.starts_with(usual) {
            true => usual.to_owned(),
            false => mount,
        })
        .collect();
    tops.sort();
    tops.dedup_by(|inner, outer| inner.starts_with(outer));
    tops
}

/// Decodes the octal escapes of mountinfo.
fn unescape(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}
