//! The secrets that a spec refers to: `${NAME}` in the values of its environment or headers only,
//! and what they are bound to. row 0.4
//!
//! Entry points: [`ServerSpec::templates`], [`ServerSpec::fill`], [`ServerSpec::destination`].

use std::collections::BTreeMap;
use std::fmt;

use super::{Launch, ServerSpec, Source};
use crate::secret::{
    Hint, SecretName, SecretText, Template, hint_of, is_given_secret, is_redactable,
    secret_arguments,
};

/// Where the value of a secret is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// An environment variable.
    Variable(String),
    /// A header of every request.
    Header(String),
    /// An option that contains a secret literally, without `${NAME}`.
    Option(&'static str),
}

/// The options besides variables and headers that may contain secrets.
const ARGS: &str = "args";
const URL: &str = "url";
const CLIENT_SECRET: &str = "auth.client_secret";

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "env.{name}"),
            Self::Header(name) => write!(f, "headers.{name}"),
            Self::Option(name) => f.write_str(name),
        }
    }
}

/// Why secrets cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// A secret has no value.
    #[error("`{place}` needs the secret `{name}`")]
    Missing {
        /// Where it is needed.
        place: SecretPlace,
        /// The secret.
        name: SecretName,
    },
    /// A value cannot be sent in a header.
    #[error("the value of `{place}` has line breaks or other characters that no header may have")]
    Header {
        /// The header.
        place: SecretPlace,
    },
}

impl ServerSpec {
    /// Returns the position of the text that refers to secrets in its file, as `FILE:LINE:COLUMN`.
    pub fn place_in_file(&self, place: &SecretPlace) -> Option<&str> {
        let written = match &self.launch {
            Launch::Process(process) => &process.written,
            Launch::Image(image) => &image.written,
            Launch::Remote(remote) => &remote.written,
        };
        let name = match place {
            SecretPlace::Variable(name) | SecretPlace::Header(name) => name.as_str(),
            SecretPlace::Option(name) => name,
        };
        written.places.0.get(name).map(String::as_str)
    }

    /// Returns the texts that refer to secrets. Files have already expanded environment variables,
    /// and mark the remaining names as secrets of the project.
    pub fn templates(&self) -> Vec<(SecretPlace, Template)> {
        let (pairs, written) = match &self.launch {
            Launch::Process(process) => (&process.env, &process.written),
            Launch::Image(image) => (&image.env, &image.written),
            Launch::Remote(remote) => (&remote.headers, &remote.written),
        };
        let is_remote = self.launch.remote().is_some();
        let named = pairs.iter().filter_map(|(name, value)| {
            let template = match self.source {
                Source::Api => Template::parse(value)?,
                Source::File | Source::Builtin => written.templates.get(name)?.clone(),
            };
            let place = match is_remote {
                true => SecretPlace::Header(name.clone()),
                false => SecretPlace::Variable(name.clone()),
            };
            Some((place, template))
        });
        named.collect()
    }

    /// Returns the spec with the values of its secrets.
    pub fn fill(&self, values: &BTreeMap<SecretName, SecretText>) -> Result<Self, FillError> {
        let mut spec = self.clone();
        for (place, template) in self.templates() {
            let filled = template.fill(|name| values.get(name)).map_err(|name| {
                let place = place.clone();
                FillError::Missing { place, name }
            })?;
            let value = match (&mut spec.launch, &place) {
                (Launch::Process(process), SecretPlace::Variable(name)) => {
                    process.env.get_mut(name)
                }
                (Launch::Image(image), SecretPlace::Variable(name)) => image.env.get_mut(name),
                (Launch::Remote(remote), SecretPlace::Header(name)) => {
                    let is_sendable = |byte: u8| byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
                    if !filled.expose().bytes().all(is_sendable) {
                        return Err(FillError::Header { place });
                    }
                    remote.headers.get_mut(name)
                }
                _ => None,
            };
            if let Some(value) = value {
                filled.expose().clone_into(value);
            }
        }
        Ok(spec)
    }

    /// Returns the hash of everything that determines where a secret goes: command, arguments,
    /// image, URL, proxy, headers, environment, folders and network; not limits. A secret bound to
    /// it is not passed to a server that was changed.
    pub fn destination(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut launch =
            serde_json::to_value(&self.launch).expect("a launch is always expressible as JSON");
        for kind in ["process", "image", "remote"] {
            if let Some(members) = launch.get_mut(kind).and_then(|kind| kind.as_object_mut()) {
                members.shift_remove("limits");
                members.shift_remove("reconnect");
            }
        }
        let text = serde_json::to_vec(&(&self.name, &launch, &self.allow))
            .expect("a launch is always expressible as JSON");
        crate::hex::hex(&Sha256::digest(&text))
    }

