//! Keys and agents. A key is 256 random bits behind a prefix that shows its kind; only its SHA-256 is
//! stored, looked up in memory and compared in constant time. `agents` has the agents that keys
//! belong to, `issuing` makes and rotates keys, `uses` knows from where they may be used and last were.
//! Each key has a [`KeyValidity`] that every caller of it carries; revocation and the
//! removal of its agent end it here, expiry in `expiry`.

mod agents;
mod expiry;
mod grants;
mod issuing;
mod keys;
mod uses;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_model::caller::{
    Caller, KeyEnd, KeyKind, KeyValidity, Permission, Role, TokenIdentity, UserTrust,
};
use gantry_model::grant::{Grant, GrantSet, Principal};
use gantry_model::id::{AgentName, GrantId, KeyId, ProjectName, ServerName};
use gantry_model::limits::RateLimits;
use gantry_model::suspension::Suspensions;
use gantry_store::{AgentRow, KeyRow, Store};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

use crate::clock::unix_ms;
use crate::error::EngineError;
use crate::limits::{CallLimits, CallerCount};
use crate::random::random;
use crate::tokens::Verified;

pub use self::agents::{AgentChange, AgentView, NewAgent};
pub(crate) use self::grants::PolicyRows;
use self::grants::TrackedUse;
pub use self::grants::{FILES_GROUP, GrantView, GroupView, PolicyChange};
pub use self::issuing::{KeyChange, KeyView, MadeKey, NewKey};
use self::keys::{KeyDigest, KeyEntry, Keys};
use self::uses::KeyUses;
pub use self::uses::{KeyUse, SourceRefused};

/// How long keys and grants are trusted without confirmation by a remote store. Another gateway may
/// have revoked one meanwhile.
const OLDEST: Duration = Duration::from_secs(60);

const ADMIN_PREFIX: &str = gantry_model::secret::ADMIN_KEY;
const AGENT_PREFIX: &str = gantry_model::secret::AGENT_KEY;

/// The keys of a first start; written once, never shown.
#[derive(Clone)]
pub struct FirstKeys {
    /// The key for the admin API.
    pub admin: String,
    /// Opens `/mcp` for the agent `default`, who may use what configuration files define and what was there.
    pub agent: String,
}

/// All currently valid keys, in memory.
pub(crate) struct Access {
    store: Store,
    project: ProjectName,
    keys: ArcSwap<Keys>,
    /// The grants of each agent, for callers with a token.
    agents: ArcSwap<HashMap<AgentName, Arc<GrantSet>>>,
    /// The suspensions, for callers without a key in `keys`.
    suspended: ArcSwap<Suspensions>,
    /// How many agents may call.
    callers: Arc<CallerCount>,
    /// What keys, agents and the project may use.
    limits: Arc<CallLimits>,
    /// When keys were last used.
    key_uses: KeyUses,
    /// The last read revision of keys, agents and grants.
    revision: AtomicU64,
    /// Changes whenever the set of keys changes, or one has ended.
    changed: watch::Sender<u64>,
    /// The same for all projects.
    any_changed: watch::Sender<u64>,
    /// The agents whose grants have changed since the last call of `take_regranted`.
    regranted: Mutex<BTreeSet<AgentName>>,
    /// Allows one change at a time, from the store to memory: an older state never replaces a newer
    /// one.
    changing: AsyncMutex<()>,
    /// Whether the project is unloaded: its keys are known but refused.
    closed: AtomicBool,
    /// Held while the keys in memory are replaced.
    replacing: Mutex<()>,
    /// When the store last confirmed the keys, if other gateways may change them.
    confirmed: Mutex<Option<Instant>>,
    /// When each grant was last used.
    uses: Mutex<HashMap<GrantId, TrackedUse>>,
    /// The servers that configuration files define, sorted.
    file_servers: Mutex<Vec<ServerName>>,
}

