//! List revisions: the number of the last change of each list that a caller sees, over its servers
//! (also removed ones), the native tools and its grants. Numbers only, no contents: a list that
//! changed and changed back has changed. Entry points: `Snapshot::with` and `Catalog::revisions`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gantry_model::caller::Caller;
use gantry_model::id::ServerName;

use super::{Catalog, CatalogEntry, Snapshot, view};
use crate::request::{ClientIdentity, Scope};
use crate::server::catalog::ServerCatalog;
use crate::server::profiles::InstanceOwner;

/// The last change of each list that a caller sees: if a number differs, the list must be requested
/// again, even if it was different only for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListRevisions {
    /// Of the tools.
    pub tools: u64,
    /// Of the prompts.
    pub prompts: u64,
    /// Of the resources and their templates.
    pub resources: u64,
    /// Of the caller's grants, and so of all lists.
    pub grants: u64,
}

impl ListRevisions {
    /// Returns the revisions after a change of all lists.
    pub(crate) fn all(change: u64) -> Self {
        Self {
            tools: change,
            prompts: change,
            resources: change,
            grants: 0,
        }
    }

    /// Returns the later of each.
    pub(crate) fn later(self, other: Self) -> Self {
        Self {
            tools: self.tools.max(other.tools),
            prompts: self.prompts.max(other.prompts),
            resources: self.resources.max(other.resources),
            grants: self.grants.max(other.grants),
        }
    }
}

/// The most removed servers that are remembered.
const MOST_GONE: usize = 1024;

impl CatalogEntry {
    /// Records which of its lists differ after this change.
    fn follow(&mut self, before: Option<&Self>, change: u64) {
        self.follow_own(before, change);
        let (own, listed) = (&self.catalog, self.listed);
        let before = before.filter(|before| before.listed == listed);
        if let Some(before) = before.filter(|before| Arc::ptr_eq(own, &before.catalog)) {
            self.since = before.since;
            return;
        }
        let last = |is_same: fn(&ServerCatalog, &ServerCatalog) -> bool,
                    of: fn(&ListRevisions) -> u64| {
            let before = before.filter(|before| is_same(own, &before.catalog));
            before.map_or(change, |before| of(&before.since))
        };
        self.since = ListRevisions {
            tools: last(ServerCatalog::has_tools_of, |since| since.tools),
            prompts: last(ServerCatalog::has_prompts_of, |since| since.prompts),
            resources: last(ServerCatalog::has_resources_of, |since| since.resources),
            grants: 0,
        };
    }
}

impl Snapshot {
    /// Returns the next snapshot, with these servers.
    pub(super) fn with(&self, mut servers: Vec<CatalogEntry>, change: u64) -> Self {
        let known = self.servers.iter();
        let known: HashMap<_, _> = known.map(|entry| (&entry.handle.name, entry)).collect();
        let now: HashSet<_> = servers
            .iter()
            .map(|entry| entry.handle.name.clone())
            .collect();
        let stayed = |name: &&ServerName| now.contains(*name) && known.contains_key(*name);
        let before = self.servers.iter().map(|entry| &entry.handle.name);
        let after = servers.iter().map(|entry| &entry.handle.name);
        // Of two servers with the same item, the first provides it.
        let is_reordered = before.filter(stayed).ne(after.filter(stayed));
        for entry in &mut servers {
            let before = known.get(&entry.handle.name).copied();
            entry.follow(before.filter(|_| !is_reordered), change);
        }
        let gone = self.gone.iter().filter(|(name, _)| !now.contains(name));
        let mut gone: Vec<_> = gone.cloned().collect();
        let lost = self.servers.iter().map(|entry| &entry.handle.name);
        let lost = lost.filter(|name| !now.contains(name));
        gone.extend(lost.map(|name| (name.clone(), change)));
        gone.drain(..gone.len().saturating_sub(MOST_GONE));
        Self {
            servers,
            natives: self.natives.clone(),
            natives_since: self.natives_since,
            gone,
        }
    }
}

impl Catalog {
    /// Returns the last change of each list that a client of a caller sees.
    pub(crate) fn revisions(
        &self,
        caller: &Caller,
        scope: &Scope,
        who: ClientIdentity,
    ) -> ListRevisions {
        let owner = InstanceOwner::of(caller, who);
        let sees = |server: &ServerName| {
            view::is_in(scope, server) && view::may_use(&caller.grants, server)
        };
        let state = self.state.load();
        let snapshot = &state.snapshot;
        let servers = snapshot.servers.iter();
        let there = servers.map(|entry| (&entry.handle.name, entry.since_for(owner.as_ref())));
        let gone = snapshot.gone.iter();
        let gone = gone.map(|(name, change)| (name, ListRevisions::all(*change)));
        let seen = there.chain(gone).filter(|(name, _)| sees(name));
        let mut marks = seen.fold(ListRevisions::default(), |marks, (_, since)| {
            marks.later(since)
        });
        if sees(&ServerName::native()) {
            marks.tools = marks.tools.max(snapshot.natives_since);
        }
        marks.grants = self.granted().get(&caller.agent).copied().unwrap_or(0);
        marks
    }
}
