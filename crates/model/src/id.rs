//! Names and identifiers, parsed where they enter and trusted afterwards.
//!
//! Names (`ServerName`, `AgentName`, `ProjectName`) are chosen by people; ids are random 128-bit
//! values, shown as 32 hex digits after a short prefix.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hex::put_hex;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("a {kind} name must not be empty")]
    Empty {
        /// The kind of name.
        kind: &'static str,
    },
    /// The name has more than 64 characters.
    #[error("{kind} name `{name}` has {length} characters, at most 64 are allowed")]
    TooLong {
        /// What the name is for.
        kind: &'static str,
        /// The first characters of the name.
        name: String,
        /// Its length.
        length: usize,
    },
    /// The name contains an invalid character.
    #[error(
        "{kind} name `{name}` contains `{character}`; allowed are letters, digits, `.`, `_` and `-`"
    )]
    Character {
        /// What the name is for.
        kind: &'static str,
        /// The name as given, escaped.
        name: String,
        /// The first character that is not allowed, escaped.
        character: String,
    },
    /// The name contains two underscores, a leading dot, or is reserved.
    #[error("{kind} name `{name}` is not allowed: {why}")]
    Reserved {
        /// What the name is for.
        kind: &'static str,
        /// The name as given.
        name: String,
        /// The violated rule.
        why: &'static str,
    },
}

const LONGEST: usize = 64;

fn check(kind: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    let length = name.chars().count();
    if length > LONGEST {
        let name = name
            .chars()
            .take(LONGEST)
            .flat_map(char::escape_debug)
            .collect();
        return Err(NameError::TooLong { kind, name, length });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
        return Err(NameError::Character {
            kind,
            name: name.escape_debug().to_string(),
            character: bad.escape_debug().to_string(),
        });
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        let why = "it must start with a letter or a digit";
        return Err(NameError::Reserved {
            kind,
            name: name.to_owned(),
            why,
        });
    }
    Ok(())
}

/// What tells the kinds of names apart.
pub trait NameKind: Clone + Ord {
    /// The kind, in messages.
    const KIND: &'static str;
    /// The type, for debugging.
    const TYPE: &'static str;

    /// Returns the rule that a well-formed name violates, if its kind has more rules.
    fn violated(_name: &str) -> Option<&'static str> {
        None
    }
}

/// A name that a person chose.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<K>(Arc<str>, PhantomData<K>);

/// The kind of [`ServerName`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfServer;

/// The kind of [`AgentName`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfAgent;

/// The kind of [`ProjectName`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfProject;

/// The name a person gave a server: unique in its project, and safe in tool names and URLs.
///
/// `__` separates server and tool in exposed names, so it cannot be part of a server's name;
/// `native` is the pseudo-server of tools that run inside the gateway.
pub type ServerName = Name<OfServer>;

/// The name of an agent, which keys belong to.
pub type AgentName = Name<OfAgent>;

/// The name of a project: the scope that owns servers, agents, keys and grants.
pub type ProjectName = Name<OfProject>;

impl NameKind for OfServer {
    const KIND: &'static str = "server";
    const TYPE: &'static str = "ServerName";

    fn violated(name: &str) -> Option<&'static str> {
        if name.contains("__") {
            return Some("`__` separates server and tool in exposed names");
        }
        (name == ServerName::NATIVE)
            .then_some("`native` stands for tools that run inside the gateway")
    }
}

impl NameKind for OfAgent {
    const KIND: &'static str = "agent";
    const TYPE: &'static str = "AgentName";
}

impl NameKind for OfProject {
    const KIND: &'static str = "project";
    const TYPE: &'static str = "ProjectName";
}

impl ServerName {
    /// The pseudo-server under which native tools are registered.
    pub const NATIVE: &'static str = "native";

    /// Returns the pseudo-server's name.
    pub fn native() -> Self {
        Self(Arc::from(Self::NATIVE), PhantomData)
    }
}

impl ProjectName {
    /// Returns the project that a folder's own gateway uses.
    pub fn local() -> Self {
        Self(Arc::from("local"), PhantomData)
    }
}

impl<K> Name<K> {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<K: NameKind> FromStr for Name<K> {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        check(K::KIND, name)?;
        match K::violated(name) {
            None => Ok(Self(Arc::from(name), PhantomData)),
            Some(why) => Err(NameError::Reserved {
                kind: K::KIND,
                name: name.to_owned(),
                why,
            }),
        }
    }
}

impl<K> fmt::Display for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<K: NameKind> fmt::Debug for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", K::TYPE)
    }
}