impl Access {
    /// Loads a project's keys; `any_changed` changes whenever any of them does.
    pub(crate) async fn load(
        store: Store,
        project: ProjectName,
        any_changed: watch::Sender<u64>,
    ) -> Result<Self, EngineError> {
        let access = Self {
            store,
            project,
            keys: ArcSwap::default(),
            agents: ArcSwap::default(),
            suspended: ArcSwap::default(),
            callers: Arc::default(),
            limits: Arc::new(CallLimits::new()),
            key_uses: KeyUses::default(),
            revision: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            any_changed,
            regranted: Mutex::default(),
            changing: AsyncMutex::new(()),
            closed: AtomicBool::new(false),
            replacing: Mutex::new(()),
            confirmed: Mutex::new(None),
            uses: Mutex::default(),
            file_servers: Mutex::default(),
        };
        access.confirm(Instant::now());
        access.reload().await?;
        Ok(access)
    }

    /// Records that keys and grants matched the store at that time.
    pub(crate) fn confirm(&self, at: Instant) {
        if self.store.is_remote() {
            *self.confirmed.lock() = Some(at);
        }
    }

    /// Returns whether the last confirmation is so old that keys are no longer trusted.
    pub(crate) fn is_stale(&self) -> bool {
        let confirmed = *self.confirmed.lock();
        confirmed.is_some_and(|at| at.elapsed() >= OLDEST)
    }

    /// Reads keys, agents and grants again if another gateway has changed them since.
    pub(crate) async fn refresh(&self, revision: u64) -> Result<(), EngineError> {
        if self.revision.load(Ordering::Acquire) == revision {
            return Ok(());
        }
        let _one = self.changing.lock().await;
        self.reload().await
    }

    /// Reads keys, agents, grants and suspensions again.
    pub(crate) async fn reread(&self) -> Result<(), EngineError> {
        let _one = self.changing.lock().await;
        self.reload().await
    }

    /// Ends the calls of all keys, because the project is unloaded or deleted.
    pub(crate) fn close(&self, how: KeyEnd) {
        self.closed.store(true, Ordering::Release);
        self.replace(|old| {
            let mut keys = old.clone();
            match how {
                KeyEnd::Suspended => old
                    .all()
                    .for_each(|entry| entry.caller.validity.end(KeyEnd::Suspended)),
                KeyEnd::Revoked | KeyEnd::Expired => keys.remove(|_| true),
            }
            keys
        });
    }

    /// Reads keys and grants again from the store; the caller must hold the change lock.
    async fn reload(&self) -> Result<(), EngineError> {
        // Read before the rows: a change in between is read again.
        let changes = self.store.changes(&self.project).await?;
        let policy = self.policy_rows(changes.policy).await?;
        let rows = self.store.keys().await?;
        self.replace_agents(&policy);
        let own_keys = rows.iter().filter(|row| row.project == self.project);
        self.limits.set_callers(
            policy
                .agents
                .iter()
                .map(|agent| (&agent.name, &agent.limits)),
            own_keys.map(|key| (key.id, &key.limits)),
        );
        let suspended = self.store.suspensions(&self.project).await?;
        let suspended: Arc<Suspensions> = Arc::new(suspended.into_iter().collect());
        self.suspended.store(Arc::clone(&suspended));
        let closed = self.closed.load(Ordering::Acquire);
        self.replace(|old| {
            let mut keys = Keys::default();
            for row in rows.into_iter().filter(|row| row.project == self.project) {
                let known = old.get(&row.digest);
                let known = known.filter(|entry| entry.caller.key == row.id);
                let validity = match known {
                    // Calls of the key continue, and must still be notified of its end.
                    Some(entry) if *entry.sources == *row.sources => entry.caller.validity.clone(),
                    // It may run from where the key may not be used any more.
                    Some(_) | None => KeyValidity::default(),
                };
                let is_agent = row.kind == KeyKind::Agent;
                let is_suspended = is_agent && suspended.of_agent(&row.agent).is_some();
                let validity = suspended_or_not(validity, is_suspended || closed);
                let caller = Caller {
                    project: row.project,
                    kind: row.kind,
                    key: row.id,
                    grants: Arc::new(policy.set_of(row.kind, Some(row.id), &row.agent)),
                    users: user_trust_of(row.kind, &row.agent, &policy.agents),
                    agent: row.agent,
                    validity,
                    token: None,
                    authenticated_in: Duration::ZERO,
                };
                keys.insert(KeyEntry {
                    digest: row.digest,
                    caller,
                    expires_ms: row.expires_ms,
                    sources: row.sources.into(),
                    used_minute: known
                        .map_or_else(Default::default, |entry| Arc::clone(&entry.used_minute)),
                });
            }
            keys
        });
        self.count_callers();
        self.forget_key_uses();
        self.revision.store(changes.access, Ordering::Release);
        Ok(())
    }

