//! Content hooks of a project: a command or an HTTP endpoint that sees requests or results on their way and
//! may refuse or replace them.
//!
//! The input and the possible answers of a hook are defined here; the engine runs it. Pure. Entry points:
//! [`Hooks`], [`HookInput::to_json`] and [`HookVerdict::read`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::ServerName;
use crate::jsonrpc::{Limits, Raw, RawBuf, validate};
use crate::secret::REDACTED;
use crate::settings::Patterns;
use crate::spec::{ProcessLaunch, Profile, RemoteLaunch, ServerSpec, period};

/// The maximum number of hooks of a project.
pub const MOST_HOOKS: usize = 16;
/// The longest a hook may take.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer of a hook.
pub const LONGEST_ANSWER: usize = 4 << 20;
/// The longest reason that is passed on.
const LONGEST_REASON: usize = 500;

/// Where in a call a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the call is sent; may replace the arguments of a tool.
    Request,
    /// Before the result is passed on; may replace it.
    Result,
}

impl HookPoint {
    /// Returns the point as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Result => "result",
        }
    }
}

/// What happens if a hook cannot be asked, or does not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHookFailure {
    /// The call fails: nothing passes unchecked.
    #[default]
    Refuse,
    /// The call continues.
    Pass,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Where in a call it is asked.
    pub on: HookPoint,
    /// The program that is run for each call; or a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The URL that is posted to for each call; or a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Which tools it is asked for, as `server:tool` with `*`; all if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tools: Patterns,
    /// How long it may take.
    #[serde(default = "default_timeout", with = "period")]
    pub timeout: Duration,
    /// What happens if it fails.
    #[serde(default)]
    pub on_failure: OnHookFailure,
}

fn default_timeout() -> Duration {
    Duration::from_secs(2)
}

fn is_none(patterns: &Patterns) -> bool {
    patterns.is_empty()
}

/// How a hook is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookTarget<'a> {
    /// A program and its arguments.
    Command(&'a str, &'a [String]),
    /// An address.
    Url(&'a str),
}

impl Hook {
    /// Returns how it is reached.
    pub fn target(&self) -> HookTarget<'_> {
        match (&self.url, &self.command) {
            (Some(url), _) => HookTarget::Url(url),
            (None, command) => {
                HookTarget::Command(command.as_deref().unwrap_or_default(), &self.args)
            }
        }
    }

    /// Returns whether it runs for calls of that kind.
    pub fn sees(&self, point: HookPoint, server: &str, item: &str) -> bool {
        self.on == point
            && (self.tools.is_empty() || self.tools.match_text(&format!("{server}:{item}")))
    }

    /// Returns the hook as a server with the same command or URL, so that the rules for servers can be applied to it.
    pub fn as_server(&self) -> ServerSpec {
        let name: ServerName = "content-hook".parse().expect("a constant name");
        match self.target() {
            HookTarget::Command(command, args) => {
                let launch = ProcessLaunch {
                    command: command.to_owned(),
                    args: args.to_vec(),
                    profile: Profile::Local,
                    ..ProcessLaunch::default()
                };
                ServerSpec::process(name, launch)
            }
            HookTarget::Url(url) => ServerSpec::remote(name, RemoteLaunch::new(url)),
        }
    }

    /// Returns it for display, without credentials in its URL or its arguments.
    pub fn shown(&self) -> Self {
        let launch = self.as_server().shown().launch;
        Self {
            args: launch
                .process()
                .map(|process| process.args.clone())
                .unwrap_or_default(),
            url: launch.remote().map(|remote| remote.url.clone()),
            ..self.clone()
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut texts = self.args.iter().chain(&self.url);
        if texts.any(|text| text.contains(REDACTED)) {
            return Err("write what is shown as `[redacted]` in full".to_owned());
        }
        match (&self.command, &self.url) {
            (Some(_), Some(_)) | (None, None) => {
                return Err("either `command` or `url` says what is asked".to_owned());
            }
            (Some(command), None) if command.trim().is_empty() || command.contains('\0') => {
                return Err("`command` is empty".to_owned());
            }
            (None, Some(url)) => check_url(url)?,
            (Some(_), None) => {}
        }
        if self.url.is_some() && !self.args.is_empty() {
            return Err("`args` go with `command`".to_owned());
        }
        let is_in_range =
            Duration::from_millis(1) <= self.timeout && self.timeout <= LONGEST_TIMEOUT;
        if !is_in_range {
            let longest = period::show(LONGEST_TIMEOUT);
            return Err(format!("`timeout` is between 1ms and {longest}"));
        }
        Ok(())
    }
}

fn check_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => Err("`url` has credentials in it".to_owned()),
        Some(host) if !host.is_empty() => Ok(()),
        _ => Err("`url` is not an http or https URL".to_owned()),
    }
}

/// The hooks of a project, by name. They are asked in the order of their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Hook>", into = "BTreeMap<String, Hook>")]
pub struct Hooks(BTreeMap<String, Hook>);

