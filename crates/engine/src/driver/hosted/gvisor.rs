//! gVisor on this host: found, and proved by running something in it. The proof is kept for as long as
//! the program is the same file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gantry_sandbox::{GVisor, Sandbox};
use tokio::sync::Mutex;

use super::on_path;

/// The program, if there is one, and what was proved of it.
pub(crate) struct Gvisor {
    path: String,
    proved: Mutex<Option<(Identity, Result<String, String>)>>,
}

/// Tells one file from another that stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    path: PathBuf,
    inode: u64,
    modified: (i64, i64),
    bytes: u64,
}

impl Gvisor {
    /// Looks for it along the gateway's search path and where administrators put programs.
    pub(super) fn find(environment: &[(String, String)]) -> Self {
        let own = environment.iter().find(|(name, _)| name == "PATH");
        let own = own.map_or("", |(_, path)| path.as_str());
        Self {
            path: format!("{own}:{}", super::PATH),
            proved: Mutex::default(),
        }
    }

    /// Returns the program and how it was proved, or why it cannot be used.
    pub(crate) async fn prove(&self, sandbox: &Sandbox) -> Result<(GVisor, String), String> {
        let Some(program) = on_path("runsc", &self.path) else {
            return Err("`runsc` is not on the gateway's PATH".to_owned());
        };
        let identity = Identity::of(&program)?;
        // Whoever comes meanwhile waits for the same proof.
        let mut proved = self.proved.lock().await;
        if let Some((known, proof)) = &*proved
            && *known == identity
        {
            return proof.clone().map(|how| (GVisor { program }, how));
        }
        let (sandbox, runsc) = (sandbox.clone(), program.clone());
        let trying = tokio::task::spawn_blocking(move || sandbox.probe_runtime(&runsc));
        let tried = trying.await.unwrap_or_else(|error| Err(error.to_string()));
        let proof = tried.map(|proof| proof.to_string());
        *proved = Some((identity, proof.clone()));
        proof.map(|how| (GVisor { program }, how))
    }
}

impl Identity {
    fn of(path: &Path) -> Result<Self, String> {
        let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
        Ok(Self {
            path: path.to_owned(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            bytes: found.len(),
        })
    }
}