    /// Counts the agents that may call: those with grants and a key for `/mcp`, and those without any
    /// key, who may come with a token.
    pub(super) fn count_callers(&self) {
        let (keys, agents) = (self.keys.load(), self.agents.load());
        let mut callers: BTreeSet<&AgentName> = agents.keys().collect();
        for entry in keys.all().filter(|entry| entry.caller.kind.is_admin()) {
            callers.remove(&entry.caller.agent);
        }
        let with_key = keys.all().filter(|entry| !entry.caller.kind.is_admin());
        callers.extend(with_key.map(|entry| &entry.caller.agent));
        let may_call = |name: &&&AgentName| {
            let grants = agents.get(**name);
            grants.is_some_and(|grants| grants.grants().next().is_some())
        };
        self.callers.set(callers.iter().filter(may_call).count());
    }

    /// Returns the limits of keys, agents and the project; the handle always has the current ones.
    pub(crate) fn limits(&self) -> Arc<CallLimits> {
        Arc::clone(&self.limits)
    }

    /// Returns how many agents may call, as it is at any time.
    pub(crate) fn callers(&self) -> Arc<CallerCount> {
        Arc::clone(&self.callers)
    }

    /// Stores the grants of each agent.
    fn replace_agents(&self, policy: &PolicyRows) {
        let of = |agent: &AgentRow| {
            let set = policy.set_of(KeyKind::Agent, None, &agent.name);
            (agent.name.clone(), Arc::new(set))
        };
        let new: HashMap<_, _> = policy.agents.iter().map(of).collect();
        let old = self.agents.swap(Arc::new(new));
        let new = self.agents.load();
        let changed = new
            .iter()
            .filter(|(name, set)| old.get(*name).is_some_and(|before| before != *set));
        let changed = changed.map(|(name, _)| name.clone());
        self.regranted.lock().extend(changed);
    }

    /// Returns the caller of a verified token; `None` if its agent does not exist (any more).
    pub(crate) fn of_token(&self, verified: &Verified) -> Option<Caller> {
        let grants = self.agents.load().get(&verified.agent).cloned()?;
        let validity = verified.validity.clone();
        if let Some(end) = self.token_end(&verified.agent) {
            // A suspended caller gets a specific error, and nothing else.
            validity.end(end);
        }
        Some(Caller {
            project: self.project.clone(),
            agent: verified.agent.clone(),
            key: verified.key,
            kind: KeyKind::Agent,
            grants,
            users: UserTrust::Trusted,
            validity,
            token: Some(TokenIdentity {
                user: verified.user.clone(),
            }),
            authenticated_in: Duration::ZERO,
        })
    }

    /// Tells why a token of an agent ends, or is not accepted: there is no such agent, or it is suspended.
    pub(crate) fn token_end(&self, agent: &AgentName) -> Option<KeyEnd> {
        let is_closed = self.closed.load(Ordering::Acquire);
        match self.agents.load().contains_key(agent) {
            false => Some(KeyEnd::Revoked),
            true if is_closed => Some(KeyEnd::Suspended),
            true => {
                let suspended = self.suspended.load().of_agent(agent);
                suspended.map(|_| KeyEnd::Suspended)
            }
        }
    }

    /// Replaces the keys; ends the calls of keys that are no longer among them.
    fn replace(&self, make: impl FnOnce(&Keys) -> Keys) {
        let _turn = self.replacing.lock();
        let old = self.keys.load_full();
        let keys = Arc::new(make(&old));
        self.keys.store(Arc::clone(&keys));
        let regranted = old.all().filter(|entry| {
            let stays = keys.get(&entry.digest);
            stays.is_some_and(|stays| stays.caller.grants != entry.caller.grants)
        });
        let regranted = regranted.map(|entry| entry.caller.agent.clone());
        self.regranted.lock().extend(regranted);
        let gone = old.all().filter(|entry| {
            let stays = keys.get(&entry.digest);
            stays.is_none_or(|stays| !stays.caller.validity.is_same(&entry.caller.validity))
        });
        for entry in gone {
            entry.caller.validity.end(KeyEnd::Revoked);
        }
        self.note_change();
    }

