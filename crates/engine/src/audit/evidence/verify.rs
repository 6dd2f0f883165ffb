//! Verifies the hash chains of an audit against its rows, and reports every mismatch.
//!
//! First the blocks of each gateway: numbers, links, hashes, signatures, and the end. Then every
//! row against its block. Then rows that a block names but that are missing. Finally the indexes,
//! which decide what lists show. Reads a few blocks and rows at a time and keeps one bit per row.
//! Changes nothing. Entry point: [`verify`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use gantry_model::hex::hex;
use gantry_store::{
    AuditKey, AuditSnapshot, BlockKind, ChainHead, Entries, FoundCall, Hash, SignedBlock,
    StoreError, StoredCall, row_digest,
};

mod acts;
mod findings;
mod keys;

pub use findings::{Finding, FindingKind, TrustedKeys, Verification, VerifyOptions};

use self::keys::Keys;
use super::head_file::HeadMark;
use super::key::PublicKey;

/// How many blocks are read at once.
const BLOCKS: u32 = 64;
/// How many rows are read at once.
const ROWS: u32 = 500;
/// How many blocks' entries are cached for the following rows.
const KEPT: usize = 64;

/// The state of a block during the verification.
struct KnownBlock {
    count: u32,
    /// Whether it covers an act, not calls.
    is_act: bool,
    has_entries: bool,
    /// Entries whose row was found, removed or replaced.
    done: Bits,
    /// Those of them whose row was removed or replaced.
    gone: Bits,
    /// Entries without a salt.
    blank: Bits,
}

/// Verifies the audit as of one moment.
pub async fn verify(
    audit: &mut AuditSnapshot<'_>,
    options: &VerifyOptions,
) -> Result<Verification, StoreError> {
    let mut checker = Checker {
        report: Verification::default(),
        most: options.most,
        blocks: BTreeMap::new(),
        begun: Vec::new(),
        begun_acts: Vec::new(),
        signers: HashMap::new(),
        cache: VecDeque::new(),
        removed: Vec::new(),
    };
    let keys = Keys::of(audit, &options.trusted, &mut checker.report).await?;
    let heads = audit.heads().await?;
    for gateway in audit.gateways().await? {
        let head = heads.iter().find(|head| head.gateway == gateway);
        checker.chain(audit, gateway, head, &keys).await?;
    }
    checker.stored_keys(&keys.stored);
    checker.marks(audit, &options.marks).await?;
    checker.apply_removed();
    checker.salts();
    checker.rows(audit).await?;
    checker.acts(audit).await?;
    checker.missing(audit).await?;
    let damaged = match options.tables {
        true => audit.damaged_tables().await?,
        false => Vec::new(),
    };
    for detail in damaged {
        checker.add(Finding {
            detail: Some(detail),
            ..Finding::of(FindingKind::TableDamaged, 0, None)
        });
    }
    Ok(checker.report)
}

/// The entries of a block by the id of their call: their places, hashes and salts.
type BlockEntries = HashMap<u128, (u32, Hash, [u8; 16])>;

struct Checker {
    report: Verification,
    most: usize,
    blocks: BTreeMap<(i64, u64), KnownBlock>,
    /// For each chain, the newest call before it.
    begun: Vec<String>,
    /// For each chain, the block from which on it covers acts, and the newest act before it.
    begun_acts: Vec<(i64, u64, String)>,
    /// The gateways whose blocks are signed with a key, by its id.
    signers: HashMap<String, BTreeSet<i64>>,
    /// Entries of the blocks that were asked for last, by id.
    cache: VecDeque<((i64, u64), BlockEntries)>,
    /// What blocks say is gone: the block, and the places of its entries.
    removed: Vec<((i64, u64), Vec<u32>)>,
}

impl Checker {
    fn find(&mut self, kind: FindingKind, (gateway, block): (i64, Option<u64>)) {
        self.add(Finding::of(kind, gateway, block));
    }

    fn add(&mut self, finding: Finding) {
        self.report.count += 1;
        if self.report.findings.len() < self.most {
            self.report.findings.push(finding);
        }
    }

