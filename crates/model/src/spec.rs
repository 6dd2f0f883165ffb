//! The spec of a server: its desired configuration. Stored as JSON in
//! `kb.project_mcp_servers.config`.
//!
//! All defaults are here, so that the status can show the effective values. Observed values are in
//! `status`.

mod auth;
mod calls;
mod check;
mod filter;
mod hosting;
mod image;
mod lifecycle;
pub mod options;
pub mod period;
mod process;
mod remote;
mod secrets;
pub mod size;
mod url;
mod written;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::ServerName;
use crate::status::ServerState;

pub use self::auth::{AuthFieldError, AuthKind, RemoteAuth};
pub use self::calls::{CallPolicy, OutputCheck};
pub use self::check::{SpecError, is_shell_line};
pub use self::filter::{ToolFilter, ToolSettings};
pub use self::hosting::{
    Bridge, EgressRule, EgressRuleError, Guarded, GuardedPath, Hosting, HostingError, NetworkGrant,
    Provider, Rung, WritableError, volume_fits, volume_name, volume_path,
};
pub use self::image::{ImageLaunch, Pull};
pub use self::lifecycle::{LifecyclePolicy, RestartSpec, RestartWhen, WhenUnresponsive};
pub use self::process::{Allowances, ProcessLaunch, Profile, ResourceLimits};
pub use self::remote::{ReconnectSpec, RemoteError, RemoteLaunch, TransportPreference};
pub use self::secrets::{FillError, SecretPlace, origin};
pub use self::url::{UrlError, check_url};
pub use self::written::{FilePlaces, Written};

/// The desired configuration of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Its name in the project.
    pub name: ServerName,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How it is started.
    pub launch: Launch,
    /// When it is started.
    #[serde(default)]
    pub start: Start,
    /// The concurrency, queue and timeouts of its calls.
    #[serde(default)]
    pub calls: CallPolicy,
    /// How it is started, health-checked, restarted and stopped.
    #[serde(default, rename = "life")]
    pub lifecycle: LifecyclePolicy,
    /// The source of the spec, which determines what it may request.
    #[serde(default)]
    pub source: Source,
    /// Which of its tools are offered.
    #[serde(default, skip_serializing_if = "ToolFilter::is_empty")]
    pub tools: ToolFilter,
    /// Exceptions from safety checks.
    #[serde(default, skip_serializing_if = "Allowances::is_empty")]
    pub allow: Allowances,
    /// What must be done before it may be started; `None` if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_approval: Option<String>,
    /// Why its file disables it; such a spec is only shown and never started.
    #[serde(default, rename = "off", skip_serializing_if = "Option::is_none")]
    pub inactive: Option<InactiveReason>,
    /// Its configuration file; known only to the gateway process that read it.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// Why an entry of a file is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InactiveReason {
    /// It is disabled there; a sentence says where.
    Disabled(String),
    /// It is invalid; a sentence says why.
    Misconfigured(String),
    /// An administrator has suspended it; a sentence says who and why. Never stored with the spec.
    Suspended(String),
}

/// How a server is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launch {
    /// A command on this machine that communicates over its stdin and stdout.
    Process(ProcessLaunch),
    /// An image that is run here, over its stdin and stdout or a port inside.
    Image(ImageLaunch),
    /// A remote server, at a URL.
    Remote(RemoteLaunch),
}

impl Launch {
    /// Returns the command, if the server is one.
    pub const fn process(&self) -> Option<&ProcessLaunch> {
        match self {
            Self::Process(process) => Some(process),
            Self::Image(_) | Self::Remote(_) => None,
        }
    }

    /// Returns the image, if the server is one.
    pub const fn image(&self) -> Option<&ImageLaunch> {
        match self {
            Self::Image(image) => Some(image),
            Self::Process(_) | Self::Remote(_) => None,
        }
    }

    /// Returns the hosting settings, if the server runs here.
    pub const fn hosting(&self) -> Option<&Hosting> {
        match self {
            Self::Process(process) => Some(&process.hosting),
            Self::Image(image) => Some(&image.hosting),
            Self::Remote(_) => None,
        }
    }

