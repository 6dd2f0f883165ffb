//! The steps that build a separate root, as the init executes them.
//!
//! One constructor per kind of step; `own` puts them in order.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::protocol::{
    STEP_BIND, STEP_DIRECTORY, STEP_FILE, STEP_FILE_FOR_USER, STEP_FOLDER_ROOT, STEP_LAYERS_ROOT,
    STEP_LINK, STEP_MASK, STEP_MEMORY, STEP_MEMORY_ROOT, STEP_OPTIONAL, STEP_PROC, STEP_SCRATCH,
    STEP_SEAL, STEP_TERMINALS, STEP_USER,
};

/// One step: see `STEP_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) target: PathBuf,
    pub(crate) source: OsString,
    pub(crate) content: Vec<u8>,
}

impl Step {
    fn new(kind: u32, target: impl AsRef<Path>) -> Self {
        Self {
            kind,
            target: target.as_ref().to_owned(),
            ..Self::default()
        }
    }

    fn from(self, source: impl AsRef<OsStr>) -> Self {
        Self {
            source: source.as_ref().to_owned(),
            ..self
        }
    }

    /// Adds flags.
    pub(crate) fn with(self, flags: u32) -> Self {
        Self {
            flags: self.flags | flags,
            ..self
        }
    }

    /// Makes the step optional.
    pub(crate) fn optional(self) -> Self {
        self.with(STEP_OPTIONAL)
    }

    pub(crate) fn memory_root(place: &str, options: &str) -> Self {
        Self::new(STEP_MEMORY_ROOT, place).from(options)
    }

    pub(crate) fn layers_root(place: &str, base: &Path, lower: &[String]) -> Self {
        let mut content = Vec::new();
        for name in lower {
            content.extend_from_slice(name.as_bytes());
            content.push(0);
        }
        Self {
            content,
            ..Self::new(STEP_LAYERS_ROOT, place).from(base)
        }
    }

    pub(crate) fn folder_root(place: &str, folder: &Path) -> Self {
        Self::new(STEP_FOLDER_ROOT, place).from(folder)
    }

    /// The scratch space: a folder, or memory with mount options.
    pub(crate) fn scratch(folder: Option<&Path>, options: String) -> Self {
        let source = folder.map_or(OsStr::new(""), Path::as_os_str);
        Self {
            content: options.into_bytes(),
            ..Self::new(STEP_SCRATCH, "/scratch").from(source)
        }
    }

    pub(crate) fn user(user: &str) -> Self {
        Self::new(STEP_USER, "/etc/passwd").from(user)
    }

    pub(crate) fn directory(target: impl AsRef<Path>, mode: u32) -> Self {
        Self {
            mode,
            ..Self::new(STEP_DIRECTORY, target)
        }
    }

    pub(crate) fn file(target: impl AsRef<Path>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            mode,
            content: content.into(),
            ..Self::new(STEP_FILE, target)
        }
    }

    /// A file with two zeros, which the init replaces by the ids of the user and of the group.
    pub(crate) fn file_for_user(target: impl AsRef<Path>, mode: u32, content: Vec<u8>) -> Self {
        Self {
            kind: STEP_FILE_FOR_USER,
            ..Self::file(target, mode, content)
        }
    }

    pub(crate) fn link(target: impl AsRef<Path>, text: impl AsRef<OsStr>) -> Self {
        Self::new(STEP_LINK, target).from(text)
    }

    pub(crate) fn bind(source: impl AsRef<OsStr>, target: impl AsRef<Path>) -> Self {
        Self::new(STEP_BIND, target).from(source)
    }

    pub(crate) fn memory(target: impl AsRef<Path>, options: &str) -> Self {
        Self::new(STEP_MEMORY, target).from(options)
    }

    pub(crate) fn proc(target: &str) -> Self {
        Self::new(STEP_PROC, target)
    }

    pub(crate) fn terminals(target: &str) -> Self {
        Self::new(STEP_TERMINALS, target)
    }

    pub(crate) fn mask(target: impl AsRef<Path>) -> Self {
        Self::new(STEP_MASK, target).optional()
    }

    pub(crate) fn seal(target: &str) -> Self {
        Self::new(STEP_SEAL, target)
    }
}

impl fmt::Display for Step {
    /// Describes the step, to follow "cannot".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, source) = (self.target.display(), Path::new(&self.source).display());
        match self.kind {
            STEP_MEMORY_ROOT => write!(f, "make a root in memory"),
            STEP_LAYERS_ROOT => write!(f, "mount the layers in `{source}`"),
            STEP_FOLDER_ROOT => write!(f, "mount the root `{source}`"),
            STEP_SCRATCH if self.source.is_empty() => write!(f, "make scratch room in memory"),
            STEP_SCRATCH => write!(f, "use the scratch folder `{source}`"),
            STEP_USER => write!(f, "look up the user `{source}`"),
            STEP_DIRECTORY => write!(f, "make the folder `{target}`"),
            STEP_FILE | STEP_FILE_FOR_USER => write!(f, "write `{target}`"),
            STEP_LINK => write!(f, "link `{target}`"),
            STEP_BIND => write!(f, "show `{source}` as `{target}`"),
            STEP_PROC => write!(f, "mount `{target}`"),
            STEP_MASK => write!(f, "cover `{target}`"),
            STEP_SEAL => write!(f, "make `{target}` read-only"),
            _ => write!(f, "mount memory at `{target}`"),
        }
    }
}
