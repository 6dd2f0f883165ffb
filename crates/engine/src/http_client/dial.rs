//! Connects to a granted host, with the same address rules as for remote servers: a literal address
//! or `localhost` only if it was granted as such, names only if they resolve to public addresses.
//! The connection goes to exactly the checked address. fault H4

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};

use super::CONNECT;
use super::address::{AddressPolicy, NotPublic, ResolveError};

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The host is neither a name nor an address.
    #[error("`{0}` is not a host")]
    Host(String),
    /// The address is neither public nor granted.
    #[error(transparent)]
    Address(#[from] NotPublic),
    /// The name has no allowed address.
    #[error(transparent)]
    Name(#[from] ResolveError),
    /// The connection failed.
    #[error("cannot connect to `{host}`")]
    Connect {
        host: String,
        #[source]
        source: io::Error,
    },
}

/// Connects to a host by its name or address.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    allow_private: bool,
) -> Result<TcpStream, DialError> {
    let unusable = || DialError::Host(host.to_owned());
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let bracketed = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Err(_) if host.is_empty() || !host.chars().all(is_plain) => return Err(unusable()),
        Ok(IpAddr::V4(_)) | Err(_) => host.to_owned(),
    };
    let url = Url::parse(&format!("http://{bracketed}:{port}/")).map_err(|_| unusable())?;
    let policy = AddressPolicy::of(&url, None, allow_private);
    policy.judge(&url)?;
    let failed = |source| DialError::Connect {
        host: host.to_owned(),
        source,
    };
    let connecting = async {
        let addresses: Vec<SocketAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![(address, port).into()],
            Some(Host::Ipv6(address)) => vec![(address, port).into()],
            Some(Host::Domain(name)) => policy.resolve(name, port).await?,
            None => return Err(unusable()),
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    };
    let late = |_| failed(io::ErrorKind::TimedOut.into());
    timeout(CONNECT, connecting).await.map_err(late)?
}

/// Checks a connection on behalf of a registry: to the registry itself as configured, to other
/// hosts only at public addresses.
pub(crate) fn judge_registry(registry: &str, host: &str, address: IpAddr) -> Result<(), String> {
    let parsed = Url::parse(&format!("http://{registry}/"));
    let url = parsed.map_err(|error| format!("`{registry}` is not a registry: {error}"))?;
    let policy = AddressPolicy::of(&url, None, false);
    policy
        .judge_resolved(host, address)
        .map_err(|refused| refused.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault H4
    #[tokio::test]
    async fn a_private_address_is_reached_only_by_who_names_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(dial("127.0.0.1", port, false).await.is_ok());
        assert!(dial("localhost", port, false).await.is_ok());
        for host in ["169.254.169.254", "0.0.0.0", "100.100.100.200"] {
            let error = dial(host, port, false).await.unwrap_err();
            assert!(matches!(error, DialError::Address(_)), "{host}: {error}");
        }
        for host in ["", "a b", "a/b", "a@b", "a:1"] {
            let error = dial(host, port, false).await.unwrap_err();
            assert!(matches!(error, DialError::Host(_)), "{host}: {error}");
        }
    }
}
