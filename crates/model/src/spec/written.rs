//! The texts of a command before expansion, with `${NAME}` in place of values: these are shown and
//! stored, while the values go only to the process.
//!
//! Entry points: [`ProcessLaunch::shown_command`] and its siblings.

use std::collections::BTreeMap;

use super::{ImageLaunch, Launch, NetworkGrant, ProcessLaunch, Profile, RemoteLaunch, ServerSpec};
use crate::secret::{
    Hint, REDACTED, SecretText, Template, hide_arguments, hint_of, is_given_secret, is_plausible,
    looks_secret, secret_arguments, userinfo,
};

/// The texts of a file before its variables were expanded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The command, if it has variables.
    pub command: Option<String>,
    /// The arguments with variables, by index.
    pub args: BTreeMap<usize, String>,
    /// The working folder, if it has variables.
    pub cwd: Option<String>,
    /// The URL, if it has variables.
    pub url: Option<String>,
    /// The values of all variables, by name.
    pub variables: BTreeMap<String, SecretText>,
    /// The values that a user entered, by id.
    pub inputs: BTreeMap<String, SecretText>,
    /// The values, by variable or header, with references to the project's secrets.
    pub templates: BTreeMap<String, Template>,
    /// The positions of those values.
    pub places: FilePlaces,
}

/// The positions of values in their file, as `FILE:LINE:COLUMN`, by variable or header. Not part of
/// the spec's identity: all positions are equal, so that moved lines do not change a server.
#[derive(Debug, Clone, Default)]
pub struct FilePlaces(pub BTreeMap<String, String>);

impl PartialEq for FilePlaces {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FilePlaces {}

impl Launch {
    /// Returns all apparent secrets that are passed to the server.
    pub fn secrets(&self) -> Vec<SecretText> {
        match self {
            Self::Process(process) => process.secrets(),
            Self::Image(image) => image.secrets(),
            Self::Remote(remote) => remote.secrets(),
        }
    }

    /// Replaces each secret by the result of `mask`, and every other text by its form for display.
    pub fn mask(&mut self, mask: impl Fn(&str) -> String) {
        match self {
            Self::Process(process) => {
                let values = process.env.values_mut();
                values.for_each(|value| *value = mask(value));
                (process.command, process.args) = (process.shown_command(), process.shown_args());
                process.cwd = process.shown_cwd().map(Into::into);
            }
            Self::Image(image) => {
                let values = image.env.values_mut();
                values.for_each(|value| *value = mask(value));
                image.args = image.shown_args();
            }
            Self::Remote(remote) => {
                let secrets = remote.headers.values_mut();
                let secrets = secrets.chain(remote.auth.client_secret.as_mut());
                secrets.for_each(|value| *value = mask(value));
                (remote.url, remote.proxy) = (remote.shown_url(), remote.shown_proxy());
            }
        }
    }
}

impl ServerSpec {
    /// Returns the spec for display: variables by name, no secrets, and all defaults of its kind of
    /// server.
    pub fn shown(&self) -> Self {
        let mut spec = self.clone();
        spec.calls.concurrency = Some(self.concurrency());
        spec.lifecycle.when_unresponsive = Some(self.when_unresponsive());
        spec.launch.mask(|_| String::new());
        match &mut spec.launch {
            Launch::Process(process) => {
                process.limits = process.limits_in_force();
                process.hosting.show(match process.profile {
                    Profile::Local => NetworkGrant::Full,
                    Profile::Hosted => NetworkGrant::None,
                });
            }
            Launch::Image(image) => {
                image.limits = image.limits_in_force();
                image.hosting.show(NetworkGrant::None);
            }
            Launch::Remote(remote) => {
                let secret = remote.auth.client_secret.iter_mut();
                secret.for_each(|secret| REDACTED.clone_into(secret));
            }
        }
        spec
    }
}

impl ProcessLaunch {
    /// Returns the command for display.
    pub fn shown_command(&self) -> String {
        let command = self.written.command.as_ref();
        command.unwrap_or(&self.command).clone()
    }

    /// Returns the arguments for display: variables by name, other secrets hidden.
    pub fn shown_args(&self) -> Vec<String> {
        shown_args(&self.args, &self.written)
    }

    /// Returns the working folder for display.
    pub fn shown_cwd(&self) -> Option<String> {
        let written = self.written.cwd.clone();
        written.or_else(|| self.cwd.as_ref().map(|cwd| cwd.display().to_string()))
    }

    /// Returns all apparent secrets that are passed to the process.
    pub fn secrets(&self) -> Vec<SecretText> {
        program_secrets(&self.env, &self.args, &self.written)
    }
}

impl ImageLaunch {
    /// Returns the arguments for display: variables by name, other secrets hidden.
    pub fn shown_args(&self) -> Vec<String> {
        shown_args(&self.args, &self.written)
    }

    /// Returns all apparent secrets that are passed to the server.
    pub fn secrets(&self) -> Vec<SecretText> {
        program_secrets(&self.env, &self.args, &self.written)
    }
}

fn shown_args(args: &[String], written: &Written) -> Vec<String> {
    let args = args.iter().enumerate();
    let written = args.map(|(place, filled)| {
        let written = written.args.get(&place);
        written.unwrap_or(filled).clone()
    });
    hide_arguments(&written.collect::<Vec<_>>(), REDACTED)
}

fn program_secrets(
    env: &BTreeMap<String, String>,
    args: &[String],
    written: &Written,
) -> Vec<SecretText> {
    let mut secrets = given(env);
    for secret in secret_arguments(args).into_iter().flatten() {
        take(&mut secrets, secret);
        // The password of a login, the last word of `Bearer x`.
        if let Some(part) = secret.rsplit([':', ' ']).next() {
            take(&mut secrets, part);
        }
    }
    secrets.extend(written.secrets());
    secrets
}

impl RemoteLaunch {
    /// Returns the URL for display: variables by name, and without its query, which may contain a
    /// secret.
    pub fn shown_url(&self) -> String {
        let url = self.written.url.as_ref().unwrap_or(&self.url);
        url.split('?').next().unwrap_or_default().to_owned()
    }