impl TryFrom<BTreeMap<String, Hook>> for Hooks {
    type Error = String;

    fn try_from(hooks: BTreeMap<String, Hook>) -> Result<Self, String> {
        if hooks.len() > MOST_HOOKS {
            return Err(format!("there are more than {MOST_HOOKS}"));
        }
        for (name, hook) in &hooks {
            let is_letter = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_-".contains(letter)
            };
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_letter) {
                return Err("a name has 1 to 64 of a-z, 0-9, `_` and `-`".to_owned());
            }
            hook.check()
                .map_err(|why| format!("hook `{name}`: {why}"))?;
        }
        Ok(Self(hooks))
    }
}

impl From<Hooks> for BTreeMap<String, Hook> {
    fn from(hooks: Hooks) -> Self {
        hooks.0
    }
}

impl Hooks {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Hook)> {
        self.0.iter().map(|(name, hook)| (name.as_str(), hook))
    }

    /// Returns all for display, without credentials.
    #[must_use]
    pub fn shown(&self) -> Self {
        let shown = self
            .0
            .iter()
            .map(|(name, hook)| (name.clone(), hook.shown()));
        Self(shown.collect())
    }

    /// Returns one.
    pub fn get(&self, name: &str) -> Option<&Hook> {
        self.0.get(name)
    }
}

/// What a hook receives about a call.
#[derive(Debug, Clone, Copy)]
pub struct HookInput<'a> {
    /// The hook's name.
    pub hook: &'a str,
    /// Where in the call it is.
    pub point: HookPoint,
    /// The call's id.
    pub call: &'a str,
    /// The project.
    pub project: &'a str,
    /// Who calls.
    pub agent: &'a str,
    /// For whom, as far as it is known.
    pub user: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// The server.
    pub server: &'a str,
    /// The tool, prompt or resource.
    pub item: &'a str,
    /// The arguments of a tool, or the params of another request.
    pub arguments: Option<Raw<'a>>,
    /// The result, at that point.
    pub result: Option<Raw<'a>>,
}

impl HookInput<'_> {
    /// Returns the object that the hook reads, on one line.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Head<'a> {
            hook: &'a str,
            point: &'static str,
            call: &'a str,
            project: &'a str,
            agent: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            user: Option<&'a str>,
            method: &'a str,
            server: &'a str,
            name: &'a str,
        }
        let head = Head {
            hook: self.hook,
            point: self.point.as_str(),
            call: self.call,
            project: self.project,
            agent: self.agent,
            user: self.user,
            method: self.method,
            server: self.server,
            name: self.item,
        };
        let mut text = serde_json::to_string(&head).expect("texts can be written as JSON");
        text.pop();
        let mut member = |name: &str, raw: Option<Raw<'_>>| {
            if let Some(raw) = raw {
                text.push_str(&format!(",\"{name}\":"));
                match raw.is_one_line() {
                    true => text.push_str(raw.text()),
                    false => text.push_str(&crate::jsonrpc::minify(raw.text())),
                }
            }
        };
        member("arguments", self.arguments);
        member("result", self.result);
        text.push('}');
        text
    }
}

/// What a hook decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookVerdict {
    /// The call continues as it is.
    Allow,
    /// The call ends.
    Refuse {
        /// Why, in the hook's words.
        reason: String,
    },
    /// The call continues with these arguments, or this result.
    Replace(RawBuf),
}

impl HookVerdict {
    /// Reads what a hook answered; nothing at all lets the call go on. An error says what is wrong.
    pub fn read(point: HookPoint, answer: &[u8]) -> Result<Self, String> {
        if answer.len() > LONGEST_ANSWER {
            return Err(format!("its answer is over {} MiB", LONGEST_ANSWER >> 20));
        }
        let text = std::str::from_utf8(answer).map_err(|_| "its answer is not UTF-8".to_owned())?;
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::Allow);
        }
        let raw = validate(text, &Limits::default());
        let raw = raw.map_err(|error| format!("its answer is not JSON: {error}"))?;
        let decision = raw.get("decision").and_then(Raw::string);
        match decision.as_deref() {
            Some("allow") => Ok(Self::Allow),
            Some("refuse") => {
                let reason = raw.get("reason").and_then(Raw::string).unwrap_or_default();
                let reason: String = reason.chars().take(LONGEST_REASON).collect();
                let reason = crate::hidden::clean(&reason).map_or(reason, |(clean, _)| clean);
                Ok(Self::Refuse { reason })
            }
            Some("replace") => {
                let member = match point {
                    HookPoint::Request => "arguments",
                    HookPoint::Result => "result",
                };
                match raw.get(member).filter(|new| new.is_object()) {
                    Some(new) => Ok(Self::Replace(new.to_buf())),
                    None => Err(format!("it replaces, and has no object `{member}`")),
                }
            }
            _ => Err("its `decision` is none of `allow`, `refuse` and `replace`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
