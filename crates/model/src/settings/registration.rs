//! The registration policy of a project: which commands, packages, images and URLs may be registered,
//! how well servers must be isolated, and what needs a second person's approval.
//!
//! Applied wherever a server is registered, edited, tried out or read from a file, so that no way in is
//! wider than another (fault G8). Pure. Entry points: [`RegistrationPolicy::check`] and
//! [`RegistrationPolicy::reasons`].

use serde::{Deserialize, Serialize};

use super::package::{Package, Packages, packages, runs_engine};
use crate::diagnose::{Diagnose, Fault};
use crate::grant::Pattern;
use crate::spec::{Launch, Profile, Rung, ServerSpec};

/// What may be registered. A list that is absent allows everything, an empty one nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RegistrationPolicy {
    /// Commands, as they are written; a path that goes back is none that a `*` stands for.
    pub commands: Option<Patterns>,
    /// Packages that `npx`, `uvx` and similar programs run: by name, or with their version.
    pub packages: Option<Patterns>,
    /// References of images.
    pub images: Option<Patterns>,
    /// URLs of remote servers and of their proxies.
    pub urls: Option<Patterns>,
    /// The weakest isolation that a server here may have.
    pub isolation_floor: Option<Rung>,
    /// What needs a second person's approval.
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
    /// Returns the patterns.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a text is meant.
    pub(crate) fn match_text(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }

    /// Returns whether a command matches. `/opt/*` does not match `/opt/../bin/sh`.
    fn match_command(&self, command: &str) -> bool {
        let is_settled = !goes_back(command);
        let mut patterns = self.0.iter();
        patterns.any(|pattern| {
            pattern.matches(command) && (is_settled || !matches!(pattern, Pattern::Glob(_)))
        })
    }

    /// Returns whether a package matches: by its name with any version, or literally. A name with
    /// another source (`@acme/x@npm:other`, a URL, a file) only matches literally.
    fn match_package(&self, text: &str) -> bool {
        let package = Package::of(text);
        self.0.iter().any(|pattern| match &package {
            Some(package) => pattern.matches(package.name) || pattern.matches(text),
            None => pattern.matches(text) && !matches!(pattern, Pattern::Glob(_)),
        })
    }

    /// Returns whether a URL matches. Scheme, host and the rest are matched separately, so that a
    /// `*` in the host never matches part of the path.
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
                && (wanted.rest.is_empty()
                    || (!goes_back(url.path()) && Pattern::new(wanted.rest).matches(url.rest)))
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
        // Clients treat `\` as `/`, so the host ends there.
        if rest.contains('\\') {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let scheme = scheme.to_ascii_lowercase();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.to_ascii_lowercase();
        let own_port = match scheme.as_str() {
            "http" => ":80",
            _ => ":443",
        };
        Some(Self {
            host: host.strip_suffix(own_port).unwrap_or(&host).to_owned(),
            scheme,
            rest: if rest == "/" { "" } else { rest },
        })
    }

    fn path(&self) -> &'u str {
        self.rest.split(['?', '#']).next().unwrap_or_default()
    }
}

/// Returns whether a path has segments that are resolved before use, such as `..`.
fn goes_back(path: &str) -> bool {
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "/");
    let mut parts = plain
        .strip_prefix('/')
        .unwrap_or(&plain)
        .split('/')
        .peekable();
    let mut is_back = false;
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        is_back |= matches!(part, "." | "..") || (part.is_empty() && !is_last);
    }
    is_back
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
        allowed(commands, Policed::Command, command, Patterns::match_command)?;
        if self.images.is_some() && runs_engine(command, args) {
            let command = shown(command);
            return Err(PolicyError::UnclearImage { command });
        }
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
                allowed(packages, Policed::Package, package, Patterns::match_package)
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

    /// Returns why a second person must approve a server; empty if none is needed, or if its
    /// sensitive parts are unchanged.
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

/// The subject of a list.
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

/// Truncates and escapes a value for display. A query may contain a secret.
fn shown(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    let text = match crate::secret::userinfo(text) {
        Some(login) => &text.replacen(login, crate::secret::REDACTED, 1),
        None => text,
    };
    let cut = text.chars().take(100);
    cut.flat_map(char::escape_debug).collect()
}

