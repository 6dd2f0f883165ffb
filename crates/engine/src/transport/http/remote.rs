//! One remote server: its URL, its headers, its client. Every request passes [`Remote::send`], which
//! checks the address, follows redirects within the origin only, and classifies errors. The headers
//! never leave the origin. faults H3, H4

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::meta;
use gantry_model::spec::RemoteLaunch;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode};
use url::Url;

use super::body::{Body, whole};
use super::error::{HttpError, safe};
use super::limit::{RateLimit, retry_after};
use super::outbox::TraceHeaders;
use crate::credentials::{Credentials, Retry};
use crate::http_client::{AddressPolicy, CONNECT, Clients};
use crate::known_secrets::KnownSecrets;

/// How many redirects within the origin are followed.
const MOST_REDIRECTS: usize = 3;
/// Bytes read of a response that is quoted.
const QUOTABLE: usize = 8 << 10;
/// Time limit for reading it.
const QUOTING: Duration = Duration::from_secs(2);

/// A remote server and how it is reached.
pub(crate) struct Remote {
    client: Client,
    policy: AddressPolicy,
    pub(crate) url: Url,
    pub(crate) origin: String,
    /// The proxy, without credentials.
    proxy: Option<String>,
    headers: HeaderMap,
    /// Default credentials, unless the headers have them.
    credentials: Option<Credentials>,
    /// Secrets redacted from quoted responses before they are cut.
    known: Arc<KnownSecrets>,
    /// Its `Retry-After`, if in force.
    pub(crate) limit: Arc<RateLimit>,
}

/// One request to a remote server.
#[derive(Debug, Clone)]
pub(crate) struct RemoteRequest<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Time limit for the response head; none while a caller waits.
    pub(crate) within: Option<Duration>,
}

impl<'a> RemoteRequest<'a> {
    /// Makes a request that posts a message.
    pub(crate) fn post(url: &'a Url, body: Bytes, accept: &'static str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        Self {
            method: Method::POST,
            url,
            headers,
            body,
            within: None,
        }
    }

    /// Makes a request for a stream of events.
    pub(crate) fn events(url: &'a Url) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        Self {
            method: Method::GET,
            url,
            headers,
            body: Bytes::new(),
            within: None,
        }
    }

    /// Names the trace that a message belongs to.
    pub(crate) fn set_trace(&mut self, trace: Option<&TraceHeaders>) {
        let Some(trace) = trace else { return };
        self.set(meta::TRACE_PARENT, trace.parent.text().as_str());
        if let Some(state) = &trace.state {
            self.set(meta::TRACE_STATE, state);
        }
    }

    /// Sets a header whose value is known to fit one.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            self.headers.insert(name, value);
        }
    }
}

