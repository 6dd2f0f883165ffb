//! Creates, lists, changes and rotates keys. The store is written first, memory second. A rotated
//! key stays valid for a while in addition to its replacement. Entry points: [`Access::create`] and
//! [`Access::rotate`].

use std::time::Duration;

use gantry_model::address_range::AddressRange;
use gantry_model::caller::KeyKind;
use gantry_model::grant::Principal;
use gantry_model::id::{AgentName, GrantId, KeyId};
use gantry_model::limits::RateLimits;
use gantry_model::settings::KeyPolicy;
use gantry_store::{GrantRow, KeyRow};

use super::{Access, KeyUse};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::random::random;

/// The public view of a key.
#[derive(Debug, Clone)]
pub struct KeyView {
    /// Its identity.
    pub id: KeyId,
    /// Its kind.
    pub kind: KeyKind,
    /// Its agent.
    pub agent: AgentName,
    /// Its label.
    pub label: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The addresses it may be used from; any if empty.
    pub sources: Vec<AddressRange>,
    /// Its rate limits.
    pub limits: RateLimits,
    /// The key that it replaces.
    pub replaces: Option<KeyId>,
    /// The key that replaces it.
    pub replaced_by: Option<KeyId>,
    /// When it was last used, to the minute, and from which address.
    pub last_use: Option<KeyUse>,
}

/// A key to create.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its kind.
    pub kind: KeyKind,
    /// Its agent.
    pub agent: AgentName,
    /// Its label.
    pub label: String,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The addresses it may be used from; any if empty.
    pub sources: Vec<AddressRange>,
    /// Its rate limits.
    pub limits: RateLimits,
}

/// A change of a key; members that are `None` stay.
#[derive(Debug, Clone, Default)]
pub struct KeyChange {
    /// Its label.
    pub label: Option<String>,
    /// The addresses it may be used from; any if empty.
    pub sources: Option<Vec<AddressRange>>,
    /// Its rate limits.
    pub limits: Option<RateLimits>,
}

/// A created key. Its text is never shown again.
#[derive(Clone)]
pub struct MadeKey {
    /// Its identity.
    pub id: KeyId,
    /// Its text.
    pub key: String,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl Access {
    /// Creates a key, stores its digest, and returns the key itself, which is never shown again.
    pub(crate) async fn create(&self, new: &NewKey) -> Result<MadeKey, EngineError> {
        let (mut row, key) = self.new_key(new.kind, &new.agent, &new.label);
        row.expires_ms = new.expires_ms;
        row.sources.clone_from(&new.sources);
        row.limits = new.limits;
        let _one = self.changing.lock().await;
        self.store.put_key(&row).await?;
        self.reload().await?;
        Ok(made(&row, key))
    }

    /// Returns all valid keys of the project, oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<KeyView>, EngineError> {
        let rows = self.valid_rows().await?;
        let uses = self.last_uses().await?;
        let replaced_by = |id: KeyId| {
            let next = rows.iter().find(|row| row.replaces == Some(id));
            next.map(|row| row.id)
        };
        let view = |row: &KeyRow| KeyView {
            id: row.id,
            kind: row.kind,
            agent: row.agent.clone(),
            label: row.label.clone(),
            created_ms: row.created_ms,
            expires_ms: row.expires_ms,
            sources: row.sources.clone(),
            limits: row.limits,
            replaces: row.replaces,
            replaced_by: replaced_by(row.id),
            last_use: uses.get(&row.id).copied(),
        };
        Ok(rows.iter().map(view).collect())
    }

    async fn valid_rows(&self) -> Result<Vec<KeyRow>, EngineError> {
        let now_ms = unix_ms();
        let mut rows = self.store.keys().await?;
        rows.retain(|row| {
            let has_time = row.expires_ms.is_none_or(|at_ms| now_ms < at_ms);
            row.project == self.project && has_time
        });
        Ok(rows)
    }

    /// Changes a key.
    pub(crate) async fn change_key(&self, id: KeyId, change: KeyChange) -> Result<(), EngineError> {
        let _one = self.changing.lock().await;
        let rows = self.valid_rows().await?;
        let row = rows.into_iter().find(|row| row.id == id);
        let mut row = row.ok_or_else(|| unknown(id))?;
        if let Some(label) = change.label {
            row.label = label;
        }
        if let Some(sources) = change.sources {
            row.sources = sources;
        }
        if let Some(limits) = change.limits {
            row.limits = limits;
        }
        match self.store.replace_key(&row).await? {
            true => self.reload().await,
            false => Err(unknown(id)),
        }
    }

    /// Creates a replacement of a key: for the same agent, with the same grants, sources, limits
    /// and lifetime. The old key ends after `overlap`, or when it expires.
    pub(crate) async fn rotate(
        &self,
        id: KeyId,
        overlap: Duration,
        policy: &KeyPolicy,
    ) -> Result<(MadeKey, KeyView), EngineError> {
        let _one = self.changing.lock().await;
        let rows = self.valid_rows().await?;
        if let Some(next) = rows.iter().find(|row| row.replaces == Some(id)) {
            let (id, by) = (id.to_string(), next.id.to_string());
            return Err(AdminError::KeyRotated { id, by }.into());
        }
        let row = rows.into_iter().find(|row| row.id == id);
        let mut old = row.ok_or_else(|| unknown(id))?;
        let now_ms = unix_ms();
        let lifetime = old
            .expires_ms
            .map(|at_ms| at_ms.saturating_sub(old.created_ms));
        let (mut new, key) = self.new_key(old.kind, &old.agent, &old.label);
        let wanted = lifetime.map(|lifetime| now_ms.saturating_add(lifetime));
        new.expires_ms = policy.latest_end(now_ms, wanted);
        new.sources.clone_from(&old.sources);
        new.limits = old.limits;
        new.replaces = Some(id);
        if old.kind.is_admin() && old.expires_ms.is_none() && new.expires_ms.is_some() {
            self.keep_an_admin(|caller| caller.key == id)?;
        }
        let overlap_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
        let end_ms = now_ms.saturating_add(overlap_ms);
        old.expires_ms = Some(old.expires_ms.map_or(end_ms, |at_ms| at_ms.min(end_ms)));
        let grants = self.store.grants(&self.project).await?;
        let of_old = grants
            .into_iter()
            .filter(|grant| grant.principal == Principal::Key(id));
        let grants: Vec<GrantRow> = of_old
            .map(|grant| GrantRow {
                id: GrantId::from_random(u128::from_le_bytes(random())),
                principal: Principal::Key(new.id),
                created_ms: now_ms,
                last_used_ms: None,
                ..grant
            })
            .collect();
        if !self.store.rotate_key(&new, &grants, &old).await? {
            return Err(unknown(id));
        }
        self.reload().await?;
        let replaced = KeyView {
            id,
            kind: old.kind,
            agent: old.agent,
            label: old.label,
            created_ms: old.created_ms,
            expires_ms: old.expires_ms,
            sources: old.sources,
            limits: old.limits,
            replaces: old.replaces,
            replaced_by: Some(new.id),
            last_use: None,
        };
        Ok((made(&new, key), replaced))
    }
}

fn made(row: &KeyRow, key: String) -> MadeKey {
    MadeKey {
        id: row.id,
        key,
        expires_ms: row.expires_ms,
    }
}

fn unknown(id: KeyId) -> EngineError {
    AdminError::UnknownKey { id: id.to_string() }.into()
}
