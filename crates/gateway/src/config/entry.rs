//! One entry of an `mcpServers` file becomes the spec of a server.
//!
//! Knows the members that clients share (`command`, `args`, `env`, `cwd`, `timeout`, `disabled`) and
//! Gantry's own; every mistake names its field. Entry point: [`read`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gantry_model::id::{NameError, ServerName};
use gantry_model::spec::{
    ProcessLaunch, Profile, ResourceLimits, ServerSpec, Source, SpecError, Start, period,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::env::Environment;
use super::expand::{Missing, expand};

/// Members that other programs put into an entry and that need no word from us.
const OF_OTHERS: [&str; 8] = [
    "autoApprove",
    "alwaysAllow",
    "alwaysLoad",
    "trust",
    "watchPaths",
    "dev",
    "gallery",
    "tools",
];

/// Why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The name is none for a server.
    #[error("its name is not usable")]
    Name(#[source] NameError),
    /// A member has the wrong form.
    #[error("`{field}` must be {wanted}")]
    Field {
        /// Which one, such as `args[2]`.
        field: String,
        /// What it must be.
        wanted: String,
    },
    /// A variable that is used and not set.
    #[error("`{field}` uses the variable `{variable}`, which is not set")]
    Variable {
        /// Which member uses it.
        field: String,
        /// The variable.
        variable: String,
    },
    /// A server behind a URL.
    #[error("`{field}` names a remote server, and this version runs commands only")]
    Remote {
        /// The member that says so.
        field: &'static str,
    },
    /// Something that the types cannot say is wrong.
    #[error("its settings are not usable")]
    Spec(#[source] SpecError),
}

impl EntryError {
    /// Returns what to do about it, if that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Variable { variable, .. } => Some(format!(
                "set `{variable}` before `gantry up`, or write `${{{variable}:-default}}`"
            )),
            Self::Spec(SpecError::Shell { .. }) => {
                Some("put the program into `command` and each argument into `args`".to_owned())
            }
            Self::Name(_) | Self::Field { .. } | Self::Remote { .. } | Self::Spec(_) => None,
        }
    }
}

/// A readable entry.
pub(super) struct Entry {
    pub(super) spec: ServerSpec,
    /// Members that are not known.
    pub(super) ignored: Vec<String>,
}

/// Reads an entry; `None` if it is switched off.
pub(super) fn read(
    name: &str,
    value: &Value,
    environment: &Environment,
    folder: &Path,
) -> Result<Option<Entry>, EntryError> {
    let name: ServerName = name.parse().map_err(EntryError::Name)?;
    let members = value
        .as_object()
        .ok_or_else(|| wrong("the entry", "an object"))?;
    let reader = Reader {
        members,
        environment,
    };
    if reader.flag("disabled")? || !reader.flag_or("enabled", true)? {
        return Ok(None);
    }
    reader.refuse_remote()?;

    let mut launch = ProcessLaunch {
        command: reader
            .text("command")?
            .ok_or_else(|| wrong("command", "the program to run"))?,
        args: reader.texts("args")?,
        env: reader.variables()?,
        cwd: Some(
            reader
                .text("cwd")?
                .map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)),
        ),
        profile: reader.part("profile")?.unwrap_or(Profile::Local),
        limits: reader
            .part("limits")?
            .unwrap_or_else(ResourceLimits::default),
    };
    // As every client does, a command that is a path counts from the working folder.
    if launch.command.contains('/') {
        launch.command = folder.join(&launch.command).to_string_lossy().into_owned();
    }
    let mut spec = ServerSpec::process(name, launch);
    spec.source = Source::File;
    spec.description = reader.text("description")?;
    spec.start = reader.part("start")?.unwrap_or(Start::Eager);
    spec.calls = reader.part("calls")?.unwrap_or_default();
    spec.life = reader.part("life")?.unwrap_or_default();
    if let Some(concurrency) = reader.part("concurrency")? {
        spec.calls.concurrency = Some(concurrency);
    }
    if let Some(timeout) = reader.timeout()? {
        spec.calls.timeout = timeout;
        spec.calls.timeout_max = spec.calls.timeout_max.max(timeout);
    }
    spec.check().map_err(EntryError::Spec)?;
    Ok(Some(Entry {
        spec,
        ignored: reader.unknown(),
    }))
}