    /// Returns all apparent secrets that are sent to the server.
    pub fn secrets(&self) -> Vec<SecretText> {
        let mut secrets = given(&self.headers);
        let logins = self.headers.iter();
        for (_, value) in logins.filter(|(name, value)| is_login(name, value)) {
            // The token alone of `Bearer TOKEN` is a secret, too.
            if let Some((_, token)) = value.split_once(' ') {
                take(&mut secrets, token);
            }
        }
        let declared = self.auth.client_secret.iter();
        secrets.extend(declared.map(|secret| SecretText::new(secret.to_owned())));
        let query = self.url.split_once('?').map_or("", |(_, query)| query);
        for pair in query.split('&') {
            if let Some((name, value)) = pair.split_once('=')
                && is_given_secret(name, value)
            {
                take(&mut secrets, value);
            }
        }
        let login = self.proxy.as_deref().and_then(userinfo);
        if let Some((_, password)) = login.and_then(|login| login.split_once(':')) {
            take(&mut secrets, password);
        }
        secrets.extend(self.written.secrets());
        secrets
    }
}

impl Written {
    /// Returns the expanded values that appear to be secrets.
    fn secrets(&self) -> impl Iterator<Item = SecretText> {
        let variables = self.variables.iter();
        let secret = variables.filter(|(name, value)| is_given_secret(name, value.expose()));
        let filled = secret.map(|(_, value)| value).chain(self.inputs.values());
        filled.map(|value| SecretText::new(value.expose().to_owned()))
    }
}

/// Returns the apparent secrets of variables or headers, by their names and by their values.
fn given(pairs: &BTreeMap<String, String>) -> Vec<SecretText> {
    let mut secrets = Vec::new();
    // A reference to a secret is not one.
    let given = pairs
        .iter()
        .filter(|(_, value)| Template::parse(value).is_none());
    for (name, value) in given {
        if is_given_secret(name, value) {
            secrets.push(SecretText::new(value.to_owned()));
        }
        let login = userinfo(value).and_then(|login| login.split_once(':'));
        if let Some((_, password)) = login {
            take(&mut secrets, password);
        }
    }
    secrets
}

/// Returns whether a header contains a login: by its name, or by a scheme under an ambiguous name.
fn is_login(name: &str, value: &str) -> bool {
    let scheme = value.split(' ').next().unwrap_or_default();
    let has_scheme = ["bearer", "basic", "token"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    match hint_of(name) {
        Hint::Secret => true,
        Hint::Login | Hint::Ambiguous => has_scheme,
        Hint::Nothing => false,
    }
}

/// Adds an apparent secret, unless it is likely to occur elsewhere by accident.
fn take(secrets: &mut Vec<SecretText>, value: &str) {
    if is_plausible(value) || looks_secret(value) {
        secrets.push(SecretText::new(value.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Redactor;

    fn launch(value: serde_json::Value) -> ProcessLaunch {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn variables_are_shown_by_name_and_known_to_the_redactor() {
        let mut launch = launch(serde_json::json!({
            "command": "/home/a/x", "args": ["-y", "--header", "X: hunter22", "--token=s3cr3t"]
        }));
        launch.written.command = Some("${HOME}/x".into());
        launch.written.args = [(2, "X: ${MY_TOKEN}".into())].into();
        let held = |value: &str| SecretText::new(value.into());
        let variables = [("MY_TOKEN", "hunter22"), ("HOME", "/home/a")];
        let variables = variables.map(|(name, value)| (name.to_owned(), held(value)));
        launch.written.variables = variables.into();
        launch.written.inputs = [("id".to_owned(), held("by hand"))].into();
        assert_eq!(launch.shown_command(), "${HOME}/x");
        let shown = ["-y", "--header", "X: ${MY_TOKEN}", "--token=[redacted]"];
        assert_eq!(launch.shown_args(), shown);
        let redactor = Redactor::new(&launch.secrets());
        assert_eq!(
            redactor.redact("/home/a hunter22 s3cr3t by hand"),
            "/home/a [redacted] [redacted] [redacted]"
        );
        let stored = serde_json::to_string(&launch).unwrap();
        assert!(!stored.contains("MY_TOKEN"), "{stored}");
    }

    #[test]
    fn what_a_process_is_given_as_a_secret_is_known() {
        let url = "postgres://app:hunter22@db.example/main";
        let launch = launch(serde_json::json!({"command": "true", "env": {"DATABASE_URL": url}}));
        let hidden = Redactor::new(&launch.secrets());
        assert_eq!(hidden.redact("login hunter22"), "login [redacted]");
    }

    #[test]
    fn what_is_sent_to_a_remote_server_as_a_secret_is_known() {
        let mut remote = RemoteLaunch::new("https://x/a1b2/mcp?api_key=query-secret");
        let header = (
            "Authorization".to_owned(),
            "Bearer header-secret".to_owned(),
        );
        let open = ("X-Auth".to_owned(), "Bearer open-secret1".to_owned());
        remote.headers.extend([header, open]);
        remote.written.url = Some("https://x/${PATH_TOKEN}/mcp?api_key=query-secret".into());
        assert_eq!(remote.shown_url(), "https://x/${PATH_TOKEN}/mcp");
        let hidden = Redactor::new(&remote.secrets());
        assert_eq!(
            hidden.redact("header-secret, open-secret1 and query-secret"),
            "[redacted], [redacted] and [redacted]"
        );
    }
}
