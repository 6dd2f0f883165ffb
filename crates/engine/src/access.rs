//! Keys and whom they speak for. A key is 256 random bits behind a prefix that tells its kind; only
//! its SHA-256 is kept, looked up in memory and compared in constant time.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::grant::{Grant, GrantSet};
use gantry_model::id::{AgentName, KeyId, ProjectName};
use gantry_store::{GrantRow, KeyRow, Principal, Store};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex as AsyncMutex;

use crate::clock::unix_ms;
use crate::error::EngineError;

const ADMIN_PREFIX: &str = "gantry_admin_";
const AGENT_PREFIX: &str = "gantry_agent_";

/// The keys of a first start, shown never and written once.
#[derive(Clone)]
pub struct FirstKeys {
    /// Opens the admin API.
    pub admin: String,
    /// Opens `/mcp` for the agent `default`, who may use everything.
    pub agent: String,
}

/// A key as it may be shown.
#[derive(Debug, Clone)]
pub struct KeyView {
    /// Its identity.
    pub id: KeyId,
    /// Which doors it opens.
    pub kind: KeyKind,
    /// Who it speaks for.
    pub agent: AgentName,
    /// What a person called it.
    pub label: String,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

/// All keys that are valid now, in memory.
pub(crate) struct Access {
    store: Store,
    project: ProjectName,
    keys: ArcSwap<HashMap<[u8; 32], Entry>>,
    /// One change at a time, from the store to the memory: an older picture never replaces a newer.
    changing: AsyncMutex<()>,
}

#[derive(Clone)]
struct Entry {
    digest: [u8; 32],
    caller: Caller,
}

impl Access {
    pub(crate) async fn load(store: Store, project: ProjectName) -> Result<Self, EngineError> {
        let access = Self {
            store,
            project,
            keys: ArcSwap::default(),
            changing: AsyncMutex::new(()),
        };
        access.reload().await?;
        Ok(access)
    }

    /// Reads keys and grants anew from the store; only by who has the turn to change.
    async fn reload(&self) -> Result<(), EngineError> {
        let grants = self.store.grants(&self.project).await?;
        let mut keys = HashMap::new();
        for row in self.store.keys().await? {
            if row.project != self.project {
                continue;
            }
            let caller = Caller {
                project: row.project,
                kind: row.kind,
                key: row.id,
                grants: Arc::new(grants_of(row.kind, row.id, &row.agent, &grants)),
                agent: row.agent,
            };
            keys.insert(
                row.digest,
                Entry {
                    digest: row.digest,
                    caller,
                },
            );
        }
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Returns who a key speaks for; nobody for anything that is not a valid key.
    pub(crate) fn authenticate(&self, key: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let keys = self.keys.load();
        let entry = keys.get(&digest)?;
        bool::from(entry.digest.ct_eq(&digest)).then(|| entry.caller.clone())
    }

    /// Makes a key, stores its digest, and returns the key itself, which is never shown again.
    pub(crate) async fn create(
        &self,
        kind: KeyKind,
        agent: &AgentName,
        label: &str,
    ) -> Result<(KeyId, String), EngineError> {
        let (row, key) = self.new_key(kind, agent, label);
        let _one = self.changing.lock().await;
        self.store.put_key(&row).await?;
        self.reload().await?;
        Ok((row.id, key))
    }

    fn new_key(&self, kind: KeyKind, agent: &AgentName, label: &str) -> (KeyRow, String) {
        let prefix = match kind {
            KeyKind::Admin => ADMIN_PREFIX,
            KeyKind::Agent => AGENT_PREFIX,
        };
        let key = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random::<32>()));
        let row = KeyRow {
            id: KeyId::from_random(u128::from_le_bytes(random())),
            project: self.project.clone(),
            agent: agent.clone(),
            kind,
            digest: Sha256::digest(key.as_bytes()).into(),
            label: label.to_owned(),
            created_ms: unix_ms(),
            revoked_ms: None,
        };
        (row, key)
    }

