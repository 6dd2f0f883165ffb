//! The read half of the OCI distribution API: manifests and blobs of a registry.
//!
//! All responses are limited in size, verified against their digest while they arrive, and aborted
//! when they stall. The caller's address check decides about every connection when it is made.
//! Writes and stores nothing. Entry points: [`Registry::new`], [`Session`].

mod address;
mod blob;
mod challenge;
mod error;
mod manifest;
mod pace;
mod request;
mod sign_in;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Client, Proxy};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::address::CheckedNames;
pub use self::address::{AddressCheck, Dial};
pub(crate) use self::blob::{BlobReader, blob};
pub use self::error::RegistryError;
pub(crate) use self::manifest::{LayerBlob, Resolved};
use self::sign_in::SignIn;
use crate::credentials::Credentials;
use crate::reference::ImageReference;

/// The host of the registry `docker.io`.
const HUB_HOST: &str = "registry-1.docker.io";
/// How many registries have a cached HTTP client.
const MOST_CLIENTS: usize = 16;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);

/// The timeouts of registry requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including name resolution and TLS.
    pub connect: Duration,
    /// For the headers of a response.
    pub answer: Duration,
    /// For [`Timeouts::least_bytes`] of a body; counts the time spent waiting for the network, not
    /// for the local disk.
    pub no_progress: Duration,
    /// The bytes that must arrive within [`Timeouts::no_progress`].
    pub least_bytes: u64,
    /// The pause before the first retry; doubles for each further one.
    pub retry_pause: Duration,
    /// The longest `Retry-After` that is respected.
    pub longest_pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            no_progress: Duration::from_secs(30),
            least_bytes: 32 << 10,
            retry_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(10),
        }
    }
}

/// How registries are reached.
#[derive(Clone)]
pub struct RegistryOptions {
    /// The check of every address before a connection.
    pub addresses: AddressCheck,
    /// Additional certificate authorities, PEM.
    pub ca: Option<Vec<u8>>,
    /// The proxy for all requests. Its own address is not checked. Since it resolves names, only
    /// literal addresses in URLs are checked.
    pub proxy: Option<Url>,
    /// Token servers outside the registry's domain that may receive credentials.
    pub token_servers: Vec<String>,
    /// The timeouts.
    pub timeouts: Timeouts,
}

impl RegistryOptions {
    /// Returns the default options with an address check.
    pub fn new(addresses: AddressCheck) -> Self {
        Self {
            addresses,
            ca: None,
            proxy: None,
            token_servers: Vec::new(),
            timeouts: Timeouts::default(),
        }
    }
}

impl fmt::Debug for RegistryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryOptions")
            .field("proxy", &self.proxy.as_ref().map(Url::host_str))
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// The client of all registries. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: RegistryOptions,
    /// One HTTP client per registry, since the address check depends on the registry.
    clients: Mutex<HashMap<String, Client>>,
}

/// The requests for one image, with the credentials for it.
#[derive(Debug)]
pub(crate) struct Session {
    options: RegistryOptions,
    client: Client,
    image: ImageReference,
    /// `https://host/v2/`.
    base: Url,
    sign_in: SignIn,
    stop: CancellationToken,
}

impl Registry {
    /// Creates the client; opens no connection yet.
    pub fn new(options: RegistryOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                clients: Mutex::default(),
            }),
        }
    }

    /// Starts the requests for an image.
    pub(crate) fn session(
        &self,
        image: &ImageReference,
        credentials: Option<Credentials>,
        stop: &CancellationToken,
    ) -> Result<Session, RegistryError> {
        let registry = image.registry();
        let host = if registry == "docker.io" {
            HUB_HOST
        } else {
            registry
        };
        let setup = |why: String| RegistryError::Setup { why };
        let base = Url::parse(&format!("https://{host}/v2/"));
        let mut base = base.map_err(|error| setup(error.to_string()))?;
        // A registry on this machine needs no TLS, and rarely has it.
        if address::is_loopback(&base) {
            let plain = format!("http://{host}/v2/");
            base = Url::parse(&plain).map_err(|error| setup(error.to_string()))?;
        }
        Ok(Session {
            options: self.shared.options.clone(),
            client: self.client(registry).map_err(setup)?,
            image: image.clone(),
            base,
            sign_in: SignIn::new(credentials),
            stop: stop.clone(),
        })
    }

    fn client(&self, registry: &str) -> Result<Client, String> {
        if let Some(client) = self.shared.clients.lock().get(registry) {
            return Ok(client.clone());
        }
        // Created without the lock; if two tasks do so at once, one client is dropped.
        let made = make(&self.shared.options, registry)?;
        let mut clients = self.shared.clients.lock();
        if clients.len() >= MOST_CLIENTS {
            clients.clear();
        }
        Ok(clients.entry(registry.to_owned()).or_insert(made).clone())
    }
}

fn make(options: &RegistryOptions, registry: &str) -> Result<Client, String> {
    install_provider();
    let text = |error: reqwest::Error| gantry_model::diagnose::chain(&error);
    let own = match &options.ca {
        Some(pem) => Certificate::from_pem_bundle(pem).map_err(text)?,
        None => Vec::new(),
    };
    let builder = || {
        let names = CheckedNames::new(options, registry);
        let builder = Client::builder()
            .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            // The digest covers the bytes as sent.
            .no_gzip()
            .dns_resolver(Arc::new(names))
            .connect_timeout(options.timeouts.connect)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .http1_max_headers(100)
            .http2_max_header_list_size(64 << 10);
        match &options.proxy {
            Some(proxy) => Ok(builder.proxy(Proxy::all(proxy.clone()).map_err(text)?)),
            None => Ok::<_, String>(builder),
        }
    };
    match builder()?.tls_certs_merge(own.clone()).build() {
        Ok(client) => Ok(client),
        // A machine without root certificates: only the configured ones apply, or plain HTTP.
        Err(error) => builder()?
            .tls_certs_only(own)
            .build()
            .map_err(|_| text(error)),
    }
}

/// Installs ring as the TLS provider of the process, unless one is installed.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        drop(rustls::crypto::ring::default_provider().install_default());
    });
}