    /// Returns the secret values that a change would send to another destination, although the
    /// change does not contain them: values that may be secrets and stay the same, while the
    /// settings that decide where they go change. `given` returns whether the change contains a
    /// value. Covers everything that no view shows: variables, headers, arguments, the client
    /// secret, a URL with a key in it.
    pub fn carried_secrets(
        &self,
        changed: &Self,
        given: impl Fn(&SecretPlace) -> bool,
    ) -> Vec<SecretPlace> {
        let (again, kept): (Vec<_>, Vec<_>) =
            self.hidden().into_iter().partition(|place| given(place));
        let (mut before, mut after) = (self.clone(), changed.clone());
        for place in &again {
            before.clear(place);
            after.clear(place);
        }
        let is_elsewhere = before.destination() != after.destination();
        let is_moved = |place: &SecretPlace| match place {
            SecretPlace::Option(CLIENT_SECRET) => self.sign_in() != changed.sign_in(),
            SecretPlace::Option(URL) => self.route() != changed.route(),
            SecretPlace::Variable(_) | SecretPlace::Header(_) | SecretPlace::Option(_) => {
                is_elsewhere
            }
        };
        let is_carried = |place: &SecretPlace| changed.text(place) == self.text(place);
        let mut carried = kept;
        carried.retain(|place| is_moved(place) && is_carried(place));
        carried
    }

    /// Returns the places of values that no view shows and that may be secrets.
    fn hidden(&self) -> Vec<SecretPlace> {
        let is_secret = |name: &str, value: &str| {
            // Its name indicates a secret, whatever its value looks like.
            let is_named = hint_of(name) == Hint::Secret && !value.trim().is_empty();
            is_named || is_given_secret(name, value) || is_redactable(value)
        };
        let values = self.values().into_iter();
        let values = values.filter(|(place, value)| {
            let (SecretPlace::Variable(name) | SecretPlace::Header(name)) = place else {
                return false;
            };
            is_secret(name, value) && Template::parse(value).is_none()
        });
        let mut hidden: Vec<SecretPlace> = values.map(|(place, _)| place).collect();
        let (args, remote) = match &self.launch {
            Launch::Process(process) => (process.args.as_slice(), None),
            Launch::Image(image) => (image.args.as_slice(), None),
            Launch::Remote(remote) => (&[][..], Some(remote)),
        };
        let options = [
            (ARGS, secret_arguments(args).iter().any(Option::is_some)),
            (
                URL,
                remote.is_some_and(|remote| remote.shown_url() != remote.url),
            ),
            (
                CLIENT_SECRET,
                remote.is_some_and(|remote| remote.auth.client_secret.is_some()),
            ),
        ];
        let options = options.into_iter().filter(|(_, is_hidden)| *is_hidden);
        hidden.extend(options.map(|(name, _)| SecretPlace::Option(name)));
        hidden
    }

    fn values(&self) -> Vec<(SecretPlace, &str)> {
        let (pairs, is_remote) = match &self.launch {
            Launch::Process(process) => (&process.env, false),
            Launch::Image(image) => (&image.env, false),
            Launch::Remote(remote) => (&remote.headers, true),
        };
        let values = pairs.iter().map(|(name, value)| match is_remote {
            true => (SecretPlace::Header(name.clone()), value.as_str()),
            false => (SecretPlace::Variable(name.clone()), value.as_str()),
        });
        values.collect()
    }

    /// Returns the value at a place.
    fn text(&self, place: &SecretPlace) -> Option<String> {
        match (&self.launch, place) {
            (Launch::Process(process), SecretPlace::Variable(name)) => {
                process.env.get(name).cloned()
            }
            (Launch::Image(image), SecretPlace::Variable(name)) => image.env.get(name).cloned(),
            (Launch::Remote(remote), SecretPlace::Header(name)) => {
                remote.headers.get(name).cloned()
            }
            (Launch::Process(process), SecretPlace::Option(ARGS)) => Some(process.args.join("\0")),
            (Launch::Image(image), SecretPlace::Option(ARGS)) => Some(image.args.join("\0")),
            (Launch::Remote(remote), SecretPlace::Option(URL)) => Some(remote.url.clone()),
            (Launch::Remote(remote), SecretPlace::Option(CLIENT_SECRET)) => {
                remote.auth.client_secret.clone()
            }
            _ => None,
        }
    }

