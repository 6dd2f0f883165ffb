//! The settings of a project, each defined once: name, what may be written, what it means, where its
//! value is. The REST API, the command line and `docs/settings.md` derive from the definition.
//!
//! A new setting is a field of [`ProjectSettings`] and an entry of [`SETTINGS`]. Values are JSON in the
//! store; one that cannot be read is an error, never a default. Entry points: [`ProjectSettings::set`]
//! and [`SETTINGS`].

mod approvals;
mod audit;
mod default_grant;
mod keys;
mod package;
mod registration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diagnose::{Diagnose, Fault};
use crate::hook::Hooks;
use crate::limits::RateLimits;
use crate::pin::PinPolicy;

pub use self::approvals::{ApprovalPolicy, Period};
pub use self::audit::{AuditSettings, BodyPolicy};
pub use self::default_grant::DefaultGrant;
pub use self::keys::{KeyPolicy, MaxLifetime};
pub use self::registration::{Patterns, Policed, PolicyError, RegistrationPolicy, Sensitive};

/// All settings of one project.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProjectSettings {
    /// The registration policy.
    pub registration: RegistrationPolicy,
    /// Whom a new server is granted to.
    pub default_grant: DefaultGrant,
    /// The servers whose annotations grants believe. fault L5
    pub trust_annotations: Patterns,
    /// What is kept of calls, and for how long.
    pub audit: AuditSettings,
    /// How long keys may be valid.
    pub keys: KeyPolicy,
    /// What all agents of the project may use together.
    pub limits: RateLimits,
    /// What happens to tools that are new or changed.
    pub tools: PinPolicy,
    /// What looks at requests and results.
    pub hooks: Hooks,
    /// How calls that need an approval wait for it.
    pub approvals: ApprovalPolicy,
    /// What is exported of its calls as traces.
    pub traces: TraceExport,
}

/// What is exported of a project's calls as traces, if the gateway exports any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceExport {
    /// Nothing.
    Off,
    /// A span for each call, without arguments and results.
    #[default]
    On,
    /// A span for each call, with arguments and results as the audit keeps them: redacted and cut.
    Bodies,
}

/// The definition of one setting.
pub struct Setting {
    /// Its name in all interfaces.
    pub name: &'static str,
    /// The allowed values, in a few words.
    pub values: &'static str,
    /// Its description, in one or two sentences of Markdown.
    pub doc: &'static str,
    field: fn(&mut ProjectSettings) -> &mut dyn Field,
}

