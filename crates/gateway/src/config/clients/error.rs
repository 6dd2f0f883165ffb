//! Why a client's file, or `gantry.toml`, cannot be read or written.

use std::io;
use std::path::PathBuf;

use gantry_model::diagnose::{Diagnose, Fault};

/// Why a file is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `HOME` is not set.
    #[error("`HOME` is not set, so the files of clients cannot be found")]
    NoHome,
    /// The client is not installed, as far as its folder shows.
    #[error("{client} is not found: there is no folder `{}`", folder.display())]
    Absent {
        /// The client.
        client: &'static str,
        /// The missing folder of its file.
        folder: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {what} `{}`", path.display())]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not a regular file, or has the wrong structure.
    #[error("`{}` is {found}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// A description of what it is.
        found: &'static str,
    },
    /// It is read-only.
    #[error("`{}` is read-only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Another program changed it since it was read.
    #[error("`{}` was changed by another program meanwhile, and nothing was written", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file has a syntax error.
    #[error("{}:{line}:{column}: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The error.
        detail: String,
    },
}

impl Diagnose for ClientError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoHome => "client.no_home",
            Self::Absent { .. } => "client.absent",
            Self::Io { .. } => "client.io",
            Self::Kind { .. } => "client.kind",
            Self::ReadOnly { .. } => "client.read_only",
            Self::Changed { .. } => "client.changed",
            Self::Syntax { .. } => "client.syntax",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoHome => Some("set `HOME`, or name a file".to_owned()),
            Self::Absent { client, .. } => {
                Some(format!("install and start {client} once, then retry"))
            }
            Self::ReadOnly { path } => Some(format!("run `chmod u+w '{}'`", path.display())),
            Self::Changed { .. } => Some("run the command again".to_owned()),
            Self::Syntax { .. } => Some("fix it there; nothing was written".to_owned()),
            Self::Io { .. } | Self::Kind { .. } => None,
        }
    }
}

impl ClientError {
    /// Creates the error at a byte of a text.
    pub(in crate::config) fn at(
        path: &std::path::Path,
        text: &str,
        byte: usize,
        detail: impl Into<String>,
    ) -> Self {
        let before = &text.as_bytes()[..byte.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        Self::Syntax {
            path: path.to_owned(),
            line,
            column,
            detail: detail.into(),
        }
    }
}