    /// Returns the URL and connection settings of a remote server.
    pub const fn remote(&self) -> Option<&RemoteLaunch> {
        match self {
            Self::Process(_) | Self::Image(_) => None,
            Self::Remote(remote) => Some(remote),
        }
    }

    /// Returns the transport: `stdio`, or the preference for a remote server.
    pub fn transport(&self) -> &'static str {
        match (self.remote(), self.hosting()) {
            (Some(remote), _) => remote.transport.as_str(),
            (None, Some(hosting)) if hosting.bridge() != Bridge::Stdio => {
                hosting.transport.as_str()
            }
            (None, _) => "stdio",
        }
    }

    /// Returns the effective limits: as set, else the profile's; a remote server has none.
    pub fn limits(&self) -> ResourceLimits {
        match self {
            Self::Process(process) => process.limits_in_force(),
            Self::Image(image) => image.limits_in_force(),
            Self::Remote(_) => ResourceLimits::default(),
        }
    }
}

/// When a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the gateway.
    Eager,
    /// With the first call or listing that needs it.
    #[default]
    Lazy,
}

/// The source of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A configuration file named by the person who runs the gateway.
    File,
    /// The admin API.
    #[default]
    Api,
    /// Gantry itself: the example server.
    Builtin,
}

impl ServerSpec {
    /// Makes a spec of a command with every default of its profile.
    pub fn process(name: ServerName, launch: ProcessLaunch) -> Self {
        Self::new(name, Launch::Process(launch))
    }

    /// Makes a spec of an image with every default.
    pub fn image(name: ServerName, launch: ImageLaunch) -> Self {
        Self::new(name, Launch::Image(launch))
    }

    /// Makes a spec of a remote server with every default.
    pub fn remote(name: ServerName, launch: RemoteLaunch) -> Self {
        Self::new(name, Launch::Remote(launch))
    }

    /// Makes a spec with every default.
    pub fn new(name: ServerName, launch: Launch) -> Self {
        Self {
            name,
            description: None,
            start: Start::default(),
            calls: CallPolicy::default(),
            lifecycle: LifecyclePolicy::of(&launch),
            launch,
            source: Source::default(),
            tools: ToolFilter::default(),
            allow: Allowances::default(),
            needs_approval: None,
            inactive: None,
            file: None,
        }
    }

    /// Returns the state and the reason of a server that must not be started; `None` if it may.
    pub fn held(&self) -> Option<(ServerState, &str)> {
        match (&self.inactive, &self.needs_approval) {
            (Some(InactiveReason::Disabled(why)), _) => Some((ServerState::Disabled, why)),
            (Some(InactiveReason::Misconfigured(why)), _) => {
                Some((ServerState::Misconfigured, why))
            }
            (Some(InactiveReason::Suspended(why)), _) => Some((ServerState::Suspended, why)),
            (None, Some(why)) => Some((ServerState::NeedsApproval, why)),
            (None, None) => None,
        }
    }

    /// Returns the isolation profile of the server; `None` for a remote one.
    pub fn profile(&self) -> Option<Profile> {
        match &self.launch {
            Launch::Process(process) => Some(process.profile),
            Launch::Image(_) => Some(Profile::Hosted),
            Launch::Remote(_) => None,
        }
    }

    /// Returns how many calls may be in flight: as set, else 1 for hosted servers over stdio and 32 for
    /// others.
    pub fn concurrency(&self) -> u32 {
        let is_stdio = self
            .launch
            .hosting()
            .is_some_and(|hosting| hosting.bridge() == Bridge::Stdio);
        let default = match self.profile() {
            Some(Profile::Hosted) if is_stdio => 1,
            Some(Profile::Hosted | Profile::Local) | None => 32,
        };
        self.calls.concurrency.unwrap_or(default).max(1)
    }

    /// Returns the policy for an unresponsive server: as set, else by its profile.
    pub fn when_unresponsive(&self) -> WhenUnresponsive {
        self.lifecycle
            .when_unresponsive
            .unwrap_or(match self.profile() {
                Some(Profile::Hosted) => WhenUnresponsive::Keep,
                Some(Profile::Local) | None => WhenUnresponsive::Reconnect,
            })
    }

