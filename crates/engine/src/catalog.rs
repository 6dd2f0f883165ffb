//! The catalog: the tools, prompts and resources of all servers and the native tools, and each
//! caller's view of them.
//!
//! Holds what runners publish and never asks a server anything. A view is built once for each set of
//! grants and scope, and rebuilt when something changed. Entry points: [`Catalog::update`] from the
//! supervisor, [`Catalog::view`] on every request.

mod changes;
mod own;
mod render;
mod template;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use gantry_model::caller::Caller;
use gantry_model::grant::GrantSet;
use gantry_model::id::{AgentName, ServerName};
use gantry_model::naming::{Expose, Form, OnCollision, Rules, Target, ToolId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tracing::warn;

pub use self::changes::ListRevisions;
pub use self::view::{Capabilities, Collision, ListedTool};
pub(crate) use self::view::{Resolution, View};
use crate::error::EngineError;
use crate::native::{Native, NativeTool};
use crate::request::{ClientIdentity, Scope};
use crate::schema::{CheckPermits, Permits};
use crate::server::catalog::ServerCatalog;
use crate::server::handle::{LinkState, ServerHandle};
use crate::server::profiles::InstanceOwner;

/// The most cached views of a project.
const MOST_VIEWS: usize = 256;
/// The most native tools.
const MOST_NATIVE: usize = 1024;
/// The maximum number of warnings that are remembered as logged.
const MOST_TOLD: usize = 1024;

/// The lists that are served from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    /// Returns the list that a method requests.
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "tools/list" => Some(Self::Tools),
            "prompts/list" => Some(Self::Prompts),
            "resources/list" => Some(Self::Resources),
            "resources/templates/list" => Some(Self::Templates),
            _ => None,
        }
    }
}

/// A server as the catalog knows it.
#[derive(Clone)]
pub(crate) struct CatalogEntry {
    pub(crate) handle: Arc<ServerHandle>,
    /// Whether its tools are listed; those of a server that is down are not.
    pub(crate) listed: bool,
    pub(crate) catalog: Arc<ServerCatalog>,
    /// The last change of its part of each list.
    since: ListRevisions,
    /// Lists that single clients see instead, each from its own instance.
    own: Vec<own::OwnLists>,
}

impl CatalogEntry {
    pub(crate) fn new(
        handle: Arc<ServerHandle>,
        listed: bool,
        catalog: Arc<ServerCatalog>,
    ) -> Self {
        Self {
            handle,
            listed,
            catalog,
            since: ListRevisions::default(),
            own: Vec::new(),
        }
    }

    /// Returns whether the server's own lists are known and current.
    fn is_current(&self) -> bool {
        self.listed && self.catalog.handshake.is_some()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.listed == other.listed
            && Arc::ptr_eq(&self.catalog, &other.catalog)
            && Arc::ptr_eq(&self.handle.catalog, &other.handle.catalog)
            && self.has_own_lists_of(other)
    }
}

/// The state at one moment, in configuration order, native tools first.
#[derive(Default)]
struct Snapshot {
    servers: Vec<CatalogEntry>,
    natives: Vec<Arc<Native>>,
    /// The change that added the last native tool.
    natives_since: u64,
    /// The removed servers, each with the change that removed it; the newest last.
    gone: Vec<(ServerName, u64)>,
}

/// The key of a view: grants, scope, and the client if it has its own lists.
type ViewKey = (u64, Scope, Option<InstanceOwner>);

/// A snapshot and its cached views; the least recently used are dropped.
#[derive(Default)]
struct CatalogState {
    snapshot: Arc<Snapshot>,
    views: ArcSwap<HashMap<ViewKey, Arc<CachedView>>>,
    /// How many views were built.
    built: AtomicU64,
}

struct CachedView {
    view: Arc<View>,
    /// How many views had been built when it was last used: readers write nothing that other
    /// readers read, as long as no view is built.
    used: AtomicU64,
}

