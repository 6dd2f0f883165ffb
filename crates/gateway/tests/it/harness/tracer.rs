//! `strace` on a gateway that runs: it watches what system calls do to some files, kills the gateway at one
//! of them, or has one of them fail. Nothing in the gateway knows of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use gantry_testkit::wait::eventually;
use tempfile::TempDir;

use super::{Gantry, LONG};

/// A tracer; it detaches with this value.
pub(crate) struct Tracer {
    child: Child,
    folder: TempDir,
}

impl Tracer {
    /// Attaches to a gateway: these calls on these files are watched, and treated as `inject` says, such as
    /// `signal=SIGKILL:when=3` or `error=EIO`; calls are counted by thread.
    pub(crate) fn attach(
        gantry: &Gantry,
        calls: &str,
        files: &[PathBuf],
        inject: Option<&str>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("strace");
        command.args(["-f", "-e", &format!("trace={calls}")]);
        if let Some(inject) = inject {
            command.args(["-e", &format!("inject={calls}:{inject}")]);
        }
        for file in files {
            command.arg("-P").arg(file);
        }
        let said = folder.path().join("said");
        let child = command
            .args(["-p", &gantry.pid.to_string(), "-o"])
            .arg(folder.path().join("trace"))
            .stdin(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .expect("strace is installed: `.ci/needs` brings it");
        let tracer = Self { child, folder };
        let said = || fs::read_to_string(&said).unwrap_or_default();
        let is_attached = eventually(LONG, || said().contains(" attached"));
        assert!(is_attached.is_some(), "{}", said());
        tracer
    }

    /// Detaches by its death, as the kernel does it. Told to detach, it would wait for ever for a gateway that is
    /// dying or that makes a process at this moment.
    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Detaches and returns how many calls the thread made that made most.
    pub(crate) fn most_calls_of_a_thread(mut self) -> usize {
        self.stop();
        let trace = fs::read_to_string(self.folder.path().join("trace")).unwrap();
        let mut calls: HashMap<&str, usize> = HashMap::new();
        let begun = |line: &&str| line.contains('(') && !line.contains(" resumed>");
        for line in trace.lines().filter(begun) {
            let thread = line.split(' ').next().unwrap_or_default();
            *calls.entry(thread).or_default() += 1;
        }
        calls.into_values().max().unwrap_or_default()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.stop();
        }
    }
}

impl Gantry {
    /// Returns the files that its calls are recorded in first.
    pub(crate) fn journal_files(&self) -> Vec<PathBuf> {
        let journal = fs::read_dir(self.data().join("journal")).unwrap();
        journal
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect()
    }

    /// Returns the files of its database.
    pub(crate) fn database_files(&self) -> Vec<PathBuf> {
        let names = ["gantry.db", "gantry.db-wal"];
        names.map(|name| self.data().join(name)).to_vec()
    }
}
