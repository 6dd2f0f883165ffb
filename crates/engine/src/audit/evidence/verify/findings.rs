//! What a verification is asked, and what it found.

use super::super::head_file::HeadMark;
use super::super::key::PublicKey;

/// The options of a verification.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The trusted keys.
    pub trusted: TrustedKeys,
    /// Ends of chains that are known from elsewhere: these blocks must exist.
    pub marks: Vec<HeadMark>,
    /// The maximum number of returned findings; all are counted.
    pub most: usize,
    /// Whether SQLite's tables and their indexes are compared: one long statement, which would hold
    /// up a gateway that runs.
    pub tables: bool,
}

/// The keys that are trusted to sign blocks.
#[derive(Debug, Clone, Default)]
pub enum TrustedKeys {
    /// Those stored with the audit: whoever can change the database can change them, too.
    #[default]
    FromStore,
    /// These, and the stored ones for chains of other gateways.
    AtLeast(Vec<PublicKey>),
    /// Only these.
    Only(Vec<PublicKey>),
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// How many calls were checked.
    pub rows: u64,
    /// How many administrative acts were checked.
    pub acts: u64,
    /// How many blocks were checked.
    pub blocks: u64,
    /// How many calls are older than the chain, and not covered.
    pub not_covered: u64,
    /// How many acts are older than the chain's part over acts, and not covered.
    pub acts_not_covered: u64,
    /// The mismatches, up to the requested maximum.
    pub findings: Vec<Finding>,
    /// The total number of mismatches.
    pub count: u64,
    /// The end of each chain: gateway, number and hash of its last block.
    pub heads: Vec<(i64, u64, String)>,
    /// The ids of keys that were only known from the store.
    pub keys_from_store: Vec<String>,
}

impl Verification {
    /// Returns whether there is no mismatch.
    pub fn is_sound(&self) -> bool {
        self.count == 0
    }
}

/// One mismatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The affected call, if any.
    pub call: Option<String>,
    /// The affected administrative act, by its number, if any.
    pub act: Option<i64>,
    /// The project of the call or act, if that is known.
    pub project: Option<String>,
    /// The chain, by the number of its gateway.
    pub gateway: i64,
    /// The block, if it is known.
    pub block: Option<u64>,
    /// What the database says, if it found the mismatch.
    pub detail: Option<String>,
}

/// The kind of a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// A row differs from its entry in a block.
    Changed,
    /// A block names a row that does not exist.
    Missing,
    /// No block names a row.
    Inserted,
    /// A block does not match its hash, or does not continue the previous one.
    BlockChanged,
    /// A block does not exist.
    BlockMissing,
    /// A block is not signed by a trusted key.
    BadSignature,
    /// The chain ends too early.
    CutOff,
    /// The record of the chain's end was changed or removed.
    HeadChanged,
    /// The stored key of a chain was changed or removed.
    KeyChanged,
    /// A table of the audit and its indexes differ, so that lists may leave rows out.
    TableDamaged,
}

impl FindingKind {
    /// Returns the kind as shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Inserted => "inserted",
            Self::BlockChanged => "block_changed",
            Self::BlockMissing => "block_missing",
            Self::BadSignature => "bad_signature",
            Self::CutOff => "cut_off",
            Self::HeadChanged => "head_changed",
            Self::KeyChanged => "key_changed",
            Self::TableDamaged => "table_damaged",
        }
    }
}

impl Finding {
    /// Returns a mismatch of which nothing else is known.
    pub(super) fn of(kind: FindingKind, gateway: i64, block: Option<u64>) -> Self {
        Self {
            kind,
            call: None,
            act: None,
            project: None,
            gateway,
            block,
            detail: None,
        }
    }

    /// Describes the mismatch.
    pub fn text(&self) -> String {
        let of = match (&self.call, self.act) {
            (Some(call), _) => call.clone(),
            (None, Some(act)) => format!("the act {act}"),
            (None, None) => String::new(),
        };
        let block = self.block.map_or_else(String::new, |number| {
            format!("block {number} of gateway {}", self.gateway)
        });
        match self.kind {
            FindingKind::Changed => format!("the row of {of} was changed ({block} covers it)"),
            FindingKind::Missing => format!("the row of {of} is missing ({block} names it)"),
            FindingKind::Inserted => format!("the row of {of} was inserted: no block names it"),
            FindingKind::BlockChanged => format!("{block} was changed, or is not in its place"),
            FindingKind::BlockMissing => format!("{block} is missing"),
            FindingKind::BadSignature => format!("{block} has no valid signature"),
            FindingKind::CutOff => format!("the chain was cut off: {block} must be there"),
            FindingKind::HeadChanged => format!(
                "the end of the chain of gateway {} was changed or removed",
                self.gateway
            ),
            FindingKind::KeyChanged => format!(
                "the stored key of the chain of gateway {} was changed or removed",
                self.gateway
            ),
            FindingKind::TableDamaged => {
                let detail = self.detail.as_deref().unwrap_or_default();
                format!("a table of the audit is damaged: {detail}")
            }
        }
    }
}
