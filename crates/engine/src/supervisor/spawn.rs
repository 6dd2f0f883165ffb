//! Puts one server's runner on its way: remembers its catalog, has handle and runner made, and
//! tracks the task in which it runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCan;
use gantry_model::secret::{Redactor, SecretText};
use gantry_model::spec::{Launch, ServerSpec, Start};
use gantry_model::status::State;
use tracing::warn;

use super::Supervisor;
use crate::catalog::ServerCatalog;
use crate::server::begins::Begins;
use crate::server::handle::{Live, ServerHandle};
use crate::server::listing::Listing;
use crate::server::logs::Logs;

impl Supervisor {
    /// Starts the runner of a server and returns its handle.
    pub(super) async fn launch(
        &self,
        id: ServerId,
        spec: ServerSpec,
        created_ms: u64,
    ) -> ServerHandle {
        let spec = Arc::new(spec);
        let lazy = spec.start == Start::Lazy;
        let (first, live, remembered) = match &spec.needs_approval {
            Some(why) => {
                let live = Live::Down(Arc::from(why.as_str()), None);
                (State::NeedsApproval, live, ServerCatalog::empty())
            }
            None if lazy => (State::Idle, Live::Cold, self.remembered(id, &spec).await),
            None => {
                let remembered = self.remembered(id, &spec).await;
                (State::Starting, Live::Starting, remembered)
            }
        };
        let redactor = Arc::new(redactor(&spec));
        let tools = remembered.tools.len();
        let begins = Begins {
            id,
            created_ms,
            first,
            live,
            catalog: Arc::new(ArcSwap::from_pointee(remembered)),
            logs: Arc::new(Logs::new(Arc::clone(&redactor))),
            redactor,
            counters: Arc::default(),
            stop: self.stopping.child_token(),
            declares: ClientCan::NOTHING,
        };
        let (handle, runner) = begins.assemble(&self.around, spec);
        runner.status.send_modify(|status| status.tools = tools);
        let stopped = handle.stopped.clone();
        let profiles = Arc::clone(&handle.profiles);
        self.around.tracker.spawn(async move {
            runner.keep_running(lazy).await;
            profiles.close().await;
            stopped.cancel();
        });
        handle
    }

    /// Returns what the server offered when it last ran, if its spec is unchanged.
    async fn remembered(&self, id: ServerId, spec: &ServerSpec) -> ServerCatalog {
        match self.store.load_catalog(id).await {
            Ok(Some((fingerprint, hello, rows))) if fingerprint == spec.fingerprint() => {
                let hello = crate::server::handshake::Hello::from_json(&hello).map(Arc::new);
                let listing = Listing::from_rows(&rows).filtered(&spec.tools);
                ServerCatalog::new(listing, hello)
            }
            Ok(_) => ServerCatalog::empty(),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(server = %spec.name, error, "the remembered catalog cannot be read");
                ServerCatalog::empty()
            }
        }
    }
}

/// Everything a server is given in its environment may be a secret of its own.
fn redactor(spec: &ServerSpec) -> Redactor {
    let Launch::Process(process) = &spec.launch;
    let mut secrets = Vec::new();
    for (name, value) in &process.env {
        let userinfo = userinfo(value);
        if userinfo.is_some() || looks_secret(&name.to_ascii_uppercase()) {
            secrets.push(SecretText::new(value.clone()));
        }
        if let Some((_, password)) = userinfo.and_then(|userinfo| userinfo.split_once(':')) {
            secrets.push(SecretText::new(password.to_owned()));
        }
    }
    Redactor::new(&secrets)
}

/// Tells whether a variable's name, in capitals, says that its value is a secret.
fn looks_secret(name: &str) -> bool {
    const ANYWHERE: [&str; 10] = [
        "KEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "CREDENTIAL",
        "AUTH",
        "DSN",
        "COOKIE",
        "PRIVATE",
    ];
    // Folders, not passwords.
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    let is_secret = |part: &str| {
        let is_pass = part.ends_with("PASS") && !matches!(part, "BYPASS" | "COMPASS");
        is_pass || part.ends_with("PWD") || matches!(part, "PAT" | "PASSPHRASE")
    };
    ANYWHERE.iter().any(|part| name.contains(part)) || name.split(['_', '-', '.']).any(is_secret)
}

/// Returns who a URL logs in as, often with a password: what stands before the `@` of its host.
fn userinfo(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit_once('@').map(|(userinfo, _)| userinfo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_given_as_a_secret_is_hidden() {
        for name in [
            "API_KEY",
            "GITHUB_PAT",
            "DB_PASS",
            "DBPASS",
            "MYSQL_PWD",
            "PRIVATE_PEM",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "NO_PROXY_BYPASS",
            "LANG",
            "DATA_PATH",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
        let url = "postgres://app:hunter22@db.example/main?x=a@b";
        assert_eq!(userinfo(url), Some("app:hunter22"));
        assert_eq!(userinfo("https://example.com/a@b"), None);
        let env = serde_json::json!({"command": "true", "env": {"DATABASE_URL": url}});
        let launch = serde_json::from_value(env).unwrap();
        let hidden = redactor(&ServerSpec::process("a".parse().unwrap(), launch));
        assert_eq!(hidden.redact("login hunter22"), "login [redacted]");
    }
}
