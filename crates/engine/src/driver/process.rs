//! The driver of servers that are commands on this machine, each in a sandboxed process tree.
//!
//! Profile `local`: on the host's own root. Profile `hosted`: on a separate root, made of read-only
//! parts of the host's, with limited storage.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{
    Guarded, GuardedPath, ProcessLaunch, Profile, Provider, Rung, ServerSpec,
};
use gantry_sandbox::{
    Command, Exit, Limits, Mount, MountKind, Network, OwnRoot, Root, RootBase, Spawned, Syscalls,
    Tree,
};
use tracing::debug;

use super::hosted::{self, Hosted, HostedStart, PATH, label, on_path};
use super::{
    Control, Driver, DriverError, ExitStatus, HostReport, Instance, Io, IsolationReport, Labels,
    StartRequest, Stdin, Streams,
};

/// The parent folder, in the data folder, of default working folders.
const FOLDERS: &str = "servers";
/// Time limit for checking whether a file exists.
const LOOK: Duration = Duration::from_secs(1);
/// Where a hosted command works if its spec names no folder; in the second if its program lies in the first,
/// which would hide it.
const OWN_FOLDERS: [&str; 2] = ["/work", "/workspace"];
/// Variables of the gateway that hosted commands get as well: they reveal nothing about the
/// machine.
const PASSED_ON: [&str; 4] = ["LANG", "LC_ALL", "LC_CTYPE", "TZ"];

/// Starts the processes of all servers of an engine.
pub(crate) struct ProcessDriver {
    hosted: Arc<Hosted>,
}

impl ProcessDriver {
    pub(crate) fn new(hosted: Arc<Hosted>) -> Self {
        Self { hosted }
    }

    fn project<'a>(&self, project: &'a ProjectName) -> Option<&'a ProjectName> {
        (*project != self.hosted.options.project).then_some(project)
    }

    /// Returns the command of a user's own server, on the host's root.
    fn local(&self, project: &ProjectName, name: &ServerName, launch: &ProcessLaunch) -> Command {
        let project = self.project(project);
        let options = &self.hosted.options;
        let own_folder = options.data_folder.join(folders(project));
        let own_folder = own_folder.join(name.as_str());
        let cwd = launch.cwd.clone().unwrap_or_else(|| {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700);
            // Its parents are not created: a removed data folder must stay removed. If this fails,
            // the start fails on the working folder and reports it.
            drop(builder.create(&own_folder));
            own_folder.clone()
        });
        let limits = launch.limits_in_force();
        let given = |variable: &str| launch.env.contains_key(variable);
        let inherited = options.environment.iter();
        let inherited = inherited.filter(|(variable, _)| !given(variable));
        Command {
            name: label(project, name),
            program: launch.command.clone(),
            args: launch.args.clone(),
            env: inherited.cloned().chain(own_variables(launch)).collect(),
            writable: vec![cwd.clone()],
            cwd,
            profile: gantry_sandbox::Profile::Local,
            limits: Limits {
                cpu: limits.cpu,
                memory_bytes: limits.memory_bytes,
                pids: limits.pids,
                nofile: 4096,
            },
            network: Network::Full,
            ..Command::default()
        }
    }

    /// Returns the command of a hosted server, on a separate root; its storage is added later.
    fn hosted(&self, project: &ProjectName, name: &ServerName, launch: &ProcessLaunch) -> Command {
        let cwd = launch.cwd.clone();
        let mut env = vec![("PATH".to_owned(), PATH.to_owned())];
        let options = &self.hosted.options;
        let passed = options.environment.iter();
        let passed = passed.filter(|(name, _)| PASSED_ON.contains(&name.as_str()));
        env.extend(passed.cloned());
        env.retain(|(variable, _)| !launch.env.contains_key(variable));
        env.extend(own_variables(launch));
        let program = self.found(&launch.command);
        Command {
            name: label(self.project(project), name),
            args: launch.args.clone(),
            env,
            writable: launch.cwd.iter().cloned().collect(),
            cwd: cwd.unwrap_or_else(|| own_folder(&program)),
            program,
            profile: gantry_sandbox::Profile::Hosted,
            limits: hosted::sandbox_limits(&launch.limits_in_force()),
            network: Network::None,
            syscalls: Syscalls::AllowList,
            ..Command::default()
        }
    }

    /// Resolves a program on the gateway's own search path, unless it is in a system folder.
    fn found(&self, program: &str) -> String {
        if on_path(program, PATH).is_some() {
            return program.to_owned();
        }
        let environment = &self.hosted.options.environment;
        let own = environment.iter().find(|(name, _)| name == "PATH");
        let own = own.and_then(|(_, path)| on_path(program, path));
        own.map_or_else(|| program.to_owned(), |path| path.display().to_string())
    }

    /// Refuses a working folder that would let the server escape; follows links.
    async fn checked_cwd(
        &self,
        spec: &ServerSpec,
        launch: &ProcessLaunch,
    ) -> Result<Option<PathBuf>, DriverError> {
        let Some(cwd) = &launch.cwd else {
            return Ok(None);
        };
        let failed =
            |error: std::io::Error| DriverError::new(format!("`cwd` `{}`: {error}", cwd.display()));
        let resolving = tokio::fs::canonicalize(cwd);
        let resolved = tokio::time::timeout(LOOK, resolving).await;
        let resolved = resolved.map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?;
        let cwd = resolved.map_err(failed)?;
        let options = &self.hosted.options;
        let home = options.environment.iter().find(|(name, _)| name == "HOME");
        let home = home.map(|(_, home)| (PathBuf::from(home), GuardedPath::Home));
        let folders = options.hidden.iter().chain([&options.data_folder]);
        let folders = folders.map(|folder| (folder.clone(), GuardedPath::DataFolder));
        let file = spec.file.iter();
        let file = file.map(|file| (file.clone(), GuardedPath::ConfigurationFile));
        let guarded = Guarded::new(folders.chain(home).chain(file));
        guarded.check(&cwd).map_err(DriverError::new)?;
        Ok(Some(cwd))
    }

    async fn start_hosted(
        &self,
        spec: &ServerSpec,
        labels: Labels,
        launch: &ProcessLaunch,
    ) -> Result<Instance, DriverError> {
        check_rung(launch)?;
        let cwd = self.checked_cwd(spec, launch).await?;
        let (hosted, limits) = (&self.hosted, launch.limits_in_force());
        let volumes = launch.hosting.volumes.clone();
        let outside: Vec<PathBuf> = cwd.iter().cloned().collect();
        let place = hosted.place(&labels, &limits, &volumes, &outside).await?;
        let mut command = self.hosted(&labels.project, &spec.name, launch);
        // The folder that was checked: a link may point elsewhere by now.
        if let Some(cwd) = cwd {
            (command.writable, command.cwd) = (vec![cwd.clone()], cwd);
        }
        command.ids = hosted.ids(&labels, launch.cwd.is_some()).await?;
        let own = launch.cwd.is_none();
        let own = own.then(|| (command.cwd.clone(), place.work()));
        let volume = |path: &PathBuf| (path.clone(), place.volume(path));
        let mounts = own.into_iter().chain(volumes.iter().map(volume));
        command.root = Root::Own(OwnRoot {
            base: RootBase::HostParts,
            mounts: mounts
                .map(|(target, source)| Mount {
                    target,
                    kind: MountKind::Bind(source),
                    read_only: false,
                })
                .collect(),
            hostname: spec.name.to_string(),
            scratch: hosted::scratch(&place, &limits),
            writable: false,
        });
        let start = HostedStart {
            labels: &labels,
            hosting: &launch.hosting,
            limits,
            place,
            volumes,
            provider: "process",
            reason: "the server is a command".to_owned(),
            image: None,
            held: Box::new(()),
        };
        hosted.start(command, start).await
    }
}