/// Why the project does not allow a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It matches no entry of the list.
    #[error("the project does not allow the {} `{given}`", what.as_str())]
    NotAllowed {
        /// What it is.
        what: Policed,
        /// As it was given.
        given: String,
    },
    /// The arguments do not show which package is run.
    #[error("the arguments of `{command}` do not show which package it runs")]
    UnclearPackage {
        /// The command.
        command: String,
    },
    /// A container engine would run an image without a check against the list.
    #[error("which image `{command}` runs is not checked by the project")]
    UnclearImage {
        /// The command.
        command: String,
    },
    /// It would be less isolated than the project requires.
    #[error("the project requires at least the isolation `{floor}`, but this is {given}")]
    Isolation {
        /// The required isolation.
        floor: &'static str,
        /// Its isolation.
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
            Self::UnclearImage { .. } => {
                return Some("name the image in `image`, so that Gantry runs it itself".into());
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
        for wrong in [
            r"https://evil.net\.example.com/mcp/x",
            "https://a.example.com@evil.net/mcp/x",
            "https://a.example.com/mcp/../admin",
            "https://a.example.com/mcp/%2E%2e/admin",
            "https://a.example.com/mcp/..%2fadmin",
        ] {
            assert!(!list.match_url(wrong), "{wrong}");
        }
        assert!(list.match_url("https://a.example.com:443/mcp/x?y=../z"));
        assert!(list.match_url("http://127.0.0.1/"));
        let open = patterns(&["https://a.example.com"]).unwrap();
        assert!(open.match_url("https://a.example.com/x/../y"));
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
        for around in [
            "/opt/tools/../../bin/sh",
            "/opt/tools/./../x",
            "/opt/tools//x",
        ] {
            assert!(policy.command(around, &[]).is_err(), "{around}");
        }
        policy.images = patterns(&["registry.example/*"]);
        policy.commands = None;
        let run = ["run", "-i", "registry.example/x"].map(str::to_owned);
        for engine in ["docker", "/usr/bin/podman"] {
            let refused = policy.command(engine, &run).unwrap_err();
            assert!(refused.hint().unwrap().contains("`image`"), "{refused}");
        }
        let wrapped = ["-i", "docker", "run", "x"].map(str::to_owned);
        assert!(policy.command("/usr/bin/env", &wrapped).is_err());
        policy.commands = patterns(&["npx", "/opt/tools/*"]);
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
        // By name whatever the version; what leads elsewhere under that name is another package.
        assert!(run("npx", &["@acme/server@1.2.3"]) && run("npx", &["@acme/server@latest"]));
        assert!(run("uvx", &["ruff[lsp]==0.4.1"]) && run("uvx", &["ruff@latest"]));
        for elsewhere in [
            "@acme/server@npm:left-pad",
            "@acme/server@git+https://evil.net/x.git",
            "@acme/server@evil/x",
            "@acme/server@file:../x",
            "@acme/x/../../evil",
            "@acme/evil.tgz",
        ] {
            assert!(!run("npx", &["-y", elsewhere]), "{elsewhere}");
            assert!(!run("npx", &["--package", elsewhere, "x"]), "{elsewhere}");
        }
        assert!(!run("uvx", &["ruff @ https://evil.net/x.whl"]));
        assert!(!run("uvx", &["--from", "git+https://evil.net/x", "ruff"]));
        // Beside a package, a command is one of the package, as far as can be told.
        assert!(run("npx", &["-p", "@acme/suite", "acme-server"]));
        assert!(run("uvx", &["--python", "3.12", "--from", "ruff", "ruff"]));
        assert!(run("uvx", &["-p", "cpython@3.13", "ruff"]) && run("pipx", &["run", "ruff"]));
        for args in [
            &["--from", "ruff", "python3.12", "/tmp/x.py"][..],
            &["--from", "ruff", "bash", "/tmp/x"],
            &["--from", "ruff", "/tmp/x"],
            &["--python", "/tmp/python", "ruff"],
            &["--python=evil", "ruff"],
        ] {
            assert!(!run("uvx", args), "{args:?}");
        }
        assert!(!run("npx", &["-p", "@acme/suite", "env", "left-pad"]));
        assert!(!run("pipx", &["run", "--python", "./python", "ruff"]));
        for (command, args) in [
            ("npm", &["x", "left-pad"][..]),
            ("npm", &["--yes", "exec", "left-pad"]),
            ("bun", &["x", "left-pad"]),
            ("pnpx", &["left-pad"]),
            ("uv", &["run", "--with", "left-pad", "x"]),
            ("deno", &["run", "npm:left-pad"]),
            ("env", &["npx", "left-pad"]),
            ("/usr/bin/env", &["-S", "npx left-pad"]),
            ("python3", &["-m", "uv", "tool", "run", "left-pad"]),
            (
                "node",
                &["/usr/lib/node_modules/npm/bin/npx-cli.js", "left-pad"],
            ),
        ] {
            assert!(!run(command, args), "{command} {args:?}");
        }
        assert!(run("env", &["A=1", "my-server"]) && run("python3", &["-m", "my_server"]));
        assert!(!run("npx", &["-c", "left-pad"]));
        assert!(!run("npx", &[]));
    }
}
