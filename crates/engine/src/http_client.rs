//! The pooled HTTP clients: one for each combination of address rules, proxy and additional
//! certificates. Uses the system's root certificates and ring for TLS. No client follows redirects,
//! reads a proxy from the environment, or keeps cookies. Transports and sign-ins use them, with the
//! same address rules. Entry points: [`Clients`], [`Route`].

mod address;
mod ca_bundle;
mod dial;
mod route;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use gantry_model::spec::RemoteLaunch;
use parking_lot::{Mutex, MutexGuard};
use reqwest::{Certificate, Client, ClientBuilder, Proxy};
use url::Url;

use self::address::CheckedNames;
pub(crate) use self::address::{AddressPolicy, NotPublic, Unresolved};
use self::ca_bundle::CaFiles;
pub(crate) use self::dial::{dial, judge_registry};
pub(crate) use self::route::Route;

/// Time limit of a connection, including name resolution and TLS. fault H2
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next call.
const IDLE: Duration = Duration::from_secs(30);
/// How many idle connections are kept for one server.
const IDLE_MOST: usize = 32;

/// Why a client cannot be created.
#[derive(Debug, Clone, thiserror::Error)]
#[error("connection setup with {origin} failed: {why}")]
pub(crate) struct SetupError {
    pub(crate) origin: String,
    pub(crate) why: String,
}

/// The properties that distinguish clients.
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
    ca_files: CaFiles,
}

impl Clients {
    /// Returns the client and the address rules for a server.
    pub(crate) async fn client(
        &self,
        url: &Url,
        launch: &RemoteLaunch,
    ) -> Result<(Client, AddressPolicy), SetupError> {
        let origin = url.origin().ascii_serialization();
        let setup = |why: String| SetupError {
            origin: origin.clone(),
            why,
        };
        let policy = policy(url, launch)?;
        let key = Key {
            policy: policy.clone(),
            proxy: launch.proxy.clone(),
            ca_file: launch.ca_file.clone(),
        };
        // A certificate file may change, so it is read at each start.
        if let Some(file) = &key.ca_file {
            let own = self.ca_files.read(file).await;
            let own = own.map_err(|why| setup(format!("`ca_file` cannot be read: {why}")))?;
            return Ok((make(&key, own).map_err(setup)?, policy));
        }
        if let Some(client) = self.made().get(&key) {
            return Ok((client.clone(), policy));
        }
        // Created without the lock; if two tasks do so at once, one client is dropped.
        let client = make(&key, Vec::new()).map_err(setup)?;
        let client = self.made().entry(key).or_insert(client).clone();
        Ok((client, policy))
    }

    /// Returns a client whose connections all go to one Unix socket of this host, which forwards to
    /// a server inside its own network namespace.
    pub(crate) fn of_socket(&self, socket: &Path) -> Result<(Client, AddressPolicy), SetupError> {
        install_provider();
        let made = client().unix_socket(socket).build();
        let setup = |error: reqwest::Error| SetupError {
            origin: "the server".to_owned(),
            why: error.to_string(),
        };
        // Whatever address a URL has, the connection goes to the socket.
        let url = Url::parse("http://127.0.0.1/").expect("a constant URL");
        Ok((made.map_err(setup)?, AddressPolicy::of(&url, None, false)))
    }

    fn made(&self) -> MutexGuard<'_, HashMap<Key, Client>> {
        self.made.lock()
    }
}

/// Returns the address rules of a server.
fn policy(url: &Url, launch: &RemoteLaunch) -> Result<AddressPolicy, SetupError> {
    let proxy = launch.proxy.as_deref().map(Url::parse).transpose();
    let proxy = proxy.map_err(|error| SetupError {
        origin: url.origin().ascii_serialization(),
        why: format!("`proxy` is no URL: {error}"),
    })?;
    Ok(AddressPolicy::of(url, proxy.as_ref(), launch.allow_private))
}

fn make(key: &Key, own: Vec<Certificate>) -> Result<Client, String> {
    install_provider();
    let builder = || -> Result<ClientBuilder, String> {
        let names = CheckedNames(Arc::new(key.policy.clone()));
        let mut builder = client().dns_resolver(Arc::new(names));
        if let Some(proxy) = &key.proxy {
            let proxy = Proxy::all(proxy).map_err(|error| error.to_string())?;
            builder = builder.proxy(proxy);
        }
        Ok(builder)
    };
    match builder()?.tls_certs_merge(own.clone()).build() {
        Ok(client) => Ok(client),
        // A machine without root certificates: only the configured ones apply, or plain HTTP.
        Err(error) => builder()?
            .tls_certs_only(own)
            .build()
            .map_err(|_| error.to_string()),
    }
}

/// Starts a client with the common settings.
fn client() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_MOST)
        .tcp_nodelay(true)
        .http1_max_headers(100)
        .http2_max_header_list_size(64 << 10)
}

/// Installs ring as the TLS provider of the process, unless one is installed.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn servers_of_one_kind_share_a_client_and_others_do_not() {
        let clients = Clients::default();
        let kinds = [
            ("https://a.example/mcp", None, 1),
            ("https://b.example/mcp", None, 1),
            ("http://127.0.0.1/mcp", None, 2),
            ("https://a.example/mcp", Some("http://proxy:1"), 3),
        ];
        for (url, proxy, made) in kinds {
            let mut launch = RemoteLaunch::new(url);
            launch.proxy = proxy.map(str::to_owned);
            let url = Url::parse(url).unwrap();
            clients.client(&url, &launch).await.unwrap();
            assert_eq!(clients.made().len(), made, "{url}");
        }
    }

    #[tokio::test]
    async fn a_file_without_certificates_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("ca.pem");
        std::fs::write(&file, "nothing").unwrap();
        let mut launch = RemoteLaunch::new("https://a.example/mcp");
        launch.ca_file = Some(file);
        let url = Url::parse(&launch.url).unwrap();
        let error = Clients::default().client(&url, &launch).await.unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("`ca_file`") && told.contains("no certificate"),
            "{told}"
        );
    }
}
