//! Every environment variable that Gantry reads, with its meaning; the only place that reads the
//! environment.
//!
//! The variables are copied once at the start, so tests can pass their own. Entry point:
//! [`Environment::of_process`].

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The log filter, in `tracing` syntax, such as `info` or `gantry=debug`.
pub const GANTRY_LOG: &str = "GANTRY_LOG";
/// The data folder, if `--data` is not given.
pub const GANTRY_DATA: &str = "GANTRY_DATA";
/// The store, a file or a URL, if `--store` is not given.
pub const GANTRY_STORE: &str = "GANTRY_STORE";
/// Where the audit is pushed to, if `--siem` is not given.
pub const GANTRY_SIEM: &str = "GANTRY_SIEM";
/// The master key that secrets are encrypted with, if `--master-key` is not given.
pub const GANTRY_MASTER_KEY: &str = "GANTRY_MASTER_KEY";
/// The URL of the gateway for the verbs, if `--url` is not given.
pub const GANTRY_URL: &str = "GANTRY_URL";
/// The key file for the verbs, if `--key-file` is not given.
pub const GANTRY_KEY_FILE: &str = "GANTRY_KEY_FILE";
/// The project to work in.
pub const GANTRY_PROJECT: &str = "GANTRY_PROJECT";
/// The password for `gantry images pull --username`.
pub const GANTRY_REGISTRY_PASSWORD: &str = "GANTRY_REGISTRY_PASSWORD";
/// The URL of the MCP registry for `gantry search` and `gantry add --from`, if `--registry` is not given.
pub const GANTRY_MCP_REGISTRY: &str = "GANTRY_MCP_REGISTRY";
/// OpenTelemetry's variables: `true` turns its exports off, unless `--otlp` or `otlp` asks for them. Those of
/// exports (`OTEL_EXPORTER_OTLP_*`, `OTEL_TRACES_EXPORTER`, `OTEL_LOGS_EXPORTER`) are read in `config::otlp`.
pub const OTEL_SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// The name of this service in traces.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Further attributes of this service in traces.
pub const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Any non-empty value turns colours off.
pub const NO_COLOR: &str = "NO_COLOR";
/// Any non-empty value except `0` enables colours even without a terminal.
pub const CLICOLOR_FORCE: &str = "CLICOLOR_FORCE";
/// The width of tables, if the terminal does not report one.
pub const COLUMNS: &str = "COLUMNS";
/// `dumb` turns colours off.
pub const TERM: &str = "TERM";
/// The folder of data folders; by default `~/.local/state`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// The folder of user settings; by default `~/.config`.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where Claude Code keeps its `.claude.json`, if not in the home.
pub const CLAUDE_CONFIG_DIR: &str = "CLAUDE_CONFIG_DIR";
/// Where Copilot keeps its `mcp-config.json`, if not in `~/.copilot`.
pub const COPILOT_HOME: &str = "COPILOT_HOME";
/// Set by systemd: without a terminal, SIGHUP then reloads the configuration files.
pub const INVOCATION_ID: &str = "INVOCATION_ID";
/// Set by service managers that expect notifications; same meaning for SIGHUP.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The user's home.
pub const HOME: &str = "HOME";

/// The variables that every server inherits from the gateway. All others must be in its `env`.
pub const GIVEN_TO_SERVERS: [&str; 11] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "TMPDIR",
];

/// The variables of one process.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Copies this process's variables; those that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let pairs = std::env::vars_os();
        pairs
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// Returns a variable's value, which may be empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns a variable's value unless it is empty.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Returns the variables without one that servers must not get.
    pub fn without(&self, name: &str) -> Self {
        let mut variables = self.variables.clone();
        variables.remove(name);
        Self { variables }
    }

    /// Returns the variables that every server gets.
    pub fn for_servers(&self) -> Vec<(String, String)> {
        let given = GIVEN_TO_SERVERS.iter();
        given
            .filter_map(|name| Some(((*name).to_owned(), self.get(name)?.to_owned())))
            .collect()
    }

    /// Returns the folder of data folders, if there is a home.
    pub fn state_home(&self) -> Option<PathBuf> {
        let given = self
            .filled(XDG_STATE_HOME)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        given.or_else(|| Some(PathBuf::from(self.filled(HOME)?).join(".local/state")))
    }

    /// Returns the folder with the default data folders of all gateways.
    pub fn state_root(&self) -> Option<PathBuf> {
        self.state_home().map(|home| home.join("gantry"))
    }

    /// Returns the folder of user settings, if there is a home.
    pub fn config_home(&self) -> Option<PathBuf> {
        if cfg!(target_os = "macos") {
            return Some(PathBuf::from(self.filled(HOME)?).join("Library/Application Support"));
        }
        let given = self
            .filled(XDG_CONFIG_HOME)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        given.or_else(|| Some(PathBuf::from(self.filled(HOME)?).join(".config")))
    }

    /// Returns whether colours are wanted, according to the environment.
    pub fn wants_colour(&self) -> bool {
        self.filled(NO_COLOR).is_none() && self.get(TERM) != Some("dumb")
    }

    /// Returns whether colours are forced.
    pub fn forces_colour(&self) -> bool {
        self.filled(NO_COLOR).is_none()
            && self
                .filled(CLICOLOR_FORCE)
                .is_some_and(|value| value != "0")
    }

    /// Returns whether a service manager started this process or an ancestor.
    pub fn has_manager(&self) -> bool {
        self.filled(INVOCATION_ID).is_some() || self.filled(NOTIFY_SOCKET).is_some()
    }

    /// Returns the width given by the environment.
    pub fn columns(&self) -> Option<usize> {
        self.filled(COLUMNS)?
            .parse()
            .ok()
            .filter(|width| *width >= 20)
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self {
            variables: pairs.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_short_list_is_the_documented_one() {
        // row 4.9
        let docs = include_str!("../../../../docs/configuration.md");
        let list = GIVEN_TO_SERVERS.map(|name| format!("`{name}`")).join(", ");
        let told = format!("what the gateway itself has of {list}, and then its `env`");
        assert!(docs.contains(&told), "{told}");
    }

    #[test]
    fn servers_get_the_short_list_only() {
        // row 4.9
        let ours = environment(&[("PATH", "/bin"), ("AWS_SECRET", "x"), ("HOME", "/h")]);
        let given: Vec<String> = ours
            .for_servers()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(given, ["PATH", "HOME"]);
    }

    #[test]
    fn the_state_folder_follows_the_convention() {
        let folder = |pairs: &[(&str, &str)]| environment(pairs).state_home();
        assert_eq!(
            folder(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]),
            Some("/s".into())
        );
        assert_eq!(
            folder(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]),
            Some("/h/.local/state".into())
        );
        assert_eq!(folder(&[("XDG_STATE_HOME", "")]), None);
    }

    #[test]
    fn colours_are_turned_off_by_the_usual_variables() {
        assert!(environment(&[("NO_COLOR", "")]).wants_colour());
        assert!(!environment(&[("NO_COLOR", "1")]).wants_colour());
        assert!(!environment(&[("TERM", "dumb")]).wants_colour());
        assert!(environment(&[("CLICOLOR_FORCE", "1")]).forces_colour());
        assert!(!environment(&[("CLICOLOR_FORCE", "0")]).forces_colour());
        assert!(!environment(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).forces_colour());
    }
}
