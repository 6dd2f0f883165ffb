//! The hash chain over calls and administrative acts: the binary form of a block, and what is
//! hashed.
//!
//! Every transaction that writes, replaces or removes rows appends one block to the chain of its
//! gateway. A block names each covered row by id and salted digest, and each entry of earlier
//! blocks whose row no longer exists. Blocks are linked by their hashes and signed by the gateway.
//! Independent of SQL, keys and the clock. Entry points: [`Block::hash`], [`row_digest`].

mod digest;
mod entries;
mod removed;

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

pub use digest::{RowOrigin, act_digest, row_digest};
pub use entries::{ENTRY_BYTES, Entries, Entry, Salt};
pub use removed::{Place, Removed};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The prefix of everything that is hashed as a block.
const BLOCK: &[u8] = b"gantry audit block 1\0";
/// The prefix of everything that is signed as a head.
const HEAD: &[u8] = b"gantry audit head 1\0";

/// Why a block was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// The chain starts; its note is the newest call before it.
    Begin,
    /// Calls were recorded.
    Import,
    /// Calls were deleted because of their age, or acts because there are too many.
    Retention,
    /// A person's data was erased from calls.
    Erasure,
    /// The chain covers acts from here on; its note is the newest act before it.
    BeginActs,
    /// An act was recorded, or a recorded act changed.
    Act,
}

impl BlockKind {
    const ALL: [Self; 6] = [
        Self::Begin,
        Self::Import,
        Self::Retention,
        Self::Erasure,
        Self::BeginActs,
        Self::Act,
    ];

    /// Returns the kind as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Import => "import",
            Self::Retention => "retention",
            Self::Erasure => "erasure",
            Self::BeginActs => "begin_acts",
            Self::Act => "act",
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text is not a kind of block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of audit block")]
pub struct BlockKindError(String);

impl FromStr for BlockKind {
    type Err = BlockKindError;

    fn from_str(text: &str) -> Result<Self, BlockKindError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| BlockKindError(text.chars().take(32).collect()))
    }
}

/// One block of a gateway's chain, without its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The gateway of the chain, by its number in the store.
    pub gateway: i64,
    /// Its number in the chain, starting at 1.
    pub number: u64,
    /// The hash of the previous block; zeroes for the first.
    pub previous: Hash,
    /// When it was created.
    pub at_ms: u64,
    /// Why it was created.
    pub kind: BlockKind,
    /// A note, covered by the hash.
    pub note: String,
    /// How many rows it covers.
    pub count: u32,
    /// The hash over the ids and digests of these rows.
    pub entries_hash: Hash,
    /// The entries of earlier blocks whose row no longer exists.
    pub removed: Removed,
    /// The id of the signing key.
    pub key_id: String,
}

impl Block {
    /// Returns the hash that is signed, and that the next block contains.
    pub fn hash(&self) -> Hash {
        let removed = self.removed.to_bytes();
        let mut hasher = Sha256::new();
        hasher.update(BLOCK);
        hasher.update(self.gateway.to_le_bytes());
        hasher.update(self.number.to_le_bytes());
        hasher.update(self.previous);
        hasher.update(self.at_ms.to_le_bytes());
        for text in [self.kind.as_str(), &self.note, &self.key_id] {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update(self.count.to_le_bytes());
        hasher.update(self.entries_hash);
        hasher.update((removed.len() as u64).to_le_bytes());
        hasher.update(removed);
        hasher.finalize().into()
    }
}

/// A stored block: signed, with the entries of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBlock {
    /// The block.
    pub block: Block,
    /// Its hash as stored.
    pub hash: Hash,
    /// The signature of that hash.
    pub signature: Vec<u8>,
    /// The covered rows; empty once all of them are gone.
    pub entries: Entries,
    /// How many of them are still there. It is in no hash: it follows from the salts.
    pub live: u32,
}

/// The end of a gateway's chain, signed separately from its block: truncating the chain would need
/// an older signed end, which is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// Whose chain it is.
    pub gateway: i64,
    /// The last block.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
    /// The signature of [`ChainHead::signed_bytes`].
    pub signature: Vec<u8>,
}

impl ChainHead {
    /// Returns the bytes to sign.
    pub fn signed_bytes(gateway: i64, number: u64, hash: &Hash) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        bytes.extend_from_slice(&gateway.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(hash);
        bytes
    }
}

/// A public key of block signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditKey {
    /// Its id, as in blocks.
    pub id: String,
    /// Its gateway.
    pub gateway: i64,
    /// The 32 bytes of an Ed25519 key.
    pub public: Vec<u8>,
}

#[cfg(test)]
mod tests;