/// The members that are read here.
const KNOWN: [&str; 16] = [
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "timeout",
    "disabled",
    "enabled",
    "description",
    "concurrency",
    "start",
    "profile",
    "limits",
    "calls",
    "life",
    "transport",
];

struct Reader<'a> {
    members: &'a Map<String, Value>,
    environment: &'a Environment,
}

impl Reader<'_> {
    fn flag(&self, field: &str) -> Result<bool, EntryError> {
        self.flag_or(field, false)
    }

    fn flag_or(&self, field: &str, default: bool) -> Result<bool, EntryError> {
        match self.members.get(field) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| wrong(field, "`true` or `false`")),
        }
    }

    fn refuse_remote(&self) -> Result<(), EntryError> {
        for field in ["url", "httpUrl", "serverUrl"] {
            if self.members.contains_key(field) {
                return Err(EntryError::Remote { field });
            }
        }
        for field in ["type", "transport"] {
            match self.members.get(field).map(|value| value.as_str()) {
                None | Some(Some("stdio")) => {}
                Some(Some(_)) => return Err(EntryError::Remote { field }),
                Some(None) => return Err(wrong(field, "a text such as `stdio`")),
            }
        }
        Ok(())
    }

    fn text(&self, field: &str) -> Result<Option<String>, EntryError> {
        match self.members.get(field) {
            None => Ok(None),
            Some(value) => self.filled(field, value).map(Some),
        }
    }

    fn texts(&self, field: &str) -> Result<Vec<String>, EntryError> {
        let Some(value) = self.members.get(field) else {
            return Ok(Vec::new());
        };
        let values = value
            .as_array()
            .ok_or_else(|| wrong(field, "a list of texts"))?;
        let texts = values.iter().enumerate();
        texts
            .map(|(index, value)| self.filled(&format!("{field}[{index}]"), value))
            .collect()
    }

    fn variables(&self) -> Result<BTreeMap<String, String>, EntryError> {
        let Some(value) = self.members.get("env") else {
            return Ok(BTreeMap::new());
        };
        let members = value
            .as_object()
            .ok_or_else(|| wrong("env", "an object of texts"))?;
        let pairs = members.iter();
        pairs
            .map(|(name, value)| Ok((name.clone(), self.filled(&format!("env.{name}"), value)?)))
            .collect()
    }

    fn filled(&self, field: &str, value: &Value) -> Result<String, EntryError> {
        let text = value.as_str().ok_or_else(|| wrong(field, "a text"))?;
        expand(text, self.environment).map_err(|Missing { variable }| EntryError::Variable {
            field: field.escape_debug().to_string(),
            variable,
        })
    }

    fn part<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>, EntryError> {
        let Some(value) = self.members.get(field) else {
            return Ok(None);
        };
        let part = T::deserialize(value);
        part.map(Some)
            .map_err(|error| wrong(field, &format!("as documented: {error}")))
    }

    /// Clients write milliseconds; a text carries its unit.
    fn timeout(&self) -> Result<Option<Duration>, EntryError> {
        let period = match self.members.get("timeout") {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_u64().map(Duration::from_millis),
            Some(Value::String(text)) => period::parse(text),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
        };
        period
            .map(Some)
            .ok_or_else(|| wrong("timeout", "milliseconds, or a text such as `30s`"))
    }

    fn unknown(&self) -> Vec<String> {
        let known = |key: &str| KNOWN.contains(&key) || OF_OTHERS.contains(&key);
        let keys = self.members.keys().filter(|key| !known(key));
        keys.map(|key| key.escape_debug().to_string()).collect()
    }
}

fn wrong(field: &str, wanted: &str) -> EntryError {
    EntryError::Field {
        field: field.escape_debug().to_string(),
        wanted: wanted.to_owned(),
    }
}
