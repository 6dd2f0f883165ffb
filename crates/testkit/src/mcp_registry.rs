//! A registry of MCP servers that speaks the official API (`/v0.1/servers`: search, pages, versions), on
//! plain threads, honest or hostile. Entry point: [`McpRegistryServer::start`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::web::{Connection, Request};

/// How a registry behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryMood {
    /// According to the API.
    Honest,
    /// According to the API, but only as `/v0`.
    Old,
    /// Every page has a next one.
    Endless,
    /// The next page is this one.
    Circles,
    /// It accepts the connection and does not respond.
    Silent,
    /// A response without an end.
    Flood,
    /// This response to every request: status and body.
    Says(u16, String),
    /// It redirects every request.
    Redirects(String),
}

/// A registry that runs until the test ends.
#[derive(Debug)]
pub struct McpRegistryServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl McpRegistryServer {
    /// Starts a registry with these manifests, newest version of each first.
    pub fn start(mood: RegistryMood, manifests: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = (Arc::new((mood, manifests)), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, asked) = shared.clone();
                // A failed connection is visible to its client.
                thread::spawn(move || {
                    let mut connection = Connection::new(stream)?;
                    while let Some(request) = connection.read()? {
                        let target = format!("{}?{}", request.path, request.query);
                        asked
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(target);
                        answer(&mut connection, &request, &known.0, &known.1)?;
                    }
                    Ok::<_, io::Error>(())
                });
            }
        });
        Self { address, asked }
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(
    connection: &mut Connection,
    request: &Request,
    mood: &RegistryMood,
    manifests: &[Value],
) -> io::Result<()> {
    let prefix = match mood {
        RegistryMood::Old => "/v0/servers",
        RegistryMood::Silent => {
            thread::sleep(Duration::from_secs(120));
            return Err(io::ErrorKind::TimedOut.into());
        }
        RegistryMood::Flood => {
            connection.begin(200, &[("Content-Type", "application/json")])?;
            loop {
                connection.piece(&[b' '; 64 << 10])?;
            }
        }
        RegistryMood::Says(status, body) => {
            return connection.json(*status, &[], body.as_bytes());
        }
        RegistryMood::Redirects(to) => {
            return connection.answer(302, &[("Location", to.as_str())], b"");
        }
        RegistryMood::Honest | RegistryMood::Endless | RegistryMood::Circles => "/v0.1/servers",
    };
    let nothing = json!({"error": "Not found"}).to_string();
    let Some(rest) = request.path.strip_prefix(prefix) else {
        return connection.json(404, &[], nothing.as_bytes());
    };
    let parts: Vec<String> = rest.split('/').skip(1).map(decoded).collect();
    let found = match parts.as_slice() {
        [] => Some(list(request, mood, manifests)),
        [name, versions] if versions == "versions" => {
            let own = manifests.iter().filter(|known| known["name"] == **name);
            Some(json!({"servers": own.map(wrapped).collect::<Vec<_>>()}))
        }
        [name, versions, version] if versions == "versions" => {
            let mut own = manifests.iter().filter(|known| known["name"] == **name);
            let is_it = |known: &&Value| version == "latest" || known["version"] == **version;
            own.find(is_it).map(wrapped)
        }
        _ => None,
    };
    match found {
        Some(found) => connection.json(200, &[], found.to_string().as_bytes()),
        None => connection.json(404, &[], nothing.as_bytes()),
    }
}

fn list(request: &Request, mood: &RegistryMood, manifests: &[Value]) -> Value {
    let search = decoded(request.parameter("search").unwrap_or_default()).to_lowercase();
    let limit = request
        .parameter("limit")
        .and_then(|limit| limit.parse().ok());
    let limit: usize = limit.unwrap_or(30);
    let cursor = decoded(request.parameter("cursor").unwrap_or_default());
    let start: usize = cursor.trim_start_matches("at:").parse().unwrap_or(0);
    let name = |known: &Value| known["name"].as_str().unwrap_or_default().to_lowercase();
    let mut latest: Vec<&Value> = Vec::new();
    for known in manifests
        .iter()
        .filter(|known| name(known).contains(&search))
    {
        if !latest.iter().any(|other| other["name"] == known["name"]) {
            latest.push(known);
        }
    }
    let page: Vec<Value> = latest
        .iter()
        .skip(start)
        .take(limit)
        .map(|known| wrapped(known))
        .collect();
    let next = match mood {
        RegistryMood::Endless => Some(format!("at:{}", start + 1)),
        RegistryMood::Circles => Some("at:0".to_owned()),
        RegistryMood::Honest
        | RegistryMood::Old
        | RegistryMood::Silent
        | RegistryMood::Flood
        | RegistryMood::Says(..)
        | RegistryMood::Redirects(_) => {
            (start + limit < latest.len()).then(|| format!("at:{}", start + limit))
        }
    };
    json!({"servers": page, "metadata": {"count": page.len(), "nextCursor": next}})
}

fn wrapped(manifest: &Value) -> Value {
    let status = manifest.pointer("/_meta/test/status").cloned();
    let official = json!({
        "status": status.unwrap_or_else(|| "active".into()),
        "statusMessage": "as the test says",
        "updatedAt": "2026-01-02T03:04:05Z",
        "isLatest": true,
    });
    json!({"server": manifest, "_meta": {"io.modelcontextprotocol.registry/official": official}})
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        let hex = hex.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        rest = match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &after[2..]
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