    /// Makes the first keys of a data folder, once. They are kept before they are valid: a death in
    /// between leaves keys that open nothing, never a folder that nobody has a key to.
    pub(crate) async fn first_start(
        &self,
        keep: impl FnOnce(&FirstKeys) -> Result<(), EngineError>,
    ) -> Result<Option<FirstKeys>, EngineError> {
        let _one = self.changing.lock().await;
        if !self.keys.load().is_empty() {
            return Ok(None);
        }
        let agent: AgentName = "default".parse()?;
        let grant = GrantRow {
            project: self.project.clone(),
            principal: Principal::Agent(agent.clone()),
            server: "*".into(),
            item: "*".into(),
            alias: None,
        };
        let operator: AgentName = "operator".parse()?;
        let (admin_row, admin) = self.new_key(KeyKind::Admin, &operator, "first start");
        let (agent_row, agent) = self.new_key(KeyKind::Agent, &agent, "first start");
        let keys = FirstKeys { admin, agent };
        keep(&keys)?;
        self.store
            .put_first(&grant, &[admin_row, agent_row])
            .await?;
        self.reload().await?;
        Ok(Some(keys))
    }

    pub(crate) async fn list(&self) -> Result<Vec<KeyView>, EngineError> {
        let rows = self
            .store
            .keys()
            .await?
            .into_iter()
            .filter(|row| row.project == self.project);
        let view = |row: KeyRow| KeyView {
            id: row.id,
            kind: row.kind,
            agent: row.agent,
            label: row.label,
            created_ms: row.created_ms,
        };
        Ok(rows.map(view).collect())
    }

    pub(crate) async fn revoke(&self, id: KeyId) -> Result<bool, EngineError> {
        let _one = self.changing.lock().await;
        let known = self.store.revoke_key(id, unix_ms()).await?;
        // Nothing that can fail stands between the store and the memory.
        let mut keys = HashMap::clone(&self.keys.load());
        keys.retain(|_, entry| entry.caller.key != id);
        self.keys.store(Arc::new(keys));
        Ok(known)
    }
}

/// An administrator may use everything; an agent what was granted to it, its key or its project.
fn grants_of(kind: KeyKind, key: KeyId, agent: &AgentName, rows: &[GrantRow]) -> GrantSet {
    if kind == KeyKind::Admin {
        return GrantSet::everything();
    }
    let mine = rows.iter().filter(|row| match &row.principal {
        Principal::Agent(name) => name == agent,
        Principal::Key(id) => *id == key,
        Principal::Project => true,
    });
    let grants = mine.filter_map(|row| {
        // A grant that cannot be read grants nothing.
        Grant::new(&row.server, &row.item, row.alias.as_deref()).ok()
    });
    GrantSet::new(grants.collect())
}

/// Returns random bytes; without a source of randomness there can be no keys.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn access(folder: &tempfile::TempDir) -> Access {
        let store = Store::open(&folder.path().join("gantry.db")).await.unwrap();
        Access::load(store, ProjectName::local()).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_revoked_key_stays_revoked_whatever_else_happens() {
        // fault U6
        let folder = tempfile::tempdir().unwrap();
        let access = Arc::new(access(&folder).await);
        let agent: AgentName = "default".parse().unwrap();
        let (mut old, mut changes) = (Vec::new(), tokio::task::JoinSet::new());
        for _ in 0..8 {
            old.push(access.create(KeyKind::Agent, &agent, "").await.unwrap());
        }
        for (id, _) in &old {
            let (id, revoking) = (*id, Arc::clone(&access));
            changes.spawn(async move { assert!(revoking.revoke(id).await.unwrap()) });
            let (agent, making) = (agent.clone(), Arc::clone(&access));
            changes.spawn(async move {
                let (_, key) = making.create(KeyKind::Agent, &agent, "").await.unwrap();
                assert!(making.authenticate(&key).is_some());
            });
        }
        changes.join_all().await;
        assert!(
            old.iter()
                .all(|(_, key)| access.authenticate(key).is_none())
        );
        assert_eq!(access.keys.load().len(), 8);
        assert!(
            !access.revoke(old[0].0).await.unwrap(),
            "it was revoked before"
        );
    }

    #[tokio::test]
    async fn first_keys_that_cannot_be_kept_lock_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(&folder).await;
        let full = |_: &FirstKeys| Err(EngineError::Stopping);
        assert!(access.first_start(full).await.is_err());
        let mut kept = None;
        let keep = |keys: &FirstKeys| {
            kept = Some(keys.clone());
            Ok(())
        };
        let made = access.first_start(keep).await.unwrap().unwrap();
        let kept = kept.unwrap();
        assert_eq!((&made.admin, &made.agent), (&kept.admin, &kept.agent));
        assert!(access.authenticate(&kept.admin).is_some());
        assert!(access.first_start(|_| Ok(())).await.unwrap().is_none());
    }
}
