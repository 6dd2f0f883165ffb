//! The keys in memory, found by the digest of their text or by their id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gantry_model::address_range::AddressRange;
use gantry_model::caller::Caller;
use gantry_model::id::KeyId;

use crate::clock::unix_ms;

pub(super) type KeyDigest = [u8; 32];

/// All keys, including expired ones.
#[derive(Clone, Default)]
pub(super) struct Keys {
    entries: HashMap<KeyDigest, KeyEntry>,
    digests: HashMap<KeyId, KeyDigest>,
}

/// One key, and its caller.
#[derive(Clone)]
pub(super) struct KeyEntry {
    pub(super) digest: KeyDigest,
    pub(super) caller: Caller,
    pub(super) expires_ms: Option<u64>,
    /// From where it may be used; from everywhere if there is none.
    pub(super) sources: Arc<[AddressRange]>,
    /// The minute in which a use was last noted.
    pub(super) used_minute: Arc<AtomicU64>,
}

impl KeyEntry {
    /// Returns whether the key has not expired by the current clock. Its calls may have ended
    /// nevertheless: the clock may have been set back.
    pub(super) fn has_time(&self) -> bool {
        self.expires_ms.is_none_or(|at_ms| unix_ms() < at_ms)
    }
}

impl Keys {
    pub(super) fn insert(&mut self, entry: KeyEntry) {
        self.digests.insert(entry.caller.key, entry.digest);
        self.entries.insert(entry.digest, entry);
    }

    pub(super) fn get(&self, digest: &KeyDigest) -> Option<&KeyEntry> {
        self.entries.get(digest)
    }

    pub(super) fn get_mut(&mut self, digest: &KeyDigest) -> Option<&mut KeyEntry> {
        self.entries.get_mut(digest)
    }

    pub(super) fn with_id(&self, id: KeyId) -> Option<&KeyEntry> {
        self.entries.get(self.digests.get(&id)?)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &KeyEntry> {
        self.entries.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes keys.
    pub(super) fn remove(&mut self, goes: impl Fn(&Caller) -> bool) {
        self.entries.retain(|_, entry| !goes(&entry.caller));
        let entries = &self.entries;
        self.digests
            .retain(|_, digest| entries.contains_key(digest));
    }
}
