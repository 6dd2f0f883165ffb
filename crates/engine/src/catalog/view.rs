//! The view of one set of grants in one scope: names in both directions, and the lists as bytes.
//!
//! Built once and then only read; finding a tool takes one lookup. Items without a grant are
//! neither listed nor found (row 2.16): they resolve to `NotGranted`, with their server. A server that
//! is down is not listed, but a call by name still finds it, so that the error is "down" and not
//! "unknown".

mod build;
mod linked;
mod notes;
mod paging;
mod shaped;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use gantry_model::grant::{GrantSet, MethodClass, NormalUri};
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::{Raw, RawBuf};
use gantry_model::mcp::ToolDef;
use gantry_model::naming::{self, Names, Rules, ToolId};

use super::template::Template;
use super::{CatalogEntry, Snapshot};
use crate::native::Native;
use crate::request::Scope;
use crate::server::handle::ServerHandle;
use crate::server::handshake::HandshakeInfo;
use crate::tool::Tool;

/// The meaning of a name that a client sent.
pub(crate) enum Resolution {
    /// A tool of a server.
    Bound {
        server: Arc<ServerHandle>,
        tool: Arc<Tool>,
    },
    /// A tool that runs inside the gateway.
    Native(Arc<Native>),
    /// A prompt or a resource; or a tool of a server whose tools are not known, or that is down.
    Named {
        server: Arc<ServerHandle>,
        item: String,
    },
    /// It exists, but there is no grant for it.
    NotGranted { server: ServerName, item: String },
    /// It does not exist.
    Unknown,
}

/// A tool as a caller sees it.
#[derive(Debug, Clone)]
pub struct ListedTool {
    /// The name under which it is called.
    pub name: String,
    /// The server that offers it; `native` for tools that run inside the gateway.
    pub server: ServerName,
    /// The server's name for it.
    pub tool: String,
    /// The display name.
    pub title: Option<String>,
    /// The description for models.
    pub description: Option<String>,
    /// The schema of the arguments.
    pub input_schema: RawBuf,
    /// The schema of the structured result.
    pub output_schema: Option<RawBuf>,
    /// Hints about its behaviour; not trustworthy.
    pub annotations: Option<RawBuf>,
    /// A counter and the beginning of a hash; changes with the definition.
    pub version: String,
}

impl ListedTool {
    /// Returns the identity `server:tool`, which is accepted wherever the name is.
    pub fn identity(&self) -> String {
        format!("{}:{}", self.server, self.tool)
    }
}

/// A tool and its location.
#[derive(Clone)]
enum Found {
    Tool { server: usize, tool: Arc<Tool> },
    Native(Arc<Native>),
}

/// An existing item without a grant.
struct NotGranted {
    server: ServerName,
    item: Arc<str>,
}

/// A resource template and its server.
struct Pattern {
    text: Arc<str>,
    template: Template,
    server: usize,
}

/// An entry of the lists of prompts, resources and templates: the server, the index in its own
/// list, and the exposed name.
struct Listed {
    server: usize,
    place: usize,
    name: Option<Arc<str>>,
}

/// The view of one set of grants in one scope.
pub(crate) struct View {
    snapshot: Arc<Snapshot>,
    grants: Arc<GrantSet>,
    scope: Scope,
    /// By exposed name and by identity.
    tools: HashMap<Box<str>, Found>,
    other_tools: HashMap<Box<str>, NotGranted>,
    listed_tools: Vec<(Arc<str>, Found)>,
    /// All of the caller's tools in order, and whether each is listed now.
    own_tools: Vec<(ToolId, bool)>,
    /// Their names for each target, created on first use.
    shaped_names: [OnceLock<Names>; 4],
    rules: Rules,
    prompts: HashMap<Box<str>, (usize, Arc<str>)>,
    other_prompts: HashMap<Box<str>, NotGranted>,
    listed_prompts: Vec<Listed>,
    resources: HashMap<Arc<str>, usize>,
    other_resources: HashMap<Arc<str>, usize>,
    listed_resources: Vec<Listed>,
    patterns: Vec<Pattern>,
    listed_templates: Vec<Listed>,
    warnings: Vec<String>,
    collisions: Vec<Collision>,
    /// Tools that have no name here, and why.
    nameless: Vec<(ToolId, String)>,
    /// The first page of each list.
    pages: [OnceLock<Bytes>; 4],
}

