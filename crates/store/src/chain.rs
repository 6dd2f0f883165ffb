//! The hash chain over the rows of the audit: what a block says, in bytes, and what is hashed.
//!
//! Every transaction that writes, replaces or removes rows appends one block to the chain of the gateway
//! that writes. A block names each row that it covers by id and salted digest, and each entry of earlier
//! blocks whose row is no longer there. Blocks are linked by their hashes and signed by the gateway.
//! Nothing here knows SQL or keys, and nothing reads a clock. Entry points: [`Block::hash`],
//! [`row_digest`].

mod digest;
mod entries;
mod removed;

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

pub use digest::{RowOrigin, row_digest};
pub use entries::{ENTRY_BYTES, Entries, Entry, Salt};
pub use removed::{Place, Removed};

/// A SHA-256.
pub type Hash = [u8; 32];

/// Stands in front of everything that is hashed as a block.
const BLOCK: &[u8] = b"gantry audit block 1\0";
/// Stands in front of everything that is signed as a head.
const HEAD: &[u8] = b"gantry audit head 1\0";

/// Why a block was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// The chain begins; its note is the newest call before it.
    Begin,
    /// Calls were recorded.
    Import,
    /// Calls were dropped for their age.
    Retention,
    /// A person's data was taken out of calls.
    Erasure,
}

impl BlockKind {
    const ALL: [Self; 4] = [Self::Begin, Self::Import, Self::Retention, Self::Erasure];

    /// Returns the kind as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Import => "import",
            Self::Retention => "retention",
            Self::Erasure => "erasure",
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text is no kind of a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of an audit block")]
pub struct BlockKindError(String);

impl FromStr for BlockKind {
    type Err = BlockKindError;

    fn from_str(text: &str) -> Result<Self, BlockKindError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| BlockKindError(text.chars().take(32).collect()))
    }
}

/// One link of a gateway's chain, without the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Whose chain it is, by the number of the gateway in the store.
    pub gateway: i64,
    /// Its place in the chain, from 1 on.
    pub number: u64,
    /// The hash of the block before; zeroes for the first.
    pub previous: Hash,
    /// When it was made.
    pub at_ms: u64,
    /// Why it was made.
    pub kind: BlockKind,
    /// What else there is to say; covered by the hash.
    pub note: String,
    /// How many rows it covers.
    pub count: u32,
    /// The hash over the ids and digests of these rows.
    pub entries_hash: Hash,
    /// Which entries of earlier blocks have no row any more.
    pub removed: Removed,
    /// Which key it is signed with.
    pub key_id: String,
}

impl Block {
    /// Returns the hash that the next block has, and that is signed.
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

/// A block as it is stored: signed, with its rows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBlock {
    /// The block.
    pub block: Block,
    /// Its hash as stored.
    pub hash: Hash,
    /// What the gateway's key says to that hash.
    pub signature: Vec<u8>,
    /// The rows that it covers; none once all of them are gone.
    pub entries: Entries,
}

/// The end of a gateway's chain, signed apart from its block: who cuts blocks off has no older one to put in
/// its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainHead {
    /// Whose chain it is.
    pub gateway: i64,
    /// The last block.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
    /// What the gateway's key says to [`ChainHead::signed_bytes`].
    pub signature: Vec<u8>,
}

impl ChainHead {
    /// Returns what is signed.
    pub fn signed_bytes(gateway: i64, number: u64, hash: &Hash) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        bytes.extend_from_slice(&gateway.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(hash);
        bytes
    }
}

/// A public key that blocks are signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditKey {
    /// Its id, which blocks name.
    pub id: String,
    /// Whose key it is.
    pub gateway: i64,
    /// The 32 bytes of an Ed25519 key.
    pub public: Vec<u8>,
    /// When it was first used.
    pub created_ms: u64,
}

#[cfg(test)]
mod tests;