/// The error of a malformed id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {kind} id: `{prefix}` and 32 hex digits are expected")]
pub struct IdError {
    kind: &'static str,
    prefix: &'static str,
    text: String,
}

fn parse_id(kind: &'static str, prefix: &'static str, text: &str) -> Result<u128, IdError> {
    let refused = || IdError {
        kind,
        prefix,
        text: text.chars().take(48).collect(),
    };
    let digits = text.strip_prefix(prefix).ok_or_else(refused)?;
    if digits.len() != 32
        || !digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return Err(refused());
    }
    u128::from_str_radix(digits, 16).map_err(|_| refused())
}

/// Room for the longest prefix.
const LONGEST_PREFIX: usize = 8;

/// What tells the kinds of ids apart.
pub trait IdKind {
    /// The kind, in messages.
    const KIND: &'static str;
    /// What an id begins with, as text.
    const PREFIX: &'static str;
}

/// An id of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<K>(u128, PhantomData<K>);

/// The kind of [`GatewayId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfGateway;

/// The kind of [`KeyId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfKey;

/// The kind of [`GrantId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfGrant;

/// The kind of [`CallId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfCall;

/// The id of one registration of a server; a new registration under an old name gets a new one.
pub type ServerId = Id<OfServer>;

/// The id of a gateway: stored in its data folder, the same at every start.
pub type GatewayId = Id<OfGateway>;

/// The id of a key, which may be shown; the key itself never is.
pub type KeyId = Id<OfKey>;

/// The identity of a grant, by which a record names the one that decided.
pub type GrantId = Id<OfGrant>;

/// The id of one call: ordered by time, so that the audit is in order.
pub type CallId = Id<OfCall>;

impl IdKind for OfServer {
    const KIND: &'static str = "server";
    const PREFIX: &'static str = "srv_";
}

impl IdKind for OfGateway {
    const KIND: &'static str = "gateway";
    const PREFIX: &'static str = "gw_";
}

impl IdKind for OfKey {
    const KIND: &'static str = "key";
    const PREFIX: &'static str = "key_";
}

impl IdKind for OfGrant {
    const KIND: &'static str = "grant";
    const PREFIX: &'static str = "grant_";
}

impl IdKind for OfCall {
    const KIND: &'static str = "call";
    const PREFIX: &'static str = "call_";
}

impl<K> Id<K> {
    /// Makes an id of random bits that the caller brings.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits, PhantomData)
    }

    /// Returns the bits, for the journal.
    pub const fn to_bits(self) -> u128
    where
        K: Copy,
    {
        self.0
    }
}

impl CallId {
    /// Joins milliseconds since 1970 (48 bits) with 80 bits that make it unique.
    pub const fn new(unix_ms: u64, unique: u128) -> Self {
        Self::from_bits(((unix_ms as u128) << 80) | (unique & ((1 << 80) - 1)))
    }

    /// Returns its time, in milliseconds since 1970.
    pub const fn unix_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// Restores an id from `to_bits`.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits, PhantomData)
    }
}

impl<K: IdKind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every call writes several: in one piece, so that a string is allocated once.
        let mut text = [0; LONGEST_PREFIX + 32];
        let (prefix, rest) = text.split_at_mut(K::PREFIX.len());
        prefix.copy_from_slice(K::PREFIX.as_bytes());
        put_hex(&mut rest[..16], (self.0 >> 64) as u64);
        put_hex(&mut rest[16..32], self.0 as u64);
        let text = &text[..K::PREFIX.len() + 32];
        f.write_str(std::str::from_utf8(text).expect("a prefix and digits"))
    }
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K: IdKind> FromStr for Id<K> {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id(K::KIND, K::PREFIX, text).map(Self::from_random)
    }
}

impl Serialize for ServerName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ServerName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_follow_the_rule() {
        for good in ["a", "brave_search", "serverA", "io.github.x-y", "9lives"] {
            assert_eq!(good.parse::<ServerName>().unwrap().as_str(), good);
        }
        // fault G2
        for bad in [
            "",
            "a:b",
            "a/b",
            "..",
            "a b",
            "а",
            "a__b",
            "native",
            "-x",
            ".x",
            &"x".repeat(65),
        ] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_survive_their_text() {
        let id = CallId::new(1_789_000_000_000, 42);
        assert_eq!(id.to_string().parse::<CallId>().unwrap(), id);
        let grant = GrantId::from_random(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(grant.to_string(), "grant_0123456789abcdeffedcba9876543210");
        let server = ServerId::from_random(7);
        assert_eq!(server.to_string(), format!("srv_{:032x}", 7));
        assert!("call_1".parse::<CallId>().is_err());
        assert!(id.to_string().parse::<KeyId>().is_err());
    }
}
