//! Checks of a spec beyond its types: no shell, no variables that load other code, valid ranges.
//!
//! Pure, so that files and the admin API follow the same rules. Entry point: [`ServerSpec::check`].

mod loader;
mod shell;

use std::collections::BTreeMap;

use super::hosting::{check_image, check_process};
use super::options::options;
use super::{
    Guarded, HostingError, Launch, ProcessLaunch, Profile, RemoteError, ServerSpec, WritableError,
};
use crate::id::ServerName;
use crate::restart::PolicyError;
use crate::secret::{REDACTED, hide_arguments};

use self::loader::loads_code;
use self::shell::script_shell;

/// Why a spec is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// The command is missing, or contains a NUL byte.
    #[error("server `{server}`: `command` must name a program")]
    Command {
        /// The server.
        server: ServerName,
    },
    /// Both a command and a URL are given.
    #[error("server `{server}`: `command` and `url` exclude each other")]
    Both {
        /// The server.
        server: ServerName,
    },
    /// A shell line where a program and its arguments are expected.
    #[error("server `{server}`: `command` is `{command}`, which is a shell line")]
    Shell {
        /// The server.
        server: ServerName,
        /// The command as given, with apparent secrets hidden.
        command: String,
    },
    /// A shell with a script, which could do anything under a harmless name.
    #[error("server `{server}`: `{command}` runs a script given in `args`")]
    Script {
        /// The server.
        server: ServerName,
        /// The shell.
        command: String,
    },
    /// A variable that changes how programs load or run code.
    #[error("server `{server}`: variable `{variable}` is not allowed in `env`")]
    Variable {
        /// The server.
        server: ServerName,
        /// Its name.
        variable: String,
    },
    /// A text contains a NUL byte, which cannot be passed to a program.
    #[error("server `{server}`: {place} contains a NUL byte")]
    Nul {
        /// The server.
        server: ServerName,
        /// The position.
        place: String,
    },
    /// A number outside its range.
    #[error("server `{server}`: `{field}` is {given}, allowed is {range}")]
    Range {
        /// The server.
        server: ServerName,
        /// The field.
        field: &'static str,
        /// The given value.
        given: String,
        /// The allowed range.
        range: String,
    },
    /// A URL, a header or a wait of a remote server is invalid.
    #[error("server `{server}`: {why}")]
    Remote {
        /// The server.
        server: ServerName,
        /// The error.
        why: RemoteError,
    },
    /// An image, or a hosting setting, is invalid.
    #[error("server `{server}`: {why}")]
    Hosting {
        /// The server.
        server: ServerName,
        /// The error.
        why: HostingError,
    },
    /// A path that would let a hosted server escape its isolation.
    #[error("server `{server}`: `cwd` cannot be written to by a hosted server: {why}")]
    Writable {
        /// The server.
        server: ServerName,
        /// The conflict.
        why: WritableError,
    },
    /// A working folder that depends on where the gateway was started.
    #[error("server `{server}`: `cwd` is `{path}`, which is not an absolute path")]
    RelativeFolder {
        /// The server.
        server: ServerName,
        /// The path, escaped.
        path: String,
    },
    /// A restart policy that contradicts itself.
    #[error("server `{server}`: `restart` cannot be used")]
    Restart {
        /// The server.
        server: ServerName,
        /// The error.
        #[source]
        source: PolicyError,
    },
}

impl SpecError {
    /// Returns the field that is wrong, such as `limits.cpu`.
    pub fn field(&self) -> String {
        match self {
            Self::Command { .. } | Self::Shell { .. } | Self::Both { .. } => "command".to_owned(),
            Self::Script { .. } => "args".to_owned(),
            Self::Variable { variable, .. } => format!("env.{variable}"),
            Self::Nul { place, .. } => nul_field(place),
            Self::Range { field, .. } => (*field).to_owned(),
            Self::Remote { why, .. } => why.field(),
            Self::Hosting { why, .. } => why.field(),
            Self::Writable { .. } | Self::RelativeFolder { .. } => "cwd".to_owned(),
            Self::Restart { .. } => "restart".to_owned(),
        }
    }

    /// Returns what to write instead, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Command { .. } => {
                "give the program in `command` and its arguments in `args`, or the `url` of a remote \
                 server"
                    .to_owned()
            }
            Self::Both { .. } => "keep one of them".to_owned(),
            Self::Shell { .. } => "no shell is involved: put the program in `command` and each \
                                   argument in `args`"
                .to_owned(),
            Self::Script { .. } => "run the program itself, put the script into a file, or allow \
                                    it with `allow_shell = true`"
                .to_owned(),
            Self::Variable { variable, .. } => format!(
                "it makes programs load or run other code; if that is wanted, allow it with \
                 `allow_env = [\"{}\"]`",
                variable.escape_debug()
            ),
            Self::Range { range, .. } => format!("allowed is {range}"),
            Self::Remote { why, .. } => why.hint(),
            Self::Hosting { why, .. } => return why.hint(),
            Self::Writable { .. } => {
                "leave `cwd` out for a folder of its own, or name a folder that contains the server's own \
                 files alone"
                    .to_owned()
            }
            Self::RelativeFolder { .. } => "write a path that begins with `/`".to_owned(),
            Self::Nul { .. } | Self::Restart { .. } => return None,
        };
        Some(hint)
    }
}