    /// Returns a hash of everything that matters to a running server or a stored catalog.
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let text = serde_json::to_vec(&(
            &self.name,
            &self.launch,
            &self.calls,
            &self.lifecycle,
            &self.tools,
        ))
        .expect("a spec is always expressible as JSON");
        crate::hex::hex(&Sha256::digest(&text)[..16])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spec(command: &str) -> ServerSpec {
        let launch = serde_json::from_value(serde_json::json!({ "command": command })).unwrap();
        ServerSpec::process("a".parse().unwrap(), launch)
    }

    fn process(spec: &mut ServerSpec) -> &mut ProcessLaunch {
        match &mut spec.launch {
            Launch::Process(process) => process,
            Launch::Image(_) | Launch::Remote(_) => panic!("a command"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let spec = spec("x");
        assert_eq!(spec.calls.timeout, Duration::from_secs(30)); // row 1.6
        assert_eq!(spec.calls.timeout_max, Duration::from_secs(600)); // fault S12
        assert_eq!(spec.lifecycle.handshake, Duration::from_secs(60));
        assert_eq!(spec.concurrency(), 1); // row 1.7
        assert_eq!(spec.when_unresponsive(), WhenUnresponsive::Keep); // row 1.15
    }

    #[test]
    fn what_types_cannot_say_is_checked() {
        assert!(spec("npx").check().is_ok());
        assert!(matches!(spec("").check(), Err(SpecError::Command { .. })));
        assert!(matches!(
            spec("sh -c x").check(),
            Err(SpecError::Shell { .. })
        )); // fault G3
        // A path may have blanks, a program and its argument may not.
        for (command, is_line) in [
            ("/opt/my tools/run", false),
            ("./my tools/run", false),
            ("python3 /srv/server.py", true),
            ("a;b", true),
        ] {
            let checked = spec(command).check();
            let refused = matches!(checked, Err(SpecError::Shell { .. }));
            assert_eq!(refused, is_line, "{command}");
        }
        let mut relative = spec("x");
        process(&mut relative).cwd = Some("sub".into());
        let refused = relative.check().unwrap_err();
        assert_eq!(refused.field(), "cwd");
        let mut preload = spec("x");
        process(&mut preload)
            .env
            .insert("LD_PRELOAD".into(), "/x.so".into());
        assert!(matches!(preload.check(), Err(SpecError::Variable { .. }))); // fault G4
        let mut small = spec("x");
        process(&mut small).limits.cpu = Some(0.0);
        assert!(matches!(small.check(), Err(SpecError::Range { .. }))); // fault G6
        let mut patient = spec("x");
        (patient.calls.late_grace, patient.lifecycle.stop_grace) = (Duration::ZERO, Duration::ZERO);
        assert!(patient.check().is_ok());
        patient.lifecycle.stop_grace = Duration::from_secs(86_401);
        let error = patient.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "server `a`: `stop_grace` is 86401s, allowed is 0s to 24h"
        );
    }

    #[test]
    fn what_loads_or_runs_other_code_is_refused_unless_it_is_allowed() {
        // faults G3, G4
        let mut script = spec("/usr/bin/env");
        process(&mut script).args = ["A=1", "bash", "-lc", "x"].map(str::to_owned).to_vec();
        assert!(matches!(script.check(), Err(SpecError::Script { .. })));
        script.allow.shell = true;
        assert!(script.check().is_ok());
        let mut file = spec("bash");
        process(&mut file).args = vec!["server.sh".into(), "-c".into()];
        assert!(file.check().is_ok(), "a script in a file is a program");
        for name in [
            "PATH",
            "DOCKER_HOST",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "LD_AUDIT",
        ] {
            let mut loads = spec("x");
            process(&mut loads).env.insert(name.into(), "y".into());
            let error = loads.check().unwrap_err();
            assert_eq!(error.field(), format!("env.{name}"));
            loads.allow.env = vec![name.into()];
            assert!(loads.check().is_ok(), "{name}");
        }
    }

    #[test]
    fn a_spec_survives_its_stored_form() {
        let spec = spec("npx");
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ServerSpec>(&text).unwrap(), spec);
    }
}
