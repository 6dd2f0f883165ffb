//! The published keys of an issuer: fetched under the address policy, again every ten minutes, and
//! soon after a token names a key that is not among them, but not more often than every ten seconds.
//!
//! Keys that were fetched stay in use for a day while the issuer cannot be reached; without any, no
//! token is accepted. Entry points: [`IssuerKeys::keep_fresh`] and [`IssuerKeys::verify`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::spec::RemoteLaunch;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::jws::{Jwk, PublicKey, Signed};
use super::{IssuerConfig, TokenError};
use crate::http_client::{Clients, Route};

/// How often keys are fetched.
const EVERY: Duration = Duration::from_secs(600);
/// The minimum time between two fetches, and the pause after a failed one.
const PAUSE: Duration = Duration::from_secs(10);
/// Time limit of one fetch.
const FETCH: Duration = Duration::from_secs(10);
/// How long keys are used after the last successful fetch.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// The largest document that is read, and the most keys in one.
const DOCUMENT_BYTES: usize = 256 << 10;
const MOST_KEYS: usize = 64;

/// The keys of one issuer.
#[derive(Default)]
pub(super) struct IssuerKeys {
    known: Mutex<Known>,
    wanted: Notify,
}

#[derive(Default)]
struct Known {
    keys: Arc<[PublicKey]>,
    fetched: Option<Instant>,
    failure: Option<String>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: Url,
}

impl IssuerKeys {
    /// Verifies the signature of a token.
    pub(super) fn verify(&self, signed: &Signed<'_>) -> Result<PublicKey, TokenError> {
        let Some(keys) = self.now() else {
            let why = self.known.lock().failure.clone();
            let why = why.unwrap_or_else(|| "they are being fetched".to_owned());
            return Err(TokenError::NoKeys { why });
        };
        let mut fitting = keys.iter().filter(|key| key.fits(signed)).peekable();
        if fitting.peek().is_none() {
            // The issuer may have published a new key.
            self.wanted.notify_one();
            return Err(TokenError::Key);
        }
        let signer = fitting.find(|key| key.has_signed(signed));
        signer.cloned().ok_or(TokenError::Signature)
    }

    /// Returns the keys that are in use; nothing if there are none, or none that are fresh enough.
    pub(super) fn now(&self) -> Option<Arc<[PublicKey]>> {
        let known = self.known.lock();
        let is_fresh = known.fetched.is_some_and(|at| at.elapsed() <= STALE);
        is_fresh.then(|| Arc::clone(&known.keys))
    }

    #[cfg(test)]
    pub(super) fn set_for_test(&self, keys: Vec<PublicKey>) {
        let mut known = self.known.lock();
        known.keys = keys.into();
        known.fetched = Some(Instant::now());
    }

    /// Fetches the keys repeatedly; never returns.
    pub(super) async fn keep_fresh(&self, config: &IssuerConfig, clients: &Arc<Clients>) {
        loop {
            let fetched = timeout(FETCH, fetch(config, clients)).await;
            let fetched = fetched.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            let next = match fetched {
                Ok(keys) => {
                    let mut known = self.known.lock();
                    known.keys = keys.into();
                    known.fetched = Some(Instant::now());
                    known.failure = None;
                    EVERY
                }
                Err(why) => {
                    tracing::warn!(issuer = config.url, %why, "cannot fetch the keys of a token issuer");
                    self.known.lock().failure = Some(why);
                    PAUSE
                }
            };
            sleep(PAUSE).await;
            drop(timeout(next - PAUSE, self.wanted.notified()).await);
        }
    }
}

async fn fetch(config: &IssuerConfig, clients: &Arc<Clients>) -> Result<Vec<PublicKey>, String> {
    let launch = RemoteLaunch {
        allow_private: config.allow_private,
        ..RemoteLaunch::new(&config.url)
    };
    let route = Route::new(clients, &launch).map_err(|error| error.to_string())?;
    let jwks = match &config.jwks {
        Some(url) => url.clone(),
        None => discover(config, &route).await?,
    };
    let set = get(&route, jwks).await?;
    let set: JwkSet = serde_json::from_slice(&set).map_err(|_| "its key set is not valid")?;
    if set.keys.len() > MOST_KEYS {
        return Err(format!("its key set has more than {MOST_KEYS} keys"));
    }
    // A key of an unknown kind is skipped.
    let keys = set.keys.into_iter();
    let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    let keys: Vec<PublicKey> = keys.filter_map(|key| PublicKey::of(&key)).collect();
    match keys.is_empty() {
        true => Err("its key set has no key that can be used".to_owned()),
        false => Ok(keys),
    }
}

/// Finds the keys through the issuer's own metadata (RFC 8414, OpenID Connect).
async fn discover(config: &IssuerConfig, route: &Route) -> Result<Url, String> {
    let issuer = Url::parse(&config.url).map_err(|error| error.to_string())?;
    let path = issuer.path().trim_end_matches('/').to_owned();
    let places = [
        format!("{path}/.well-known/openid-configuration"),
        format!("/.well-known/oauth-authorization-server{path}"),
    ];
    let mut failure = String::new();
    for place in places {
        let mut url = issuer.clone();
        url.set_path(&place);
        let metadata = get(route, url).await.and_then(|document| {
            serde_json::from_slice::<Metadata>(&document)
                .map_err(|_| "its metadata are not valid".to_owned())
        });
        match metadata {
            Ok(metadata) if metadata.issuer == config.url => return Ok(metadata.jwks_uri),
            Ok(_) => failure = "its metadata name another issuer".to_owned(),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Gets a document; follows no redirects.
async fn get(route: &Route, url: Url) -> Result<Vec<u8>, String> {
    let shown = url.origin().ascii_serialization();
    if url.scheme() != "https" && !is_local(&url) {
        return Err(format!("{shown} does not use https"));
    }
    let request = reqwest::Request::new(reqwest::Method::GET, url);
    let mut response = route
        .execute(request)
        .await
        .map_err(|error| error.to_string())?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("{shown} answered {}", response.status().as_u16()));
    }
    let mut document = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        if document.len() + chunk.len() > DOCUMENT_BYTES {
            return Err(format!("{shown} sent more than {DOCUMENT_BYTES} bytes"));
        }
        document.extend_from_slice(&chunk);
    }
    Ok(document)
}

/// Returns whether a URL names this machine, where traffic cannot be intercepted.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
