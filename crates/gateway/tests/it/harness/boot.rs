//! Describes a gateway and starts it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::eventually;
use rustix::fs::{Gid, Uid, chown};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{Gantry, PROGRAM, entry};

/// How a gateway is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Builder {
    servers: Map<String, Value>,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    wrapper: Vec<String>,
    program: Option<PathBuf>,
    port: u16,
    user: Option<u32>,
    /// What it runs under is root's, and becomes the user itself.
    is_begun_by_root: bool,
    found: Option<String>,
    /// Its rows are kept there, not in a file of its data folder.
    database: Option<Arc<PgDatabase>>,
    /// The first agent keeps what a first start grants it.
    has_own_grants: bool,
}

impl Builder {
    /// Describes a gateway on a database, or on a file of its own.
    pub(super) fn on(database: Option<Arc<PgDatabase>>) -> Self {
        Self {
            database,
            ..Self::default()
        }
    }

    /// Returns the variable that names the database, if there is one.
    pub(super) fn store(&self) -> Option<(&'static str, String)> {
        let database = self.database.as_ref()?;
        Some(("GANTRY_STORE", database.url()))
    }

    /// Returns the database, if its rows are not in a file.
    pub(super) fn database(&self) -> Option<&PgDatabase> {
        self.database.as_deref()
    }

    /// Adds a peer under a name.
    pub(crate) fn server(self, name: &str, peer: &Evilpeer) -> Self {
        self.entry(name, entry(peer))
    }

    /// Adds a peer with further members of its entry, such as `{"concurrency": 1}`.
    pub(crate) fn server_with(self, name: &str, peer: &Evilpeer, members: &Value) -> Self {
        let mut entry = entry(peer);
        for (key, value) in members.as_object().expect("members are an object") {
            entry[key] = value.clone();
        }
        self.entry(name, entry)
    }

    /// Adds any entry under a name.
    pub(crate) fn entry(mut self, name: &str, entry: Value) -> Self {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// Has it start in a checkout, `checkout` in its home, whose `.mcp.json` says this; no file is named.
    pub(crate) fn found(mut self, file: &str) -> Self {
        self.found = Some(file.to_owned());
        self
    }

    /// Leaves the first agent what a first start grants it, instead of everything.
    pub(crate) fn own_grants(mut self) -> Self {
        self.has_own_grants = true;
        self
    }

    /// Adds flags of `gantry up`.
    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Sets a variable of the gateway's environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the gateway under another program, such as `strace -f -o FILE`.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Runs this copy of the program, for users who cannot reach the build's own folder.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Has it listen on this port instead of any free one.
    pub(crate) fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Runs the gateway as another user; only root can.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// Runs the gateway as another user, under a program that is root's and becomes that user itself.
    pub(crate) fn user_under(self, uid: u32, wrapper: &[&str]) -> Self {
        let mut builder = self.under(wrapper).user(uid);
        builder.is_begun_by_root = true;
        builder
    }

    /// Starts the gateway in a new home and waits until it serves.
    pub(crate) fn start(self) -> Gantry {
        let home = tempfile::tempdir().expect("a temporary folder");
        self.start_in(home)
    }

    /// Returns the command, its output kept in the home; nothing is started.
    pub(crate) fn command(&self, home: &Path) -> Command {
        let (folder, config) = self.written(home);
        let mut argv: Vec<String> = self.wrapper.clone();
        let program = self.program.as_deref().unwrap_or(Path::new(PROGRAM));
        argv.push(program.to_str().expect("paths here are UTF-8").to_owned());
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .args(["up", "--port"])
            .arg(self.port.to_string());
        command
            .arg("--data")
            .arg(home.join("data"))
            .args(&self.flags);
        if self.found.is_none() {
            command.arg("--config").arg(&config);
        }
        command
            .envs(self.store())
            .envs(self.variables.iter().cloned())
            .env("NO_COLOR", "1")
            .current_dir(folder);
        let kept = |name: &str| File::create(home.join(name)).expect("the home is writable");
        command
            .stdin(Stdio::null())
            .stdout(kept("stdout"))
            .stderr(kept("stderr"));
        if let Some(uid) = self.user.filter(|_| !self.is_begun_by_root) {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Writes the file with the servers; returns the folder to start in, and the file.
    fn written(&self, home: &Path) -> (PathBuf, PathBuf) {
        let (folder, config, text) = match &self.found {
            Some(file) => {
                let folder = home.join("checkout");
                let config = folder.join(".mcp.json");
                (folder, config, file.clone())
            }
            None => {
                let file = json!({"mcpServers": self.servers});
                (home.to_owned(), home.join("mcp.json"), file.to_string())
            }
        };
        fs::create_dir_all(&folder).expect("the home is writable");
        fs::write(&config, text).expect("the home is writable");
        (folder, config)
    }

    /// Starts the gateway in a home that is there already.
    pub(crate) fn start_in(self, home: TempDir) -> Gantry {
        let announced = home.path().join("data/gateway.json");
        let is_first = !home.path().join("data/keys").exists();
        drop(fs::remove_file(&announced));
        let mut command = self.command(home.path());
        if let Some(uid) = self.user {
            let owner = (Uid::from_raw(uid), Gid::from_raw(uid));
            let (folder, config) = self.written(home.path());
            for path in [home.path().to_owned(), folder, config] {
                chown(&path, Some(owner.0), Some(owner.1)).expect("root may give files away");
            }
        }
        let mut child = command.spawn().expect("the gateway starts");
        let mut running = None;
        let up = eventually(Duration::from_secs(30), || {
            running = fs::read(&announced)
                .ok()
                .and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            running.is_some() || child.try_wait().is_ok_and(|status| status.is_some())
        });
        let log = || fs::read_to_string(home.path().join("stderr")).unwrap_or_default();
        let Some(running) = running else {
            drop(child.kill());
            drop(child.wait());
            panic!("the gateway did not start ({up:?}):\n{}", log());
        };
        let key = |name: &str| {
            let text = fs::read_to_string(home.path().join("data/keys").join(name));
            text.expect("a first start leaves the keys")
                .trim()
                .to_owned()
        };
        let url = running["url"]
            .as_str()
            .expect("a running gateway has a URL");
        let gantry = Gantry {
            pid: running["pid"]
                .as_u64()
                .and_then(|pid| pid.try_into().ok())
                .expect("a process id"),
            authority: url.trim_start_matches("http://").to_owned(),
            admin: key("admin.key"),
            agent: key("agent.key"),
            child,
            builder: self,
            home: Some(home),
        };
        if is_first && !gantry.builder.has_own_grants {
            gantry.grant_everything();
        }
        gantry
    }
}
