//! The registration policy of a project: which commands, packages, images and URLs may be registered,
//! how well servers must be isolated, and what needs a second person's approval.
//!
//! Applied wherever a server is registered, edited, tried out or read from a file, so that no way in is
//! wider than another (fault G8). Pure. Entry points: [`RegistrationPolicy::check`] and
//! [`RegistrationPolicy::reasons`].

use serde::{Deserialize, Serialize};

use super::package::{Packages, packages};
use crate::diagnose::{Diagnose, Fault};
use crate::grant::Pattern;
use crate::spec::{Launch, Profile, Rung, ServerSpec};

/// What may be registered. A list that is absent allows everything, an empty one nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RegistrationPolicy {
    /// Commands, as they are written.
    pub commands: Option<Patterns>,
    /// Packages that `npx`, `uvx` and the like are told to run.
    pub packages: Option<Patterns>,
    /// References of images.
    pub images: Option<Patterns>,
    /// URLs of remote servers and of their proxies.
    pub urls: Option<Patterns>,
    /// The weakest isolation that a server here may have.
    pub isolation_floor: Option<Rung>,
    /// What needs the approval of somebody else than who asks for it.
    pub approve: Vec<Sensitive>,
}

/// What may need a second person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sensitive {
    /// A server in the profile `local`: network and home of the gateway's user are open to it.
    Local,
    /// A server that is a shell with a script.
    AllowShell,
    /// A server with variables that make programs load other code.
    AllowEnv,
    /// A grant on every tool of every server.
    AllGrants,
}

impl Sensitive {
    /// Returns it as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::AllowShell => "allow_shell",
            Self::AllowEnv => "allow_env",
            Self::AllGrants => "all_grants",
        }
    }
}

/// A list of patterns, with `*` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Patterns(Vec<Pattern>);

impl TryFrom<Vec<String>> for Patterns {
    type Error = &'static str;

    fn try_from(texts: Vec<String>) -> Result<Self, Self::Error> {
        if texts.len() > 1000 {
            return Err("more than 1000 patterns");
        }
        if texts.iter().any(|text| text.is_empty() || text.len() > 512) {
            return Err("a pattern has between 1 and 512 characters");
        }
        Ok(Self(texts.iter().map(|text| Pattern::new(text)).collect()))
    }
}

impl From<Patterns> for Vec<String> {
    fn from(patterns: Patterns) -> Self {
        let texts = patterns.0.iter();
        texts.map(|pattern| pattern.as_str().to_owned()).collect()
    }
}

impl Patterns {
    fn match_text(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }

    /// Tells whether a URL is meant. Scheme, host and the rest are matched one by one, so that a `*` in
    /// the host never reaches into the path.
    fn match_url(&self, url: &str) -> bool {
        let Some(url) = Url::of(url) else {
            return false;
        };
        self.0.iter().any(|pattern| {
            let Some(wanted) = Url::of(pattern.as_str()) else {
                return *pattern == Pattern::All;
            };
            wanted.scheme == url.scheme
                && Pattern::new(&wanted.host).matches(&url.host)
                && (wanted.rest.is_empty() || Pattern::new(wanted.rest).matches(url.rest))
        })
    }
}

/// The parts of a URL, or of a pattern of URLs.
struct Url<'u> {
    scheme: String,
    host: String,
    /// Path and query, with the leading slash.
    rest: &'u str,
}

impl<'u> Url<'u> {
    fn of(text: &'u str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, rest) = rest.split_at(end);
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_ascii_lowercase(),
            rest: if rest == "/" { "" } else { rest },
        })
    }
}

impl RegistrationPolicy {
    /// Refuses a server that the project does not allow.
    pub fn check(&self, spec: &ServerSpec) -> Result<(), PolicyError> {
        match &spec.launch {
            Launch::Process(process) => {
                self.command(&process.command, &process.args)?;
                if process.profile == Profile::Local {
                    self.isolation("the profile `local`, which isolates hardly at all")?;
                }
            }
            Launch::Image(image) => allowed(
                self.images.as_ref(),
                Policed::Image,
                &image.image,
                Patterns::match_text,
            )?,
            Launch::Remote(remote) => {
                let urls = std::iter::once(&remote.url).chain(&remote.proxy);
                for url in urls {
                    allowed(self.urls.as_ref(), Policed::Url, url, Patterns::match_url)?;
                }
            }
        }
        Ok(())
    }

    fn command(&self, command: &str, args: &[String]) -> Result<(), PolicyError> {
        let commands = self.commands.as_ref();
        allowed(commands, Policed::Command, command, Patterns::match_text)?;
        if self.packages.is_none() {
            return Ok(());
        }
        match packages(command, args) {
            Packages::NoRunner => Ok(()),
            Packages::Unclear => Err(PolicyError::UnclearPackage {
                command: shown(command),
            }),
            Packages::Named(named) => named.iter().try_for_each(|package| {
                let packages = self.packages.as_ref();
                allowed(packages, Policed::Package, package, Patterns::match_text)
            }),
        }
    }

    fn isolation(&self, given: &'static str) -> Result<(), PolicyError> {
        match self.isolation_floor {
            Some(floor) => Err(PolicyError::Isolation {
                floor: floor.as_str(),
                given,
            }),
            None => Ok(()),
        }
    }

    /// Raises the isolation floor of a server that runs here to the project's.
    pub fn raise(&self, spec: &mut ServerSpec) {
        let hosting = match &mut spec.launch {
            Launch::Process(process) if process.profile == Profile::Hosted => &mut process.hosting,
            Launch::Image(image) => &mut image.hosting,
            Launch::Process(_) | Launch::Remote(_) => return,
        };
        hosting.isolation_floor = hosting.isolation_floor.max(self.isolation_floor);
    }