    /// Clears a value that the change contains. Arguments and URLs stay: they decide where other
    /// values go.
    fn clear(&mut self, place: &SecretPlace) {
        let value = match (&mut self.launch, place) {
            (Launch::Process(process), SecretPlace::Variable(name)) => process.env.get_mut(name),
            (Launch::Image(image), SecretPlace::Variable(name)) => image.env.get_mut(name),
            (Launch::Remote(remote), SecretPlace::Header(name)) => remote.headers.get_mut(name),
            (Launch::Remote(remote), SecretPlace::Option(CLIENT_SECRET)) => {
                remote.auth.client_secret.as_mut()
            }
            _ => None,
        };
        value.into_iter().for_each(String::clear);
    }

    /// Returns the settings that decide where the client secret is sent.
    fn sign_in(&self) -> Option<impl PartialEq + use<'_>> {
        let remote = self.launch.remote()?;
        let auth = super::RemoteAuth {
            client_secret: None,
            ..remote.auth.clone()
        };
        Some((&remote.url, self.route(), auth))
    }

    /// Returns the settings that decide who sees the URL of a remote server, besides the server.
    fn route(&self) -> Option<impl PartialEq + use<'_>> {
        let remote = self.launch.remote()?;
        Some((&remote.proxy, &remote.ca_file, remote.allow_private))
    }

    /// Returns scheme, host and port of a remote server, for comparison.
    pub fn origin(&self) -> Option<String> {
        origin(&self.launch.remote()?.url)
    }
}