impl CatalogState {
    /// Returns a cached view of exactly these grants.
    fn cached(&self, key: &ViewKey, grants: &Arc<GrantSet>) -> Option<Arc<View>> {
        let views = self.views.load();
        // Fault T3: two sets that share a fingerprint must not share a view.
        let cached = views.get(key).filter(|cached| cached.view.is_of(grants))?;
        let built = self.built.load(Ordering::Relaxed);
        if cached.used.load(Ordering::Relaxed) != built {
            cached.used.store(built, Ordering::Relaxed);
        }
        Some(Arc::clone(&cached.view))
    }

    fn keep(&self, key: &ViewKey, view: &Arc<View>) {
        let cached = Arc::new(CachedView {
            view: Arc::clone(view),
            used: AtomicU64::new(self.built.fetch_add(1, Ordering::Relaxed) + 1),
        });
        self.views.rcu(|views| {
            let mut views = HashMap::clone(views);
            if views.len() >= MOST_VIEWS && !views.contains_key(key) {
                let used = |cached: &CachedView| cached.used.load(Ordering::Relaxed);
                let oldest = views.iter().min_by_key(|(_, cached)| used(cached));
                if let Some(oldest) = oldest.map(|(oldest, _)| oldest.clone()) {
                    views.remove(&oldest);
                }
            }
            views.insert(key.clone(), Arc::clone(&cached));
            views
        });
    }
}

/// The items of all servers of the project, and the callers' views of them.
pub(crate) struct Catalog {
    rules: Rules,
    everything: Arc<GrantSet>,
    state: ArcSwap<CatalogState>,
    /// Held during a change.
    changing: Mutex<()>,
    revision: watch::Sender<u64>,
    told: Mutex<HashSet<String>>,
    /// The last change of an agent's grants.
    granted: Mutex<HashMap<AgentName, u64>>,
    /// The permits of all native tools.
    native_permits: Permits,
}

impl Catalog {
    pub(crate) fn new(
        expose: Expose,
        on_collision: OnCollision,
        longest: usize,
        checks: &CheckPermits,
    ) -> Self {
        Self {
            rules: Rules {
                form: Form {
                    target: Target::Mcp,
                    longest,
                },
                expose,
                on_collision,
            },
            everything: Arc::new(GrantSet::everything()),
            state: ArcSwap::default(),
            changing: Mutex::default(),
            revision: watch::Sender::new(0),
            told: Mutex::default(),
            granted: Mutex::default(),
            native_permits: Permits::new(checks),
        }
    }

    /// Sets the project's servers in configuration order; does nothing if nothing changed.
    pub(crate) fn update(&self, mut servers: Vec<CatalogEntry>) {
        for entry in &mut servers {
            entry.listed &= !entry.catalog.hidden;
        }
        let _one = self.one_change();
        let old = Arc::clone(&self.state.load().snapshot);
        let same = old.servers.len() == servers.len()
            && old
                .servers
                .iter()
                .zip(&servers)
                .all(|(old, new)| old.is_same(new));
        if !same {
            self.replace(old.with(servers, self.next_change()));
        }
    }

    /// Adds a tool that runs inside the gateway.
    pub(crate) fn add_native(&self, tool: NativeTool) -> Result<(), EngineError> {
        let native = Arc::new(Native::new(tool, self.native_permits.clone())?);
        let refused = |why: &str| EngineError::Native {
            name: native.tool().name.to_string(),
            why: why.to_owned(),
        };
        let _one = self.one_change();
        let old = Arc::clone(&self.state.load().snapshot);
        if old
            .natives
            .iter()
            .any(|known| known.tool().name == native.tool().name)
        {
            return Err(refused("there is one of that name already"));
        }
        if old.natives.len() >= MOST_NATIVE {
            return Err(refused("there are too many"));
        }
        let natives = old
            .natives
            .iter()
            .cloned()
            .chain([Arc::clone(&native)])
            .collect();
        self.replace(Snapshot {
            servers: old.servers.clone(),
            natives,
            natives_since: self.next_change(),
            gone: old.gone.clone(),
        });
        Ok(())
    }

