//! Finds duplicate keys in the objects that are open while a text is scanned.
//!
//! All open objects share one stack of keys; an object's own keys are always its tail. Small
//! objects are compared key by key through a fingerprint of constant cost, big ones once, when
//! they close, through a table with a random hash. Keys are compared decoded.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use super::error::{WireError, shown};
use super::text::decode;

/// Objects up to this many keys are compared key by key.
const FEW: usize = 16;

/// Stacks with more entries are freed after use.
const KEPT: usize = 4096;

/// The stacks of a scan, reused from message to message.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    frames: Vec<Frame>,
    keys: Vec<Key>,
    table: Vec<u32>,
}

/// An open object or array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Frame {
    /// An array.
    Array,
    /// An object, whose keys begin at this index of the stack.
    Object(u32),
}

#[derive(Debug, Clone, Copy)]
struct Key {
    /// Equal for equal decoded keys, cheap, but not collision resistant.
    fingerprint: u64,
    start: u32,
    end: u32,
    escaped: bool,
}

impl Key {
    fn decoded<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let inner = &text[self.start as usize..self.end as usize];
        if self.escaped {
            decode(inner)
        } else {
            Cow::Borrowed(inner)
        }
    }
}

impl Scratch {
    /// Clears the last scan, and frees stacks that are unusually large.
    pub(super) fn reset(&mut self) {
        self.frames.clear();
        self.keys.clear();
        self.frames.shrink_to(KEPT);
        self.keys.shrink_to(KEPT);
        self.table.shrink_to(KEPT);
    }

    /// Returns the innermost open object or array.
    #[inline]
    pub(super) fn top(&self) -> Option<Frame> {
        self.frames.last().copied()
    }

    /// Returns how many objects and arrays are open.
    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Opens an array.
    #[inline]
    pub(super) fn open_array(&mut self) {
        self.frames.push(Frame::Array);
    }

    /// Opens an object without keys.
    #[inline]
    pub(super) fn open_object(&mut self) {
        self.frames.push(Frame::Object(self.keys.len() as u32));
    }

    /// Adds a key to the innermost object; `start..end` is the text between its quotes.
    #[inline]
    pub(super) fn insert(
        &mut self,
        text: &str,
        (start, end): (usize, usize),
        escaped: bool,
    ) -> Result<(), WireError> {
        let inner = &text.as_bytes()[start..end];
        let fingerprint = if escaped {
            fingerprint(decode(&text[start..end]).as_bytes())
        } else {
            fingerprint(inner)
        };
        let key = Key {
            fingerprint,
            start: start as u32,
            end: end as u32,
            escaped,
        };
        let base = match self.frames.last() {
            Some(Frame::Object(base)) => *base as usize,
            Some(Frame::Array) | None => self.keys.len(),
        };
        let siblings = self.keys.get(base..).unwrap_or_default();
        if siblings.len() < FEW {
            for sibling in siblings {
                if sibling.fingerprint == fingerprint && same(text, sibling, &key) {
                    return Err(duplicate(text, &key));
                }
            }
        }
        self.keys.push(key);
        Ok(())
    }

    /// Closes the innermost object or array.
    #[inline]
    pub(super) fn close(&mut self, text: &str) -> Result<(), WireError> {
        if let Some(Frame::Object(base)) = self.frames.pop() {
            let base = base as usize;
            if self.keys.len() - base > FEW {
                self.compare_many(text, base)?;
            }
            self.keys.truncate(base);
        }
        Ok(())
    }

    /// Compares all keys from `base` on; an attacker cannot choose keys whose hashes collide.
    #[cold]
    fn compare_many(&mut self, text: &str, base: usize) -> Result<(), WireError> {
        let hash = RandomState::new();
        let keys = &self.keys[base..];
        let slots = (keys.len() * 2).next_power_of_two();
        self.table.clear();
        self.table.resize(slots, u32::MAX);
        for (index, key) in keys.iter().enumerate() {
            let mut slot = hash.hash_one(key.decoded(text).as_bytes()) as usize & (slots - 1);
            while let Some(other) = keys.get(self.table[slot] as usize) {
                if other.fingerprint == key.fingerprint && same(text, other, key) {
                    return Err(duplicate(text, key));
                }
                slot = (slot + 1) & (slots - 1);
            }
            self.table[slot] = index as u32;
        }
        Ok(())
    }
}

fn same(text: &str, one: &Key, other: &Key) -> bool {
    one.decoded(text) == other.decoded(text)
}

#[cold]
fn duplicate(text: &str, key: &Key) -> WireError {
    WireError::DuplicateKey {
        key: shown(&key.decoded(text)),
        at: key.start as usize - 1,
    }
}

/// Mixes a key's length with its first and last bytes.
#[inline]
fn fingerprint(key: &[u8]) -> u64 {
    let word = match (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => match (key.first_chunk::<4>(), key.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
            }
            _ => key
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte)),
        },
    };
    word ^ (key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
