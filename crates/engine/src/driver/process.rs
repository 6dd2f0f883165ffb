//! A server that is a command on this machine, in a tree of its own.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::{ProcessLaunch, Profile};
use gantry_sandbox::{Command, Limits, Network, Sandbox, SpawnError, Spawned};

/// How long a disk may take to say whether a file is there.
const LOOK: Duration = Duration::from_secs(1);

/// Starts processes for every server of a project.
pub(crate) struct ProcessDriver {
    /// The project, unless it is that of the folder itself.
    project: Option<ProjectName>,
    sandbox: Sandbox,
    /// The short list of variables that every child gets.
    environment: Vec<(String, String)>,
    /// Where servers without a folder of their own get one.
    folders: PathBuf,
}

impl ProcessDriver {
    pub(crate) fn new(
        project: Option<ProjectName>,
        sandbox: Sandbox,
        environment: Vec<(String, String)>,
        folders: PathBuf,
    ) -> Self {
        Self {
            project,
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

    /// Says what a hosted command cannot reach, for one that did not come up; nothing for a local one.
    ///
    /// Arguments are named only if they are there: what merely looks like a path is none.
    pub(crate) async fn confinement(
        &self,
        name: &ServerName,
        launch: &ProcessLaunch,
    ) -> Option<String> {
        if launch.profile == Profile::Local {
            return None;
        }
        let command = self.command(name, launch);
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
                "it runs in the sandbox of the profile `hosted`, which has no network and shows the \
                 system's files and its working folder `{cwd}` alone; if it needs more, give it the \
                 profile `local`"
            ),
            false => format!(
                "{} lies outside of what the sandbox of the profile `hosted` shows: the system's files \
                 and its working folder `{cwd}`; move it there, or give the server the profile `local`",
                hidden.join(", ")
            ),
        })
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
            name: label(self.project.as_ref(), name),
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

/// Returns what names a server's cgroup and picks its user: another in each project.
fn label(project: Option<&ProjectName>, name: &ServerName) -> String {
    match project {
        // No name of a server has a slash in it.
        Some(project) => format!("{project}/{name}"),
        None => name.to_string(),
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
    }
}
