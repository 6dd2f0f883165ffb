//! Lists that only one client sees: those of its own instance of a server, where they differ from
//! the shared ones. Kept beside the shared lists and shown to no other client. Entry points:
//! `CatalogEntry::with_own`, `Snapshot::seen_by`.

use std::sync::Arc;

use super::{CatalogEntry, ListRevisions, Snapshot};
use crate::server::catalog::ServerCatalog;
use crate::server::profiles::InstanceOwner;

/// How many clients without lists of their own are still remembered.
const MOST_GONE: usize = 64;

/// One client's lists of a server.
#[derive(Clone)]
pub(super) struct OwnLists {
    owner: InstanceOwner,
    /// `None` once it sees the shared lists again.
    lists: Option<Arc<ServerCatalog>>,
    since: ListRevisions,
}

impl CatalogEntry {
    /// Adds the lists of single clients.
    pub(crate) fn with_own(mut self, own: Vec<(InstanceOwner, Arc<ServerCatalog>)>) -> Self {
        let own = own.into_iter().map(|(owner, lists)| OwnLists {
            owner,
            lists: Some(lists),
            since: ListRevisions::default(),
        });
        self.own = own.collect();
        self
    }

    fn own_lists(&self, owner: &InstanceOwner) -> Option<&OwnLists> {
        self.own.iter().find(|own| own.owner == *owner)
    }

    /// Returns whether the same clients see the same lists of their own.
    pub(super) fn has_own_lists_of(&self, other: &Self) -> bool {
        let there = |entry: &Self| entry.own.iter().filter(|own| own.lists.is_some()).count();
        there(self) == there(other)
            && self
                .own
                .iter()
                .all(|own| match (&own.lists, other.own_lists(&own.owner)) {
                    (
                        Some(lists),
                        Some(OwnLists {
                            lists: Some(known), ..
                        }),
                    ) => lists.offers_the_same(known),
                    (Some(_), Some(_) | None) => false,
                    (None, _) => true,
                })
    }

    /// Records which lists of single clients differ after this change.
    pub(super) fn follow_own(&mut self, before: Option<&Self>, change: u64) {
        let common = Arc::clone(&self.catalog);
        let seen_before = |owner: &InstanceOwner| {
            let before = before?;
            let own = before.own_lists(owner);
            let lists = own.and_then(|own| own.lists.as_ref());
            let since = own.map(|own| own.since);
            Some((lists.unwrap_or(&before.catalog), since.unwrap_or_default()))
        };
        for own in &mut self.own {
            let lists = own.lists.as_ref().unwrap_or(&common);
            own.since = last(lists, seen_before(&own.owner), change);
        }
        let known = before.map_or(&[][..], |before| &before.own);
        let gone = known
            .iter()
            .filter(|own| self.own_lists(&own.owner).is_none());
        let gone = gone.map(|own| OwnLists {
            owner: own.owner.clone(),
            lists: None,
            since: last(&common, seen_before(&own.owner), change),
        });
        let gone: Vec<OwnLists> = gone.collect();
        let skipped = gone.len().saturating_sub(MOST_GONE);
        self.own.extend(gone.into_iter().skip(skipped));
    }

    /// Returns the last change of each list that a client sees.
    pub(super) fn since_for(&self, owner: Option<&InstanceOwner>) -> ListRevisions {
        let own = owner.and_then(|owner| self.own_lists(owner));
        own.map_or(self.since, |own| self.since.later(own.since))
    }
}

/// Returns the last change of each list: this one where they differ.
fn last(
    now: &ServerCatalog,
    before: Option<(&Arc<ServerCatalog>, ListRevisions)>,
    change: u64,
) -> ListRevisions {
    let Some((lists, since)) = before else {
        return ListRevisions::all(change);
    };
    let mark = |is_same: bool, since: u64| if is_same { since } else { change };
    ListRevisions {
        tools: mark(now.has_tools_of(lists), since.tools),
        prompts: mark(now.has_prompts_of(lists), since.prompts),
        resources: mark(now.has_resources_of(lists), since.resources),
        grants: 0,
    }
}

impl Snapshot {
    /// Returns whether a client sees other lists than the shared ones.
    pub(super) fn has_own_lists(&self, owner: &InstanceOwner) -> bool {
        let own = |entry: &CatalogEntry| {
            entry
                .own_lists(owner)
                .is_some_and(|own| own.lists.is_some())
        };
        self.servers.iter().any(own)
    }

    /// Returns the snapshot as a client sees it.
    pub(super) fn seen_by(&self, owner: &InstanceOwner) -> Self {
        let servers = self.servers.iter().cloned().map(|mut entry| {
            let lists = entry.own_lists(owner).and_then(|own| own.lists.clone());
            if let Some(lists) = lists {
                entry.catalog = lists;
            }
            entry
        });
        Self {
            servers: servers.collect(),
            natives: self.natives.clone(),
            natives_since: self.natives_since,
            gone: self.gone.clone(),
        }
    }
}
