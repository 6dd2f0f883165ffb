//! A client of the MCP registry's API (`/v0.1/servers`, or `/v0/servers` of older registries):
//! search, pages, one version of a server. The registry is configured; there is no default.
//!
//! Responses are bounded and checked; texts are escaped for terminals. Entry points:
//! [`McpRegistry::configured`], [`McpRegistry::page`], [`McpRegistry::server`].

use std::time::Duration;

use gantry_engine::{FetchError, FetchLimits, fetch};
use gantry_model::naming::is_unprintable;
use serde_json::Value;

use crate::config::env::GANTRY_MCP_REGISTRY;
use crate::config::manifest::is_server_name;
use crate::data_folder::DataFolder;

use super::CliContext;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::files::{Files, Setup};

/// The size and time limits of one response.
const LIMITS: FetchLimits = FetchLimits {
    bytes: 4 << 20,
    within: Duration::from_secs(30),
};
/// The versions of the API, newest first.
const VERSIONS: [&str; 2] = ["v0.1", "v0"];
/// The member with the registry's own metadata of a server.
const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";
/// The maximum length of a displayed text.
const LONGEST: usize = 400;
/// The maximum length of a cursor.
const LONGEST_CURSOR: usize = 2048;

/// A registry of MCP servers.
#[derive(Debug, Clone)]
pub(super) struct McpRegistry {
    base: String,
}

/// A server as a registry lists it.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// Its name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// Its display name.
    pub(super) title: String,
    pub(super) description: String,
    /// `active`, `deprecated` or `deleted`, if the registry says.
    pub(super) status: String,
    pub(super) status_message: String,
    pub(super) updated: String,
    /// What it can be run from, such as `npm` and `remote`.
    pub(super) kinds: Vec<String>,
    /// The manifest as received.
    pub(super) manifest: Value,
}

/// One page of a list.
#[derive(Debug, Default)]
pub(super) struct RegistryPage {
    pub(super) servers: Vec<Listed>,
    /// How many entries could not be read.
    pub(super) unreadable: usize,
    /// The cursor of the next page.
    pub(super) next: Option<String>,
}

