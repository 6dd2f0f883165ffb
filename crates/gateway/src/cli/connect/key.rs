//! The key of a connected client: the one it has if it is still valid, one given by the user, or a
//! new one, created over the admin API and identified by its label.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gantry_model::hex::hex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::config::approval::Digest;
use crate::config::clients::ours::KEY_PREFIX;
use crate::data_folder::DataFolder;

use super::super::CliContext;
use super::super::client::{Client, segment};
use super::super::failure::Failure;
use super::super::find::Role;
use super::super::format::{list, text};
use super::super::up::DEFAULT_AGENT;

/// Maximum length of a key's label.
const LABEL: usize = 128;
/// How many bytes of a digest distinguish shortened labels.
const DIGEST_BYTES: usize = 8;

/// The path of the key list.
const KEYS: &str = "/api/v1/keys?limit=1000";

/// A client's key.
#[derive(Debug)]
pub(super) enum Key {
    /// None is needed.
    None,
    /// It was there before.
    Known(String),
    /// It was made just now.
    Made { id: String, key: String },
}

impl Key {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::None => "",
            Self::Known(key) | Self::Made { key, .. } => key,
        }
    }
}

/// The keys of one client's file.
pub(super) struct Keys<'a> {
    context: &'a CliContext,
    label: String,
}

impl<'a> Keys<'a> {
    pub(super) fn new(context: &'a CliContext, label: String) -> Self {
        Self { context, label }
    }

    /// Returns a client of the admin API.
    pub(super) fn admin(&self) -> Result<Client, Failure> {
        self.context.client(Role::Admin)
    }

    /// Returns the key to write.
    pub(super) async fn settle(&self, known: Option<String>) -> Result<Key, Failure> {
        if let Some(key) = known
            && self.opens(&key).await
        {
            return Ok(Key::Known(key));
        }
        if let Some(file) = &self.context.key_file
            && let Ok(key) = fs::read_to_string(file)
            && key.starts_with(KEY_PREFIX)
        {
            return Ok(Key::Known(key.trim().to_owned()));
        }
        let admin = self.admin()?;
        let keys = admin.get_all(KEYS).await?;
        let known = list(&keys, "/items");
        if !known.is_empty() && !known.iter().any(|key| key["agent"] == DEFAULT_AGENT) {
            // A key would recreate a removed agent, without grants.
            let agent = admin.get(&format!("/api/v1/agents/{DEFAULT_AGENT}")).await;
            agent.map_err(|failure| failure.hint("make it again with `gantry agent restore`"))?;
        }
        // A key that this file had and lost is revoked.
        for id in labelled(&self.label, &keys) {
            admin
                .delete(&format!("/api/v1/keys/{}", segment(&id)))
                .await?;
        }
        let wanted = json!({"kind": "agent", "label": self.label});
        let made = admin.post("/api/v1/keys", Some(&wanted)).await?;
        Ok(Key::Made {
            id: text(&made, "/id"),
            key: text(&made, "/key"),
        })
    }

    /// Revokes a key that could not be written.
    pub(super) async fn undo(&self, key: &Key) {
        if let (Key::Made { id, .. }, Ok(admin)) = (key, self.admin()) {
            let undone = admin.delete(&format!("/api/v1/keys/{}", segment(id))).await;
            if undone.is_err() {
                tracing::warn!(%id, "an unused key could not be revoked");
            }
        }
    }

    /// Returns the label of the file's keys.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Returns whether the gateway has a key for this file.
    pub(super) async fn is_known(&self) -> bool {
        match self.admin() {
            Ok(admin) => ids(&self.label, &admin)
                .await
                .is_ok_and(|ids| !ids.is_empty()),
            Err(_) => false,
        }
    }

    /// Revokes the file's keys and returns how many; nothing if the gateway cannot be reached.
    pub(super) async fn revoke(&self) -> Option<usize> {
        self.revoke_by(&self.admin().ok()?).await
    }

    /// Revokes the file's keys at another folder's gateway.
    pub(super) async fn revoke_at(&self, data: &DataFolder) -> Option<usize> {
        let url = data.running()?.url;
        let key = fs::read_to_string(data.admin_key()).ok()?;
        self.revoke_by(&Client::new(&url, key.trim()).ok()?).await
    }

    async fn revoke_by(&self, admin: &Client) -> Option<usize> {
        let ids = ids(&self.label, admin).await.ok()?;
        for id in &ids {
            admin
                .delete(&format!("/api/v1/keys/{}", segment(id)))
                .await
                .ok()?;
        }
        Some(ids.len())
    }

    /// Remembers the file's key, so that its entry is recognised, and cancels its scheduled
    /// revocation.
    pub(super) fn note(&self, key: &str) {
        let Some(data) = self.own_data().filter(|data| data.path().is_dir()) else {
            return;
        };
        if let Err(error) = data.note_client_key(&self.label, &fingerprint(key)) {
            tracing::debug!(%error, "the key of a client could not be noted");
        }
        let all = BTreeMap::from([(self.label.clone(), u64::MAX)]);
        if let Err(error) = data.no_longer_revoke(&all) {
            tracing::warn!(%error, "the next start may revoke the client's key");
        }
    }