/// Every setting, in the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "registration.commands",
        values: "a list of patterns, or null",
        doc: "The commands that may be registered, with `*` for any run of characters. Without a list, \
              all; an empty list allows none.",
        field: |settings| &mut settings.registration.commands,
    },
    Setting {
        name: "registration.packages",
        values: "a list of patterns, or null",
        doc: "The packages that `npx`, `uvx` and their like may run. Where the package cannot be told \
              from the arguments, the server is refused.",
        field: |settings| &mut settings.registration.packages,
    },
    Setting {
        name: "registration.images",
        values: "a list of patterns, or null",
        doc: "The references of images that may be registered.",
        field: |settings| &mut settings.registration.images,
    },
    Setting {
        name: "registration.urls",
        values: "a list of patterns, or null",
        doc: "The URLs of remote servers, and of their proxies, such as `https://*.example.com/*`. \
              Scheme, host and path are matched one by one.",
        field: |settings| &mut settings.registration.urls,
    },
    Setting {
        name: "registration.isolation_floor",
        values: "`process`, `namespaces`, `e2b`, `firecracker`, `gvisor` or null",
        doc: "The weakest isolation that a registered server may have. With one, the profile `local` is \
              refused.",
        field: |settings| &mut settings.registration.isolation_floor,
    },
    Setting {
        name: "registration.approve",
        values: "a list of `local`, `allow_shell`, `allow_env`, `all_grants`",
        doc: "What needs a second person's approval: servers in the profile \
              `local`, `allow_shell`, `allow_env`, and grants on everything (`*`).",
        field: |settings| &mut settings.registration.approve,
    },
    Setting {
        name: "default_grant",
        values: "`none`, `all_agents` or a list of agents",
        doc: "Whom a server that is registered from now on is granted to, with everything it offers. \
              With `none` no agent may use it until somebody grants it.",
        field: |settings| &mut settings.default_grant,
    },
    Setting {
        name: "trust_annotations",
        values: "a list of patterns of servers",
        doc: "The servers whose `readOnlyHint` is believed by grants of `read_only:` tools. A server that \
              is not named here may say what it likes of its tools.",
        field: |settings| &mut settings.trust_annotations,
    },
    Setting {
        name: "audit.retention_days",
        values: "a number of days from 1 on, or null",
        doc: "How long calls of the project are kept. Without a number as long as the gateway keeps calls. \
              What is under a hold is kept in any case.",
        field: |settings| &mut settings.audit.retention_days,
    },
    Setting {
        name: "audit.bodies",
        values: "`off`, `hash`, `redacted` or null",
        doc: "What is recorded of arguments and results: nothing, their SHA-256, or their beginning without \
              secrets. Never more than the gateway records.",
        field: |settings| &mut settings.audit.bodies,
    },
    Setting {
        name: "audit.body_bytes",
        values: "a number of bytes, or null",
        doc: "How many bytes of each argument and result are recorded at most. Never more than the gateway \
              records.",
        field: |settings| &mut settings.audit.body_bytes,
    },
    Setting {
        name: "keys.max_lifetime",
        values: "a time such as `720h`, or null",
        doc: "How long a key may be valid at most. It holds for keys that are made or rotated from then \
              on: one without an expiry gets this one, and a longer time is refused.",
        field: |settings| &mut settings.keys.max_lifetime,
    },
    Setting {
        name: "limits.calls_per_minute",
        values: "a number, or null",
        doc: "How many calls all agents of the project may make in a minute, counted by each gateway; the \
              next is refused with `limit.rate`. So are the following.",
        field: |settings| &mut settings.limits.calls_per_minute,
    },
    Setting {
        name: "limits.calls_per_hour",
        values: "a number, or null",
        doc: "How many calls all agents of the project may make in an hour.",
        field: |settings| &mut settings.limits.calls_per_hour,
    },
    Setting {
        name: "limits.bytes_per_minute",
        values: "a number, or null",
        doc: "How many bytes of arguments and results all agents of the project may use in a minute.",
        field: |settings| &mut settings.limits.bytes_per_minute,
    },
    Setting {
        name: "limits.bytes_per_hour",
        values: "a number, or null",
        doc: "How many bytes of arguments and results all agents of the project may use in an hour.",
        field: |settings| &mut settings.limits.bytes_per_hour,
    },
    Setting {
        name: "limits.concurrency",
        values: "a number, or null",
        doc: "How many calls all agents of the project may have under way; the next is refused with \
              `limit.concurrency`.",
        field: |settings| &mut settings.limits.concurrency,
    },
    Setting {
        name: "tools.changes",
        values: "`accept`, `warn` or `quarantine`",
        doc: "What happens to a tool, prompt or template that is not what was approved: it is offered, it is \
              offered with a warning, or it is held back until somebody approves it.",
        field: |settings| &mut settings.tools.changes,
    },
    Setting {
        name: "tools.new_servers",
        values: "`trust` or `quarantine`",
        doc: "What happens to the first list of a server: it counts as approved, or it is held back until \
              somebody approves it.",
        field: |settings| &mut settings.tools.new_servers,
    },
    Setting {
        name: "tools.auto_accept",
        values: "a list of `added`, `text`, `compatible`, `breaking`",
        doc: "The classes of changes that count as approved all the same. Definitions with findings never do.",
        field: |settings| &mut settings.tools.auto_accept,
    },
    Setting {
        name: "hooks",
        values: "an object of hooks by name",
        doc: "The commands and HTTP endpoints that look at requests and results; `gantry hook` changes one of them.",
        field: |settings| &mut settings.hooks,
    },
    Setting {
        name: "traces",
        values: "`off`, `on` or `bodies`",
        doc: "What is exported of its calls as traces where the gateway has an OTLP endpoint: nothing, a span \
              for each call, or spans with arguments and results as the audit keeps them, redacted and cut.",
        field: |settings| &mut settings.traces,
    },
    Setting {
        name: "approvals.timeout",
        values: "a time between `1s` and `24h`",
        doc: "How long a call that a grant asks an approver for is held before it is refused.",
        field: |settings| &mut settings.approvals.timeout,
    },
    Setting {
        name: "approvals.ask_client",
        values: "`true` or `false`",
        doc: "Whether the person at the agent's client may decide, too, where the client supports elicitation. \
              The client answers with the agent's key: leave it off where a client is not trusted to ask a person.",
        field: |settings| &mut settings.approvals.ask_client,
    },
];

/// The value of a setting, whatever its type.
trait Field {
    fn get(&self) -> Value;
    fn set(&mut self, value: Value) -> Result<(), serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned> Field for T {
    fn get(&self) -> Value {
        serde_json::to_value(self).expect("a setting is always expressible as JSON")
    }

    fn set(&mut self, value: Value) -> Result<(), serde_json::Error> {
        *self = serde_json::from_value(value)?;
        Ok(())
    }
}

impl ProjectSettings {
    /// Returns the settings from stored values.
    pub fn from_stored(
        values: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        for (name, value) in values {
            settings.set(&name, value)?;
        }
        Ok(settings)
    }

    /// Changes one setting; `null` restores its default.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), SettingError> {
        let setting = Setting::named(name)?;
        let value = match value.is_null() {
            true => setting.default(),
            false => value,
        };
        let set = (setting.field)(self).set(value);
        set.map_err(|error| SettingError::Value {
            name: setting.name,
            values: setting.values,
            why: error.to_string(),
        })
    }

    /// Returns them for display, without credentials.
    #[must_use]
    pub fn shown(&self) -> Self {
        Self {
            hooks: self.hooks.shown(),
            ..self.clone()
        }
    }

    /// Returns the value of a setting.
    pub fn get(&self, setting: &Setting) -> Value {
        (setting.field)(&mut self.clone()).get()
    }
}

impl Setting {
    /// Finds a setting.
    pub fn named(name: &str) -> Result<&'static Self, SettingError> {
        let found = SETTINGS.iter().find(|setting| setting.name == name);
        found.ok_or_else(|| SettingError::Unknown {
            name: name.chars().take(64).collect(),
        })
    }

    /// Returns its default.
    pub fn default(&self) -> Value {
        (self.field)(&mut ProjectSettings::default()).get()
    }
}

/// Why a setting cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("there is no setting `{name}`")]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The value is invalid.
    #[error("setting `{name}` takes {values}: {why}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The allowed values.
        values: &'static str,
        /// The error.
        why: String,
    },
}

impl Diagnose for SettingError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "setting.unknown",
            Self::Value { .. } => "setting.value",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => Some("`gantry project settings` lists them".into()),
            Self::Value { .. } => None,
        }
    }
}
