//! The entries of earlier blocks whose row was replaced or removed: runs of indexes, by gateway and
//! block. Equal sets have equal bytes, and so equal hashes.

use std::collections::{BTreeMap, BTreeSet};

/// The place of a row in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The gateway of the chain.
    pub gateway: i64,
    /// The number of the block.
    pub block: u64,
    /// The index of the entry.
    pub entry: u32,
}

/// Entries without a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed(BTreeMap<(i64, u64), BTreeSet<u32>>);

impl FromIterator<Place> for Removed {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut removed = Self::default();
        for place in places {
            removed.insert(place);
        }
        removed
    }
}

impl Removed {
    /// Adds an entry.
    pub fn insert(&mut self, place: Place) {
        let block = self.0.entry((place.gateway, place.block)).or_default();
        block.insert(place.entry);
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the blocks, each with its entries.
    pub fn blocks(&self) -> impl Iterator<Item = ((i64, u64), &BTreeSet<u32>)> {
        self.0.iter().map(|(block, entries)| (*block, entries))
    }

    /// Returns the canonical bytes: gateway, block, number of runs, then start and length of each
    /// run.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for ((gateway, block), entries) in &self.0 {
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for entry in entries {
                match runs.last_mut() {
                    Some((first, length)) if *first + *length == *entry => *length += 1,
                    _ => runs.push((*entry, 1)),
                }
            }
            bytes.extend_from_slice(&gateway.to_le_bytes());
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&(runs.len() as u32).to_le_bytes());
            for (first, length) in runs {
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&length.to_le_bytes());
            }
        }
        bytes
    }

    /// Parses the canonical bytes; `None` if they are invalid, or have more entries than any block.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        /// More than the rows of one transaction.
        const MOST: u32 = 1 << 20;
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        let mut removed = Self::default();
        while !bytes.is_empty() {
            let gateway = i64::from_le_bytes(take(&mut bytes)?);
            let block = u64::from_le_bytes(take(&mut bytes)?);
            let runs = u32::from_le_bytes(take(&mut bytes)?);
            for _ in 0..runs {
                let first = u32::from_le_bytes(take(&mut bytes)?);
                let length = u32::from_le_bytes(take(&mut bytes)?);
                let end = first.checked_add(length).filter(|end| *end <= MOST)?;
                let block = removed.0.entry((gateway, block)).or_default();
                block.extend(first..end);
            }
        }
        Some(removed)
    }
}
