//! Gantry's own entry in a client's file: writing it, and recognising it, so that an import never
//! imports Gantry itself.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::dialect::Tools;
use super::{Client, Http};

/// The prefix of every agent key.
pub const KEY_PREFIX: &str = "gantry_agent_";

/// How a client connects to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Over HTTP, with a key.
    Http {
        /// The endpoint.
        url: String,
        /// The key's text.
        key: String,
    },
    /// A command that the client starts.
    Stdio {
        /// This program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// The members of Gantry's entry that Gantry manages; others belong to the user.
pub const MEMBERS: [&str; 7] = [
    "type",
    "url",
    "httpUrl",
    "headers",
    "command",
    "args",
    "transportType",
];

/// Returns the members that update Gantry's entry: the user's additional headers and tool choices
/// are kept.
pub fn renewed(client: &Client, way: &Way, known: &Value) -> Map<String, Value> {
    let mut members = entry(client, way);
    if known.get("tools").is_some() {
        members.shift_remove("tools");
    }
    let headers = known.get("headers").and_then(Value::as_object);
    if let (Some(new), Some(headers)) = (members.get_mut("headers"), headers) {
        let bearer = new["Authorization"].take();
        let mut merged = headers.clone();
        let name = headers
            .keys()
            .find(|name| name.eq_ignore_ascii_case("authorization"));
        let name = name.map_or_else(|| "Authorization".to_owned(), Clone::clone);
        merged.insert(name, bearer);
        *new = Value::Object(merged);
    }
    members
}

/// Returns the members of Gantry's entry in this client's format.
pub fn entry(client: &Client, way: &Way) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| {
        entry.insert(key.to_owned(), value);
    };
    match way {
        Way::Http { url, key } => {
            match client.http {
                Http::Typed(kind) => put("type", Value::from(kind)),
                Http::No | Http::Untyped | Http::Member(_) => {}
            }
            let member = match client.http {
                Http::Member(member) => member,
                Http::No | Http::Typed(_) | Http::Untyped => "url",
            };
            put(member, Value::from(url.as_str()));
            put("headers", json!({"Authorization": format!("Bearer {key}")}));
        }
        Way::Stdio { command, args } => {
            if let Some(kind) = client.dialect.stdio_type {
                put("type", Value::from(kind));
            }
            put("command", Value::from(command.as_str()));
            put("args", json!(args));
        }
    }
    if client.dialect.tools == Tools::Allowed {
        put("tools", json!(["*"]));
    }
    entry
}

/// Returns how an entry connects to a gateway; `None` for other servers.
pub fn way_of(entry: &Value) -> Option<Way> {
    if let Some(command) = entry.get("command").and_then(Value::as_str) {
        let program = Path::new(command).file_name()?;
        let args = entry.get("args").and_then(Value::as_array);
        let args: Vec<String> = args
            .into_iter()
            .flatten()
            .filter_map(|arg| arg.as_str().map(str::to_owned))
            .collect();
        let ours = program == "gantry" && args.iter().any(|arg| arg == "stdio");
        return ours.then(|| Way::Stdio {
            command: command.to_owned(),
            args,
        });
    }
    let url = ["httpUrl", "url"]
        .iter()
        .find_map(|member| entry.get(*member));
    let url = url.and_then(Value::as_str)?;
    let key = key_of(entry)?;
    Some(Way::Http {
        url: url.to_owned(),
        key,
    })
}

/// Returns the key that an entry sends, or the variable that holds it.
fn key_of(entry: &Value) -> Option<String> {
    let headers = entry.get("headers")?.as_object()?;
    let bearer = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?;
    let key = bearer.1.as_str()?.strip_prefix("Bearer ")?.trim();
    (key.starts_with(KEY_PREFIX) || key.contains("GANTRY_KEY")).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::CLIENTS;
    use super::*;

    #[test]
    fn what_is_written_is_known_again_in_every_client() {
        let http = Way::Http {
            url: "http://127.0.0.1:4180/mcp".to_owned(),
            key: format!("{KEY_PREFIX}x"),
        };
        let stdio = Way::Stdio {
            command: "/opt/bin/gantry".to_owned(),
            args: vec!["stdio".to_owned(), "--data".to_owned(), "/d".to_owned()],
        };
        for client in &CLIENTS {
            for way in [&http, &stdio] {
                let entry = Value::Object(entry(client, way));
                assert_eq!(way_of(&entry).as_ref(), Some(way), "{}", client.id);
                let normal = client.dialect.normalise(&entry).unwrap();
                assert!(
                    normal.members.contains_key("url") || normal.members.contains_key("command"),
                    "{} would not read what is written: {entry}",
                    client.id
                );
            }
        }
    }

    #[test]
    fn what_a_person_added_stays() {
        let client = super::super::find("copilot").unwrap();
        let way = Way::Http {
            url: "http://127.0.0.1:1/mcp".to_owned(),
            key: format!("{KEY_PREFIX}new"),
        };
        let known = json!({"type": "http", "url": "http://127.0.0.1:2/mcp", "tools": ["a"],
            "headers": {"X-Gantry-User-Id": "me", "authorization": "Bearer gantry_agent_old"}});
        let members = Value::Object(renewed(client, &way, &known));
        assert_eq!(
            members,
            json!({"type": "http", "url": "http://127.0.0.1:1/mcp",
                "headers": {"X-Gantry-User-Id": "me", "authorization": "Bearer gantry_agent_new"}})
        );
    }

    #[test]
    fn other_servers_are_not_ours() {
        for entry in [
            json!({"command": "npx", "args": ["-y", "gantry", "stdio"]}),
            json!({"command": "/usr/bin/gantry", "args": ["example-server"]}),
            json!({"url": "http://127.0.0.1:4180/mcp"}),
            json!({"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer sk-1"}}),
        ] {
            assert_eq!(way_of(&entry), None, "{entry}");
        }
        let printed = json!({"type": "http", "url": "http://127.0.0.1:1/mcp",
            "headers": {"authorization": "Bearer ${GANTRY_KEY}"}});
        assert!(way_of(&printed).is_some(), "what `gantry up` shows is ours");
    }
}
