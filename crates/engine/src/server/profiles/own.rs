//! What a client sees that has lives of its own, where one of those lists something else than the
//! server's first process: the lists of its lives, put together. Asks no server anything. Entry point:
//! `Profiles::own_lists`.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Party, Profiles};
use crate::server::catalog::ServerCatalog;
use crate::tool::{Item, Tool};

/// Returns what a life lists: its own, or what all do.
pub(super) fn lists<'a>(life: &'a ServerCatalog, common: &'a ServerCatalog) -> &'a ServerCatalog {
    match life.is_own {
        true => life,
        false => common,
    }
}

impl Profiles {
    /// Returns who sees other lists than the common ones, and which.
    pub(crate) fn own_lists(&self, common: &ServerCatalog) -> Vec<(Party, Arc<ServerCatalog>)> {
        let lives: Vec<(Party, Arc<ServerCatalog>)> = {
            let pool = self.lock();
            let lives = pool.all();
            lives
                .map(|(party, life)| (party.clone(), life.catalog.load_full()))
                .collect()
        };
        let mut own: Vec<(Party, Arc<ServerCatalog>)> = Vec::new();
        for (party, _) in lives.iter().filter(|(_, lists)| lists.is_own) {
            if own.iter().any(|(known, _)| known == party) {
                continue;
            }
            let theirs = lives.iter().filter(|(whose, _)| whose == party);
            let theirs: Vec<&ServerCatalog> = theirs.map(|(_, life)| lists(life, common)).collect();
            own.push((party.clone(), Arc::new(together(&theirs, common))));
        }
        own
    }
}

/// Puts lists together: each thing once, the first of a name counts.
fn together(lists: &[&ServerCatalog], common: &ServerCatalog) -> ServerCatalog {
    let mut names = HashSet::new();
    let tools = lists.iter().flat_map(|lists| &lists.tools);
    let tools = tools.filter(|tool| names.insert(Arc::clone(&tool.name)));
    // One that is the same as the common one has that one's version in the record.
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
        hello: common.hello.clone(),
        hidden: false,
        is_own: true,
    }
}

fn items(lists: &[&ServerCatalog], of: fn(&ServerCatalog) -> &[Item]) -> Vec<Item> {
    let mut names = HashSet::new();
    let items = lists.iter().flat_map(|lists| of(lists));
    let items = items.filter(|item| names.insert(Arc::clone(&item.name)));
    items.cloned().collect()
}
