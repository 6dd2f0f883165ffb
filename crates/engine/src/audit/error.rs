//! Errors of the audit; all of them are the gateway's responsibility.

use std::io;
use std::path::PathBuf;

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_store::StoreError;

/// Why a call could not be recorded, or the record not be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The journal's folder cannot be used.
    #[error("cannot open the audit journal in `{}`", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// There is no space for another call's record.
    #[error("no space for the audit journal in `{}`: calls are refused until there is", path.display())]
    Full {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The journal has reached its limit, because the database does not accept its rows.
    #[error("the audit journal in `{}` has reached its bound of {limit_bytes} bytes: calls are refused until the database takes its rows", path.display())]
    Behind {
        /// The folder.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
    },
    /// A file for recording calls was removed or replaced while the gateway runs.
    #[error("`{}` was removed or replaced while the gateway runs: calls are refused, since they cannot be recorded", path.display())]
    Gone {
        /// The file or folder.
        path: PathBuf,
    },
    /// The journal cannot be written.
    #[error("cannot write the audit journal in `{}`", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The disk did not confirm a write, and its content is unknown from now on.
    #[error("the disk did not confirm the audit journal in `{}`: no further call is accepted", path.display())]
    Sync {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The database took no row of a call that must be there first.
    #[error("the call could not be recorded in the database: {why}")]
    NotStored {
        /// What the database said.
        why: String,
    },
    /// The journal cannot be read back.
    #[error("cannot read the audit journal in `{}`", path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The key that the audit is signed with cannot be used.
    #[error("the audit's signing key `{}` cannot be used", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database did not accept or return rows.
    #[error("the audit database does not answer")]
    Store(#[source] StoreError),
}

impl Diagnose for AuditError {
    fn code(&self) -> &'static str {
        match self {
            Self::Open { .. } => "audit.open",
            Self::Full { .. } => "audit.full",
            Self::Behind { .. } => "audit.behind",
            Self::Gone { .. } => "audit.gone",
            Self::Write { .. } => "audit.write",
            Self::Sync { .. } => "audit.sync",
            Self::NotStored { .. } => "audit.not_stored",
            Self::Read { .. } => "audit.read",
            Self::Key { .. } => "audit.key",
            Self::Store(_) => "audit.store",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Gateway
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Open { path, .. } => {
                format!(
                    "`{}` must be a folder of the gateway's own user",
                    path.display()
                )
            }
            Self::Full { path, .. } => format!(
                "free space on the file system of `{}`; calls resume by themselves",
                path.display()
            ),
            Self::Behind { .. } => {
                "bring the database back, or raise `journal_bytes`; calls resume by themselves"
                    .to_owned()
            }
            Self::Gone { path } => format!(
                "put `{}` back, or stop the gateway and start it again; nothing is made in its place",
                path.display()
            ),
            Self::Write { path, .. } | Self::Read { path, .. } => {
                format!("check the disk under `{}`", path.display())
            }
            Self::Sync { path, .. } => format!(
                "check the disk under `{}`, then restart the gateway: it replays what the disk holds",
                path.display()
            ),
            Self::NotStored { .. } => {
                "bring the database back; with `audit = \"os\"` calls continue without it"
                    .to_owned()
            }
            Self::Key { path, .. } => format!(
                "bring `{}` back from a backup, readable by its owner only; if it is lost, remove the file: \
                 the gateway makes another, and the chain continues with it",
                path.display()
            ),
            Self::Store(error) => format!(
                "calls continue, and the journal keeps their rows until the database takes them{}",
                error
                    .hint()
                    .map_or_else(String::new, |hint| format!("; {hint}"))
            ),
        })
    }
}