/// Returns the field of a position with a NUL byte: `argument 3`, ``variable `X` ``, `` `command`
/// ``.
fn nul_field(place: &str) -> String {
    let named = place.split('`').nth(1).unwrap_or(place);
    if let Some(number) = place.strip_prefix("argument ") {
        let number: usize = number.parse().unwrap_or(1);
        return format!("args[{}]", number.saturating_sub(1));
    }
    match place.starts_with("variable ") {
        true => format!("env.{named}"),
        false => named.to_owned(),
    }
}

/// Returns whether a command is a line with arguments, or for a shell. A path may have blanks.
pub fn is_shell_line(command: &str) -> bool {
    let (program, _) = command.split_once(' ').unwrap_or((command, ""));
    let is_for_shell = || command.contains([';', '|', '&', '$', '`', '>', '<']);
    program != command && !program.contains('/') || !command.contains('/') && is_for_shell()
}

/// Returns a shell line for display.
fn shown_line(process: &ProcessLaunch) -> String {
    let line = process.shown_command();
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    hide_arguments(&words, REDACTED).join(" ")
}

impl ServerSpec {
    /// Checks the rules that types cannot express.
    pub fn check(&self) -> Result<(), SpecError> {
        match &self.launch {
            Launch::Process(process) => {
                self.check_process(process)?;
                check_process(process).map_err(|why| self.hosting_error(why))?;
            }
            Launch::Image(image) => {
                check_image(image).map_err(|why| self.hosting_error(why))?;
                self.check_arguments(&image.args, &image.env)?;
                self.check_arguments(&image.entrypoint, &BTreeMap::new())?;
            }
            Launch::Remote(remote) => remote.check().map_err(|why| SpecError::Remote {
                server: self.name.clone(),
                why,
            })?,
        }
        let restart = self.lifecycle.restart.policy();
        restart.map_err(|source| SpecError::Restart {
            server: self.name.clone(),
            source,
        })?;
        self.check_ranges()
    }

    fn check_process(&self, process: &ProcessLaunch) -> Result<(), SpecError> {
        let server = || self.name.clone();
        if process.command.trim().is_empty() {
            return Err(SpecError::Command { server: server() });
        }
        if is_shell_line(&process.command) {
            return Err(SpecError::Shell {
                server: server(),
                command: shown_line(process),
            });
        }
        if !self.allow.shell
            && let Some(shell) = script_shell(&process.command, &process.args)
        {
            return Err(SpecError::Script {
                server: server(),
                command: shell.to_owned(),
            });
        }
        if let Some(cwd) = process.cwd.as_ref().filter(|cwd| cwd.is_relative()) {
            return Err(SpecError::RelativeFolder {
                server: server(),
                path: cwd.display().to_string().escape_debug().to_string(),
            });
        }
        if process.command.contains('\0') {
            return Err(SpecError::Nul {
                server: server(),
                place: "`command`".into(),
            });
        }
        self.check_arguments(&process.args, &process.env)
    }

    fn check_arguments(
        &self,
        args: &[String],
        env: &BTreeMap<String, String>,
    ) -> Result<(), SpecError> {
        let server = || self.name.clone();
        let nul = |place: String| {
            Err(SpecError::Nul {
                server: server(),
                place,
            })
        };
        if let Some(index) = args.iter().position(|a| a.contains('\0')) {
            return nul(format!("argument {}", index + 1));
        }
        for (name, value) in env {
            if name.is_empty()
                || name.contains(['=', '\0'])
                || loads_code(name) && !self.allow.env.contains(name)
            {
                return Err(SpecError::Variable {
                    server: server(),
                    variable: name.clone(),
                });
            }
            if value.contains('\0') {
                return nul(format!("variable `{name}`"));
            }
        }
        Ok(())
    }

    /// Checks that no writable path lets a hosted server escape. The caller resolves symbolic links
    /// in `cwd`.
    pub fn check_writable(&self, guarded: &Guarded) -> Result<(), SpecError> {
        let Some(process) = self.launch.process() else {
            return Ok(());
        };
        let writable = process.cwd.as_ref();
        match writable.filter(|_| process.profile == Profile::Hosted) {
            Some(cwd) => guarded.check(cwd).map_err(|why| SpecError::Writable {
                server: self.name.clone(),
                why,
            }),
            None => Ok(()),
        }
    }

    fn hosting_error(&self, why: HostingError) -> SpecError {
        SpecError::Hosting {
            server: self.name.clone(),
            why,
        }
    }

    fn check_ranges(&self) -> Result<(), SpecError> {
        let mut copy = self.clone();
        for option in options() {
            let Some(value) = option
                .get(&mut copy)
                .filter(|value| !option.kind.allows(value))
            else {
                continue;
            };
            return Err(SpecError::Range {
                server: self.name.clone(),
                field: option.name,
                given: value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
                range: option.kind.allowed(),
            });
        }
        Ok(())
    }
}
