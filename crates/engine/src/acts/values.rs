//! What the log of acts stores of a spec, an agent or a key: everything except secrets, which are
//! replaced by fingerprints. Fingerprints are keyed with the data folder's own key and the server's
//! name, so that values of one server can be compared but short ones cannot be guessed. Entry point:
//! [`Values`].

use gantry_model::caller::{KeyKind, UserTrust};
use gantry_model::grant::{Grant, ToolFilter};
use gantry_model::secret::REDACTED;
use gantry_model::spec::ServerSpec;
use serde_json::{Map, Value, json};

use crate::access::{AgentChange, AgentView, KeyChange, KeyView, MadeKey, NewAgent, NewKey};
use crate::credentials::Vault;

/// Creates values for the log.
#[derive(Clone)]
pub(crate) struct Values {
    vault: Vault,
}

impl Values {
    pub(crate) fn new(vault: Vault) -> Self {
        Self { vault }
    }

    fn fingerprint(&self, server: &str, secret: &str) -> String {
        let found = self.vault.fingerprint(server, secret);
        found.map_or_else(
            |_| REDACTED.to_owned(),
            |print| format!("hmac-sha256:{print}"),
        )
    }

    /// Returns the logged value of a spec.
    pub(crate) fn spec(&self, spec: &ServerSpec) -> Value {
        let whole = serde_json::to_string(spec).expect("a spec is always expressible as JSON");
        let mut shown = spec.clone();
        let fingerprint = |secret: &str| self.fingerprint(spec.name.as_str(), secret);
        shown.launch.mask(fingerprint);
        let mut value = serde_json::to_value(&shown).expect("a spec is always expressible as JSON");
        // Shows that a hidden value has changed.
        value["fingerprint"] = fingerprint(&whole).into();
        value
    }

    /// Returns the logged value of a spec that is only looked at or tried out, without fingerprints:
    /// otherwise values of the server of that name could be guessed without changing it.
    pub(crate) fn asked(spec: &ServerSpec) -> Value {
        let mut shown = spec.clone();
        shown.launch.mask(|_| REDACTED.to_owned());
        serde_json::to_value(&shown).expect("a spec is always expressible as JSON")
    }
}

/// Returns the logged value of an agent.
pub(crate) fn agent(agent: &AgentView) -> Value {
    let mut keys: Vec<String> = agent.keys.iter().map(|key| key.id.to_string()).collect();
    keys.sort();
    let mut value = described(&agent.label, &agent.grants, &agent.filter, agent.users);
    value["keys"] = keys.into();
    value["limits"] = json!(agent.limits);
    value
}

/// Returns the logged value of a new agent.
pub(crate) fn new_agent(agent: &NewAgent) -> Value {
    let mut value = described(&agent.label, &agent.grants, &agent.filter, agent.users);
    value["limits"] = json!(agent.limits);
    value
}

/// Returns the logged value of an agent's change.
pub(crate) fn change(change: &AgentChange) -> Value {
    let mut value = Map::new();
    if let Some(label) = &change.label {
        value.insert("label".into(), label.as_str().into());
    }
    if let Some(list) = &change.grants {
        value.insert("grants".into(), grants(list));
    }
    if let Some(tools) = &change.filter {
        value.insert("tools".into(), filter(tools));
    }
    if let Some(users) = change.users {
        value.insert("trusted_user_ids".into(), users.is_trusted().into());
    }
    if let Some(limits) = &change.limits {
        value.insert("limits".into(), json!(limits));
    }
    Value::Object(value)
}

fn described(label: &str, list: &[Grant], tools: &ToolFilter, users: UserTrust) -> Value {
    json!({
        "label": label, "grants": grants(list), "tools": filter(tools),
        "trusted_user_ids": users.is_trusted(),
    })
}

fn grants(list: &[Grant]) -> Value {
    list.iter().map(Grant::pattern).collect()
}

fn filter(tools: &ToolFilter) -> Value {
    let texts = |patterns: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        patterns.map(str::to_owned).collect()
    };
    json!({"include": texts(&mut tools.include()), "exclude": texts(&mut tools.exclude())})
}

/// Returns the logged value of a key.
pub(crate) fn key(key: &KeyView) -> Value {
    json!({
        "kind": kind(key.kind), "role": key.kind.role(), "agent": key.agent.as_str(),
        "label": key.label, "expires_ms": key.expires_ms, "sources": key.sources, "limits": key.limits,
    })
}