    /// Returns why a second person must approve a server; nothing if nobody must, or if what is
    /// sensitive about it is as it was.
    pub fn reasons(&self, spec: &ServerSpec, before: Option<&ServerSpec>) -> Vec<Sensitive> {
        let is_same =
            before.is_some_and(|before| before.launch == spec.launch && before.allow == spec.allow);
        if is_same {
            return Vec::new();
        }
        let found = [
            (Sensitive::Local, spec.profile() == Some(Profile::Local)),
            (Sensitive::AllowShell, spec.allow.shell),
            (Sensitive::AllowEnv, !spec.allow.env.is_empty()),
        ];
        let found = found.into_iter().filter(|(_, is_so)| *is_so);
        let found = found.map(|(sensitive, _)| sensitive);
        found
            .filter(|sensitive| self.approve.contains(sensitive))
            .collect()
    }
}

/// What a list is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policed {
    /// A command.
    Command,
    /// A package.
    Package,
    /// An image.
    Image,
    /// A URL.
    Url,
}

impl Policed {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Package => "package",
            Self::Image => "image",
            Self::Url => "URL",
        }
    }

    const fn setting(self) -> &'static str {
        match self {
            Self::Command => "registration.commands",
            Self::Package => "registration.packages",
            Self::Image => "registration.images",
            Self::Url => "registration.urls",
        }
    }
}

fn allowed(
    list: Option<&Patterns>,
    what: Policed,
    given: &str,
    matches: fn(&Patterns, &str) -> bool,
) -> Result<(), PolicyError> {
    match list {
        Some(list) if !matches(list, given) => Err(PolicyError::NotAllowed {
            what,
            given: shown(given),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Cuts what is shown of a value, and escapes what a terminal would obey. A query may hold a secret.
fn shown(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    let cut = text.chars().take(100);
    cut.flat_map(char::escape_debug).collect()
}

/// Why the project does not allow a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It is on no list.
    #[error("the project does not allow the {} `{given}`", what.as_str())]
    NotAllowed {
        /// What it is.
        what: Policed,
        /// As it was given.
        given: String,
    },
    /// Which package is run cannot be told from the arguments.
    #[error("which package `{command}` runs cannot be told from its arguments")]
    UnclearPackage {
        /// The command.
        command: String,
    },
    /// It would be less isolated than the project demands.
    #[error("the project demands at least the isolation `{floor}`, and this is {given}")]
    Isolation {
        /// What is demanded.
        floor: &'static str,
        /// What it would have.
        given: &'static str,
    },
}

impl Diagnose for PolicyError {
    fn code(&self) -> &'static str {
        "registration.refused"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        let setting = match self {
            Self::NotAllowed { what, .. } => what.setting(),
            Self::UnclearPackage { .. } => {
                return Some("write the package first, or behind `--package` or `--from`".into());
            }
            Self::Isolation { .. } => "registration.isolation_floor",
        };
        Some(format!(
            "the setting `{setting}` of the project says what is allowed"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Option<Patterns> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Some(texts.try_into().unwrap())
    }

    // fault G8
    #[test]
    fn a_url_is_matched_part_by_part() {
        let list = patterns(&["https://*.example.com/mcp/*", "http://127.0.0.1:80"]).unwrap();
        for right in ["https://a.example.com/mcp/x", "HTTPS://A.Example.com/mcp/"] {
            assert!(list.match_url(right), "{right}");
        }
        assert!(list.match_url("http://127.0.0.1:80/anything?x=1"));
        for wrong in [
            "http://a.example.com/mcp/x",
            "https://evil.net/a.example.com/mcp/x",
            "https://evil.net?.example.com/mcp/x",
            "https://a.example.com:8443/mcp/x",
            "https://a.example.com/other",
            "http://127.0.0.1:8080/",
            "nonsense",
        ] {
            assert!(!list.match_url(wrong), "{wrong}");
        }
        assert!(patterns(&["*"]).unwrap().match_url("https://x"));
        assert!(!patterns(&[]).unwrap().match_url("https://x"));
    }

    #[test]
    fn an_absent_list_allows_everything_and_an_empty_one_nothing() {
        let mut policy = RegistrationPolicy::default();
        assert!(policy.command("anything", &[]).is_ok());
        policy.commands = patterns(&[]);
        assert!(policy.command("anything", &[]).is_err());
        policy.commands = patterns(&["npx", "/opt/tools/*"]);
        assert!(policy.command("/opt/tools/x", &[]).is_ok());
        let refused = policy.command("sh", &[]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the project does not allow the command `sh`"
        );
        assert!(refused.hint().unwrap().contains("registration.commands"));
    }

    #[test]
    fn packages_are_those_that_a_runner_is_told_to_run() {
        let policy = RegistrationPolicy {
            packages: patterns(&["@acme/*", "ruff"]),
            ..RegistrationPolicy::default()
        };
        let run = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|text| (*text).to_owned()).collect();
            policy.command(command, &args).is_ok()
        };
        assert!(run("npx", &["-y", "@acme/server", "--anything"]));
        assert!(run("/usr/bin/uvx", &["ruff", "check"]));
        assert!(run("my-server", &["left-pad"]), "that runs no package");
        assert!(!run("npx", &["-y", "left-pad"]));
        assert!(!run(
            "npx",
            &["-y", "--package", "left-pad", "@acme/server"]
        ));
        assert!(!run("uvx", &["--with=left-pad", "ruff"]));
        assert!(!run("npx", &["--strange", "@acme/server"]));
        assert!(!run("npx", &["-c", "left-pad"]));
        assert!(!run("npx", &[]));
    }
}
