//! Which addresses may be connected to. The caller supplies the rule; this module applies it to
//! every resolved address, and connects to exactly the address that was checked.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::RegistryOptions;

/// A connection that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial<'a> {
    /// The registry whose image is pulled, as the reference names it.
    pub registry: &'a str,
    /// The host to connect to, as in a URL: the registry, its token server, or the target of a
    /// redirect.
    pub host: &'a str,
    /// The address of that host.
    pub address: IpAddr,
}

/// Decides whether a connection may be made, or returns why not.
pub type AddressCheck = Arc<dyn Fn(&Dial<'_>) -> Result<(), String> + Send + Sync>;

/// An address that the rule refuses.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{host}`: {why}")]
pub(super) struct Refused {
    pub(super) host: String,
    pub(super) why: String,
}

/// A name without an address.
#[derive(Debug, thiserror::Error)]
#[error("the name `{0}` cannot be resolved")]
struct Unresolved(String);

/// Resolves names to addresses that may be connected to.
pub(super) struct CheckedNames {
    registry: Arc<str>,
    addresses: AddressCheck,
    proxy: Option<Arc<str>>,
}

impl CheckedNames {
    pub(super) fn new(options: &RegistryOptions, registry: &str) -> Self {
        let proxy = options.proxy.as_ref().and_then(Url::host_str);
        Self {
            registry: registry.into(),
            addresses: Arc::clone(&options.addresses),
            proxy: proxy.map(Arc::from),
        }
    }
}

impl fmt::Debug for CheckedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedNames").field(&self.registry).finish()
    }
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let registry = Arc::clone(&self.registry);
        let addresses = Arc::clone(&self.addresses);
        let is_proxy = self.proxy.as_deref() == Some(name.as_str());
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await;
            let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
            let mut allowed = Vec::new();
            let mut refused = None;
            for found in found {
                let judged = if is_proxy {
                    Ok(())
                } else {
                    judge(&addresses, &registry, &host, found.ip())
                };
                match judged {
                    Ok(()) => allowed.push(found),
                    Err(error) => refused = Some(error),
                }
            }
            match (allowed.is_empty(), refused) {
                (false, _) => {
                    let allowed: Addrs = Box::new(allowed.into_iter());
                    Ok(allowed)
                }
                (true, Some(error)) => Err(error.into()),
                (true, None) => Err(Unresolved(host).into()),
            }
        })
    }
}

fn judge(
    addresses: &AddressCheck,
    registry: &str,
    host: &str,
    address: IpAddr,
) -> Result<(), Refused> {
    let refused = |why: String| Refused {
        host: host.to_owned(),
        why,
    };
    // `localhost` is reached by plain HTTP, so it must not resolve to another machine.
    if is_localhost(host) && !address.is_loopback() {
        return Err(refused(format!("`localhost` resolves to `{address}`")));
    }
    let dial = Dial {
        registry,
        host,
        address,
    };
    addresses(&dial).map_err(refused)
}

/// Checks a URL's host if it is an address; names are checked when they are resolved.
pub(super) fn judge_literal(
    options: &RegistryOptions,
    registry: &str,
    url: &Url,
) -> Result<(), Refused> {
    let (host, address) = match url.host() {
        Some(host @ Host::Ipv4(address)) => (host.to_string(), IpAddr::V4(address)),
        Some(host @ Host::Ipv6(address)) => (host.to_string(), IpAddr::V6(address)),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    judge(&options.addresses, registry, &host, address)
}

/// Returns whether a URL names this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
}
