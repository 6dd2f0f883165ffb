//! One rule for processes and images: no path that a hosted server may write to contains, or lies in,
//! what would let it out: the data folder, a configuration file, a home, `/`.
//!
//! Pure: paths are compared as they are, so whoever asks resolves symbolic links first. Entry point:
//! [`Guarded::check`].

use std::path::{Component, Path, PathBuf};

/// What no hosted server may be given write access to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarded {
    paths: Vec<(PathBuf, GuardedPath)>,
}

/// What a guarded path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedPath {
    /// Where the gateway keeps its keys, journal and store.
    DataFolder,
    /// A file that says what is run, and how.
    ConfigurationFile,
    /// A person's home.
    Home,
    /// The root of the file system.
    Root,
}

/// Why a path cannot be given to a hosted server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WritableError {
    /// It is, contains or lies in something guarded.
    #[error("`{path}` {relation} {what} `{guarded}`")]
    Overlaps {
        /// The path as given.
        path: String,
        /// `is`, `contains`, `lies in`.
        relation: &'static str,
        /// What it meets, in words.
        what: &'static str,
        /// Where that is.
        guarded: String,
    },
    /// It does not begin at the root.
    #[error("`{0}` is no absolute path")]
    Relative(String),
}

impl GuardedPath {
    /// Returns what it is, in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DataFolder => "the data folder",
            Self::ConfigurationFile => "the configuration file",
            Self::Home => "the home",
            Self::Root => "the root",
        }
    }
}

impl Guarded {
    /// Guards the root of the file system and these paths.
    pub fn new(paths: impl IntoIterator<Item = (PathBuf, GuardedPath)>) -> Self {
        let paths = paths.into_iter().map(|(path, what)| (normal(&path), what));
        // A home that is `/`, as some service users have, would guard everything.
        let paths = paths.filter(|(path, _)| path.parent().is_some());
        Self {
            paths: paths.collect(),
        }
    }

    /// Checks a path that a hosted server would be able to write to.
    pub fn check(&self, path: &Path) -> Result<(), WritableError> {
        let shown = || path.display().to_string();
        if !path.is_absolute() {
            return Err(WritableError::Relative(shown()));
        }
        let own = normal(path);
        let overlaps = |relation, what: GuardedPath, guarded: &Path| WritableError::Overlaps {
            path: shown(),
            relation,
            what: what.as_str(),
            guarded: guarded.display().to_string(),
        };
        if own.parent().is_none() {
            return Err(overlaps("is", GuardedPath::Root, &own));
        }
        for (guarded, what) in &self.paths {
            let relation = if own == *guarded {
                "is"
            } else if guarded.starts_with(&own) {
                "contains"
            } else if own.starts_with(guarded) {
                "lies in"
            } else {
                continue;
            };
            return Err(overlaps(relation, *what, guarded));
        }
        Ok(())
    }
}

/// Returns a path without `.`, `..` and doubled slashes.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                normal.push(component);
            }
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> Guarded {
        Guarded::new([
            ("/var/lib/gantry".into(), GuardedPath::DataFolder),
            (
                "/srv/team/gantry.toml".into(),
                GuardedPath::ConfigurationFile,
            ),
            ("/home/ann".into(), GuardedPath::Home),
            ("/".into(), GuardedPath::Home),
        ])
    }

    #[test]
    fn what_would_let_a_server_out_is_refused_by_name() {
        let told = |path: &str| guarded().check(Path::new(path)).unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                "/", "/..", "/var", "/var/lib/gantry", "/var/lib/gantry/servers/x", "/srv/team",
                "/srv", "/home/ann/work", "/home", "/srv/x/../team/.", "relative",
            ].map(told).join("\n"),
            @r"
        `/` is the root `/`
        `/..` is the root `/`
        `/var` contains the data folder `/var/lib/gantry`
        `/var/lib/gantry` is the data folder `/var/lib/gantry`
        `/var/lib/gantry/servers/x` lies in the data folder `/var/lib/gantry`
        `/srv/team` contains the configuration file `/srv/team/gantry.toml`
        `/srv` contains the configuration file `/srv/team/gantry.toml`
        `/home/ann/work` lies in the home `/home/ann`
        `/home` contains the home `/home/ann`
        `/srv/x/../team/.` contains the configuration file `/srv/team/gantry.toml`
        `relative` is no absolute path
        "
        );
    }

    #[test]
    fn what_lies_beside_is_fine() {
        for path in [
            "/srv/other",
            "/var/lib/gantry2",
            "/home/annette",
            "/srv/teams",
        ] {
            assert_eq!(guarded().check(Path::new(path)), Ok(()), "{path}");
        }
    }
}
