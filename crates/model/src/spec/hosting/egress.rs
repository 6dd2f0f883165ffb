//! One destination that a hosted server may reach: `host:port`.

use core::net::{IpAddr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The maximum length of a host name.
const LONGEST: usize = 253;

/// A host and a port. Invariant: the host is a lower-case name, one with a leading `*.`, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    host: String,
    port: u16,
}

/// Why a text is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not `host:port`: {why}")]
pub struct EgressRuleError {
    /// The text, escaped and truncated.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl EgressRule {
    /// Returns the host: a name, `*.name`, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, if the host is one. It may be private, because it is named explicitly.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns whether a destination matches this rule. `*.example.com` matches every name below
    /// it.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        if port != self.port {
            return false;
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match self.host.strip_prefix("*.") {
            Some(domain) => host
                .strip_suffix(domain)
                .is_some_and(|below| below.len() > 1 && below.ends_with('.')),
            None => {
                let addresses = (host.parse::<IpAddr>().ok(), self.address());
                match addresses {
                    (Some(asked), Some(own)) => asked == own,
                    _ => host == self.host,
                }
            }
        }
    }
}

impl FromStr for EgressRule {
    type Err = EgressRuleError;

    fn from_str(text: &str) -> Result<Self, EgressRuleError> {
        let refused = |why| EgressRuleError {
            text: text.chars().take(60).flat_map(char::escape_debug).collect(),
            why,
        };
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| refused("the port is missing"))?;
        let is_digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0 && is_digits);
        let port = port.ok_or_else(|| refused("the port is not a number from 1 to 65,535"))?;
        let inside = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if let Some(address) = inside {
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| refused("the address in brackets is not IPv6"))?;
            let host = address.to_string();
            return Ok(Self { host, port });
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let name = host.strip_prefix("*.").unwrap_or(&host);
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            (1..=63).contains(&label.len())
                && label.bytes().all(is_inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if host.len() > LONGEST || !name.split('.').all(is_label) {
            return Err(refused("the host is neither a name nor an address"));
        }
        // Some resolvers read `0x7f.1` and `127.1` as addresses, others as names.
        let is_number = |label: &str| {
            label.bytes().all(|byte| byte.is_ascii_digit()) || label.starts_with("0x")
        };
        let ends_in_number = name.rsplit('.').next().is_some_and(is_number);
        if ends_in_number && (host.parse::<IpAddr>().is_err()) {
            return Err(refused("the address is not in its usual form"));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl TryFrom<String> for EgressRule {
    type Error = EgressRuleError;

    fn try_from(text: String) -> Result<Self, EgressRuleError> {
        text.parse()
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_means_its_host_and_port_alone() {
        let rule: EgressRule = "API.example.com:443".parse().unwrap();
        assert_eq!(rule.to_string(), "api.example.com:443");
        assert!(rule.matches("api.example.com.", 443));
        for (host, port) in [
            ("api.example.com", 80),
            ("example.com", 443),
            ("x.api.example.com", 443),
        ] {
            assert!(!rule.matches(host, port), "{host}:{port}");
        }
        let below: EgressRule = "*.example.com:443".parse().unwrap();
        assert!(below.matches("a.b.example.com", 443));
        assert!(!below.matches("example.com", 443) && !below.matches("badexample.com", 443));
        let address: EgressRule = "[::1]:8080".parse().unwrap();
        assert!(address.matches("0:0:0:0:0:0:0:1", 8080));
        assert_eq!(address.to_string(), "[::1]:8080");
    }

    // fault H4
    #[test]
    fn what_is_no_destination_is_refused() {
        for text in [
            "",
            "a",
            "a:",
            ":80",
            "a:0",
            "a:65536",
            "a:+1",
            "a b:1",
            "http://a:1",
            "a/b:1",
            "*:443",
            "a.*:1",
            "0x7f.1:80",
            "127.1:80",
            "[x]:1",
            "user@a:1",
            "-a:1",
            "a..b:1",
        ] {
            assert!(text.parse::<EgressRule>().is_err(), "{text}");
        }
    }
}
