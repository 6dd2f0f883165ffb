//! The driver of servers that are commands on this machine, each in a sandboxed process tree.
//!
//! The only place of the engine that names the sandbox's types.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{ProcessLaunch, Profile, ServerSpec};
use gantry_sandbox::{
    Command, Exit, Hidden, Limits, Network, Report, Sandbox, SandboxOptions, Spawned, Tree,
};
use tracing::debug;

use super::{
    Control, Driver, DriverError, ExitStatus, HostFact, HostReport, Instance, Io, IsolationReport,
    Labels, Promise, PromiseState, StartRequest, Stdin, Streams, Usage,
};

/// The parent, in the data folder, of the working folders of servers that name none.
const FOLDERS: &str = "servers";
/// How long a disk may take to say whether a file is there.
const LOOK: Duration = Duration::from_secs(1);

/// Returns what this host offers to sandboxed processes, found by trying.
pub fn probe_host() -> Result<HostReport, DriverError> {
    let instance = format!("probe-{}", std::process::id());
    Ok(host_report(&probe(instance)?))
}

/// Starts the processes of all servers of an engine.
pub(crate) struct ProcessDriver {
    sandbox: Sandbox,
    options: ProcessOptions,
}

/// What the process driver is given.
pub(crate) struct ProcessOptions {
    /// The project of the data folder itself.
    pub(crate) project: ProjectName,
    /// Names the gateway, the same over its restarts.
    pub(crate) gateway: String,
    /// The variables that every process gets.
    pub(crate) environment: Vec<(String, String)>,
    /// Hidden from servers, except each server's own folder in it.
    pub(crate) data_folder: PathBuf,
    /// Further folders that are hidden from servers.
    pub(crate) hidden: Vec<PathBuf>,
}

impl ProcessDriver {
    /// Tries what the host offers, and ends what an earlier process of this gateway left. Blocks.
    pub(crate) fn open(mut options: ProcessOptions) -> Result<Self, DriverError> {
        let sandbox = probe(std::mem::take(&mut options.gateway))?;
        let data_folder = &options.data_folder;
        let folders = options.hidden.iter().chain([data_folder]);
        let hidden = Hidden {
            folders: folders.cloned().collect(),
            shared: Some(data_folder.clone()),
            private: ["keys", "journal"]
                .map(|name| data_folder.join(name))
                .into(),
        };
        Ok(Self {
            sandbox: sandbox.hiding(hidden),
            options,
        })
    }

    fn command(&self, project: &ProjectName, name: &ServerName, launch: &ProcessLaunch) -> Command {
        let project = (*project != self.options.project).then_some(project);
        let own_folder = self.options.data_folder.join(folders(project));
        let own_folder = own_folder.join(name.as_str());
        let cwd = launch.cwd.clone().unwrap_or_else(|| {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700);
            // Not its parents: a data folder that was removed is not made again. If this fails, the
            // start fails on the working folder and says so.
            drop(builder.create(&own_folder));
            own_folder.clone()
        });
        let (profile, network, nofile) = match launch.profile {
            Profile::Local => (gantry_sandbox::Profile::Local, Network::Full, 4096),
            Profile::Hosted => (gantry_sandbox::Profile::Hosted, Network::None, 1024),
        };
        let limits = launch.limits_in_force();
        let given = |variable: &str| launch.env.contains_key(variable);
        let inherited = self
            .options
            .environment
            .iter()
            .filter(|(variable, _)| !given(variable));
        let own = launch
            .env
            .iter()
            .map(|(variable, value)| (variable.clone(), value.clone()));
        Command {
            name: label(project, name),
            program: launch.command.clone(),
            args: launch.args.clone(),
            env: inherited.cloned().chain(own).collect(),
            writable: vec![cwd.clone()],
            cwd,
            profile,
            limits: Limits {
                cpu: limits.cpu,
                memory_bytes: limits.memory_bytes,
                pids: limits.pids,
                nofile,
            },
            network,
            ..Command::default()
        }
    }
}

impl Driver for ProcessDriver {
    fn probe(&self) -> HostReport {
        host_report(&self.sandbox)
    }

    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>> {
        Box::pin(async move {
            let Some(launch) = request.spec.launch.process() else {
                return Err(DriverError::new("the server has no command"));
            };
            let Labels {
                project,
                server,
                generation,
            } = request.labels;
            let command = self.command(&project, &server, launch);
            let spawned = self.sandbox.spawn(&command).await;
            let instance = spawned.map(instance).map_err(DriverError::new)?;
            debug!(%project, %server, generation, pid = instance.pid, "process started");
            Ok(instance)
        })
    }

