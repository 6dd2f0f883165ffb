//! Remembers which server named a URI to a client: in a link, an embedded resource, or a read. Such
//! a URI can be read although it is in no list; if two servers have equal URIs, the one that named
//! it last is used.
//!
//! Kept by session, or by agent without one. Bounded in number and bytes for each agent, and in
//! agents; the least recently used is forgotten. Only finds the server: whether the agent may read
//! the URI is decided as usual. Entry points: [`Links::note`] and [`Links::server_of`].

use std::collections::HashMap;
use std::sync::LazyLock;

use gantry_model::id::{AgentName, ServerName};
use gantry_model::mcp::{Method, linked};
use memchr::memmem::Finder;
use parking_lot::Mutex;

use crate::server::handshake::readable;
use crate::server::topics::LONGEST_URI;

/// The most URIs that are remembered per agent.
const MOST: usize = 4_096;
/// The most bytes of these URIs.
const MOST_BYTES: usize = 512 << 10;
/// The most agents with remembered URIs.
const MOST_AGENTS: usize = 256;

/// Every content block that names a resource contains this.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"resource"));

/// The URIs of all agents, with their servers.
#[derive(Default)]
pub(crate) struct Links(Mutex<LinkTable>);

#[derive(Default)]
struct LinkTable {
    agents: HashMap<AgentName, AgentLinks>,
    /// A logical clock of notes and lookups.
    now: u64,
}

/// The URIs of one agent, by session.
#[derive(Default)]
struct AgentLinks {
    sessions: HashMap<Option<u128>, HashMap<Box<str>, LinkEntry>>,
    count: usize,
    bytes: usize,
    used: u64,
}

struct LinkEntry {
    server: ServerName,
    used: u64,
}

impl Links {
    /// Remembers the resources that a result names, except `asked`, the requested one.
    pub(super) fn note(
        &self,
        (agent, session): (&AgentName, Option<u128>),
        server: &ServerName,
        method: Option<Method>,
        (result, asked): (&[u8], &str),
    ) {
        let Some(method) = method else { return };
        // Most results name none, and are not parsed.
        let is_read = method == Method::ResourcesRead;
        let may_name =
            matches!(method, Method::ToolsCall | Method::PromptsGet) && MARK.find(result).is_some();
        if !is_read && !may_name {
            return;
        }
        let mut uris = Vec::new();
        linked(method, readable(result), |uri| {
            if uri.len() <= LONGEST_URI && uri != asked && uris.len() < MOST {
                uris.push(uri.into_owned());
            }
        });
        if uris.is_empty() {
            return;
        }
        let mut table = self.0.lock();
        let LinkTable { agents, now } = &mut *table;
        if !agents.contains_key(agent) && agents.len() >= MOST_AGENTS {
            let oldest = agents.iter().min_by_key(|(_, given)| given.used);
            let oldest = oldest.map(|(agent, _)| agent.clone());
            oldest.and_then(|oldest| agents.remove(&oldest));
        }
        let given = agents.entry(agent.clone()).or_default();
        for uri in uris {
            *now += 1;
            given.used = *now;
            given.add((session, uri), server, *now);
        }
    }

    /// Returns the server that last named this URI to a client.
    pub(super) fn server_of(
        &self,
        (agent, session): (&AgentName, Option<u128>),
        uri: &str,
    ) -> Option<ServerName> {
        let mut table = self.0.lock();
        table.now += 1;
        let now = table.now;
        let given = table.agents.get_mut(agent)?;
        given.used = now;
        let entry = given.sessions.get_mut(&session)?.get_mut(uri)?;
        entry.used = now;
        Some(entry.server.clone())
    }
}

impl AgentLinks {
    fn add(&mut self, (session, uri): (Option<u128>, String), server: &ServerName, used: u64) {
        let (server, length) = (server.clone(), uri.len());
        let uris = self.sessions.entry(session).or_default();
        let before = uris.insert(uri.into(), LinkEntry { server, used });
        if before.is_none() {
            self.count += 1;
            self.bytes += length;
        }
        if self.count > MOST || self.bytes > MOST_BYTES {
            self.forget_half();
        }
    }

