//! The programs of a test where every user can reach them: the build's own folder may be private.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gantry_testkit::{Evilpeer, bin};
use serde_json::Value;
use tempfile::TempDir;

use super::{PROGRAM, entry};

/// The user that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

/// Fails with a clear word if this is not root's process.
pub(crate) fn needs_root() {
    let us = rustix::process::geteuid();
    assert!(
        us.is_root(),
        "this test changes users, mounts or process numbers, or looks at what the gateway has open: \
         run it as root"
    );
}

/// Copies of the gateway and of the test kit's programs, gone with this value.
pub(crate) struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Copies them to where everybody may look.
    pub(crate) fn copied() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let programs = Self { folder };
        for program in [PathBuf::from(PROGRAM), bin::evilpeer(), bin::treegen()] {
            fs::copy(&program, programs.place(&program)).unwrap();
        }
        programs
    }

    /// Returns the copy of the gateway.
    pub(crate) fn gantry(&self) -> PathBuf {
        self.place(Path::new(PROGRAM))
    }

    /// Returns the entry of a peer that runs from here.
    pub(crate) fn entry(&self, peer: &Evilpeer) -> Value {
        let mut entry = entry(peer);
        let moved = |word: &mut Value| {
            let built = [bin::evilpeer(), bin::treegen()];
            let program = built
                .iter()
                .find(|program| program.to_str() == word.as_str());
            if let Some(program) = program {
                *word = Value::from(self.place(program).to_str().unwrap());
            }
        };
        moved(&mut entry["command"]);
        entry["args"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(moved);
        entry
    }

    fn place(&self, program: &Path) -> PathBuf {
        self.folder.path().join(program.file_name().unwrap())
    }
}
