//! The location of the store: a SQLite file or a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name of the database in a data folder.
const FILE: &str = "gantry.db";

/// The location of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

impl StoreConfig {
    /// Returns the default for a data folder: the file `gantry.db` in it.
    pub fn in_folder(folder: &Path) -> Self {
        Self::Sqlite(folder.join(FILE))
    }
}

/// Why a text does not name a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreConfigError {
    /// The text is empty.
    #[error("the store must be a file or a `postgres://` URL, but is empty")]
    Empty,
    /// The URL has another scheme.
    #[error("the store must be a file or a `postgres://` URL, not `{scheme}://`")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
}

impl FromStr for StoreConfig {
    type Err = StoreConfigError;

    fn from_str(text: &str) -> Result<Self, StoreConfigError> {
        if text.is_empty() {
            return Err(StoreConfigError::Empty);
        }
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => {
                Ok(Self::Postgres(PostgresUrl(text.to_owned())))
            }
            Some(("sqlite", "")) => Err(StoreConfigError::Empty),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                let scheme = scheme.to_owned();
                Err(StoreConfigError::Scheme { scheme })
            }
            _ => Ok(Self::Sqlite(text.into())),
        }
    }
}

impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// The URL of a PostgreSQL database. It is shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Returns the whole URL, including its password.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Options after `?` may contain a password, too.
        let shown = self.0.split('?').next().unwrap_or_default();
        let (scheme, rest) = shown.split_once("://").unwrap_or(("postgres", ""));
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_and_a_url_a_server() {
        let sqlite = |path: &str| Ok(StoreConfig::Sqlite(path.into()));
        assert_eq!("gantry.db".parse(), sqlite("gantry.db"));
        assert_eq!("/var/lib/a b.db".parse(), sqlite("/var/lib/a b.db"));
        assert_eq!("sqlite:///srv/x.db".parse(), sqlite("/srv/x.db"));
        let url: StoreConfig = "postgresql://host/gantry".parse().unwrap();
        assert!(matches!(url, StoreConfig::Postgres(_)));
        for (text, error) in [
            ("", StoreConfigError::Empty),
            ("sqlite://", StoreConfigError::Empty),
            (
                "mysql://x",
                StoreConfigError::Scheme {
                    scheme: "mysql".to_owned(),
                },
            ),
        ] {
            assert_eq!(text.parse::<StoreConfig>(), Err(error));
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "postgres://gantry:s3cret@db.example:5432/gantry",
            "postgres://gantry:s3cr@et:s3cret@db.example:5432/gantry?password=s3cret",
        ] {
            let config: StoreConfig = text.parse().unwrap();
            assert_eq!(
                config.to_string(),
                "postgres://gantry@db.example:5432/gantry"
            );
            assert!(!format!("{config:?}").contains("s3c"));
        }
        let open: StoreConfig = "postgres://db/x?password=s3cret".parse().unwrap();
        assert_eq!(open.to_string(), "postgres://db/x");
    }
}
