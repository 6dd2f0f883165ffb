//! Encodes the job for the init. The order of the fields is that of `init/job.rs`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::error::SpawnError;
use crate::protocol::JOB_VERSION;
use crate::steps::Step;

/// All parameters of the init.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) flags: u32,
    /// `CLONE_NEW*` bits.
    pub(crate) unshare: u32,
    pub(crate) uid_map: String,
    pub(crate) gid_map: String,
    pub(crate) private_dirs: Vec<PrivateDir>,
    /// The maps of a user namespace that only the server enters; empty without one.
    pub(crate) range_map: String,
    /// The first id of that namespace, or the only one; zero in a user namespace around the whole tree.
    pub(crate) first_id: u32,
    pub(crate) host_name: String,
    /// The steps that build a separate root.
    pub(crate) steps: Vec<Step>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) kept_capabilities: u64,
    /// Resource and limit.
    pub(crate) limits: Vec<(u32, u64)>,
    /// Handled access to files and network, and scopes.
    pub(crate) landlock_handled: [u64; 3],
    /// Allowed access below a path.
    pub(crate) landlock_rules: Vec<(u64, PathBuf)>,
    /// Seccomp programs.
    pub(crate) filters: Vec<Vec<u8>>,
    pub(crate) cwd: PathBuf,
    /// The paths to try to execute, in order.
    pub(crate) candidates: Vec<PathBuf>,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// A directory that is covered by an empty one private to the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateDir {
    pub(crate) target: PathBuf,
    /// Whether it is covered only to hide it; then the tree may not write there either.
    pub(crate) hidden: bool,
    /// Options of the tmpfs.
    pub(crate) options: &'static str,
    /// The paths that stay visible below it, in mount order.
    pub(crate) kept: Vec<Kept>,
}

/// A path that stays visible below a private directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) path: PathBuf,
    pub(crate) writable: bool,
}

struct Writer(Vec<u8>);

impl Job {
    /// Encodes the job.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, SpawnError> {
        let mut out = Writer(Vec::with_capacity(4096));
        out.u32(JOB_VERSION);
        out.u32(self.flags);
        out.u32(self.unshare);
        out.text("identity map", OsStr::new(&self.uid_map))?;
        out.text("identity map", OsStr::new(&self.gid_map))?;
        out.list(&self.private_dirs, |out, directory| {
            out.u32(u32::from(directory.hidden));
            out.text("private directory", directory.target.as_os_str())?;
            out.text("private directory", OsStr::new(directory.options))?;
            out.list(&directory.kept, |out, kept| {
                out.u32(u32::from(kept.writable));
                out.text("path", kept.path.as_os_str())
            })
        })?;
        out.text("identity map", OsStr::new(&self.range_map))?;
        out.u32(self.first_id);
        out.text("host name", OsStr::new(&self.host_name))?;
        out.list(&self.steps, |out, step| {
            out.u32(step.kind);
            out.u32(step.flags);
            out.u32(step.mode);
            out.text("path", step.target.as_os_str())?;
            out.text("path", &step.source)?;
            out.blob(&step.content);
            Ok(())
        })?;
        out.u32(self.uid);
        out.u32(self.gid);
        out.u64(self.kept_capabilities);
        out.list(&self.limits, |out, (resource, limit)| {
            out.u32(*resource);
            out.u64(*limit);
            Ok(())
        })?;
        for handled in self.landlock_handled {
            out.u64(handled);
        }
        out.list(&self.landlock_rules, |out, (access, path)| {
            out.u64(*access);
            out.text("path", path.as_os_str())
        })?;
        out.list(&self.filters, |out, filter| {
            out.blob(filter);
            Ok(())
        })?;
        out.text("working directory", self.cwd.as_os_str())?;
        out.list(&self.candidates, |out, path| {
            out.text("program", path.as_os_str())
        })?;
        out.list(&self.arguments, |out, argument| {
            out.text("argument", OsStr::new(argument))
        })?;
        out.list(&self.environment, |out, (name, value)| {
            if name.is_empty() || name.contains('=') {
                return Err(SpawnError::InvalidText {
                    what: "environment",
                });
            }
            let mut pair = Vec::with_capacity(name.len() + value.len() + 1);
            pair.extend_from_slice(name.as_bytes());
            pair.push(b'=');
            pair.extend_from_slice(value.as_bytes());
            out.text("environment", &OsString::from_vec(pair))
        })?;
        Ok(out.0)
    }
}

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).expect("a job is far below 4 GiB"));
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, what: &'static str, text: &OsStr) -> Result<(), SpawnError> {
        let bytes = text.as_bytes();
        if bytes.contains(&0) {
            return Err(SpawnError::InvalidText { what });
        }
        self.count(bytes.len() + 1);
        self.0.extend_from_slice(bytes);
        self.0.push(0);
        Ok(())
    }

    fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), SpawnError>,
    ) -> Result<(), SpawnError> {
        self.count(items.len());
        items.iter().try_for_each(|item| write(self, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_process_can_be_given() {
        // fault K2: NUL is refused, and named without its value.
        let nul = Job {
            arguments: vec!["a\0b".to_owned()],
            ..Job::default()
        };
        assert!(matches!(
            nul.encode(),
            Err(SpawnError::InvalidText { what: "argument" })
        ));
        let pair = |name: &str| vec![(name.to_owned(), "value".to_owned())];
        for name in ["", "A=B", "A\0"] {
            let job = Job {
                environment: pair(name),
                ..Job::default()
            };
            assert!(matches!(
                job.encode(),
                Err(SpawnError::InvalidText {
                    what: "environment"
                })
            ));
        }
    }
}
