//! Names and identifiers, parsed where they enter and trusted afterwards.
//!
//! Names (`ServerName`, `AgentName`, `ProjectName`) are chosen by people; ids are random 128-bit
//! values, shown as 32 hex digits after a short prefix.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

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

/// The name a person gave a server: unique in its project, and safe in tool names and URLs.
///
/// `__` separates server and tool in exposed names, so it cannot be part of a server's name;
/// `native` is the pseudo-server of tools that run inside the gateway.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// The pseudo-server under which native tools are registered.
    pub const NATIVE: &'static str = "native";

    /// Returns the pseudo-server's name.
    pub fn native() -> Self {
        Self(Arc::from(Self::NATIVE))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        check("server", name)?;
        let refused = |why| NameError::Reserved {
            kind: "server",
            name: name.to_owned(),
            why,
        };
        if name.contains("__") {
            return Err(refused("`__` separates server and tool in exposed names"));
        }
        if name == Self::NATIVE {
            return Err(refused(
                "`native` stands for tools that run inside the gateway",
            ));
        }
        Ok(Self(Arc::from(name)))
    }
}

/// The name of an agent, which keys belong to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        check("agent", name)?;
        Ok(Self(Arc::from(name)))
    }
}

/// The name of a project: the scope that owns servers, agents, keys and grants.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectName(Arc<str>);

impl ProjectName {
    /// Returns the project that a folder's own gateway uses.
    pub fn local() -> Self {
        Self(Arc::from("local"))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        check("project", name)?;
        Ok(Self(Arc::from(name)))
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

/// The id of one registration of a server; a new registration under an old name gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(u128);

/// The id of a gateway: stored in its data folder, the same at every start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GatewayId(u128);

/// The id of a key, which may be shown; the key itself never is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(u128);

/// The identity of a grant, by which a record names the one that decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(u128);

/// The id of one call: ordered by time, so that the audit is in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u128);

impl ServerId {
    /// Makes an id of random bits that the caller brings.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the bits, for the journal.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl GatewayId {
    /// Makes an id of random bits that the caller brings.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }
}

impl KeyId {
    /// Makes an id of random bits that the caller brings.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }
}

impl GrantId {
    /// Makes an id of random bits that the caller brings.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the bits, for the journal.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl CallId {
    /// Joins milliseconds since 1970 (48 bits) with 80 bits that make it unique.
    pub const fn new(unix_ms: u64, unique: u128) -> Self {
        Self(((unix_ms as u128) << 80) | (unique & ((1 << 80) - 1)))
    }

    /// Returns its time, in milliseconds since 1970.
    pub const fn unix_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// Returns the bits, for the journal.
    pub const fn to_bits(self) -> u128 {
        self.0
    }

    /// Restores an id from `to_bits`.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srv_{:032x}", self.0)
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gw_{:032x}", self.0)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key_{:032x}", self.0)
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant_{:032x}", self.0)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call_{:032x}", self.0)
    }
}

impl FromStr for ServerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id("server", "srv_", text).map(Self)
    }
}

impl FromStr for GatewayId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id("gateway", "gw_", text).map(Self)
    }
}

impl FromStr for KeyId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id("key", "key_", text).map(Self)
    }
}

impl FromStr for GrantId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id("grant", "grant_", text).map(Self)
    }
}

impl FromStr for CallId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_id("call", "call_", text).map(Self)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerName({self})")
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentName({self})")
    }
}

impl fmt::Debug for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProjectName({self})")
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
        assert!("call_1".parse::<CallId>().is_err());
        assert!(id.to_string().parse::<KeyId>().is_err());
    }
}
