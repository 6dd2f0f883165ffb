//! Ranges of IP addresses, as `192.0.2.0/24`, `2001:db8::/32` or a single address. An IPv4 address that is
//! mapped into IPv6 is the IPv4 address. Entry points: [`AddressRange`]'s `FromStr` and
//! [`AddressRange::contains`].

use core::net::IpAddr;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of addresses that have their first bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AddressRange {
    /// The first address of the range.
    first: IpAddr,
    /// How many bits all addresses have in common.
    bits: u8,
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeError {
    /// It is not an address and a number of bits.
    #[error(
        "`{text}` is not an address range such as `192.0.2.0/24`, `2001:db8::/32` or `192.0.2.7`"
    )]
    Syntax {
        /// What was given, cut.
        text: String,
    },
    /// It has set bits behind those that count.
    #[error("`{text}` has bits set beyond its length; the range is `{meant}`")]
    Bits {
        /// What was given.
        text: String,
        /// The range that it lies in.
        meant: AddressRange,
    },
}

impl AddressRange {
    fn of(address: IpAddr, bits: u8) -> Option<Self> {
        // A mapped range of IPv4 is that of IPv4.
        let (address, bits) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), short @ IpAddr::V4(_)) if bits >= 96 => (short, bits - 96),
            _ => (address, bits),
        };
        let first = match address {
            IpAddr::V4(address) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        Some(Self { first, bits })
    }

    /// Returns whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4()
            && Self::of(address, self.bits).is_some_and(|range| range.first == self.first)
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || AddressRangeError::Syntax {
            text: text
                .chars()
                .take(64)
                .collect::<String>()
                .escape_debug()
                .to_string(),
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        let bits = match bits {
            // `+8` and `008` are numbers to the standard library.
            Some(bits) if bits.len() > 1 && !bits.starts_with(|c| ('1'..='9').contains(&c)) => {
                return Err(syntax());
            }
            Some(bits) => bits.parse().map_err(|_| syntax())?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        let range = Self::of(address, bits).ok_or_else(syntax)?;
        match range.first.to_canonical() == address.to_canonical() {
            true => Ok(range),
            false => Err(AddressRangeError::Bits {
                text: text.to_owned(),
                meant: range,
            }),
        }
    }
}

impl Display for AddressRange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.first, self.bits)
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl TryFrom<String> for AddressRange {
    type Error = AddressRangeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_in_its_range_only() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "127.0.0.1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            // Mapped addresses are those of IPv4, on either side.
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::1", "::1", true),
        ];
        for (text, address, is_in) in cases {
            let address = address.parse().unwrap();
            assert_eq!(range(text).contains(address), is_in, "{address} in {text}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "host",
            "10.0.0.0/8 ",
        ] {
            let refused = text.parse::<AddressRange>();
            assert!(
                matches!(refused, Err(AddressRangeError::Syntax { .. })),
                "{text}"
            );
        }
        let refused = "10.1.2.3/8".parse::<AddressRange>().unwrap_err();
        let said = "`10.1.2.3/8` has bits set beyond its length; the range is `10.0.0.0/8`";
        assert_eq!(refused.to_string(), said);
        assert_eq!(range("192.0.2.7").to_string(), "192.0.2.7/32");
        let stored = serde_json::to_string(&[range("::1"), range("10.0.0.0/8")]).unwrap();
        assert_eq!(stored, r#"["::1/128","10.0.0.0/8"]"#);
    }
}
