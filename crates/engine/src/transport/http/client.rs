//! The pooled HTTP clients: one for each set of address rules, proxy and extra certificates, shared
//! by all servers that have the same. Roots are the system's; the provider of TLS is ring. No
//! client follows a redirect, reads a proxy from the environment, or keeps a cookie.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use gantry_model::spec::RemoteLaunch;
use reqwest::{Certificate, Client, ClientBuilder, Proxy};
use url::Url;

use super::address::{AddressPolicy, CheckedNames};
use super::error::HttpError;

/// How long a connection may take, with its name and its encryption. fault H2
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next call.
const IDLE: Duration = Duration::from_secs(30);
/// How many idle connections are kept for one server.
const IDLE_MOST: usize = 32;
/// The longest file of certificates.
const LONGEST_CA: u64 = 1 << 20;

/// What makes one client different from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    policy: AddressPolicy,
    proxy: Option<String>,
    ca_file: Option<PathBuf>,
}

/// All HTTP clients of an engine.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    made: Mutex<HashMap<Key, Client>>,
}

impl Clients {
    /// Returns the client for a server, and the rules that its addresses are judged by.
    pub(crate) fn client(
        &self,
        url: &Url,
        launch: &RemoteLaunch,
    ) -> Result<(Client, AddressPolicy), HttpError> {
        let origin = url.origin().ascii_serialization();
        let setup = |why: String| HttpError::Setup {
            origin: origin.clone(),
            why,
        };
        let proxy = launch.proxy.as_deref().map(Url::parse).transpose();
        let proxy = proxy.map_err(|error| setup(format!("`proxy` is no URL: {error}")))?;
        let policy = AddressPolicy::of(url, proxy.as_ref(), launch.allow_private);
        let key = Key {
            policy: policy.clone(),
            proxy: launch.proxy.clone(),
            ca_file: launch.ca_file.clone(),
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok((client.clone(), policy));
        }
        let client = make(&key).map_err(setup)?;
        // A file of certificates may change; who names one reads it at each start.
        if key.ca_file.is_none() {
            made.insert(key, client.clone());
        }
        Ok((client, policy))
    }
}

fn make(key: &Key) -> Result<Client, String> {
    install_provider();
    let builder = || -> Result<ClientBuilder, String> {
        let names = CheckedNames(Arc::new(key.policy.clone()));
        let mut builder = Client::builder()
            .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .dns_resolver(Arc::new(names))
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MOST)
            .tcp_nodelay(true)
            .http1_max_headers(100)
            .http2_max_header_list_size(64 << 10);
        if let Some(proxy) = &key.proxy {
            let proxy = Proxy::all(proxy).map_err(|error| error.to_string())?;
            builder = builder.proxy(proxy);
        }
        Ok(builder)
    };
    let own = match &key.ca_file {
        Some(file) => certificates(file)?,
        None => Vec::new(),
    };
    match builder()?.tls_certs_merge(own.clone()).build() {
        Ok(client) => Ok(client),
        // A machine without any roots: only the named ones are left, and plain HTTP.
        Err(error) => builder()?
            .tls_certs_only(own)
            .build()
            .map_err(|_| error.to_string()),
    }
}

fn certificates(file: &PathBuf) -> Result<Vec<Certificate>, String> {
    let unreadable = |why: String| format!("`ca_file` cannot be read: {why}");
    let size = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?;
    if size.len() > LONGEST_CA {
        return Err(unreadable("it is over 1 MiB".into()));
    }
    let text = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let found =
        Certificate::from_pem_bundle(&text).map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() {
        return Err(unreadable("it holds no certificate".into()));
    }
    Ok(found)
}

/// Makes ring the provider of TLS for the whole process; whoever came first stays.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_one_kind_share_a_client_and_others_do_not() {
        let clients = Clients::default();
        let of = |url: &str, proxy: Option<&str>| {
            let mut launch = RemoteLaunch::new(url);
            launch.proxy = proxy.map(str::to_owned);
            clients.client(&Url::parse(url).unwrap(), &launch).unwrap();
            clients.made.lock().unwrap().len()
        };
        assert_eq!(of("https://a.example/mcp", None), 1);
        assert_eq!(of("https://b.example/mcp", None), 1);
        assert_eq!(of("http://127.0.0.1/mcp", None), 2);
        assert_eq!(of("https://a.example/mcp", Some("http://proxy:1")), 3);
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let mut launch = RemoteLaunch::new("https://a.example/mcp");
        launch.ca_file = Some("/dev/null".into());
        let url = Url::parse(&launch.url).unwrap();
        let error = Clients::default().client(&url, &launch).unwrap_err();
        assert!(error.to_string().contains("`ca_file`"), "{error}");
    }
}
