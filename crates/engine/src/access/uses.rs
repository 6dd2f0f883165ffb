//! Which addresses a key may be used from, and its last use. A use is recorded in memory, at most
//! once a minute per key, and written to the store by a task: no call waits for it. Entry points:
//! [`Access::enter`] and [`Access::write_key_uses`].

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use gantry_model::caller::Caller;
use gantry_model::id::KeyId;
use parking_lot::Mutex;

use super::Access;
use crate::clock::unix_ms;
use crate::error::EngineError;

pub use gantry_store::KeyUse;

/// A key was used from an address outside its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRefused;

/// The last uses of keys that this gateway has seen.
#[derive(Debug, Default)]
pub(super) struct KeyUses(Mutex<KeyUsesState>);

#[derive(Debug, Default)]
struct KeyUsesState {
    last: HashMap<KeyId, KeyUse>,
    unwritten: HashSet<KeyId>,
}

impl KeyUses {
    fn note(&self, used: KeyUse) {
        let mut state = self.0.lock();
        state.last.insert(used.key, used);
        state.unwritten.insert(used.key);
    }

    /// Returns the uses that are not written yet.
    fn unwritten(&self) -> Vec<KeyUse> {
        let state = self.0.lock();
        let uses = state.unwritten.iter().filter_map(|key| state.last.get(key));
        uses.copied().collect()
    }

    /// Marks uses as written, unless the key was used again since.
    fn written(&self, uses: &[KeyUse]) {
        let mut state = self.0.lock();
        for used in uses {
            if state.last.get(&used.key) == Some(used) {
                state.unwritten.remove(&used.key);
            }
        }
    }
}

impl Access {
    /// Records the use of a key from an address; refuses an address that is not allowed.
    pub(crate) fn enter(&self, caller: &Caller, from: Option<IpAddr>) -> Result<(), SourceRefused> {
        if caller.token.is_some() {
            return Ok(());
        }
        let keys = self.keys.load();
        let Some(entry) = keys.with_id(caller.key) else {
            return Ok(());
        };
        let is_in = |from: IpAddr| entry.sources.iter().any(|range| range.contains(from));
        if !entry.sources.is_empty() && !from.is_some_and(is_in) {
            return Err(SourceRefused);
        }
        let at_ms = unix_ms();
        // Plus one, so that zero means never.
        let minute = at_ms / 60_000 + 1;
        if entry.used_minute.swap(minute, Ordering::Relaxed) != minute {
            let key = caller.key;
            self.key_uses.note(KeyUse { key, at_ms, from });
        }
        Ok(())
    }

    /// Writes the recorded uses; failed writes are retried.
    pub(crate) async fn write_key_uses(&self) -> Result<(), EngineError> {
        let uses = self.key_uses.unwritten();
        if uses.is_empty() {
            return Ok(());
        }
        self.store.note_key_uses(&uses).await?;
        self.key_uses.written(&uses);
        Ok(())
    }

    /// Returns when the project's keys were last used, on any gateway.
    pub(super) async fn last_uses(&self) -> Result<HashMap<KeyId, KeyUse>, EngineError> {
        let stored = self.store.key_uses(&self.project).await?;
        let mut uses: HashMap<_, _> = stored.into_iter().map(|used| (used.key, used)).collect();
        for used in self.key_uses.0.lock().last.values() {
            let known = uses.entry(used.key).or_insert(*used);
            if known.at_ms < used.at_ms {
                *known = *used;
            }
        }
        Ok(uses)
    }

    /// Removes the uses of keys that no longer exist.
    pub(super) fn forget_key_uses(&self) {
        let keys = self.keys.load();
        let mut state = self.key_uses.0.lock();
        state.last.retain(|key, _| keys.with_id(*key).is_some());
        state.unwritten.retain(|key| keys.with_id(*key).is_some());
    }
}
