//! The store's errors, classified by what a person or a caller can do about them.
//!
//! `StoreError::from_sqlite` is the one place that reads SQLite's result codes.

use std::path::{Path, PathBuf};

use gantry_model::diagnose::{Diagnose, Fault};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened or prepared.
    #[error("cannot open the database `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Source,
    },
    /// Another process holds a lock for too long.
    #[error("the database `{database}` is held by {holder}")]
    Locked {
        /// The file or server.
        database: String,
        /// The holder, as far as known.
        holder: String,
    },
    /// The file was written by a later Gantry.
    #[error("the database has schema {found}, this Gantry knows schemas up to {known}")]
    Newer {
        /// The schema of the file.
        found: i64,
        /// The newest known schema.
        known: i64,
    },
    /// The file is damaged, or not a database of Gantry; it was left unchanged.
    #[error("the database `{}` is damaged: {reason}", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// The error.
        reason: String,
        /// The newest copy that was made before a migration, if there is one.
        backup: Option<PathBuf>,
    },
    /// There is no space left.
    #[error("no space left for the database `{database}`")]
    Full {
        /// The file or server.
        database: String,
        /// The error of the database.
        #[source]
        source: sqlx::Error,
    },
    /// The operating system refused to read or write the file.
    #[error("cannot read or write the database `{}`", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// The error of SQLite.
        #[source]
        source: sqlx::Error,
    },
    /// The file was removed or replaced while it is in use.
    #[error("the database `{}` was removed or replaced while it is in use", path.display())]
    Gone {
        /// Which file.
        path: PathBuf,
    },
    /// Too many writes are waiting, or the store is closed.
    #[error("the database has no room to {what}")]
    Busy {
        /// The operation.
        what: &'static str,
    },
    /// The operation failed.
    #[error("the database could not {what}")]
    Query {
        /// What was asked.
        what: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The server does not respond, or accepts no more connections.
    #[error("cannot reach the database `{database}`")]
    Unreachable {
        /// The server, without its password.
        database: String,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The server did not respond in time.
    #[error("the database did not {what} in time")]
    Timeout {
        /// What was asked.
        what: &'static str,
        /// The error.
        #[source]
        source: sqlx::Error,
    },
    /// The server is read-only.
    #[error("the database `{database}` is read-only")]
    ReadOnly {
        /// The server.
        database: String,
        /// The error of the server.
        #[source]
        source: sqlx::Error,
    },
    /// The server refuses the user, the password, the name of the database or a privilege.
    #[error("the database `{database}` refuses access")]
    Refused {
        /// Which server.
        database: String,
        /// The error of the server.
        #[source]
        source: sqlx::Error,
    },
    /// The schema `kb` contains tables of another program.
    #[error("the schema `kb` of the database `{database}` contains tables that are not Gantry's")]
    Foreign {
        /// Which server.
        database: String,
    },
    /// The target of a copy is not empty.
    #[error("{what} is not empty")]
    NotEmpty {
        /// The database or table.
        what: String,
    },
    /// The source of a copy is in use.
    #[error("{gateways} {} the store that is to be copied", if *gateways == 1 { "gateway uses" } else { "gateways use" })]
    InUse {
        /// By how many gateways.
        gateways: u64,
    },
    /// These stores cannot be copied.
    #[error("the store cannot be copied: {reason}")]
    Copy {
        /// The reason.
        reason: String,
    },
    /// The row already exists.
    #[error("{what} exists already")]
    Conflict {
        /// What.
        what: String,
    },
    /// The row does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// What.
        what: String,
    },
}

impl StoreError {
    /// Classifies an error of SQLite during `what` on the file at `path`.
    pub(crate) fn from_sqlite(path: &Path, what: &'static str, source: sqlx::Error) -> Self {
        let path = path.to_owned();
        let database = path.display().to_string();
        let code = source.as_database_error().and_then(|error| error.code());
        let code = code
            .and_then(|code| code.parse::<u32>().ok())
            .map(|code| code & 0xff);
        // https://www.sqlite.org/rescode.html: the low byte is the primary result code.
        match code {
            Some(5 | 6) => Self::Locked {
                database,
                holder: "another process".to_owned(),
            },
            Some(11 | 26) => {
                let reason = source.as_database_error().map(|e| e.message().to_owned());
                Self::corrupt(&path, reason.unwrap_or_default())
            }
            Some(13) => Self::Full { database, source },
            Some(3 | 8 | 10 | 14 | 23) => Self::Disk { path, source },
            _ => Self::Query { what, source },
        }
    }

