//! Checks what each server needs to start: its command, that command's interpreter, its folder.
//!
//! Searches the user's own `PATH`, as the gateway does. Never starts anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::diagnostic::Diagnostic;
use crate::config::env::Environment;
use crate::data_folder::DataFolder;

use super::super::CliContext;
use super::super::client::{Client, segment};
use super::super::failure::Failure;
use super::super::files::{Files, Setup, brief};
use super::super::format::{list, text};
use super::{Finding, Grade};

/// Commands that need an interpreter.
const RUNNERS: [(&str, &[&str], &str); 5] = [
    (
        "npx",
        &["node"],
        "install Node.js, for example with `apt install nodejs npm`",
    ),
    (
        "npm",
        &["node"],
        "install Node.js, for example with `apt install nodejs npm`",
    ),
    ("uvx", &["uv"], "install uv: https://docs.astral.sh/uv/"),
    (
        "docker",
        &[],
        "install Docker, or run the server without a container",
    ),
    ("bunx", &["bun"], "install Bun: https://bun.sh/"),
];

/// Checks the servers in files, and the files themselves.
pub(super) fn of_files(files: &Files, context: &CliContext) -> Result<Vec<Finding>, Failure> {
    let data = DataFolder::at(context.data_path()?);
    let setup = Setup::new(files, data, context)?;
    let plan = match setup.load() {
        Ok(plan) => plan,
        Err(mistakes) => return Ok(mistakes.iter().map(mistaken).collect()),
    };
    let mut findings: Vec<Finding> = plan.mistakes.iter().map(mistaken).collect();
    for planned in &plan.servers {
        // Remote servers need nothing on this machine.
        let Some(process) = planned.spec.launch.process() else {
            continue;
        };
        let need = Need {
            command: process.command.clone(),
            folder: process.cwd.clone(),
        };
        let name = planned.spec.name.as_str();
        findings.push(need.finding(name, &context.environment));
    }
    for file in &plan.unapproved {
        let detail = format!("`{}` is not approved", file.path.display());
        findings
            .push(Finding::new(Grade::Doubtful, "approval", detail).advise("run `gantry approve`"));
    }
    Ok(findings)
}

fn mistaken(mistake: &Diagnostic) -> Finding {
    let (text, advice) = brief(mistake);
    let mut finding = Finding::new(Grade::Bad, mistake.server().unwrap_or("file"), text);
    finding.advice = advice;
    finding
}

/// Checks servers of the running gateway that were not checked yet.
pub(super) async fn of_gateway(client: &Client, context: &CliContext, findings: &mut Vec<Finding>) {
    let Ok(answer) = client.get("/api/v1/mcp/servers").await else {
        return;
    };
    for server in list(&answer, "/items") {
        let name = text(server, "/name");
        if findings.iter().any(|known| known.what == name) {
            continue;
        }
        // Inactive entries need nothing.
        if matches!(
            text(server, "/state").as_str(),
            "disabled" | "misconfigured"
        ) {
            continue;
        }
        let path = format!("/api/v1/mcp/servers/{}", segment(&name));
        let Ok(status) = client.get(&path).await else {
            continue;
        };
        // Remote servers and images need no program of this machine.
        if text(&status, "/command").is_empty() {
            continue;
        }
        let folder = Some(text(&status, "/spec/cwd")).filter(|cwd| !cwd.is_empty());
        let need = Need {
            command: text(&status, "/command"),
            folder: folder.map(PathBuf::from),
        };
        findings.push(need.finding(&name, &context.environment));
    }
}

/// The command of a server.
struct Need {
    command: String,
    folder: Option<PathBuf>,
}

impl Need {
    fn finding(&self, server: &str, environment: &Environment) -> Finding {
        if let Some(folder) = self.folder.as_deref().filter(|folder| !folder.is_dir()) {
            let detail = format!("its folder `{}` is not there", folder.display());
            return Finding::new(Grade::Bad, server, detail)
                .advise("make it, or name another as `cwd`");
        }
        let known = RUNNERS.iter().find(|(name, _, _)| self.command == *name);
        let advice = known.map(|(_, _, advice)| *advice);
        let Some(found) = locate(&self.command, environment) else {
            let detail = format!("`{}` is not on the PATH", self.command);
            let advice = advice.unwrap_or("install it, or write the whole path of the command");
            return Finding::new(Grade::Bad, server, detail).advise(advice);
        };
        let under = known.into_iter().flat_map(|(_, under, _)| under.iter());
        for program in under {
            if locate(program, environment).is_none() {
                let detail = format!(
                    "`{}` is there, but `{program}` is not on the PATH",
                    self.command
                );
                return Finding::new(Grade::Bad, server, detail).advise(advice.unwrap_or_default());
            }
        }
        Finding::new(
            Grade::Good,
            server,
            format!("{} is {}", self.command, found.display()),
        )
    }
}

/// Finds a program in `PATH`.
fn locate(command: &str, environment: &Environment) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|path| is_program(path));
    }
    let folders = std::env::split_paths(environment.get("PATH").unwrap_or_default());
    let mut places = folders.map(|folder| folder.join(command));
    places.find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn finding(folder: &Path, command: &str) -> (Grade, String) {
        let path = ("PATH".to_owned(), folder.to_str().unwrap().to_owned());
        let environment: Environment = [path].into_iter().collect();
        let need = Need {
            command: command.to_owned(),
            folder: None,
        };
        let finding = need.finding("a", &environment);
        (finding.grade, finding.detail)
    }

    #[test]
    fn a_command_and_what_it_runs_on_are_looked_for() {
        let home = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let path = home.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(
            finding(home.path(), "npx"),
            (Grade::Bad, "`npx` is not on the PATH".to_owned())
        );
        make("npx", 0o644);
        assert_eq!(
            finding(home.path(), "npx").0,
            Grade::Bad,
            "it cannot be run"
        );
        make("npx", 0o755);
        let (grade, detail) = finding(home.path(), "npx");
        assert_eq!(grade, Grade::Bad);
        assert!(detail.contains("`node` is not on the PATH"), "{detail}");
        make("node", 0o755);
        assert_eq!(finding(home.path(), "npx").0, Grade::Good);
        assert_eq!(finding(home.path(), "/nowhere/x").0, Grade::Bad);
    }
}