    fn next_change(&self) -> u64 {
        *self.revision.borrow() + 1
    }

    fn one_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    fn replace(&self, snapshot: Snapshot) {
        let state = CatalogState {
            snapshot: Arc::new(snapshot),
            ..CatalogState::default()
        };
        self.state.store(Arc::new(state));
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Records that an agent's lists may have changed, although the servers have not.
    pub(crate) fn grants_changed(&self, agent: &AgentName) {
        let _one = self.one_change();
        self.granted().insert(agent.clone(), self.next_change());
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn granted(&self) -> MutexGuard<'_, HashMap<AgentName, u64>> {
        self.granted.lock()
    }

    /// Returns the view of a caller.
    pub(crate) fn view(&self, caller: &Caller, scope: &Scope) -> Arc<View> {
        self.view_of(&caller.grants, scope, None)
    }

    /// Returns the view of one client of a caller, which may have its own lists.
    pub(crate) fn view_for(
        &self,
        caller: &Caller,
        scope: &Scope,
        who: ClientIdentity,
    ) -> Arc<View> {
        self.view_of(
            &caller.grants,
            scope,
            InstanceOwner::of(caller, who).as_ref(),
        )
    }

    fn view_of(
        &self,
        grants: &Arc<GrantSet>,
        scope: &Scope,
        owner: Option<&InstanceOwner>,
    ) -> Arc<View> {
        let state = self.state.load();
        let owner = owner.filter(|owner| state.snapshot.has_own_lists(owner));
        let key = (grants.fingerprint(), scope.clone(), owner.cloned());
        if let Some(view) = state.cached(&key, grants) {
            return view;
        }
        let snapshot = match owner {
            Some(owner) => Arc::new(state.snapshot.seen_by(owner)),
            None => Arc::clone(&state.snapshot),
        };
        let view = Arc::new(View::build(
            self.rules,
            snapshot,
            Arc::clone(grants),
            scope.clone(),
        ));
        self.tell(view.warnings());
        state.keep(&key, &view);
        view
    }

    /// Logs new warnings.
    fn tell(&self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let mut told = self.told.lock();
        for warning in warnings {
            if told.len() < MOST_TOLD && told.insert(warning.clone()) {
                warn!("{warning}");
            }
        }
    }

    /// Returns the caller's servers whose lists are unknown but may be known soon.
    pub(crate) fn cold(&self, caller: &Caller, scope: &Scope) -> Vec<Arc<ServerHandle>> {
        let state = self.state.load();
        let servers = state.snapshot.servers.iter().filter(|entry| {
            entry.catalog.handshake.is_none()
                && view::is_in(scope, &entry.handle.name)
                && view::may_use(&caller.grants, &entry.handle.name)
                && matches!(
                    &*entry.handle.live.borrow(),
                    LinkState::Cold | LinkState::Starting
                )
        });
        servers.map(|entry| Arc::clone(&entry.handle)).collect()
    }

    /// Returns a counter that changes whenever lists may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Returns the tools that are not in the joined list because others have their names.
    pub(crate) fn nameless(&self) -> Vec<(ToolId, String)> {
        self.view_of(&self.everything, &Scope::All, None)
            .nameless()
            .to_vec()
    }

    /// Returns the resources that are not listed because another server offers the same URI.
    pub(crate) fn collisions(&self) -> Vec<Collision> {
        let view = self.view_of(&self.everything, &Scope::All, None);
        view.collisions().to_vec()
    }

    /// Returns warnings about name collisions for an administrator.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.view_of(&self.everything, &Scope::All, None)
            .warnings()
            .to_vec()
    }
}

#[cfg(test)]
mod tests;
