//! Which addresses may be connected to: public ones, and those that the server's own configuration
//! names. Names are checked by what they resolve to, at the moment of connecting, and the
//! connection goes to exactly the checked address. fault H4
//!
//! Only decides. Entry points: [`AddressPolicy::judge`] for literals, [`CheckedNames`] for names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The address rules of a server's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct AddressPolicy {
    /// The literal address, or `localhost`, in the server's own URL.
    named: Option<String>,
    /// The host of the configured proxy.
    proxy: Option<String>,
    allow_private: bool,
}

/// An address that is neither public nor configured.
#[derive(Debug, thiserror::Error)]
#[error("`{host}` resolves to private address `{address}`")]
pub(crate) struct NotPublic {
    pub(crate) host: String,
    pub(crate) address: IpAddr,
}

/// A name without an address.
#[derive(Debug, thiserror::Error)]
#[error("the name `{host}` cannot be resolved")]
pub(crate) struct Unresolved {
    pub(crate) host: String,
}

/// Why a name has no allowed address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// It has no address.
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// It has only addresses that are not public.
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
}

impl ResolveError {
    /// Returns the cause itself, by which the client's errors are classified.
    fn into_cause(self) -> Box<dyn std::error::Error + Send + Sync> {
        match self {
            Self::Unresolved(error) => error.into(),
            Self::NotPublic(error) => error.into(),
        }
    }
}

impl AddressPolicy {
    /// Reads the rules from a server's URL and settings.
    pub(super) fn of(url: &Url, proxy: Option<&Url>, allow_private: bool) -> Self {
        let named = match url.host() {
            Some(Host::Domain(name)) if is_localhost(name) => Some("localhost".to_owned()),
            Some(Host::Domain(_)) | None => None,
            Some(literal) => Some(literal.to_string()),
        };
        let proxy = proxy.and_then(Url::host).map(|host| host.to_string());
        Self {
            named,
            proxy,
            allow_private,
        }
    }

    /// Checks a URL's host if it is an address.
    pub(crate) fn judge(&self, url: &Url) -> Result<(), NotPublic> {
        let (text, address) = match url.host() {
            Some(host @ Host::Ipv4(address)) => (host.to_string(), IpAddr::V4(address)),
            Some(host @ Host::Ipv6(address)) => (host.to_string(), IpAddr::V6(address)),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        // Addresses that return credentials of the machine must be allowed explicitly.
        let named = self.named.as_ref() == Some(&text) && !is_of_the_machine(address);
        if self.allow_private || named || is_public(address) {
            return Ok(());
        }
        let host = text;
        Err(NotPublic { host, address })
    }

    /// Resolves a name to its allowed addresses.
    pub(super) async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = tokio::net::lookup_host((host, port)).await;
        let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
        let host = host.to_owned();
        let Some(first) = found.first().copied() else {
            return Err(Unresolved { host }.into());
        };
        let allowed: Vec<SocketAddr> = found
            .into_iter()
            .filter(|found| self.allows(&host, found.ip()))
            .collect();
        if allowed.is_empty() {
            let address = first.ip();
            return Err(NotPublic { host, address }.into());
        }
        Ok(allowed)
    }

    /// Checks an address of a host, which is a name or the address itself.
    pub(super) fn judge_resolved(&self, host: &str, address: IpAddr) -> Result<(), NotPublic> {
        let is_literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let is_named = is_literal
            && self
                .named
                .as_deref()
                .map(|named| named.trim_matches(['[', ']']))
                == Some(&*address.to_string())
            && !is_of_the_machine(address);
        match is_named || self.allows(host, address) {
            true => Ok(()),
            false => Err(NotPublic {
                host: host.to_owned(),
                address,
            }),
        }
    }

    fn allows(&self, name: &str, address: IpAddr) -> bool {
        let is_named = is_localhost(name) && self.named.as_deref() == Some("localhost");
        self.allow_private
            || self.proxy.as_deref() == Some(name)
            || is_named && address.is_loopback()
            || is_public(address)
    }
}

/// Resolves names to addresses that the policy allows.
pub(super) struct CheckedNames(pub(super) Arc<AddressPolicy>);