impl Remote {
    /// Prepares connections to a server, through a local socket if it has one.
    pub(crate) async fn new(
        clients: &Clients,
        launch: &RemoteLaunch,
        socket: Option<&Path>,
        credentials: Option<Credentials>,
        known: Arc<KnownSecrets>,
        limit: Arc<RateLimit>,
    ) -> Result<Self, HttpError> {
        let shown = launch.shown_url();
        let setup = |why: String| HttpError::Setup {
            origin: shown.clone(),
            why,
        };
        let url = Url::parse(&launch.url).map_err(|error| setup(error.to_string()))?;
        let (client, policy) = match socket {
            Some(socket) => clients.of_socket(socket)?,
            None => clients.client(&url, launch).await?,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &launch.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_str(value);
            let (Ok(name), Ok(mut value)) = (name, value) else {
                return Err(setup("a header cannot be sent".into()));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self {
            client,
            policy,
            origin: url.origin().ascii_serialization(),
            url,
            proxy: launch.shown_proxy(),
            headers,
            credentials,
            known,
            limit,
        })
    }

    /// Sends a request and returns the response, whatever its status.
    pub(crate) async fn send(&self, asking: &RemoteRequest<'_>) -> Result<Response, HttpError> {
        let sending = self.shown(asking);
        let Some(within) = asking.within else {
            return sending.await;
        };
        let silent = |_| HttpError::Silent {
            origin: self.origin.clone(),
            what: "did not answer",
            after: within,
        };
        tokio::time::timeout(within, sending)
            .await
            .map_err(silent)?
    }

    /// Sends a request with credentials; after a 401 they are renewed once.
    async fn shown(&self, asking: &RemoteRequest<'_>) -> Result<Response, HttpError> {
        let Some(credentials) = &self.credentials else {
            return self.follow(asking, None).await;
        };
        let used = credentials.bearer().await?;
        let response = self.follow(asking, used.as_ref()).await?;
        let status = response.status().as_u16();
        if let Some(used) = used.as_ref().filter(|_| status != 401) {
            credentials.accepted(used);
        }
        if !matches!(status, 401 | 403) {
            return Ok(response);
        }
        let challenge = challenge(response.headers());
        let heard = credentials.refused(used.as_ref(), status, challenge.as_deref());
        match heard.await? {
            Retry::No => Ok(response),
            Retry::Now => {
                drop(response);
                let better = credentials.bearer().await?;
                let response = self.follow(asking, better.as_ref()).await?;
                if let Some(better) = better.filter(|_| response.status() != 401) {
                    credentials.accepted(&better);
                }
                Ok(response)
            }
        }
    }

    async fn follow(
        &self,
        asking: &RemoteRequest<'_>,
        shown: Option<&HeaderValue>,
    ) -> Result<Response, HttpError> {
        let mut url = asking.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            self.judge(&url)?;
            let response = self.send_once(asking, &url, shown).await?;
            match self.target(asking, &url, &response)? {
                Some(next) => url = next,
                None => return Ok(response),
            }
        }
        Err(self.leads_to(&url))
    }