    /// Returns whether SQLite reported that the disk did not confirm what was written: an `fsync` of a file
    /// or its folder failed.
    pub(crate) fn is_unconfirmed(source: &sqlx::Error) -> bool {
        let code = source.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| ["1034", "1290"].contains(&&*code))
    }

    /// Classifies an error of a PostgreSQL server during `what`.
    pub(crate) fn from_postgres(name: &str, what: &'static str, source: sqlx::Error) -> Self {
        let database = name.to_owned();
        let code = source.as_database_error().and_then(|error| error.code());
        let code = code.map(|code| code.into_owned()).unwrap_or_default();
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        match (code.as_str(), &source) {
            ("25006", _) => Self::ReadOnly { database, source },
            ("53100", _) => Self::Full { database, source },
            ("40001" | "40P01" | "55P03", _) => Self::Locked {
                database,
                holder: "another transaction".to_owned(),
            },
            ("57014" | "25P03", _) => Self::Timeout { what, source },
            ("3D000" | "42501" | "3F000", _) => Self::Refused { database, source },
            ("53300" | "57P01" | "57P02" | "57P03" | "57P05", _) => {
                Self::Unreachable { database, source }
            }
            (code, _) if code.starts_with("08") => Self::Unreachable { database, source },
            (code, _) if code.starts_with("28") => Self::Refused { database, source },
            (_, sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut => {
                Self::Timeout { what, source }
            }
            (_, sqlx::Error::Configuration(_)) => Self::Refused { database, source },
            (_, sqlx::Error::PoolClosed) => Self::Busy { what },
            (_, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)) => {
                Self::Unreachable { database, source }
            }
            _ => Self::Query { what, source },
        }
    }

    /// Converts a unique violation into `Conflict`.
    pub(crate) fn or_conflict(self, what: impl FnOnce() -> String) -> Self {
        let source = self.database_error();
        match source.is_some_and(|error| error.is_unique_violation()) {
            true => Self::Conflict { what: what() },
            false => self,
        }
    }

    /// Converts a foreign key violation into `NotFound`.
    pub(crate) fn or_not_found(self, what: impl FnOnce() -> String) -> Self {
        let source = self.database_error();
        match source.is_some_and(|error| error.is_foreign_key_violation()) {
            true => Self::NotFound { what: what() },
            false => self,
        }
    }

    /// Returns the database's error of a statement.
    fn database_error(&self) -> Option<&dyn sqlx::error::DatabaseError> {
        let Self::Query { source, .. } = self else {
            return None;
        };
        source.as_database_error()
    }

    /// Creates a `Corrupt` that names the newest copy beside the file.
    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            reason: reason.into(),
            backup: crate::sqlite::newest_backup(path),
        }
    }

    /// Returns whether the same request may succeed later.
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. }
                | Self::Full { .. }
                | Self::Disk { .. }
                | Self::Gone { .. }
                | Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::ReadOnly { .. }
                | Self::Busy { .. }
        )
    }

    /// Returns whether the server is temporarily unavailable.
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. })
    }

    /// Creates an `Open` from any error.
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
            Self::Unreachable { .. } => "store.unreachable",
            Self::Timeout { .. } => "store.timeout",
            Self::ReadOnly { .. } => "store.read_only",
            Self::Refused { .. } => "store.refused",
            Self::Foreign { .. } => "store.foreign",
            Self::NotEmpty { .. } => "store.not_empty",
            Self::InUse { .. } => "store.in_use",
            Self::Copy { .. } => "store.copy",
            Self::Conflict { .. } => "store.conflict",
            Self::NotFound { .. } => "store.not_found",
        }
    }

    fn fault(&self) -> Fault {
        let is_of_the_request = matches!(
            self,
            Self::Conflict { .. }
                | Self::NotFound { .. }
                | Self::NotEmpty { .. }
                | Self::InUse { .. }
                | Self::Copy { .. }
        );
        match is_of_the_request {
            true => Fault::Client,
            false => Fault::Gateway,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Open { path, .. } => Some(format!(
                "the user who runs Gantry must own `{}` and its folder",
                path.display()
            )),
            Self::Locked { .. } => Some(
                "is another Gantry or a database tool at work on the same database?".to_owned(),
            ),
            Self::Newer { .. } => Some(
                "run the newer Gantry, or restore the copy that it made before it changed the schema"
                    .to_owned(),
            ),
            Self::Corrupt { path, backup, .. } => Some(restore_hint(path, backup.as_deref())),
            Self::Full { database, .. } => Some(format!(
                "free space on the disk that holds `{database}`; nothing was half written"
            )),
            Self::Disk { path, .. } => Some(format!(
                "check the disk, the mode and the owner of `{}` and its folder",
                path.display()
            )),
            Self::Gone { path } => Some(format!(
                "put `{}` back, or stop the gateway and start it again",
                path.display()
            )),
            Self::Unreachable { .. } => Some(
                "is the server running, and does it accept connections from here? Calls continue \
                 meanwhile and are recorded in the journal"
                    .to_owned(),
            ),
            Self::Timeout { .. } => Some(
                "is the server overloaded, or does somebody hold a lock? `pg_stat_activity` shows it"
                    .to_owned(),
            ),
            Self::ReadOnly { .. } => Some(
                "connect to the primary, or to an address that follows it; a standby cannot be used"
                    .to_owned(),
            ),
            Self::Refused { .. } => Some(
                "check user, password, name of the database and `sslmode` in the URL; the user must \
                 own the schema `kb`, or be allowed to create it (docs/store.md)"
                    .to_owned(),
            ),
            Self::Foreign { .. } => {
                Some("give Gantry a database of its own: `CREATE DATABASE gantry`".to_owned())
            }
            Self::NotEmpty { .. } => Some(
                "copy into a new file or a new database; nothing was written".to_owned(),
            ),
            Self::InUse { .. } => Some(
                "stop the gateways first, or say `--in-use`: what they write meanwhile is not copied. A \
                 gateway that was killed counts as running until it has been started and stopped"
                    .to_owned(),
            ),
            Self::Busy { .. } | Self::Query { .. } | Self::Copy { .. } => None,
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