impl fmt::Debug for CheckedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedNames").field(&self.0).finish()
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            let allowed = policy.resolve(name.as_str(), 0).await;
            let allowed = allowed.map_err(ResolveError::into_cause)?;
            let allowed: Addrs = Box::new(allowed.into_iter());
            Ok(allowed)
        })
    }
}

fn is_localhost(name: &str) -> bool {
    name.strip_suffix('.')
        .unwrap_or(name)
        .eq_ignore_ascii_case("localhost")
}

/// Where clouds offer a machine's own credentials, besides the link-local addresses.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    // Public by range, but answered by the machine's own host.
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Returns whether only the machine itself or its cloud answers at an address.
fn is_of_the_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_link_local() || address.octets()[0] == 0 || METADATA_V4.contains(&address)
        }
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address.is_unspecified()
                || embedded(address).is_some()
                || METADATA_V6.contains(&address)
        }
    }
}

/// Returns whether an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_broadcast()
        || a == 0
        || a >= 224
        || (a, b) == (198, 18)
        || (a, b) == (198, 19)
        || a == 100 && b & 0xc0 == 64
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || METADATA_V4.contains(&address);
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Only 2000::/3 is public, except the ranges for tunnels, tests and documentation.
    a & 0xe000 == 0x2000
        && !(a == 0x2001 && b < 0x0200)
        && (a, b) != (0x2001, 0x0db8)
        && !(a == 0x3fff && b < 0x1000)
}

/// Returns the IPv4 address that is embedded in an IPv6 one.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => Some(join(g, h)),
        [0x64, 0xff9b, 0, 0, 0, 0] => Some(join(g, h)),
        [0, 0, 0, 0, 0, 0] if (g, h) != (0, 0) && (g, h) != (0, 1) => Some(join(g, h)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(own: &str, url: &str, allow_private: bool) -> bool {
        let own = Url::parse(own).unwrap();
        let policy = AddressPolicy::of(&own, None, allow_private);
        policy.judge(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn only_public_addresses_are_public() {
        // fault H4
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "3fff::1",
            "::ffff:0:127.0.0.1",
        ];
        for address in private {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_literal_is_named_only_by_the_servers_own_url() {
        // fault H4
        let own = "http://127.0.0.1:1/mcp";
        assert!(judged(own, "http://127.0.0.1:2/other", false));
        assert!(!judged(own, "http://127.0.0.2/", false));
        assert!(!judged(own, "http://[::1]/", false));
        assert!(!judged("https://example.com", "http://10.0.0.1/", false));
        assert!(judged("https://example.com", "http://10.0.0.1/", true));
        // Addresses that return the machine's own credentials must be allowed explicitly.
        for host in [
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "0.0.0.0",
        ] {
            let metadata = format!("http://{host}/latest");
            assert!(!judged(&metadata, &metadata, false), "{host}");
            assert!(judged(&metadata, &metadata, true), "{host}");
        }
        let mapped = "http://[::ffff:127.0.0.1]/";
        assert!(!judged(mapped, mapped, false));
    }

    #[test]
    fn a_name_is_judged_by_where_it_leads() {
        // fault H4
        let own = Url::parse("https://example.com/mcp").unwrap();
        let policy = AddressPolicy::of(&own, None, false);
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(!policy.allows("example.com", loopback));
        assert!(!policy.allows("localhost", loopback));
        let own = Url::parse("http://localhost:3000/mcp").unwrap();
        let policy = AddressPolicy::of(&own, None, false);
        assert!(policy.allows("localhost", loopback));
        assert!(!policy.allows("localhost", "10.0.0.1".parse().unwrap()));
        assert!(!policy.allows("other.example", loopback));
        let proxy = Url::parse("http://proxy.corp:3128").unwrap();
        let policy = AddressPolicy::of(&own, Some(&proxy), false);
        assert!(policy.allows("proxy.corp", "10.0.0.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn localhost_is_found_only_by_who_names_it() {
        // fault H4
        let resolve = async |url: &str| {
            let policy = AddressPolicy::of(&Url::parse(url).unwrap(), None, false);
            let names = CheckedNames(Arc::new(policy));
            names.resolve("localhost".parse().unwrap()).await.is_ok()
        };
        assert!(resolve("http://localhost/mcp").await);
        assert!(!resolve("https://example.com/mcp").await);
    }
}