/// The capabilities of a caller's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// There are tools.
    pub tools: bool,
    /// There are prompts.
    pub prompts: bool,
    /// There are resources or templates.
    pub resources: bool,
    /// Some of those resources can be subscribed to.
    pub subscriptions: bool,
    /// Arguments can be completed.
    pub completions: bool,
    /// Servers log through the protocol.
    pub logging: bool,
}

/// A resource that is not listed, since another server offers the same URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The URI, or the template.
    pub uri: String,
    /// The server whose resource is hidden.
    pub server: ServerName,
    /// The server whose resource is listed.
    pub listed: ServerName,
}

/// Returns whether a server belongs to a scope.
pub(super) fn is_in(scope: &Scope, server: &ServerName) -> bool {
    match scope {
        Scope::All => true,
        Scope::Server(only) => only == server,
    }
}

/// Returns whether any grant names the server.
pub(super) fn may_use(grants: &GrantSet, server: &ServerName) -> bool {
    grants.shows(MethodClass::Lifecycle, server, None)
}

impl View {
    /// Returns whether the view belongs to these grants.
    pub(super) fn is_of(&self, grants: &Arc<GrantSet>) -> bool {
        Arc::ptr_eq(&self.grants, grants) || self.grants == *grants
    }

    /// Returns warnings about name collisions, for an administrator.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the tools that lost their name to another, each with its reason.
    pub(super) fn nameless(&self) -> &[(ToolId, String)] {
        &self.nameless
    }

    /// Finds a tool by its exposed name, its alias or its identity.
    pub(crate) fn resolve_tool(&self, name: &str) -> Resolution {
        match self.tools.get(name) {
            Some(Found::Tool { server, tool }) => Resolution::Bound {
                server: self.handle(*server),
                tool: Arc::clone(tool),
            },
            Some(Found::Native(native)) => Resolution::Native(Arc::clone(native)),
            None => self.guess(MethodClass::Tool, name, &self.other_tools),
        }
    }

    /// Finds a prompt by its exposed name or its identity.
    pub(crate) fn resolve_prompt(&self, name: &str) -> Resolution {
        match self.prompts.get(name) {
            Some((server, own)) => Resolution::Named {
                server: self.handle(*server),
                item: own.to_string(),
            },
            None => self.guess(MethodClass::Prompt, name, &self.other_prompts),
        }
    }

    /// Finds the server of a resource: by its lists, by its templates, or because only one server
    /// could have it. The item is the URI to send, normalized if necessary.
    pub(crate) fn resolve_resource(&self, uri: &str) -> Resolution {
        if let Some(&server) = self.resources.get(uri) {
            // As the server itself writes it.
            return Resolution::Named {
                server: self.handle(server),
                item: uri.to_owned(),
            };
        }
        let direct = NormalUri::of(uri).map(|normal| normal.forwarded(uri));
        let direct = direct.as_deref().unwrap_or(uri);
        let named = |server: usize| {
            let handle = self.handle(server);
            let has_all = self.grants.has_all(MethodClass::Resource, &handle.name);
            Resolution::Named {
                server: handle,
                item: if has_all { uri } else { direct }.to_owned(),
            }
        };
        let mut refused = self.other_resources.get(uri).copied();
        for pattern in &self.patterns {
            let fits = |uri: &str| *pattern.text == *uri || pattern.template.matches(uri);
            if fits(uri) || (direct != uri && fits(direct)) {
                if self.allows(MethodClass::Resource, pattern.server, Some(uri)) {
                    return named(pattern.server);
                }
                refused.get_or_insert(pattern.server);
            }
        }
        if let Some(server) = refused {
            let server = self.snapshot.servers[server].handle.name.clone();
            return Resolution::NotGranted {
                server,
                item: uri.to_owned(),
            };
        }
        let mut able = (0..self.snapshot.servers.len()).filter(|&server| {
            let entry = &self.snapshot.servers[server];
            let offers = |handshake: &HandshakeInfo| handshake.has("resources");
            is_in(&self.scope, &entry.handle.name)
                && entry.catalog.handshake.as_deref().is_none_or(offers)
                && self.allows(MethodClass::Resource, server, Some(uri))
        });
        match (able.next(), able.next()) {
            (Some(server), None) => named(server),
            _ => Resolution::Unknown,
        }
    }

