//! The lists of a client's own instances, merged, if one of them differs from the shared instance.
//! Sends no requests. Entry point: `Profiles::own_lists`.

use std::collections::HashSet;
use std::sync::Arc;

use super::{InstanceOwner, Profiles};
use crate::server::catalog::ServerCatalog;
use crate::tool::{Item, Tool};

/// Returns the lists of an instance: its own, or the shared ones.
pub(super) fn lists<'a>(
    instance: &'a ServerCatalog,
    common: &'a ServerCatalog,
) -> &'a ServerCatalog {
    match instance.is_own {
        true => instance,
        false => common,
    }
}

impl Profiles {
    /// Returns the clients that see other lists than the shared ones, and those lists.
    pub(crate) fn own_lists(
        &self,
        common: &ServerCatalog,
    ) -> Vec<(InstanceOwner, Arc<ServerCatalog>)> {
        let instances: Vec<(InstanceOwner, Arc<ServerCatalog>)> = {
            let pool = self.lock();
            let instances = pool.all();
            instances
                .map(|(owner, instance)| (owner.clone(), instance.catalog.load_full()))
                .collect()
        };
        let mut own: Vec<(InstanceOwner, Arc<ServerCatalog>)> = Vec::new();
        for (owner, _) in instances.iter().filter(|(_, lists)| lists.is_own) {
            if own.iter().any(|(known, _)| known == owner) {
                continue;
            }
            let theirs = instances.iter().filter(|(whose, _)| whose == owner);
            let theirs: Vec<&ServerCatalog> = theirs
                .map(|(_, instance)| lists(instance, common))
                .collect();
            own.push((owner.clone(), Arc::new(together(&theirs, common))));
        }
        own
    }
}

/// Merges lists: the first item of a name wins.
fn together(lists: &[&ServerCatalog], common: &ServerCatalog) -> ServerCatalog {
    let mut names = HashSet::new();
    let tools = lists.iter().flat_map(|lists| &lists.tools);
    let tools = tools.filter(|tool| names.insert(Arc::clone(&tool.name)));
    // A tool equal to the shared one has the same version in the store.
    let known = |tool: &Arc<Tool>| {
        let mut all = common.tools.iter();
        let same = all.find(|known| known.name == tool.name && known.hash == tool.hash);
        Arc::clone(same.unwrap_or(tool))
    };
    ServerCatalog {
        tools: tools.map(known).collect(),
        prompts: items(lists, |lists| &lists.prompts),
        resources: items(lists, |lists| &lists.resources),
        templates: items(lists, |lists| &lists.templates),
        excluded: common.excluded.clone(),
        refused: common.refused,
        unchecked_tools: common.unchecked_tools,
        unchecked: common.unchecked.clone(),
        handshake: common.handshake.clone(),
        hidden: false,
        is_own: true,
        findings: common.findings.clone(),
    }
}

fn items(lists: &[&ServerCatalog], of: fn(&ServerCatalog) -> &[Item]) -> Vec<Item> {
    let mut names = HashSet::new();
    let items = lists.iter().flat_map(|lists| of(lists));
    let items = items.filter(|item| names.insert(Arc::clone(&item.name)));
    items.cloned().collect()
}