    /// Names arguments only if they exist as files: what merely looks like a path is none.
    fn explain<'a>(
        &'a self,
        project: &'a ProjectName,
        spec: &'a ServerSpec,
    ) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let launch = spec.launch.process()?;
            if launch.profile == Profile::Local {
                return None;
            }
            let command = self.command(project, &spec.name, launch);
            let mut hidden = Vec::new();
            for path in command.outside_view() {
                let there = tokio::time::timeout(LOOK, tokio::fs::try_exists(&path)).await;
                if matches!(there, Ok(Ok(true))) {
                    hidden.push(format!("`{}`", path.display()));
                }
            }
            let cwd = command.cwd.display();
            Some(match hidden.is_empty() {
                true => format!(
                    "it runs in the sandbox of the profile `hosted`, which has no network and shows \
                     the system's files and its working folder `{cwd}` alone; if it needs more, give \
                     it the profile `local`"
                ),
                false => format!(
                    "{} lies outside of what the sandbox of the profile `hosted` shows: the system's \
                     files and its working folder `{cwd}`; move it there, or give the server the \
                     profile `local`",
                    hidden.join(", ")
                ),
            })
        })
    }
}

impl Control for Tree {
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus> {
        Box::pin(async {
            let Exit {
                code,
                signal,
                oom_killed,
                pids_limit_hit,
            } = self.wait().await;
            ExitStatus {
                code,
                signal,
                oom_killed,
                pids_limit_hit,
                stopped: None,
            }
        })
    }

    fn terminate(&mut self) {
        Self::terminate(self);
    }

    fn kill(&mut self) {
        Self::kill(self);
    }
}

/// Returns where the servers of a project have their working folders, in the data folder: `servers` for
/// the folder's own project, `projects/NAME/servers` for others.
pub(crate) fn folders(project: Option<&ProjectName>) -> PathBuf {
    match project {
        None => PathBuf::from(FOLDERS),
        Some(project) => ["projects", project.as_str(), FOLDERS].iter().collect(),
    }
}

/// Returns what names a server's cgroup and picks its user: another in each project.
fn label(project: Option<&ProjectName>, name: &ServerName) -> String {
    match project {
        // No name of a server has a slash in it.
        Some(project) => format!("{project}/{name}"),
        None => name.to_string(),
    }
}

fn instance(spawned: Spawned) -> Instance {
    let meter = spawned.tree.meter();
    Instance {
        io: Io::Streams(Streams {
            stdin: Stdin::Pipe(spawned.stdin),
            stdout: Box::new(spawned.stdout),
            stderr: Some(Box::new(spawned.stderr)),
        }),
        pid: Some(spawned.tree.pid()),
        control: Box::new(spawned.tree),
        usage: Arc::new(move || {
            let usage = meter.read();
            Some(Usage {
                cpu: usage.cpu,
                memory_bytes: usage.memory_bytes,
                pids: usage.pids,
                disk_bytes: None,
            })
        }),
        isolation: Some(isolation(spawned.report)),
        hosting: None,
    }
}

fn isolation(report: Report) -> IsolationReport {
    let promises = report.promises.into_iter().map(|promise| Promise {
        name: promise.name,
        state: match promise.state {
            gantry_sandbox::PromiseState::Enforced => PromiseState::Enforced,
            gantry_sandbox::PromiseState::NotEnforced => PromiseState::NotEnforced,
            gantry_sandbox::PromiseState::NotAsked => PromiseState::NotAsked,
        },
        detail: promise.detail,
    });
    IsolationReport {
        provider: "process",
        reason: "the server is a command".to_owned(),
        promises: promises.collect(),
    }
}

fn probe(instance: String) -> Result<Sandbox, DriverError> {
    Sandbox::probe(SandboxOptions { instance }).map_err(DriverError::new)
}

fn host_report(sandbox: &Sandbox) -> HostReport {
    let facts = sandbox.host().facts.iter().map(|fact| HostFact {
        name: fact.name,
        available: fact.available,
        detail: fact.detail.clone(),
    });
    HostReport {
        facts: facts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row 3.2
    #[test]
    fn servers_of_one_name_in_two_projects_have_other_users_and_cgroups() {
        let name = "peer".parse().unwrap();
        let [one, other] = ["one", "other"].map(|project| project.parse().unwrap());
        assert_eq!(label(None, &name), "peer");
        assert_ne!(label(Some(&one), &name), label(Some(&other), &name));
        assert_ne!(folders(Some(&one)), folders(Some(&other)));
    }
}