    /// Resolves a name that is in no list: it may be of another agent, or of a server that is not
    /// listed.
    fn guess(
        &self,
        class: MethodClass,
        name: &str,
        others: &HashMap<Box<str>, NotGranted>,
    ) -> Resolution {
        if let Some(other) = others.get(name) {
            let (server, item) = (other.server.clone(), other.item.to_string());
            return Resolution::NotGranted { server, item };
        }
        let (server, item) = match (&self.scope, naming::split(name)) {
            (Scope::Server(only), Some((server, item)))
                if server == only.as_str() && name[server.len()..].starts_with(':') =>
            {
                (server, item)
            }
            (Scope::Server(only), _) => (only.as_str(), name),
            (Scope::All, Some(parts)) => parts,
            (Scope::All, None) => return Resolution::Unknown,
        };
        let servers = &self.snapshot.servers;
        let Some(index) = servers
            .iter()
            .position(|entry| entry.handle.name.as_str() == server)
        else {
            return Resolution::Unknown;
        };
        if !self.allows(class, index, Some(item)) {
            let server = servers[index].handle.name.clone();
            return Resolution::NotGranted {
                server,
                item: item.to_owned(),
            };
        }
        if servers[index].is_current() {
            return Resolution::Unknown;
        }
        Resolution::Named {
            server: self.handle(index),
            item: item.to_owned(),
        }
    }

    fn handle(&self, server: usize) -> Arc<ServerHandle> {
        Arc::clone(&self.snapshot.servers[server].handle)
    }

    fn allows(&self, class: MethodClass, server: usize, item: Option<&str>) -> bool {
        let name = &self.snapshot.servers[server].handle.name;
        self.grants.shows(class, name, item)
    }

    /// Returns the caller's servers in this scope.
    fn servers(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.snapshot.servers.iter().filter(|entry| {
            let name = &entry.handle.name;
            is_in(&self.scope, name) && may_use(&self.grants, name)
        })
    }

    /// Returns the listed tools with their details.
    pub(crate) fn tools(&self) -> Vec<ListedTool> {
        let listed = self.listed_tools.iter().filter_map(|(name, found)| {
            let tool = found.tool();
            let view = ToolDef::read(tool.definition.as_raw()).ok()?;
            let server = match found {
                Found::Tool { server, .. } => self.snapshot.servers[*server].handle.name.clone(),
                Found::Native(_) => ServerName::native(),
            };
            Some(ListedTool {
                name: name.to_string(),
                server,
                tool: tool.name.to_string(),
                title: view.title.map(|title| title.into_owned()),
                description: view.description.map(|text| text.into_owned()),
                input_schema: view.input_schema.to_buf(),
                output_schema: view.output_schema.map(Raw::to_buf),
                annotations: view.annotations.map(Raw::to_buf),
                version: tool.schema_version().to_owned(),
            })
        });
        listed.collect()
    }

    /// Returns the capabilities of an endpoint for this view. A server that was never listed may
    /// offer anything.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let offers = |capability: &str| {
            let has = |entry: &CatalogEntry| {
                entry
                    .catalog
                    .handshake
                    .as_deref()
                    .is_none_or(|handshake| handshake.has(capability))
            };
            self.servers().any(has)
        };
        Capabilities {
            tools: self.scope == Scope::All || !self.listed_tools.is_empty() || offers("tools"),
            prompts: offers("prompts"),
            resources: offers("resources"),
            subscriptions: self.servers().any(|entry| {
                let handshake = entry.catalog.handshake.as_deref();
                handshake.is_none_or(HandshakeInfo::subscribes)
            }),
            completions: offers("completions"),
            logging: self.servers().any(|entry| {
                let handshake = entry.catalog.handshake.as_deref();
                let (class, server) = (MethodClass::Logging, &entry.handle.name);
                handshake.is_none_or(|handshake| handshake.has("logging"))
                    && self.grants.shows(class, server, None)
            }),
        }
    }
}

impl Found {
    fn tool(&self) -> &Arc<Tool> {
        match self {
            Self::Tool { tool, .. } => tool,
            Self::Native(native) => native.tool(),
        }
    }
}
