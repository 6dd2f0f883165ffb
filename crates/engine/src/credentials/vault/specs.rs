//! Encrypts the secret fields of registered servers: the store holds names and ciphertext, memory
//! holds values. Covers environments, headers, the client secret of a sign-in, and URLs, proxies
//! and arguments that contain credentials. row 1.3, faults K4 and K6

use std::collections::{BTreeMap, BTreeSet};

use gantry_model::secret::{secret_arguments, userinfo};
use gantry_model::spec::{Launch, ServerSpec, Source};

use super::key::VaultError;
use super::{SEALED, Vault};

/// A spec read from the store.
pub(crate) struct OpenedSpec {
    pub(crate) spec: ServerSpec,
    /// The fields that could not be opened, and the error of the first one.
    pub(crate) lost: Option<(Vec<String>, VaultError)>,
    /// Whether a field was stored in plain text, as earlier releases did.
    pub(crate) is_clear: bool,
}

impl Vault {
    /// Returns whether a spec has fields to seal.
    pub(crate) fn is_private(spec: &ServerSpec) -> bool {
        spec.source == Source::Api && !private(&spec.launch).is_empty()
    }

    /// Seals the secret fields of a registered server; specs from files and built-in servers are
    /// not stored.
    pub(crate) fn seal_spec(&self, mut spec: ServerSpec) -> Result<ServerSpec, VaultError> {
        if spec.source != Source::Api {
            return Ok(spec);
        }
        let (name, private) = (spec.name.clone(), private(&spec.launch));
        for (field, value) in fields(&mut spec.launch) {
            if private.contains(&field) {
                *value = self.seal(&place(name.as_str(), &field), value)?;
            }
        }
        Ok(spec)
    }

    /// Opens the sealed fields. Fields that cannot be opened are left empty and listed.
    pub(crate) fn open_spec(&self, mut spec: ServerSpec) -> OpenedSpec {
        let name = spec.name.clone();
        let (mut lost, mut why, mut sealed) = (Vec::new(), None, BTreeSet::new());
        if spec.source != Source::Api {
            return OpenedSpec {
                spec,
                lost: None,
                is_clear: false,
            };
        }
        for (field, value) in fields(&mut spec.launch) {
            if value.starts_with(SEALED) {
                sealed.insert(field.clone());
            }
            match self.unseal(&place(name.as_str(), &field), value) {
                Ok(plain) => *value = plain,
                Err(error) => {
                    lost.push(format!("`{field}`"));
                    why = why.or(Some(error));
                    value.clear();
                }
            }
        }
        OpenedSpec {
            is_clear: private(&spec.launch).difference(&sealed).next().is_some(),
            spec,
            lost: why.map(|why| (lost, why)),
        }
    }
}

/// Returns every field of a launch that may have to be sealed, by name; a variable by its bare
/// name.
fn fields(launch: &mut Launch) -> Vec<(String, &mut String)> {
    match launch {
        Launch::Process(process) => {
            let env = process.env.iter_mut();
            let env = env.map(|(name, value)| (name.clone(), value));
            env.chain(arguments(&mut process.args)).collect()
        }
        Launch::Image(image) => {
            let env = image.env.iter_mut();
            let env = env.map(|(name, value)| (name.clone(), value));
            env.chain(arguments(&mut image.args)).collect()
        }
        Launch::Remote(remote) => {
            let headers = remote.headers.iter_mut();
            let headers = headers.map(|(name, value)| (format!("headers.{name}"), value));
            let secret = remote.auth.client_secret.as_mut();
            let secret = secret.map(|value| ("auth.client_secret".to_owned(), value));
            let proxy = remote.proxy.as_mut();
            let proxy = proxy.map(|value| ("proxy".to_owned(), value));
            let url = ("url".to_owned(), &mut remote.url);
            headers.chain(secret).chain(proxy).chain([url]).collect()
        }
    }
}

fn arguments(args: &mut [String]) -> impl Iterator<Item = (String, &mut String)> {
    let args = args.iter_mut().enumerate();
    args.map(|(place, value)| (format!("args[{place}]"), value))
}

/// Returns the secret fields: every variable and header, and other fields that contain a
/// credential.
fn private(launch: &Launch) -> BTreeSet<String> {
    let program = |env: &BTreeMap<String, String>, args: &[String]| {
        let secrets = secret_arguments(args).into_iter().enumerate();
        let secrets = secrets.filter(|(_, secret)| secret.is_some());
        let args = secrets.map(|(place, _)| format!("args[{place}]"));
        env.keys().cloned().chain(args).collect()
    };
    match launch {
        Launch::Process(process) => program(&process.env, &process.args),
        Launch::Image(image) => program(&image.env, &image.args),
        Launch::Remote(remote) => {
            let headers = remote.headers.keys().map(|name| format!("headers.{name}"));
            let secret = remote.auth.client_secret.as_ref();
            let secret = secret.map(|_| "auth.client_secret".to_owned());
            let proxy = remote.proxy.as_deref().and_then(userinfo);
            let proxy = proxy.map(|_| "proxy".to_owned());
            // A query may contain a key.
            let url = remote.url.contains('?') || userinfo(&remote.url).is_some();
            let url = url.then(|| "url".to_owned());
            headers.chain(secret).chain(proxy).chain(url).collect()
        }
    }
}

fn place<'a>(server: &'a str, field: &'a str) -> [&'a str; 3] {
    ["kb.project_mcp_servers", server, field]
}

#[cfg(test)]
mod tests {
    use gantry_model::id::ProjectName;
    use serde_json::json;

    use super::*;

    // row 1.3, fault K4
    #[tokio::test]
    async fn a_stored_spec_shows_no_credential_and_opens_as_it_was() {
        let temp = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(temp.path()).await;
        let vault = Vault::open(temp.path(), ProjectName::local(), store.clone(), None);
        let launches = [
            json!({"process": {"command": "npx", "args": ["-y", "pkg", "--token", "hunter22-arg"],
                "env": {"A": "hunter22-env"}}}),
            json!({"remote": {"url": "https://x.example/mcp?key=hunter22-url",
                "proxy": "http://me:hunter22-proxy@proxy.example:3128",
                "headers": {"X-Any": "hunter22-header"},
                "auth": {"client_id": "me", "client_secret": "hunter22-auth"}}}),
        ];
        for launch in launches {
            let launch: Launch = serde_json::from_value(launch).unwrap();
            let spec = ServerSpec::new("a".parse().unwrap(), launch);
            let stored = vault.seal_spec(spec.clone()).unwrap();
            let text = serde_json::to_string(&stored).unwrap();
            assert!(!text.contains("hunter22"), "{text}");
            let opened = vault.open_spec(stored.clone());
            assert!(opened.lost.is_none() && !opened.is_clear);
            assert_eq!(opened.spec, spec);
            // As an earlier release stored it.
            let clear = vault.open_spec(spec.clone());
            assert!(clear.is_clear && clear.lost.is_none());
            // Under another server name nothing opens, and nothing is shown.
            let mut moved = stored;
            moved.name = "b".parse().unwrap();
            let moved = vault.open_spec(moved);
            assert!(moved.lost.is_some());
        }
        store.close().await.unwrap();
    }
}
