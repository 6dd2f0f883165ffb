//! A server that is a command on this machine, in a tree of its own.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use gantry_model::id::ServerName;
use gantry_model::spec::{ProcessLaunch, Profile};
use gantry_sandbox::{Command, Limits, Network, Sandbox, SpawnError, Spawned};

/// Starts processes for every server of the engine.
pub(crate) struct ProcessDriver {
    sandbox: Sandbox,
    /// The short list of variables that every child gets.
    environment: Vec<(String, String)>,
    /// Where servers without a folder of their own get one.
    folders: PathBuf,
}

impl ProcessDriver {
    pub(crate) fn new(
        sandbox: Sandbox,
        environment: Vec<(String, String)>,
        folders: PathBuf,
    ) -> Self {
        Self {
            sandbox,
            environment,
            folders,
        }
    }

    /// Starts the command in its sandbox.
    pub(crate) async fn start(
        &self,
        name: &ServerName,
        launch: &ProcessLaunch,
    ) -> Result<Spawned, SpawnError> {
        self.sandbox.spawn(&self.command(name, launch)).await
    }

    fn command(&self, name: &ServerName, launch: &ProcessLaunch) -> Command {
        let own_folder = self.folders.join(name.as_str());
        let cwd = launch.cwd.clone().unwrap_or_else(|| {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700);
            // Not what is above it: a data folder that was removed is not made again. If it cannot be made, the start fails on the working folder and says so.
            drop(builder.create(&own_folder));
            own_folder.clone()
        });
        let (profile, mut limits, network) = match launch.profile {
            Profile::Local => (
                gantry_sandbox::Profile::Local,
                Limits::local(),
                Network::Allowed,
            ),
            Profile::Hosted => (
                gantry_sandbox::Profile::Hosted,
                Limits::hosted(),
                Network::None,
            ),
        };
        limits.cpu = launch.limits.cpu.or(limits.cpu);
        limits.memory_bytes = launch.limits.memory_bytes.or(limits.memory_bytes);
        limits.pids = launch.limits.pids.or(limits.pids);
        let given = |variable: &str| launch.env.contains_key(variable);
        let inherited = self
            .environment
            .iter()
            .filter(|(variable, _)| !given(variable));
        let own = launch
            .env
            .iter()
            .map(|(variable, value)| (variable.clone(), value.clone()));
        Command {
            name: name.to_string(),
            program: launch.command.clone(),
            args: launch.args.clone(),
            env: inherited.cloned().chain(own).collect(),
            writable: vec![cwd.clone()],
            cwd,
            profile,
            limits,
            network,
        }
    }
}