    async fn send_once(
        &self,
        asking: &RemoteRequest<'_>,
        url: &Url,
        shown: Option<&HeaderValue>,
    ) -> Result<Response, HttpError> {
        let mut headers = self.headers.clone();
        if let Some(shown) = shown {
            headers.insert(AUTHORIZATION, shown.clone());
        }
        headers.extend(asking.headers.clone());
        let request = self
            .client
            .request(asking.method.clone(), url.clone())
            .headers(headers)
            .body(asking.body.clone());
        let sent = request.send().await;
        let proxy = self.proxy.as_deref();
        let response =
            sent.map_err(|error| HttpError::of(&self.origin, &error, CONNECT).on_the_way(proxy))?;
        // A refused stream says nothing about calls.
        if asking.method == Method::POST {
            self.limit
                .note(&self.origin, response.status(), response.headers());
        }
        // A response with ambiguous framing is not read, so that its connection is not reused.
        // fault H11
        let headers = response.headers();
        if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
            let why = "the answer says in two ways where it ends";
            return Err(HttpError::cut(&self.origin, why));
        }
        Ok(response)
    }

    /// Checks the destination: the configured origin only, and no private address that is not
    /// allowed.
    fn judge(&self, url: &Url) -> Result<(), HttpError> {
        if url.origin() != self.url.origin() {
            return Err(self.leads_to(url));
        }
        self.policy
            .judge(url)
            .map_err(|refused| HttpError::Address {
                host: refused.host,
                address: refused.address.to_string(),
            })
    }

    /// Returns the target of a redirect that may be followed.
    fn target(
        &self,
        asking: &RemoteRequest<'_>,
        from: &Url,
        response: &Response,
    ) -> Result<Option<Url>, HttpError> {
        let keeps_method = match response.status() {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
                asking.method == Method::GET
            }
            _ => return Ok(None),
        };
        let location = response.headers().get(LOCATION);
        let target = location
            .and_then(|to| std::str::from_utf8(to.as_bytes()).ok())
            .and_then(|to| from.join(to).ok());
        let Some(target) = target else {
            return Ok(None);
        };
        let hides = !target.username().is_empty() || target.password().is_some();
        if keeps_method && !hides && target.origin() == self.url.origin() {
            return Ok(Some(target));
        }
        Err(self.leads_to(&target))
    }

    fn leads_to(&self, target: &Url) -> HttpError {
        let to = format!("{}{}", target.origin().ascii_serialization(), target.path());
        HttpError::Redirect {
            origin: self.origin.clone(),
            to: self.shown_of(&to),
        }
    }

    /// Returns the beginning of a response, redacted. Redaction comes before cutting, so that no
    /// part of a secret remains.
    fn shown_of(&self, said: &str) -> String {
        safe(self.known.redactor().redact(said).as_bytes())
    }

    /// Resolves a URL given by the server, which must have the same origin. fault H4
    pub(crate) fn place(&self, named: &str) -> Result<Url, HttpError> {
        let unusable =
            || HttpError::session(&self.origin, "it names an endpoint that is not a URL");
        let place = self.url.join(named).map_err(|_| unusable())?;
        if !place.username().is_empty() || place.password().is_some() {
            return Err(unusable());
        }
        self.judge(&place)?;
        Ok(place)
    }

    /// Classifies an error response by its status and the beginning of its body.
    pub(crate) async fn unusable(&self, mut response: Response) -> HttpError {
        let read = tokio::time::timeout(QUOTING, beginning(&self.origin, &mut response));
        let said = read.await.unwrap_or_default();
        self.class(&response, &said)
    }

    /// Classifies a response whose body was read.
    pub(crate) fn class(&self, response: &Response, said: &[u8]) -> HttpError {
        let (origin, status) = (self.origin.clone(), response.status().as_u16());
        let text = |name: &HeaderName| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.chars().take(1024).collect::<String>())
        };
        let retry_after = retry_after(response.headers());
        let challenge = text(&WWW_AUTHENTICATE);
        let said = self.shown_of(&String::from_utf8_lossy(said));
        match (status, &self.proxy) {
            // Behind a tunnel it is the server's own response.
            (407, Some(proxy)) if self.url.scheme() == "http" => HttpError::Proxy {
                proxy: proxy.clone(),
                origin,
                why: "answered 407: it wants another login".to_owned(),
            },
            (401, _) => HttpError::Unauthorized { origin, challenge },
            (403, _) => HttpError::Forbidden { origin, challenge },
            (429, _) => HttpError::Limited {
                origin,
                status,
                retry_after: retry_after.unwrap_or(Duration::from_secs(1)),
            },
            (500..=599, _) => HttpError::Failed {
                origin,
                status,
                said,
                retry_after,
            },
            (200..=299, _) => HttpError::Content {
                origin,
                status,
                found: text(&CONTENT_TYPE)
                    .map_or_else(|| "nothing".to_owned(), |found| self.shown_of(&found)),
                said,
            },
            _ => HttpError::Status {
                origin,
                status,
                said,
            },
        }
    }
}

/// Returns the `Bearer` challenge among all challenges.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let said = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut said = said.filter_map(|value| value.to_str().ok());
    let is_bearer = |text: &&str| text.trim().to_ascii_lowercase().starts_with("bearer");
    said.find(is_bearer)
        .map(|text| text.chars().take(4096).collect())
}

async fn beginning(origin: &str, response: &mut Response) -> Bytes {
    let mut said = Vec::new();
    while said.len() < QUOTABLE {
        match super::body::chunk(origin, response).await {
            Ok(Some(chunk)) => said.extend_from_slice(&chunk[..chunk.len().min(QUOTABLE)]),
            Ok(None) | Err(_) => break,
        }
    }
    said.into()
}

/// Returns the kind of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    Events,
    Other,
}

impl Content {
    pub(crate) fn of(response: &Response) -> Self {
        let found = response.headers().get(CONTENT_TYPE);
        let found = found.and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = found.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            Self::Events
        } else {
            Self::Other
        }
    }
}

/// Reads an error body, within a short time limit.
pub(crate) async fn said(origin: &str, response: &mut Response, limit: usize) -> Bytes {
    let read = tokio::time::timeout(QUOTING, whole(origin, response, limit));
    match read.await {
        Ok(Ok(Body::Whole(body))) => body,
        Ok(Ok(Body::TooLong) | Err(_)) | Err(_) => Bytes::new(),
    }
}