    /// Checks the blocks of one gateway.
    async fn chain(
        &mut self,
        audit: &mut AuditSnapshot<'_>,
        gateway: i64,
        head: Option<&ChainHead>,
        keys: &Keys,
    ) -> Result<(), StoreError> {
        let mut last: Option<(u64, Hash)> = None;
        let mut last_key = String::new();
        loop {
            let from = last.map_or(0, |(number, _)| number + 1);
            let blocks = audit.blocks(gateway, from, BLOCKS).await?;
            if blocks.is_empty() {
                break;
            }
            for (number, block) in blocks {
                self.report.blocks += 1;
                let expected = last.map_or(1, |(number, _)| number + 1);
                for missing in expected..number.min(expected + 1000) {
                    self.find(FindingKind::BlockMissing, (gateway, Some(missing)));
                }
                let previous = last.map_or([0; 32], |(_, hash)| hash);
                let Some(signed) = block else {
                    self.find(FindingKind::BlockChanged, (gateway, Some(number)));
                    last = Some((number, [0; 32]));
                    continue;
                };
                let hash = signed.block.hash();
                let follows = number == expected && signed.block.previous == previous;
                let salted = signed.entries.iter().filter(|entry| entry.salt != [0; 16]);
                let salted = salted.count();
                let is_whole = hash == signed.hash
                    && salted == signed.live as usize
                    && (signed.entries.is_empty()
                        || (signed.entries.hash() == signed.block.entries_hash
                            && signed.entries.as_bytes().len()
                                == signed.block.count as usize * gantry_store::ENTRY_BYTES));
                if !is_whole || (number == expected && !follows) {
                    self.find(FindingKind::BlockChanged, (gateway, Some(number)));
                }
                let key = &signed.block.key_id;
                if *key != last_key {
                    last_key.clone_from(key);
                    let signers = self.signers.entry(key.clone()).or_default();
                    signers.insert(gateway);
                }
                if !keys.has_signed(gateway, key, &hash, &signed.signature) {
                    self.find(FindingKind::BadSignature, (gateway, Some(number)));
                }
                last = Some((number, signed.hash));
                self.remember(gateway, signed);
            }
        }
        self.check_head(gateway, head, last, keys, &last_key);
        if let Some((number, hash)) = last {
            self.report.heads.push((gateway, number, hex(&hash)));
        }
        Ok(())
    }

    fn check_head(
        &mut self,
        gateway: i64,
        head: Option<&ChainHead>,
        last: Option<(u64, Hash)>,
        keys: &Keys,
        key: &str,
    ) {
        match (head, last) {
            (None, None) => {}
            (None, Some(_)) => self.find(FindingKind::HeadChanged, (gateway, None)),
            (Some(head), last) => {
                let signed = ChainHead::signed_bytes(gateway, head.number, &head.hash);
                let by_key = keys.has_signed(gateway, key, &signed, &head.signature);
                let by_any = by_key || keys.any_signed(gateway, &signed, &head.signature);
                if !by_any {
                    self.find(FindingKind::HeadChanged, (gateway, None));
                } else if last.is_none_or(|(number, _)| number < head.number) {
                    self.find(FindingKind::CutOff, (gateway, Some(head.number)));
                } else if last != Some((head.number, head.hash)) {
                    self.find(FindingKind::HeadChanged, (gateway, Some(head.number)));
                }
            }
        }
    }

    /// Checks that the blocks known from elsewhere exist.
    async fn marks(
        &mut self,
        audit: &mut AuditSnapshot<'_>,
        marks: &[HeadMark],
    ) -> Result<(), StoreError> {
        for mark in marks {
            let found = audit.blocks(mark.gateway, mark.number, 1).await?;
            let found = found
                .into_iter()
                .find_map(|(number, block)| block.filter(|_| number == mark.number));
            let at = (mark.gateway, Some(mark.number));
            match found {
                Some(block) if block.hash == mark.hash => {}
                Some(_) => self.find(FindingKind::BlockChanged, at),
                None => self.find(FindingKind::CutOff, at),
            }
        }
        Ok(())
    }

    fn remember(&mut self, gateway: i64, signed: SignedBlock) {
        let block = signed.block;
        match block.kind {
            BlockKind::Begin => self.begun.push(block.note),
            BlockKind::BeginActs => self.begun_acts.push((gateway, block.number, block.note)),
            BlockKind::Import | BlockKind::Retention | BlockKind::Erasure | BlockKind::Act => {}
        }
        for (removed, places) in block.removed.blocks() {
            self.removed
                .push((removed, places.iter().copied().collect()));
        }
        let mut blank = Bits::new(block.count);
        for (entry, place) in signed.entries.iter().zip(0..) {
            if entry.salt == [0; 16] {
                blank.set(place);
            }
        }
        let known = KnownBlock {
            count: block.count,
            is_act: block.kind == BlockKind::Act,
            has_entries: !signed.entries.is_empty(),
            done: Bits::new(block.count),
            gone: Bits::new(block.count),
            blank,
        };
        self.blocks.insert((gateway, block.number), known);
    }

    fn apply_removed(&mut self) {
        for (block, places) in std::mem::take(&mut self.removed) {
            if let Some(known) = self.blocks.get_mut(&block) {
                for place in places {
                    known.done.set(place);
                    known.gone.set(place);
                }
            }
        }
    }

    /// Checks that what blocks say is gone has no salt any more, and nothing else.
    fn salts(&mut self) {
        let odd = self.blocks.iter().filter(|(_, known)| {
            let is_odd = |place| known.gone.get(place) != known.blank.get(place);
            known.has_entries && (0..known.count).any(is_odd)
        });
        let odd: Vec<_> = odd.map(|(at, _)| *at).collect();
        for (gateway, number) in odd {
            self.find(FindingKind::BlockChanged, (gateway, Some(number)));
        }
    }

