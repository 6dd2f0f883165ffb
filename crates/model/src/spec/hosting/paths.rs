//! The rule for writable paths of hosted commands and images: none may contain, or be inside, the
//! data folder, a configuration file, a home, or be `/`.
//!
//! Pure: paths are compared as text, so the caller resolves symbolic links first. Entry point:
//! [`Guarded::check`].

use std::path::{Component, Path, PathBuf};

/// The paths that no hosted server may write to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarded {
    paths: Vec<(PathBuf, GuardedPath)>,
}

/// The kind of a guarded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedPath {
    /// The folder of the gateway's keys, journal and store.
    DataFolder,
    /// A file that determines what is run, and how.
    ConfigurationFile,
    /// A user's home.
    Home,
    /// The root of the file system.
    Root,
}

/// Why a hosted server must not write to a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WritableError {
    /// It is, contains or is inside a guarded path.
    #[error("`{path}` {relation} {what} `{guarded}`")]
    Overlaps {
        /// The path as given.
        path: String,
        /// `is`, `contains`, `lies in`.
        relation: &'static str,
        /// A description of the guarded path.
        what: &'static str,
        /// The guarded path.
        guarded: String,
    },
    /// It is not absolute.
    #[error("`{0}` is not an absolute path")]
    Relative(String),
}

impl GuardedPath {
    /// Returns its description.
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
        `relative` is not an absolute path
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