    /// Forgets the least recently used half.
    fn forget_half(&mut self) {
        let entries = self.sessions.values().flat_map(HashMap::values);
        let mut used: Vec<u64> = entries.map(|entry| entry.used).collect();
        let middle = used.len() / 2;
        let (_, &mut limit, _) = used.select_nth_unstable(middle);
        (self.count, self.bytes) = (0, 0);
        self.sessions.retain(|_, uris| {
            uris.retain(|_, entry| entry.used > limit);
            self.count += uris.len();
            self.bytes += uris.keys().map(|uri| uri.len()).sum::<usize>();
            !uris.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(links: &Links, agent: &str, server: &str, uris: &[String]) {
        let blocks = uris
            .iter()
            .map(|uri| format!(r#"{{"type":"resource_link","uri":"{uri}"}}"#));
        let blocks: Vec<String> = blocks.collect();
        let result = format!(r#"{{"content":[{}]}}"#, blocks.join(","));
        let (agent, server) = (agent.parse().unwrap(), server.parse().unwrap());
        let result = (result.as_bytes(), "");
        links.note((&agent, None), &server, Some(Method::ToolsCall), result);
    }

    fn owner(links: &Links, agent: &str, uri: &str) -> Option<String> {
        let server = links.server_of((&agent.parse().unwrap(), None), uri)?;
        Some(server.to_string())
    }

    #[test]
    fn what_a_session_was_given_no_other_has() {
        let links = Links::default();
        let (agent, server) = ("a".parse().unwrap(), "one".parse().unwrap());
        let result = br#"{"content":[{"type":"resource_link","uri":"x:1"}]}"#;
        let method = Some(Method::ToolsCall);
        links.note((&agent, Some(1)), &server, method, (&result[..], ""));
        let owner = |session| links.server_of((&agent, session), "x:1");
        assert_eq!(owner(Some(1)), Some(server));
        assert_eq!(owner(Some(2)), None);
        assert_eq!(owner(None), None);
    }

    #[test]
    fn the_last_server_that_named_a_uri_to_an_agent_has_it() {
        let links = Links::default();
        given(&links, "a", "one", &["x:1".to_owned(), "x:2".to_owned()]);
        given(&links, "a", "two", &["x:1".to_owned()]);
        given(&links, "b", "three", &["x:2".to_owned()]);
        assert_eq!(owner(&links, "a", "x:1").as_deref(), Some("two"));
        assert_eq!(owner(&links, "a", "x:2").as_deref(), Some("one"));
        assert_eq!(owner(&links, "b", "x:2").as_deref(), Some("three"));
        assert_eq!(owner(&links, "b", "x:1"), None);
        assert_eq!(owner(&links, "c", "x:1"), None);
    }

    #[test]
    fn what_is_not_used_is_forgotten_before_it_takes_too_much() {
        let links = Links::default();
        given(&links, "a", "one", &["x:kept".to_owned()]);
        for round in 0..40 {
            let long = |n: usize| format!("x:{round}-{n}-{}", "y".repeat(200));
            let uris: Vec<String> = (0..400).map(long).collect();
            given(&links, "a", "one", &uris);
            assert!(owner(&links, "a", "x:kept").is_some(), "{round}");
            let table = links.0.lock();
            let held = &table.agents[&"a".parse().unwrap()];
            assert!(held.bytes <= MOST_BYTES && held.count <= MOST);
        }
        assert_eq!(
            owner(&links, "a", &format!("x:0-0-{}", "y".repeat(200))),
            None
        );
        for agent in 0..2 * MOST_AGENTS {
            given(
                &links,
                &format!("agent-{agent}"),
                "one",
                &["x:1".to_owned()],
            );
        }
        assert_eq!(links.0.lock().agents.len(), MOST_AGENTS);
        let long = format!("x:{}", "z".repeat(LONGEST_URI));
        given(&links, "a", "one", std::slice::from_ref(&long));
        assert_eq!(owner(&links, "a", &long), None);
    }
}
