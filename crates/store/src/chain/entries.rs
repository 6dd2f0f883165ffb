//! The rows that a block covers: the id, the digest and the salt of each.
//!
//! The salts are not part of the block's hash. When a row is removed its salt is blanked, so that
//! the content of the row cannot be guessed from its digest.

use gantry_model::id::CallId;
use sha2::{Digest as _, Sha256};

use super::Hash;

/// Makes a digest unguessable from known parts of the row.
pub type Salt = [u8; 16];

/// The size of one entry.
pub const ENTRY_BYTES: usize = 16 + 32 + 16;

/// One row that a block covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The call; in blocks of acts the number of the act.
    pub id: CallId,
    /// The digest of its row.
    pub digest: Hash,
    /// The salt of the digest; zeroes once the row is gone.
    pub salt: Salt,
}

/// The entries of a block, as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries(Vec<u8>);

impl Entries {
    /// Wraps stored entries; an incomplete entry at the end is kept and changes the hash.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns their stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a row and returns its index.
    pub fn push(&mut self, entry: &Entry) -> u32 {
        let place = self.len();
        self.0.extend_from_slice(&entry.id.to_bits().to_le_bytes());
        self.0.extend_from_slice(&entry.digest);
        self.0.extend_from_slice(&entry.salt);
        place
    }

    /// Returns how many there are.
    pub fn len(&self) -> u32 {
        (self.0.len() / ENTRY_BYTES) as u32
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entry at an index.
    pub fn get(&self, place: u32) -> Option<Entry> {
        let at = place as usize * ENTRY_BYTES;
        let bytes = self.0.get(at..at + ENTRY_BYTES)?;
        let (mut bits, mut digest, mut salt) = ([0; 16], [0; 32], [0; 16]);
        bits.copy_from_slice(&bytes[..16]);
        digest.copy_from_slice(&bytes[16..48]);
        salt.copy_from_slice(&bytes[48..]);
        Some(Entry {
            id: CallId::from_bits(u128::from_le_bytes(bits)),
            digest,
            salt,
        })
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// Blanks the salt of an entry; returns whether there was one.
    pub fn blank(&mut self, place: u32) -> bool {
        let at = place as usize * ENTRY_BYTES + 48;
        let Some(salt) = self.0.get_mut(at..at + 16) else {
            return false;
        };
        let had_one = salt.iter().any(|byte| *byte != 0);
        salt.fill(0);
        had_one
    }

    /// Returns the hash over ids and digests, in order.
    pub fn hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        for entry in self.0.chunks(ENTRY_BYTES) {
            hasher.update(&entry[..entry.len().min(48)]);
        }
        hasher.finalize().into()
    }
}
