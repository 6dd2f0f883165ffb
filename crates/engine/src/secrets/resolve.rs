//! Fills secrets into the spec of a server that is being started: in one pass, literally, and only
//! secrets that are bound to the server. Every use is recorded. row 0.4, faults K1, K2 and K5

use std::collections::BTreeMap;

use gantry_model::diagnose::chain;
use gantry_model::secret::{SecretName, SecretText, is_redactable};
use gantry_model::spec::{SecretPlace, ServerSpec, Source};
use gantry_store::SecretRow;

use super::{SecretBinding, SecretError, Secrets};
use crate::clock::unix_ms;

/// A spec with its secret values.
pub(crate) struct Resolved {
    pub(crate) spec: ServerSpec,
    /// The values to redact from everything the server sends.
    pub(crate) known: Vec<SecretText>,
    /// The secrets and their versions.
    pub(crate) used: BTreeMap<SecretName, u32>,
}

/// Why a server cannot receive its secrets.
pub(crate) enum ResolveError {
    /// An administrator must act; the text says what is wrong, and what to do.
    Unusable(String),
    /// The store or the key is unavailable; a retry may help.
    Failed(String),
}

impl Secrets {
    /// Returns the spec with its secret values; `None` if it refers to none.
    pub(crate) async fn resolve(
        &self,
        spec: &ServerSpec,
    ) -> Result<Option<Resolved>, ResolveError> {
        let templates = spec.templates();
        if templates.is_empty() {
            return Ok(None);
        }
        let rows = self.store.secrets(&self.project).await;
        let rows = rows.map_err(|error| ResolveError::Failed(chain(&error)))?;
        let (mut values, mut used) = (BTreeMap::new(), BTreeMap::new());
        for (place, template) in &templates {
            for name in template.names() {
                let row = rows.iter().find(|row| row.sealed.name == name.as_str());
                let row = row.ok_or_else(|| missing(spec, place, name))?;
                let value = self.value(row, name, spec, place)?;
                values.insert(name.clone(), value);
                used.insert(name.clone(), row.sealed.version);
            }
        }
        let filled = spec.fill(&values).map_err(|error| {
            ResolveError::Unusable(format!("server `{}` cannot start: {error}", spec.name))
        })?;
        let names: Vec<String> = used.keys().map(ToString::to_string).collect();
        // A secret is passed on only after its use was recorded.
        let noted = self
            .store
            .note_secrets_used(&self.project, &names, &spec.name, unix_ms());
        noted
            .await
            .map_err(|error| ResolveError::Failed(chain(&error)))?;
        let mut known = filled.launch.secrets();
        known.extend(
            values
                .into_values()
                .filter(|value| is_redactable(value.expose())),
        );
        Ok(Some(Resolved {
            spec: filled,
            known,
            used,
        }))
    }

    /// Decrypts a secret for one place of a server that is bound to it.
    fn value(
        &self,
        row: &SecretRow,
        name: &SecretName,
        spec: &ServerSpec,
        place: &SecretPlace,
    ) -> Result<SecretText, ResolveError> {
        let server = &spec.name;
        let unusable = |error: SecretError| {
            ResolveError::Unusable(format!(
                "server `{server}` needs the secret `{name}`: {error}"
            ))
        };
        let kept = self.open(row).map_err(unusable)?;
        let binding = kept.bindings.iter().find(|known| known.server == *server);
        match binding {
            None => Err(ResolveError::Unusable(format!(
                "the secret `{name}` is not bound to server `{server}`, whose `{place}` names it; bind it \
                 with `gantry secret bind {name} --server {server}`"
            ))),
            Some(binding) => match objection(binding, spec, place) {
                None => Ok(SecretText::new(kept.value.clone())),
                Some(why) => Err(ResolveError::Unusable(format!(
                    "the secret `{name}` is not given to server `{server}`: {why}"
                ))),
            },
        }
    }
}

/// Returns why a bound server does not receive the secret in its current state.
fn objection(binding: &SecretBinding, spec: &ServerSpec, place: &SecretPlace) -> Option<String> {
    if let Some(bound) = &binding.origin {
        match (place, spec.origin()) {
            (SecretPlace::Header(_), Some(origin)) if origin == *bound => {}
            (SecretPlace::Header(_), origin) => {
                let origin = origin.unwrap_or_default();
                return Some(format!(
                    "it is bound to {bound}, and the server is at {origin}"
                ));
            }
            (SecretPlace::Variable(_) | SecretPlace::Option(_), _) => {
                return Some(format!("it is bound to {bound}, for headers only"));
            }
        }
    }
    if binding.holds(spec) {
        return None;
    }
    let again = "set it again for this server (`gantry secret set NAME --server SERVER`), or have it \
                 approved with `gantry secret bind`";
    Some(match &binding.destination {
        None => format!("it was bound before the server existed; {again}"),
        Some(_) => format!(
            "the server was changed since the secret was bound to it (command, arguments, image, URL, \
             proxy, headers or environment), or removed; {again}"
        ),
    })
}

fn missing(spec: &ServerSpec, place: &SecretPlace, name: &SecretName) -> ResolveError {
    let server = &spec.name;
    let what = match spec.source {
        Source::Api => "which the project does not have",
        Source::File | Source::Builtin => {
            "which is neither set in the environment of the gateway nor a secret of the project"
        }
    };
    let file = spec.place_in_file(place);
    let file = file.map_or_else(String::new, |file| format!(" ({file})"));
    ResolveError::Unusable(format!(
        "server `{server}`: `{place}`{file} uses `{name}`, {what}; set it with `gantry secret set {name} \
         --server {server}`"
    ))
}