impl McpRegistry {
    /// Returns the registry configured by the flag, the environment, or `[gateway]`.
    pub(super) fn configured(flag: Option<&str>, context: &CliContext) -> Result<Self, Failure> {
        let of_environment = || context.environment.filled(GANTRY_MCP_REGISTRY);
        let given = flag.or_else(of_environment).map(str::to_owned);
        let base = match given {
            Some(base) => Some(base),
            None => of_files(context),
        };
        let base = base.ok_or_else(|| {
            Failure::new(Exit::Usage, "no MCP registry is configured").hint(
                "pass `--registry URL`, set `GANTRY_MCP_REGISTRY`, or write `mcp_registry = \"URL\"` under \
                 `[gateway]`",
            )
        })?;
        let is_url = base.starts_with("https://") || base.starts_with("http://");
        if !is_url || base.contains(['?', '#']) {
            let message = "the MCP registry must be an http or https URL";
            return Err(Failure::new(Exit::Usage, message));
        }
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns one page of the servers whose name contains a text; the latest version of each.
    pub(super) async fn page(
        &self,
        search: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<RegistryPage, Failure> {
        let mut query = format!("?version=latest&limit={limit}&search={}", segment(search));
        if let Some(cursor) = cursor {
            query.push_str(&format!("&cursor={}", segment(cursor)));
        }
        let answer = self.ask(&format!("servers{query}")).await?;
        let answer = answer.ok_or_else(|| {
            self.failed("it does not have the API of an MCP registry")
                .hint("give the URL without `/v0.1/servers`")
        })?;
        let servers = answer.get("servers").and_then(Value::as_array);
        let servers =
            servers.ok_or_else(|| self.failed("its response is not a list of servers"))?;
        let mut page = RegistryPage::default();
        for server in servers {
            match Listed::of(server) {
                Some(server) => page.servers.push(server),
                None => page.unreadable += 1,
            }
        }
        let next = answer.pointer("/metadata/nextCursor");
        let next = next.or_else(|| answer.pointer("/metadata/next_cursor"));
        page.next = match next {
            None | Some(Value::Null) => None,
            Some(Value::String(next)) if next.is_empty() => None,
            Some(Value::String(next)) if next.len() <= LONGEST_CURSOR => Some(next.clone()),
            Some(_) => return Err(self.failed("its `nextCursor` is not a text")),
        };
        Ok(page)
    }

    /// Returns one version of a server, the latest unless another is named.
    pub(super) async fn server(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Listed, Failure> {
        let version = version.unwrap_or("latest");
        let path = format!("servers/{}/versions/{}", segment(name), segment(version));
        let Some(answer) = self.ask(&path).await? else {
            let message = format!("the registry has no server `{name}` of version `{version}`");
            return Err(Failure::new(Exit::Failed, message)
                .hint("`gantry search WORD` lists the names it has"));
        };
        let listed = Listed::of(&answer);
        let listed = listed.ok_or_else(|| self.failed("its response is not a server"))?;
        if listed.name != name {
            return Err(self.failed(&format!(
                "it answered with another server, `{}`",
                listed.name
            )));
        }
        if version != "latest" && listed.version != version {
            return Err(self.failed(&format!("it answered with version `{}`", listed.version)));
        }
        Ok(listed)
    }

    /// Queries the newest API version that the registry has; nothing if the item does not exist.
    async fn ask(&self, path: &str) -> Result<Option<Value>, Failure> {
        for version in VERSIONS {
            let url = format!("{}/{version}/{path}", self.base);
            let fetched = fetch(&url, LIMITS)
                .await
                .map_err(|error| unfetched(&error))?;
            match fetched.status {
                200 => {
                    let value: Result<Value, _> = serde_json::from_slice(&fetched.body);
                    return value
                        .map(Some)
                        .map_err(|_| self.failed("its answer is not JSON"));
                }
                404 => {}
                429 => return Err(self.failed("it accepts no more requests for now (429)")),
                status => return Err(self.failed(&format!("it answered {status}"))),
            }
        }
        Ok(None)
    }

    fn failed(&self, why: &str) -> Failure {
        let why = plain(why);
        Failure::new(
            Exit::Failed,
            format!("the MCP registry {} cannot be used", self.base),
        )
        .cause(why)
    }
}

/// Returns the registry configured in the files of this folder and of the home.
fn of_files(context: &CliContext) -> Option<String> {
    let data = DataFolder::at(context.data_path().ok()?);
    let files = Files {
        config: Vec::new(),
        no_discover: false,
    };
    let setup = Setup::new(&files, data, context).ok()?;
    setup.load().ok()?.settings.mcp_registry
}

/// Describes why a document could not be fetched.
pub(super) fn unfetched(error: &FetchError) -> Failure {
    let failure = Failure::new(Exit::Failed, error.to_string());
    match error {
        FetchError::Address { .. } => failure.hint(
            "only public addresses are reached, and those that the URL itself names by address or as \
             `localhost`",
        ),
        FetchError::Url { .. }
        | FetchError::Unreachable { .. }
        | FetchError::Redirect { .. }
        | FetchError::TooLarge { .. }
        | FetchError::Slow { .. } => failure,
    }
}

impl Listed {
    /// Parses an entry; nothing if it has no name or version.
    fn of(entry: &Value) -> Option<Self> {
        let server = entry.get("server").filter(|server| server.is_object());
        let server = server.unwrap_or(entry);
        let text = |value: &Value, pointer: &str| {
            let text = value.pointer(pointer).and_then(Value::as_str);
            plain(text.unwrap_or_default())
        };
        let name = server.get("name").and_then(Value::as_str)?;
        let version = server.get("version").and_then(Value::as_str)?;
        if !is_server_name(name) || version.is_empty() || version.chars().any(is_unprintable) {
            return None;
        }
        let meta = entry.get("_meta").or_else(|| server.get("_meta"));
        let official = meta.and_then(|meta| meta.get(OFFICIAL));
        let official = official.unwrap_or(&Value::Null);
        let status = match text(official, "/status") {
            status if status.is_empty() => text(server, "/status"),
            status => status,
        };
        Some(Self {
            name: name.to_owned(),
            version: plain(version),
            title: text(server, "/title"),
            description: text(server, "/description"),
            status,
            status_message: text(official, "/statusMessage"),
            updated: text(official, "/updatedAt"),
            kinds: kinds(server),
            manifest: server.clone(),
        })
    }
}

/// Returns what a server can be run from.
fn kinds(server: &Value) -> Vec<String> {
    let list = |name: &str| server.get(name).and_then(Value::as_array);
    let packages = list("packages").into_iter().flatten();
    let packages = packages.filter_map(|package| package.get("registryType")?.as_str());
    let mut kinds: Vec<String> = packages.map(plain).collect();
    if list("remotes").is_some_and(|remotes| !remotes.is_empty()) {
        kinds.push("remote".to_owned());
    }
    kinds.dedup();
    kinds.truncate(6);
    kinds
}

/// Returns a text as one line, escaped for terminals.
fn plain(text: &str) -> String {
    let spaced = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c });
    let harmless = spaced.filter(|c| !is_unprintable(*c));
    harmless.take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_read_strictly_and_made_harmless() {
        let entry = json!({
            "server": {
                "name": "io.github.a/b", "version": "1.0.0", "title": "B\u{1b}[31m\u{202e}",
                "description": "line\nbreak\u{7}", "packages": [
                    {"registryType": "npm"}, {"registryType": "npm"}, {"registryType": 3}],
                "remotes": [{}],
            },
            "_meta": {OFFICIAL: {"status": "deprecated", "updatedAt": "2026-01-01T00:00:00Z"}},
        });
        let listed = Listed::of(&entry).unwrap();
        assert_eq!(listed.title, "B[31m");
        assert_eq!(listed.description, "line break");
        assert_eq!(listed.kinds, ["npm", "remote"]);
        assert_eq!(listed.status, "deprecated");
        for wrong in [
            json!(3),
            json!({}),
            json!({"server": {"name": "no-slash", "version": "1"}}),
            json!({"server": {"name": "a.b/c\u{1b}", "version": "1"}}),
            json!({"server": {"name": "a.b/c", "version": 1}}),
            json!({"server": {"name": "a.b/c", "version": ""}}),
        ] {
            assert!(Listed::of(&wrong).is_none(), "{wrong}");
        }
    }
}