    /// Returns, once, the agents whose grants have changed since the last call.
    pub(crate) fn take_regranted(&self) -> BTreeSet<AgentName> {
        std::mem::take(&mut self.regranted.lock())
    }

    /// Returns the caller of a key by its digest; `None` if it is not a valid key.
    pub(crate) fn authenticate(&self, digest: &KeyDigest) -> Option<Caller> {
        let keys = self.keys.load();
        let entry = keys.get(digest)?;
        if !bool::from(entry.digest.ct_eq(digest)) || !entry.has_time() {
            return None;
        }
        match entry.caller.validity.end_reason() {
            // The clock was ahead for a while, which expired the key.
            Some(KeyEnd::Expired) => self.renewed(digest),
            // A suspended caller gets a specific error, and nothing else.
            Some(KeyEnd::Revoked | KeyEnd::Suspended) | None => Some(entry.caller.clone()),
        }
    }

    /// Revives a key that expired by a clock that was set back since; calls started before have
    /// ended.
    fn renewed(&self, digest: &KeyDigest) -> Option<Caller> {
        let mut caller = None;
        self.replace(|old| {
            let mut keys = old.clone();
            // Another task may have done this first, or the key may have been removed since.
            if let Some(entry) = keys.get_mut(digest)
                && entry.has_time()
            {
                if entry.caller.validity.end_reason().is_some() {
                    entry.caller.validity = KeyValidity::default();
                }
                caller = Some(entry.caller.clone());
            }
            keys
        });
        caller
    }

    /// Returns the current caller of a caller's key, with current grants; `None` if it ended.
    pub(crate) fn current(&self, caller: &Caller) -> Option<Caller> {
        if caller.token.is_some() {
            let grants = self.agents.load().get(&caller.agent).cloned()?;
            let is_valid = caller.validity.end_reason().is_none();
            let is_valid = is_valid && self.token_end(&caller.agent).is_none();
            return is_valid.then(|| Caller {
                grants,
                ..caller.clone()
            });
        }
        let keys = self.keys.load();
        let entry = keys.with_id(caller.key)?;
        let is_same = entry.caller.validity.is_same(&caller.validity);
        let is_valid = entry.has_time() && caller.validity.end_reason().is_none();
        (is_same && is_valid).then(|| entry.caller.clone())
    }

    /// Returns a caller with what it may use now, which may be other than when its call came. An
    /// embedding program's caller has no key, and what it was made with.
    pub(crate) fn regranted(&self, caller: &Caller) -> Caller {
        let grants = match caller.token {
            Some(_) => self.agents.load().get(&caller.agent).cloned(),
            None => {
                let keys = self.keys.load();
                let entry = keys.with_id(caller.key);
                entry.map(|entry| Arc::clone(&entry.caller.grants))
            }
        };
        Caller {
            grants: grants.unwrap_or_else(|| Arc::clone(&caller.grants)),
            ..caller.clone()
        }
    }

    fn note_change(&self) {
        self.changed.send_modify(|count| *count += 1);
        self.any_changed.send_modify(|count| *count += 1);
    }

