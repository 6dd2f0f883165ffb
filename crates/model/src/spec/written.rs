//! A command as its file has it, `${NAME}` where a variable was filled: what is shown and stored, while
//! what the variables hold goes to the process alone.
//!
//! Entry points: [`ProcessLaunch::shown_command`] and its neighbours.

use std::collections::BTreeMap;

use super::ProcessLaunch;
use crate::secret::{
    REDACTED, SecretText, hide_arguments, is_secret_name, looks_secret, secret_arguments, userinfo,
};

/// What stands in a file where variables were filled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The command, if variables stand in it.
    pub command: Option<String>,
    /// The arguments in which variables stand, by their place.
    pub args: BTreeMap<usize, String>,
    /// The working folder, if variables stand in it.
    pub cwd: Option<String>,
    /// What the variables of all texts held, by name.
    pub variables: BTreeMap<String, SecretText>,
    /// What a person was asked for, by id.
    pub inputs: BTreeMap<String, SecretText>,
}

impl ProcessLaunch {
    /// Returns the command as it may be shown.
    pub fn shown_command(&self) -> String {
        let command = self.written.command.as_ref();
        command.unwrap_or(&self.command).clone()
    }

    /// Returns the arguments as they may be shown: variables by name, other secrets not at all.
    pub fn shown_args(&self) -> Vec<String> {
        let args = self.args.iter().enumerate();
        let written = args.map(|(place, filled)| {
            let written = self.written.args.get(&place);
            written.unwrap_or(filled).clone()
        });
        hide_arguments(&written.collect::<Vec<_>>(), REDACTED)
    }

    /// Returns the working folder as it may be shown.
    pub fn shown_cwd(&self) -> Option<String> {
        let written = self.written.cwd.clone();
        written.or_else(|| self.cwd.as_ref().map(|cwd| cwd.display().to_string()))
    }

    /// Returns everything that the process is given and that seems to be a secret of its own.
    pub fn secrets(&self) -> Vec<SecretText> {
        let mut secrets = Vec::new();
        let mut take = |value: &str| secrets.push(SecretText::new(value.to_owned()));
        for (name, value) in &self.env {
            let login = userinfo(value);
            if login.is_some() || is_secret_name(name) || looks_secret(value) {
                take(value);
            }
            if let Some((_, password)) = login.and_then(|login| login.split_once(':')) {
                take(password);
            }
        }
        for secret in secret_arguments(&self.args).into_iter().flatten() {
            take(secret);
            // Of a login the password, of `Bearer x` the last word.
            let mut parts = secret.rsplit([':', ' ']);
            parts.next().into_iter().for_each(&mut take);
        }
        for (name, value) in &self.written.variables {
            let value = value.expose();
            if is_secret_name(name) || looks_secret(value) {
                take(value);
            }
        }
        let inputs = self.written.inputs.values();
        inputs.for_each(|input| take(input.expose()));
        secrets
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
}