    /// Checks that the keys of all chains are stored as they are.
    fn stored_keys(&mut self, stored: &[AuditKey]) {
        let mut odd = BTreeSet::new();
        for (id, gateways) in &self.signers {
            let is_known = |key: &AuditKey| key.id == *id && gateways.contains(&key.gateway);
            if !stored.iter().any(is_known) {
                odd.extend(gateways);
            }
        }
        let is_whole = |key: &AuditKey| {
            PublicKey::new(&key.public).is_some_and(|public| public.id() == key.id)
        };
        odd.extend(
            stored
                .iter()
                .filter(|key| !is_whole(key))
                .map(|key| key.gateway),
        );
        for gateway in odd {
            self.find(FindingKind::KeyChanged, (gateway, None));
        }
    }

    /// Checks every row against the block that covers it.
    async fn rows(&mut self, audit: &mut AuditSnapshot<'_>) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        let mut after = String::new();
        loop {
            let rows = audit.calls(&after, ROWS).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = last.id();
            for row in rows {
                self.report.rows += 1;
                match row {
                    FoundCall::Whole(stored) => self.row(audit, &stored, &mut buffer).await?,
                    FoundCall::Unreadable(id) => self.add(Finding {
                        call: Some(id),
                        ..Finding::of(FindingKind::Changed, 0, None)
                    }),
                }
            }
        }
    }

    async fn row(
        &mut self,
        audit: &mut AuditSnapshot<'_>,
        stored: &StoredCall,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let gateway = stored.origin.gateway;
        let id = stored.row.id;
        let finding = |kind| Finding {
            call: Some(id.to_string()),
            project: Some(stored.row.project.clone()),
            ..Finding::of(kind, gateway, stored.block)
        };
        let Some(number) = stored.block else {
            // Earlier releases wrote it, before the first chain began.
            let id = id.to_string();
            match self.begun.iter().all(|newest| id <= *newest) {
                true => self.report.not_covered += 1,
                false => self.add(finding(FindingKind::Inserted)),
            }
            return Ok(());
        };
        let at = (gateway, number);
        if !self.blocks.contains_key(&at) {
            self.add(finding(FindingKind::Inserted));
            return Ok(());
        }
        let entry = self.entry(audit, at, id.to_bits()).await?;
        let Some((place, digest, salt)) = entry else {
            self.add(finding(FindingKind::Inserted));
            return Ok(());
        };
        let known = self.blocks.get_mut(&at);
        let known = known.expect("the block was found a moment ago");
        if known.gone.get(place) {
            // It was removed or replaced, and then inserted again.
            self.add(finding(FindingKind::Inserted));
            return Ok(());
        }
        known.done.set(place);
        if row_digest(buffer, stored.origin, &salt, &stored.row) != digest {
            self.add(finding(FindingKind::Changed));
        }
        Ok(())
    }

    async fn entry(
        &mut self,
        audit: &mut AuditSnapshot<'_>,
        at: (i64, u64),
        id: u128,
    ) -> Result<Option<(u32, Hash, [u8; 16])>, StoreError> {
        if let Some(place) = self.cache.iter().position(|(block, _)| *block == at) {
            return Ok(self.cache[place].1.get(&id).copied());
        }
        let entries = audit.entries(at.0, at.1).await?.unwrap_or_default();
        let by_id: HashMap<_, _> = entries
            .iter()
            .zip(0..)
            .map(|(entry, place)| (entry.id.to_bits(), (place, entry.digest, entry.salt)))
            .collect();
        let found = by_id.get(&id).copied();
        if self.cache.len() == KEPT {
            self.cache.pop_front();
        }
        self.cache.push_back((at, by_id));
        Ok(found)
    }

    /// Finds entries without a row.
    async fn missing(&mut self, audit: &mut AuditSnapshot<'_>) -> Result<(), StoreError> {
        let open: Vec<((i64, u64), bool, bool)> = self
            .blocks
            .iter()
            .filter(|(_, known)| !known.done.is_full(known.count))
            .map(|(at, known)| (*at, known.has_entries, known.is_act))
            .collect();
        for (at, has_entries, is_act) in open {
            let (gateway, number) = at;
            let entries = match has_entries {
                true => audit.entries(gateway, number).await?.unwrap_or_default(),
                false => Entries::default(),
            };
            let known = &self.blocks[&at];
            let unseen: Vec<u32> = (0..known.count)
                .filter(|place| !known.done.get(*place))
                .collect();
            for place in unseen {
                let id = entries.get(place).map(|entry| entry.id);
                let kind = match id {
                    Some(_) => FindingKind::Missing,
                    // The entries of the block are gone, although some of its rows are not.
                    None => FindingKind::BlockChanged,
                };
                let is_block = id.is_none();
                self.add(Finding {
                    call: id.filter(|_| !is_act).map(|id| id.to_string()),
                    act: id.filter(|_| is_act).map(|id| id.to_bits() as i64),
                    ..Finding::of(kind, gateway, Some(number))
                });
                if is_block {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// One bit per entry of a block.
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: u32) -> Self {
        Self(vec![0; (count as usize).div_ceil(64)])
    }

    fn set(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn get(&self, at: u32) -> bool {
        self.0
            .get(at as usize / 64)
            .is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    fn is_full(&self, count: u32) -> bool {
        let set: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        set >= count
    }
}