    /// Returns a counter that changes whenever keys have changed or ended.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn new_key(&self, kind: KeyKind, agent: &AgentName, label: &str) -> (KeyRow, String) {
        let prefix = match kind {
            KeyKind::Admin(_) => ADMIN_PREFIX,
            KeyKind::Agent => AGENT_PREFIX,
        };
        let key = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random::<32>()));
        let row = KeyRow {
            id: KeyId::from_random(u128::from_le_bytes(random())),
            project: self.project.clone(),
            agent: agent.clone(),
            kind,
            digest: digest(&key),
            label: label.to_owned(),
            created_ms: unix_ms(),
            revoked_ms: None,
            expires_ms: None,
            sources: Vec::new(),
            limits: RateLimits::default(),
            replaces: None,
        };
        (row, key)
    }

    /// Creates the first keys of a data folder, once. They are saved before they are valid: a crash
    /// in between leaves unusable keys, but never a folder without a usable key.
    pub(crate) async fn first_start(
        &self,
        role: Role,
        grants: &[Grant],
        keep: impl FnOnce(&FirstKeys) -> Result<(), EngineError>,
    ) -> Result<Option<FirstKeys>, EngineError> {
        let _one = self.changing.lock().await;
        if !self.keys.load().is_empty() {
            return Ok(None);
        }
        let agent: AgentName = "default".parse()?;
        let to = Principal::Agent(agent.clone());
        let grants = grants.iter().map(|grant| self.row(to.clone(), grant));
        let grants: Vec<_> = grants.collect();
        let operator: AgentName = "operator".parse()?;
        let (admin_row, admin) = self.new_key(KeyKind::Admin(role), &operator, "first start");
        let (agent_row, agent) = self.new_key(KeyKind::Agent, &agent, "first start");
        let keys = FirstKeys { admin, agent };
        keep(&keys)?;
        self.store
            .put_first(&grants, &[admin_row, agent_row])
            .await?;
        self.reload().await?;
        Ok(Some(keys))
    }

    /// Returns whether there is any key.
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.load().is_empty()
    }

    pub(crate) async fn revoke(&self, id: KeyId) -> Result<bool, EngineError> {
        let _one = self.changing.lock().await;
        // A key of another project is treated as unknown. row 3.2
        let rows = self.store.keys().await?;
        let is_own = |row: &KeyRow| row.id == id && row.project == self.project;
        if !rows.iter().any(is_own) {
            return Ok(false);
        }
        self.keep_an_admin(|caller| caller.key == id)?;
        let known = self.store.revoke_key(id, unix_ms()).await?;
        // Nothing that can fail is between the store and memory.
        self.forget(|caller| caller.key == id);
        Ok(known)
    }

    /// Removes keys from memory; the caller must hold the change lock.
    fn forget(&self, goes: impl Fn(&Caller) -> bool) {
        self.replace(|old| {
            let mut keys = old.clone();
            keys.remove(goes);
            keys
        });
    }

    /// Refuses a change that removes the last valid key that can administer the project or the
    /// installation: it could not be undone.
    fn keep_an_admin(&self, goes: impl Fn(&Caller) -> bool) -> Result<(), EngineError> {
        let keys = self.keys.load();
        for needed in [Permission::Manage, Permission::Install] {
            let manages = |entry: &&KeyEntry| entry.caller.kind.may(needed) && entry.has_time();
            let (going, staying): (Vec<_>, Vec<_>) = keys
                .all()
                .filter(manages)
                .partition(|entry| goes(&entry.caller));
            // Expiring keys do not count.
            let stays = staying.iter().any(|entry| entry.expires_ms.is_none());
            if !going.is_empty() && !stays {
                return Err(EngineError::LastAdmin);
            }
        }
        Ok(())
    }
}

/// Ends the validity of a suspended key, or renews that of a resumed one.
fn suspended_or_not(validity: KeyValidity, is_suspended: bool) -> KeyValidity {
    match (is_suspended, validity.end_reason()) {
        (true, _) => {
            validity.end(KeyEnd::Suspended);
            validity
        }
        (false, Some(KeyEnd::Suspended)) => KeyValidity::default(),
        (false, Some(KeyEnd::Revoked | KeyEnd::Expired) | None) => validity,
    }
}

/// Returns whether user ids are trusted: an administrator's are, an agent's if configured.
fn user_trust_of(kind: KeyKind, agent: &AgentName, agents: &[AgentRow]) -> UserTrust {
    let known = agents.iter().find(|known| known.name == *agent);
    match (kind, known) {
        (KeyKind::Admin(_), _) => UserTrust::Trusted,
        (KeyKind::Agent, Some(known)) => known.users,
        (KeyKind::Agent, None) => UserTrust::Asserted,
    }
}

/// Returns the digest by which a key is looked up.
pub(crate) fn digest(key: &str) -> KeyDigest {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests;
