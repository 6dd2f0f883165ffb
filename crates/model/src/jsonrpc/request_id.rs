//! JSON-RPC ids and progress tokens: a string or a number, kept byte for byte.
//!
//! Equality is by exact type (`"1"` is not `1`) and by value (`1.0` is `1`, `"\u0061"` is `"a"`).
//! Numbers are compared as decimals, never as floats, so neighbours beyond 2^53 stay distinct. Only
//! ids of the gateway may come back as a string of their digits: see [`RequestId::matches_u64`].

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::Raw;
use super::raw::RawKind;

/// The id of a request, or a progress token, as its sender wrote it.
#[derive(Debug, Clone, Copy)]
pub enum RequestId<'a> {
    /// A number, as its raw text.
    Number(&'a str),
    /// A string, as its raw text with quotes.
    String(&'a str),
}

impl<'a> RequestId<'a> {
    /// Reads an id; `None` if the value is neither a string nor a number.
    pub fn read(raw: Raw<'a>) -> Option<Self> {
        match raw.kind() {
            RawKind::Number => Some(Self::Number(raw.text())),
            RawKind::String => Some(Self::String(raw.text())),
            RawKind::Object | RawKind::Array | RawKind::Boolean | RawKind::Null => None,
        }
    }

    /// Returns the exact text, fit to be echoed.
    pub fn raw(&self) -> &'a str {
        match self {
            Self::Number(text) | Self::String(text) => text,
        }
    }

    /// Returns the id as a number of the gateway: an integer, the same as a float, or a string of
    /// its digits, as some peers return it. The gateway itself creates no string ids, so this is
    /// unambiguous.
    pub fn matches_u64(&self) -> Option<u64> {
        match self {
            // Ids of the gateway nearly always come back unchanged.
            Self::Number(text) => match text.parse::<u64>() {
                Ok(value) => Some(value),
                Err(_) => u64::try_from(exact_integer(text)?).ok(),
            },
            Self::String(text) => {
                let digits = text.strip_prefix('"')?.strip_suffix('"')?;
                let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                let has_zeros = digits.len() > 1 && digits.starts_with('0');
                (is_plain && !has_zeros).then(|| digits.parse().ok())?
            }
        }
    }

    /// Copies the id.
    pub fn to_owned(&self) -> OwnedRequestId {
        OwnedRequestId(self.raw().into())
    }

    /// Returns one form for all spellings of the same value.
    fn canonical(&self) -> Canonical<'a> {
        match self {
            Self::Number(text) => match exact_integer(text) {
                Some(value) => Canonical::Integer(value),
                None => Canonical::Number(text),
            },
            Self::String(text) => {
                Canonical::String(Raw::scanned(text, false).string().unwrap_or_default())
            }
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Canonical<'a> {
    Integer(i128),
    Number(&'a str),
    String(Cow<'a, str>),
}

impl PartialEq for RequestId<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw() || self.canonical() == other.canonical()
    }
}

impl Eq for RequestId<'_> {}

impl Hash for RequestId<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl<'a> From<RequestId<'a>> for Raw<'a> {
    fn from(id: RequestId<'a>) -> Self {
        Self::scanned(id.raw(), false)
    }
}

impl fmt::Display for RequestId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}

/// A [`RequestId`] with its own memory.
#[derive(Debug, Clone)]
pub struct OwnedRequestId(Box<str>);

impl OwnedRequestId {
    /// Returns the id as a slice.
    pub fn as_id(&self) -> RequestId<'_> {
        if self.0.starts_with('"') {
            RequestId::String(&self.0)
        } else {
            RequestId::Number(&self.0)
        }
    }
}

impl PartialEq for OwnedRequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_id() == other.as_id()
    }
}

impl Eq for OwnedRequestId {}

impl Hash for OwnedRequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_id().hash(state);
    }
}

/// Returns the exact value of a JSON number that is an integer, however it is written.
fn exact_integer(number: &str) -> Option<i128> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value: i128 = 0;
    let mut scale = i64::from(exponent);
    let fraction = fraction.trim_end_matches('0');
    for (index, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        value = value
            .checked_mul(10)?
            .checked_add(i128::from(digit.checked_sub(b'0')?))?;
        if index >= whole.len() {
            scale -= 1;
        }
    }
    while scale < 0 {
        if value % 10 != 0 {
            return None;
        }
        value /= 10;
        scale += 1;
        if value == 0 {
            break;
        }
    }
    while scale > 0 && value != 0 {
        value = value.checked_mul(10)?;
        scale -= 1;
    }
    Some(if negative { -value } else { value })
}
