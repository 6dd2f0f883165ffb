//! The tools, prompts and resources of one server, as last listed. Its runner publishes them;
//! `catalog` merges all servers and decides which agent sees what.

use std::sync::Arc;

use gantry_model::id::ServerId;
use gantry_model::pin::Finding;

use super::handshake::HandshakeInfo;
use super::listing::Listing;
use crate::pins::{PinKind, Pins};
use crate::tool::{Item, Tool};

/// The most unchecked schema parts that are reported per server.
const MOST_UNCHECKED: usize = 100;

/// A part of a tool's schema that is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedPart {
    /// The server's own name for the tool.
    pub tool: String,
    /// Which schema, and a JSON pointer into it.
    pub part: String,
    /// Why it cannot be checked.
    pub reason: String,
}

/// The lists of one server.
#[derive(Debug, Clone)]
pub(crate) struct ServerCatalog {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) prompts: Vec<Item>,
    pub(crate) resources: Vec<Item>,
    pub(crate) templates: Vec<Item>,
    /// Listed items that are not offered, and why.
    pub(crate) excluded: Vec<(String, String)>,
    /// How many of the listed tools cannot be offered.
    pub(crate) refused: usize,
    /// How many tools have schema parts that are not checked.
    pub(crate) unchecked_tools: usize,
    /// The first of those parts.
    pub(crate) unchecked: Vec<UncheckedPart>,
    /// The server's handshake; `None` if it was never listed.
    pub(crate) handshake: Option<Arc<HandshakeInfo>>,
    /// Whether its lists could not be refreshed: nothing of it is listed, but calls by name still
    /// find it.
    pub(crate) hidden: bool,
    /// Listed by an additional instance, for that instance's client only.
    pub(crate) is_own: bool,
    /// What in its texts a person should look at, with the name of what it was found in.
    pub(crate) findings: Vec<(String, Finding)>,
}

impl ServerCatalog {
    /// Returns the catalog of a server that was never listed.
    pub(crate) fn empty() -> Self {
        Self {
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            excluded: Vec::new(),
            refused: 0,
            unchecked_tools: 0,
            unchecked: Vec::new(),
            handshake: None,
            hidden: false,
            is_own: false,
            findings: Vec::new(),
        }
    }

    /// Builds the catalog from a listing. Examines schemas that are new, which takes time.
    pub(crate) fn new(listing: Listing, handshake: Option<Arc<HandshakeInfo>>) -> Self {
        let parts = listing.tools.iter().map(|tool| (tool, tool.unchecked()));
        let incomplete: Vec<_> = parts.filter(|(_, parts)| !parts.is_empty()).collect();
        let unchecked = incomplete.iter().flat_map(|(tool, parts)| {
            parts.iter().map(|part| UncheckedPart {
                tool: tool.name.escape_debug().to_string(),
                part: part.part.clone(),
                reason: part.reason.clone(),
            })
        });
        let (unchecked_tools, unchecked) =
            (incomplete.len(), unchecked.take(MOST_UNCHECKED).collect());
        Self {
            refused: listing.refused,
            unchecked_tools,
            unchecked,
            tools: listing.tools.into_iter().map(Arc::new).collect(),
            prompts: listing.prompts,
            resources: listing.resources,
            templates: listing.templates,
            excluded: listing.excluded,
            handshake,
            hidden: false,
            is_own: false,
            findings: listing.findings,
        }
    }

    /// Returns the catalog without these suspended tools.
    pub(crate) fn without(&self, suspended: &[&str]) -> Self {
        let mut catalog = self.clone();
        let is_suspended = |name: &str| suspended.contains(&name);
        let gone = self.tools.iter().filter(|tool| is_suspended(&tool.name));
        let gone = gone.map(|tool| (tool.name.to_string(), "suspended".to_owned()));
        catalog.excluded.extend(gone);
        catalog.tools.retain(|tool| !is_suspended(&tool.name));
        catalog
    }

    /// Notes which tools are offered though nobody approved them.
    pub(crate) fn mark_unapproved(&self, server: ServerId, pins: &Pins) {
        for tool in &self.tools {
            tool.set_unapproved(pins.is_unapproved(server, PinKind::Tool, &tool.name));
        }
    }

    /// Returns the catalog without what is held back until somebody approves it.
    pub(crate) fn without_unapproved(&self, server: ServerId, pins: &Pins) -> Self {
        let mut catalog = self.clone();
        let mut withheld = Vec::new();
        let mut is_offered = |kind, name: &str, version| {
            let reason = pins.reason(server, kind, name, version);
            if let Some(why) = reason {
                withheld.push((name.escape_debug().to_string(), quarantined(why)));
            }
            reason.is_none()
        };
        catalog
            .tools
            .retain(|tool| is_offered(PinKind::Tool, &tool.name, tool.version));
        catalog
            .prompts
            .retain(|item| is_offered(PinKind::Prompt, &item.name, item.version));
        catalog
            .templates
            .retain(|item| is_offered(PinKind::Template, &item.name, item.version));
        catalog.excluded.extend(withheld);
        catalog
    }

    /// Returns the version of a tool, prompt or template; nothing if it is not listed.
    pub(crate) fn version_of(&self, kind: PinKind, name: &str) -> Option<u32> {
        let of = |items: &[Item]| {
            let found = items.iter().find(|item| *item.name == *name);
            found.map(|item| item.version)
        };
        match kind {
            PinKind::Tool => {
                let found = self.tools.iter().find(|tool| *tool.name == *name);
                found.map(|tool| tool.version)
            }
            PinKind::Prompt => of(&self.prompts),
            PinKind::Template => of(&self.templates),
        }
    }

    /// Returns whether it has a tool of this name.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| *tool.name == *name)
    }

    /// Returns whether clients would see the same lists.
    pub(crate) fn offers_the_same(&self, other: &Self) -> bool {
        self.hidden == other.hidden
            && self.has_tools_of(other)
            && self.has_prompts_of(other)
            && self.has_resources_of(other)
    }

    pub(crate) fn has_tools_of(&self, other: &Self) -> bool {
        let (own, others) = (self.tools.iter(), other.tools.iter());
        own.map(|tool| &tool.hash).eq(others.map(|tool| &tool.hash))
    }

    pub(crate) fn has_prompts_of(&self, other: &Self) -> bool {
        are_same(&self.prompts, &other.prompts)
    }

    pub(crate) fn has_resources_of(&self, other: &Self) -> bool {
        are_same(&self.resources, &other.resources) && are_same(&self.templates, &other.templates)
    }
}

/// Says why something is held back.
pub(crate) fn quarantined(why: &str) -> String {
    format!("quarantined: {why}")
}

fn are_same(items: &[Item], others: &[Item]) -> bool {
    let (own, others) = (items.iter(), others.iter());
    own.map(|item| &item.hash).eq(others.map(|item| &item.hash))
}