/// Returns scheme, host and port of a URL in lower case; includes a default port.
pub fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?.to_ascii_lowercase();
    let default = match scheme.as_str() {
        "http" => "80",
        "https" => "443",
        _ => return None,
    };
    let after_host = authority.rsplit(']').next().unwrap_or_default();
    let has_port = after_host.contains(':');
    let authority = match has_port {
        true => authority,
        false => format!("{authority}:{default}"),
    };
    let host = authority.rsplit_once(':').map_or("", |(host, _)| host);
    (!host.is_empty()).then(|| format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(launch: Value) -> ServerSpec {
        ServerSpec::new(
            "a".parse().unwrap(),
            serde_json::from_value(launch).unwrap(),
        )
    }

    // row 0.4, faults K1 and K2
    #[test]
    fn secrets_go_into_env_and_header_values_only() {
        let values: BTreeMap<SecretName, SecretText> = [("T", "v$1${T}\"\n")]
            .map(|(name, value)| (name.parse().unwrap(), SecretText::new(value.into())))
            .into();
        let process = spec(
            json!({"process": {"command": "${T}", "args": ["${T}"], "cwd": "/${T}",
            "env": {"${T}": "x", "A": "${T}", "B": "-${T}-", "C": "${T:-x}"}}}),
        );
        let filled = process.fill(&values).unwrap();
        let launch = filled.launch.process().unwrap();
        assert_eq!(
            (launch.command.as_str(), launch.args[0].as_str()),
            ("${T}", "${T}")
        );
        assert_eq!(launch.env["A"], "v$1${T}\"\n");
        assert_eq!(launch.env["B"], "-v$1${T}\"\n-");
        assert_eq!(
            (launch.env["${T}"].as_str(), launch.env["C"].as_str()),
            ("x", "${T:-x}")
        );
        let missing = process.fill(&BTreeMap::new()).unwrap_err();
        assert_eq!(missing.to_string(), "`env.A` needs the secret `T`");
        let remote =
            spec(json!({"remote": {"url": "https://${T}/", "headers": {"X": "Bearer ${T}"}}}));
        let refused = remote.fill(&values).unwrap_err().to_string();
        assert!(
            refused.contains("`headers.X`") && !refused.contains("v$1"),
            "{refused}"
        );
        // A file's values were already expanded.
        let mut file = process;
        file.source = Source::File;
        assert_eq!(file.templates(), []);
    }

    // fault K4: whoever moves a server does not take its secrets along
    #[test]
    fn the_destination_changes_with_everything_that_leads_elsewhere() {
        let base = json!({"process": {"command": "x", "args": ["a"], "env": {"A": "${T}"}}});
        let same = spec(base.clone()).destination();
        let mut limited = spec(base.clone());
        if let Launch::Process(process) = &mut limited.launch {
            process.limits.cpu = Some(0.25);
        }
        limited.calls.queue += 1;
        assert_eq!(limited.destination(), same);
        for (path, value) in [
            ("command", json!("y")),
            ("args", json!(["b"])),
            ("env", json!({"B": "${T}"})),
            ("env", json!({"A": "${T}", "HTTPS_PROXY": "http://evil"})),
            ("cwd", json!("/tmp")),
        ] {
            let mut other = base.clone();
            other["process"][path] = value;
            assert_ne!(spec(other).destination(), same, "{path}");
        }
        let base = json!({"remote": {"url": "https://x/mcp", "headers": {"A": "${T}"}}});
        let same = spec(base.clone()).destination();
        for (path, value) in [
            ("url", json!("https://y/mcp")),
            ("proxy", json!("http://p:1")),
            ("headers", json!({"A": "${T}", "Host": "y"})),
            ("allow_private", json!(true)),
        ] {
            let mut other = base.clone();
            other["remote"][path] = value;
            assert_ne!(spec(other).destination(), same, "{path}");
        }
    }

    // fault K4: a change of parts takes no value along that its author does not know
    #[test]
    fn values_are_asked_for_again_when_anything_leads_them_elsewhere() {
        let base = json!({"process": {"command": "x", "env": {"TOKEN": "hunter22-x", "OTHER_TOKEN": "hunter33-x", "MODE": "fast"}}});
        let known = spec(base.clone());
        let carried = |path: &str, value: Value, given: &[&str]| {
            let mut changed = base.clone();
            changed["process"][path] = value;
            let given = |place: &SecretPlace| given.contains(&place.to_string().as_str());
            let carried = known.carried_secrets(&spec(changed), given);
            carried.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let both = ["env.OTHER_TOKEN", "env.TOKEN"];
        assert_eq!(carried("command", json!("y"), &[]), both);
        assert_eq!(
            carried("command", json!("y"), &["env.TOKEN"]),
            ["env.OTHER_TOKEN"]
        );
        assert_eq!(carried("command", json!("y"), &both), [""; 0]);
        let env = |token: &str, mode: &str| json!({"TOKEN": token, "OTHER_TOKEN": "hunter33-x", "MODE": mode});
        assert_eq!(
            carried("env", env("hunter44-x", "fast"), &["env.TOKEN"]),
            [""; 0]
        );
        assert_eq!(
            carried("env", env("hunter22-x", "slow"), &["env.MODE"]),
            both
        );
        assert_eq!(carried("limits", json!({"cpu": 0.5}), &[]), [""; 0]);
        // Secrets in arguments are not shown either, and a short password is one by its name.
        let known = spec(
            json!({"process": {"command": "x", "args": ["--token", "hunter22-x"],
            "env": {"DB_PASSWORD": "admin"}}}),
        );
        let moved = spec(
            json!({"process": {"command": "y", "args": ["--token", "hunter22-x"],
            "env": {"DB_PASSWORD": "admin"}}}),
        );
        let both = known.carried_secrets(&moved, |_| false);
        let both: Vec<String> = both.iter().map(ToString::to_string).collect();
        assert_eq!(both, ["env.DB_PASSWORD", "args"]);
        // Other arguments in the change do not mean that it contains the variables.
        let other = spec(json!({"process": {"command": "x", "args": ["--send-home"],
            "env": {"DB_PASSWORD": "admin"}}}));
        let kept = known.carried_secrets(&other, |place| *place == SecretPlace::Option("args"));
        assert_eq!(kept, [SecretPlace::Variable("DB_PASSWORD".to_owned())]);
    }

    // fault K4: the secret of a client goes to the authorization server that the URL leads to
    #[test]
    fn the_secret_of_a_client_is_asked_for_again_when_its_server_moves() {
        let base = json!({"remote": {"url": "https://x/mcp?key=0123456789abcdefABCDEF", "headers": {"A": "b"},
            "auth": {"kind": "client_credentials", "client_id": "me", "client_secret": "hunter22"}}});
        let known = spec(base.clone());
        let carried = |path: &str, value: Value| {
            let mut changed = base.clone();
            changed["remote"][path] = value;
            let carried = known.carried_secrets(&spec(changed), |_| false);
            carried.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            carried("url", json!("https://evil/mcp")),
            ["auth.client_secret"]
        );
        let auth = json!({"kind": "client_credentials", "client_id": "me", "client_secret": "hunter22",
            "issuer": "https://evil"});
        assert_eq!(carried("auth", auth), ["auth.client_secret"]);
        assert_eq!(
            carried("proxy", json!("http://evil:1")),
            ["url", "auth.client_secret"]
        );
        assert_eq!(carried("headers", json!({"A": "c"})), [""; 0]);
    }

    #[test]
    fn origins_are_compared_with_their_ports() {
        for (url, expected) in [
            ("https://Example.COM/a?b", Some("https://example.com:443")),
            ("http://me:x@h:80/", Some("http://h:80")),
            ("https://[::1]/x", Some("https://[::1]:443")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("ftp://x", None),
            ("https://", None),
            ("x", None),
        ] {
            assert_eq!(origin(url).as_deref(), expected, "{url}");
        }
    }
}