/// Returns the logged value of a new key.
pub(crate) fn new_key(key: &NewKey) -> Value {
    json!({
        "kind": kind(key.kind), "role": key.kind.role(), "agent": key.agent.as_str(),
        "label": key.label, "expires_ms": key.expires_ms, "sources": key.sources, "limits": key.limits,
    })
}

/// Returns what of a key is to be another.
pub(crate) fn key_change(change: &KeyChange) -> Value {
    let mut value = Map::new();
    if let Some(label) = &change.label {
        value.insert("label".into(), label.as_str().into());
    }
    if let Some(sources) = &change.sources {
        value.insert("sources".into(), json!(sources));
    }
    if let Some(limits) = &change.limits {
        value.insert("limits".into(), json!(limits));
    }
    Value::Object(value)
}

/// Returns what stands on record of a key that replaces another.
pub(crate) fn rotated(made: &MadeKey, old: &KeyView) -> Value {
    let mut value = key(old);
    value["expires_ms"] = made.expires_ms.into();
    value["replaces"] = old.id.to_string().into();
    value["replaced_expires_ms"] = old.expires_ms.into();
    value
}

fn kind(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Admin(_) => "admin",
        KeyKind::Agent => "agent",
    }
}

/// Returns the differing parts of two values.
pub(crate) fn difference(before: &Value, after: &Value) -> (Value, Value) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before.clone(), after.clone());
    };
    let (mut was, mut is) = (Map::new(), Map::new());
    let names = old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        match (old.get(name), new.get(name)) {
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => {
                let (one, other) = difference(one, other);
                was.insert(name.clone(), one);
                is.insert(name.clone(), other);
            }
            (one, other) => {
                was.insert(name.clone(), one.cloned().unwrap_or(Value::Null));
                is.insert(name.clone(), other.cloned().unwrap_or(Value::Null));
            }
        }
    }
    (Value::Object(was), Value::Object(is))
}

#[cfg(test)]
mod tests {
    use gantry_model::id::ProjectName;

    use super::*;

    fn spec(launch: Value) -> ServerSpec {
        let launch: gantry_model::spec::Launch = serde_json::from_value(launch).unwrap();
        ServerSpec::new("files".parse().unwrap(), launch)
    }

    #[tokio::test]
    async fn secrets_are_fingerprints_and_their_changes_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        let vault = || Vault::open(folder.path(), ProjectName::local(), store.clone(), None);
        let values = Values::new(vault());
        let process = |secret: &str| {
            spec(
                json!({"process": {"command": "npx", "args": ["--token", "hunter2-args"],
                "env": {"NAME": secret}}}),
            )
        };
        let (one, other) = (
            values.spec(&process("hunter2")),
            values.spec(&process("hunter3")),
        );
        for value in [&one, &other] {
            let text = value.to_string();
            assert!(!text.contains("hunter") && text.contains("npx"), "{text}");
        }
        let (was, is) = difference(&one, &other);
        assert_ne!(
            was["launch"]["process"]["env"],
            is["launch"]["process"]["env"]
        );
        assert_eq!(
            was["launch"]["process"].as_object().unwrap().len(),
            1,
            "{was}"
        );
        // The same value has the same fingerprint, after a start too, and another folder another.
        assert_eq!(Values::new(vault()).spec(&process("hunter2")), one);
        let elsewhere = tempfile::tempdir().unwrap();
        let there = Vault::open(elsewhere.path(), ProjectName::local(), store.clone(), None);
        assert_ne!(Values::new(there).spec(&process("hunter2")), one);
        let remote = spec(json!({"remote": {"url": "https://x/mcp?key=hunter2",
            "headers": {"Authorization": "Bearer hunter2"},
            "auth": {"client_id": "me", "client_secret": "hunter2"}}}));
        let text = values.spec(&remote).to_string();
        assert!(
            !text.contains("hunter") && text.contains("https://x/mcp"),
            "{text}"
        );
        store.close().await.unwrap();
    }

    #[test]
    fn only_what_differs_is_told() {
        let (was, is) = difference(
            &json!({"a": 1, "b": {"c": [1], "d": 2}, "gone": true}),
            &json!({"a": 1, "b": {"c": [2], "d": 2}, "new": {"x": 1}}),
        );
        assert_eq!(was, json!({"b": {"c": [1]}, "gone": true, "new": null}));
        assert_eq!(is, json!({"b": {"c": [2]}, "gone": null, "new": {"x": 1}}));
    }
}