    /// Returns whether this folder gave a key to the file.
    pub(super) fn is_noted(&self, key: &str) -> bool {
        let data = self.own_data();
        data.is_some_and(|data| self.is_noted_in(&data, key))
    }

    /// Returns whether the gateway of a data folder gave a key to the file.
    pub(super) fn is_noted_in(&self, data: &DataFolder, key: &str) -> bool {
        data.client_keys().remove(&self.label) == Some(fingerprint(key))
    }

    /// Returns whether this folder gave the file any key.
    pub(super) fn has_note(&self) -> bool {
        let data = self.own_data();
        data.is_some_and(|data| data.client_keys().contains_key(&self.label))
    }

    /// Returns this folder's data, unless `--url` selects a gateway.
    fn own_data(&self) -> Option<DataFolder> {
        let path = self.context.data_path().ok();
        path.filter(|_| self.context.url.is_none())
            .map(DataFolder::at)
    }

    /// Returns whether the gateway accepts a key.
    pub(super) async fn opens(&self, key: &str) -> bool {
        let url = self.context.url.clone().or_else(|| {
            let folder = DataFolder::at(self.context.data_path().ok()?);
            Some(folder.running()?.url)
        });
        match url.and_then(|url| Client::new(&url, key).ok()) {
            Some(client) => client.get("/api/v1/tools").await.is_ok(),
            None => false,
        }
    }
}

/// Returns the ids of a gateway's keys with a label.
async fn ids(label: &str, admin: &Client) -> Result<Vec<String>, Failure> {
    Ok(labelled(label, &admin.get_all(KEYS).await?))
}

/// Returns the ids of the keys with a label.
fn labelled(label: &str, keys: &Value) -> Vec<String> {
    let ours = list(keys, "/items")
        .iter()
        .filter(|key| key["label"] == label);
    ours.map(|key| text(key, "/id")).collect()
}

/// Returns the fingerprint of a key.
fn fingerprint(key: &str) -> String {
    Digest::of(key.as_bytes()).as_str().to_owned()
}

/// Returns the unique label of a client file's key: one that is too long or ambiguous ends with a
/// digest.
pub(super) fn label(client: &str, name: &str, path: &Path) -> String {
    let shown = path.to_string_lossy();
    let label = match name {
        "gantry" => format!("{client}, {shown}"),
        name => format!("{client} as {name}, {shown}"),
    };
    let is_whole = path.to_str().is_some()
        && !name.contains(',')
        && label.chars().count() <= LABEL
        && !label.contains(char::is_control);
    if is_whole {
        return label;
    }
    let parts = [
        client.as_bytes(),
        name.as_bytes(),
        path.as_os_str().as_encoded_bytes(),
    ];
    // The separator byte cannot occur in any part.
    let digest = Sha256::digest(parts.join(&0));
    let digest = hex(&digest[..DIGEST_BYTES]);
    let kept = LABEL - digest.len() - 2;
    let letters = label.chars().filter(|letter| !letter.is_control());
    let begin: String = letters.take(kept).collect();
    format!("{begin}… {digest}")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    // First hour 2
    #[tokio::test]
    async fn keys_are_found_on_every_page() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gateway = std::thread::spawn(move || {
            let pages = [
                (
                    "limit=1000 ",
                    json!({"items": [{"id": "key_1", "label": "a"}], "next_cursor": "x"}),
                ),
                (
                    "limit=1000&cursor=x ",
                    json!({"items": [{"id": "key_2", "label": "b"}], "next_cursor": "y"}),
                ),
                (
                    "limit=1000&cursor=y ",
                    json!({"items": [{"id": "key_3", "label": "a"}]}),
                ),
            ];
            for (asked, page) in pages {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> = lines
                    .map(Result::unwrap)
                    .take_while(|line| !line.is_empty())
                    .collect();
                assert!(head[0].contains(asked), "{head:?}");
                let body = page.to_string();
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                )
                .unwrap();
            }
        });
        let admin = Client::new(&url, "k").unwrap();
        assert_eq!(ids("a", &admin).await.unwrap(), ["key_1", "key_3"]);
        gateway.join().unwrap();
    }

    #[test]
    fn no_two_files_have_one_label() {
        let deep = |last: &str| format!("/{}/{last}", "folder/".repeat(30));
        let (one, other) = (deep("a.json"), deep("b.json"));
        let labels = [
            label("cursor", "gantry", Path::new("/home/me/.cursor/mcp.json")),
            label("cursor", "mine", Path::new("/home/me/.cursor/mcp.json")),
            label("cursor", "gantry", Path::new(&one)),
            label("cursor", "gantry", Path::new(&other)),
            label("cursor", "gantry", Path::new("/a\nb")),
            label("cursor", "gantry", Path::new("/ab")),
            label("cursor", "a, /x", Path::new("/y")),
            label("cursor", "a", Path::new("/x, /y")),
        ];
        for (at, label) in labels.iter().enumerate() {
            assert!(label.chars().count() <= LABEL, "{label}");
            assert!(!label.contains(char::is_control), "{label:?}");
            assert!(!labels[..at].contains(label), "{label} twice");
        }
        assert_eq!(labels[0], "cursor, /home/me/.cursor/mcp.json");
        let again = label("cursor", "gantry", Path::new(&one));
        assert_eq!(labels[2], again, "the label of a file stays");
    }
}