/// Returns where a program works whose spec names no folder.
fn own_folder(program: &str) -> PathBuf {
    let [usual, other] = OWN_FOLDERS;
    let is_hidden = Path::new(program).starts_with(usual);
    PathBuf::from(if is_hidden { other } else { usual })
}

impl Driver for ProcessDriver {
    fn probe(&self) -> HostReport {
        self.hosted.host_report()
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
            } = request.labels.clone();
            let instance = match launch.profile {
                Profile::Local => {
                    let command = self.local(&project, &server, launch);
                    let spawned = self.hosted.sandbox.spawn(&command).await;
                    spawned.map(instance).map_err(DriverError::new)?
                }
                Profile::Hosted => {
                    self.start_hosted(request.spec, request.labels, launch)
                        .await?
                }
            };
            debug!(%project, %server, generation, pid = instance.pid, "process started");
            Ok(instance)
        })
    }

    /// Names only arguments that exist as files.
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
            let command = self.hosted(project, &spec.name, launch);
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

/// Refuses a hosted command that requires an isolation level of images.
fn check_rung(launch: &ProcessLaunch) -> Result<(), DriverError> {
    let why = "a command is hosted as a sandboxed process; give the server an `image` for more";
    let wanted = launch.hosting.provider;
    if !matches!(wanted, Provider::Auto | Provider::Process) {
        let wanted = wanted.as_str();
        let error = format!("provider_unavailable: `{wanted}`: {why}");
        return Err(DriverError::new(error));
    }
    match launch.hosting.isolation_floor {
        Some(floor) if floor > Rung::Process => {
            let error = format!("isolation_floor: `{}` is required: {why}", floor.as_str());
            Err(DriverError::new(error))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the parent of a project's default working folders, in the data folder: `servers` for the
/// folder's own project, `projects/NAME/servers` for others.
pub(crate) fn folders(project: Option<&ProjectName>) -> PathBuf {
    match project {
        None => PathBuf::from(FOLDERS),
        Some(project) => ["projects", project.as_str(), FOLDERS].iter().collect(),
    }
}

fn own_variables(launch: &ProcessLaunch) -> impl Iterator<Item = (String, String)> {
    let own = launch.env.iter();
    own.map(|(variable, value)| (variable.clone(), value.clone()))
}

fn instance(spawned: Spawned) -> Instance {
    let meter = spawned.tree.meter();
    let isolation = IsolationReport {
        provider: "process",
        reason: "the server is a command".to_owned(),
        promises: hosted::promises(&spawned.report),
    };
    Instance {
        io: Io::Streams(Streams {
            stdin: Stdin::Pipe(spawned.stdin),
            stdout: Box::new(spawned.stdout),
            stderr: Some(Box::new(spawned.stderr)),
        }),
        pid: Some(spawned.tree.pid()),
        control: Box::new(spawned.tree),
        usage: Arc::new(move || Some(hosted::usage(&meter, None))),
        isolation: Some(isolation),
        hosting: None,
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

    #[test]
    fn a_programs_own_folder_does_not_hide_the_program() {
        assert_eq!(own_folder("npx"), Path::new("/work"));
        assert_eq!(own_folder("/workshop/bin/x"), Path::new("/work"));
        assert_eq!(own_folder("/work/bin/x"), Path::new("/workspace"));
    }
}
