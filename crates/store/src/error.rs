//! The store's errors, distinguished by what a person or a caller does about them.
//!
//! `StoreError::from_sqlite` is the one place that reads SQLite's result codes.

use std::path::{Path, PathBuf};

use gantry_model::diagnose::{Diagnose, Fault};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened or made ready.
    #[error("cannot open the database `{}`", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Source,
    },
    /// Somebody else holds the file for longer than we wait.
    #[error("the database `{}` is held by {holder}", path.display())]
    Locked {
        /// Which file.
        path: PathBuf,
        /// Who, as far as is known.
        holder: String,
    },
    /// The file was written by a later Gantry.
    #[error("the database has schema {found}, this Gantry knows schemas up to {known}")]
    Newer {
        /// The file's schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The file is damaged, or is none of ours; it was left as it is.
    #[error("the database `{}` is damaged: {reason}", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What was seen.
        reason: String,
        /// The newest copy that was made before a migration, if there is one.
        backup: Option<PathBuf>,
    },
    /// There is no space left for the file.
    #[error("no space left for the database `{}`", path.display())]
    Full {
        /// Which file.
        path: PathBuf,
        /// What SQLite reported.
        #[source]
        source: sqlx::Error,
    },
    /// The operating system refused to read or write the file.
    #[error("cannot read or write the database `{}`", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What SQLite reported.
        #[source]
        source: sqlx::Error,
    },
    /// The file was removed or replaced while it is in use.
    #[error("the database `{}` was removed or replaced while it is in use", path.display())]
    Gone {
        /// Which file.
        path: PathBuf,
    },
    /// Too many writes wait already, or the store is closed.
    #[error("the database has no room to {what}")]
    Busy {
        /// What was asked.
        what: &'static str,
    },
    /// The database could not do it.
    #[error("the database could not {what}")]
    Query {
        /// What was asked.
        what: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The store is one that this build cannot use.
    #[error("PostgreSQL is not available in this build yet: `{url}` cannot be opened")]
    NotAvailable {
        /// Which store, without its password.
        url: String,
    },
    /// It is there already.
    #[error("{what} exists already")]
    Conflict {
        /// What.
        what: String,
    },
    /// It is not there.
    #[error("{what} does not exist")]
    NotFound {
        /// What.
        what: String,
    },
}

impl StoreError {
    /// Classifies what SQLite reported when it was asked to do `what` with the file at `path`.
    pub(crate) fn from_sqlite(path: &Path, what: &'static str, source: sqlx::Error) -> Self {
        let path = path.to_owned();
        let code = source.as_database_error().and_then(|error| error.code());
        let code = code
            .and_then(|code| code.parse::<u32>().ok())
            .map(|code| code & 0xff);
        // https://www.sqlite.org/rescode.html: the low byte is the primary result code.
        match code {
            Some(5 | 6) => Self::Locked {
                path,
                holder: "another process".to_owned(),
            },
            Some(11 | 26) => {
                let reason = source.as_database_error().map(|e| e.message().to_owned());
                Self::corrupt(&path, reason.unwrap_or_default())
            }
            Some(13) => Self::Full { path, source },
            Some(3 | 8 | 10 | 14 | 23) => Self::Disk { path, source },
            _ => Self::Query { what, source },
        }
    }

    /// Makes a `Corrupt` that knows the newest copy beside the file.
    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            reason: reason.into(),
            backup: crate::sqlite::newest_backup(path),
        }
    }

    /// Tells whether the same may succeed later, with nothing changed in the request.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Locked { .. }
            | Self::Full { .. }
            | Self::Disk { .. }
            | Self::Gone { .. }
            | Self::Busy { .. } => true,
            Self::Open { .. }
            | Self::Newer { .. }
            | Self::Corrupt { .. }
            | Self::NotAvailable { .. }
            | Self::Query { .. }
            | Self::Conflict { .. }
            | Self::NotFound { .. } => false,
        }
    }

    /// Makes an `Open` of anything that went wrong.
    pub(crate) fn open(path: &Path, source: impl Into<Source>) -> Self {
        Self::Open {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

impl Diagnose for StoreError {
    fn code(&self) -> &'static str {
        match self {
            Self::Open { .. } => "store.open",
            Self::Locked { .. } => "store.locked",
            Self::Newer { .. } => "store.newer_schema",
            Self::Corrupt { .. } => "store.corrupt",
            Self::Full { .. } => "store.full",
            Self::Disk { .. } => "store.disk",
            Self::Gone { .. } => "store.gone",
            Self::Busy { .. } => "store.busy",
            Self::Query { .. } => "store.query",
            Self::NotAvailable { .. } => "store.not_available",
            Self::Conflict { .. } => "store.conflict",
            Self::NotFound { .. } => "store.not_found",
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Conflict { .. } | Self::NotFound { .. } => Fault::Client,
            Self::Open { .. }
            | Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Corrupt { .. }
            | Self::Full { .. }
            | Self::Disk { .. }
            | Self::Gone { .. }
            | Self::Busy { .. }
            | Self::NotAvailable { .. }
            | Self::Query { .. } => Fault::Gateway,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Open { path, .. } => Some(format!(
                "the user who runs Gantry must own `{}` and its folder",
                path.display()
            )),
            Self::Locked { .. } => {
                Some("is another Gantry or a database tool at work on the same file?".to_owned())
            }
            Self::Newer { .. } => Some(
                "run the newer Gantry, or restore the copy that it made before it changed the schema"
                    .to_owned(),
            ),
            Self::Corrupt { path, backup, .. } => Some(restore_hint(path, backup.as_deref())),
            Self::Full { path, .. } => Some(format!(
                "free space on the disk that holds `{}`; nothing was half written",
                path.display()
            )),
            Self::Disk { path, .. } => Some(format!(
                "check the disk, the mode and the owner of `{}` and its folder",
                path.display()
            )),
            Self::Gone { path } => Some(format!(
                "put `{}` back, or stop the gateway and start it again",
                path.display()
            )),
            Self::NotAvailable { .. } => {
                Some("use a SQLite file: leave `--store` out, or give it a path".to_owned())
            }
            Self::Busy { .. } | Self::Query { .. } => None,
            Self::Conflict { .. } | Self::NotFound { .. } => None,
        }
    }
}

fn restore_hint(path: &Path, backup: Option<&Path>) -> String {
    let file = path.display();
    let aside = format!(
        "nothing was changed. Stop Gantry and move `{file}`, `{file}-wal` and `{file}-shm` away; then"
    );
    match backup {
        Some(backup) => format!("{aside} copy `{}` to `{file}`", backup.display()),
        None => format!(
            "{aside} put a backup in its place, or what `sqlite3 <moved file> .recover` saves of it, \
             or start with an empty one"
        ),
    }
}
