//! OTLP over HTTP: the messages that Gantry sends to a collector, and how they are sent.
//!
//! Independent of calls. The operator configures the endpoint, so private addresses are allowed;
//! redirects are not followed, and only the beginning of a response is read, within the timeout of
//! the request. Headers may be credentials and are never shown. Entry points: [`OtlpTarget`],
//! [`Encoding`] and [`Sender::send`].

mod json;
mod protobuf;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gantry_model::spec::RemoteLaunch;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use url::Url;

use crate::http_client::Clients;

/// How much of a response is read.
const MOST_ANSWER: usize = 64 << 10;
/// The maximum delay that an endpoint can request.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The instrumentation scope of spans and log records.
const SCOPE: &str = "gantry";

/// The encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// `http/protobuf`.
    #[default]
    Protobuf,
    /// `http/json`.
    Json,
}

impl Encoding {
    fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// Encodes one span.
    pub(crate) fn span(self, span: &Span<'_>) -> Vec<u8> {
        match self {
            Self::Protobuf => protobuf::span(span),
            Self::Json => json::span(span),
        }
    }

    /// Encodes one log record.
    pub(crate) fn log(self, log: &LogRecord<'_>) -> Vec<u8> {
        match self {
            Self::Protobuf => protobuf::log(log),
            Self::Json => json::log(log),
        }
    }

    /// Encodes a request with encoded items.
    pub(crate) fn request(
        self,
        signal: Signal,
        resource: &[Attribute<'_>],
        items: &[Vec<u8>],
    ) -> Vec<u8> {
        match self {
            // The requests of all signals have the same numbers.
            Self::Protobuf => protobuf::request(resource, items),
            Self::Json => json::request(signal, resource, items),
        }
    }

    /// Returns how many items an endpoint rejected.
    fn rejected(self, answer: &[u8]) -> u64 {
        match self {
            Self::Protobuf => protobuf::rejected(answer),
            Self::Json => json::rejected(answer),
        }
    }
}

/// What a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Logs,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Owned(String),
    Number(i64),
}

/// An attribute of a span or a resource.
pub(crate) type Attribute<'a> = (&'a str, Value<'a>);

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    pub(crate) trace: [u8; 16],
    pub(crate) id: [u8; 8],
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: &'a str,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: Vec<Attribute<'a>>,
    pub(crate) events: Vec<SpanEvent<'a>>,
    /// Set if the operation failed, with a text that may be empty.
    pub(crate) error: Option<&'a str>,
}

/// A moment within a span.
#[derive(Debug)]
pub(crate) struct SpanEvent<'a> {
    pub(crate) at_ns: u64,
    pub(crate) name: &'a str,
    pub(crate) attributes: Vec<Attribute<'a>>,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct LogRecord<'a> {
    pub(crate) at_ns: u64,
    /// When it was read from the audit.
    pub(crate) observed_ns: u64,
    pub(crate) severity: u64,
    pub(crate) severity_text: &'a str,
    /// The name of this kind of event.
    pub(crate) event: &'a str,
    pub(crate) body: &'a str,
    pub(crate) attributes: Vec<Attribute<'a>>,
    pub(crate) trace: Option<[u8; 16]>,
    pub(crate) span: Option<[u8; 8]>,
}

/// The kind of all our spans: served requests.
const KIND_SERVER: u64 = 2;
/// The status code of a span that failed.
const STATUS_ERROR: u64 = 2;

/// Returns the flags of a span: sampled, and whether its parent is remote.
fn flags(span: &Span<'_>) -> u32 {
    match span.parent {
        Some(_) => 0x301,
        None => 0x101,
    }
}

/// The endpoint, and how to send to it.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// The full URL, including the path.
    pub url: String,
    /// Headers of each request, such as credentials; never shown.
    pub headers: Vec<(String, String)>,
    /// The encoding of messages.
    pub encoding: Encoding,
    /// Whether they are compressed.
    pub gzip: bool,
    /// The timeout of a request.
    pub timeout: Duration,
    /// Additional certificate authorities for the endpoint.
    pub ca_file: Option<PathBuf>,
}

impl OtlpTarget {
    /// The default timeout of a request.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates the target of a URL with defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            encoding: Encoding::default(),
            gzip: false,
            timeout: Self::TIMEOUT,
            ca_file: None,
        }
    }

    /// Returns scheme, host, port and path, for display.
    pub fn shown(&self) -> String {
        match Url::parse(&self.url) {
            Ok(mut url) => {
                let hidden = url.set_username("").and_then(|()| url.set_password(None));
                url.set_query(None);
                url.set_fragment(None);
                hidden.map_or_else(|()| "an endpoint".to_owned(), |()| url.to_string())
            }
            Err(_) => "an endpoint".to_owned(),
        }
    }
}

impl fmt::Debug for OtlpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpTarget")
            .field("url", &self.shown())
            .finish_non_exhaustive()
    }
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// It may be accepted later.
    #[error("{why}")]
    Later {
        why: String,
        pause: Option<Duration>,
    },
    /// It will be accepted only after somebody changed something there, or the headers.
    #[error("{why}")]
    Setup { why: String },
    /// It has too many bytes: a smaller one may be accepted.
    #[error("{why}")]
    TooLarge { why: String },
    /// It will never be accepted.
    #[error("{why}")]
    Never { why: String },
}

/// Sends requests to one endpoint.
pub(crate) struct Sender {
    pub(crate) target: OtlpTarget,
    clients: Arc<Clients>,
    client: OnceCell<Client>,
}

impl Sender {
    pub(crate) fn new(target: OtlpTarget, clients: Arc<Clients>) -> Self {
        Self {
            target,
            clients,
            client: OnceCell::new(),
        }
    }

    /// Sends a request; returns how many of its items were rejected.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<u64, SendError> {
        let limit = self.target.timeout;
        let late = |_| SendError::Later {
            why: format!("no answer within {limit:?}"),
            pause: None,
        };
        timeout(limit, self.exchange(body)).await.map_err(late)?
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<u64, SendError> {
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        let never = |why: String| SendError::Never { why };
        let body = match self.target.gzip {
            true => compressed(&body).map_err(|error| never(error.to_string()))?,
            false => body,
        };
        let mut request = client
            .post(&self.target.url)
            .headers(self.headers().map_err(never)?)
            .header(CONTENT_TYPE, self.target.encoding.content_type());
        if self.target.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        let sent = request.body(body).send().await;
        let mut response = sent.map_err(|error| SendError::Later {
            why: without_url(error),
            pause: None,
        })?;
        let status = response.status();
        let answer = beginning(&mut response).await;
        match status {
            status if status.is_success() => Ok(self.target.encoding.rejected(&answer)),
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(SendError::Later {
                why: format!("it answered {status}"),
                pause: pause(&response),
            }),
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED => Err(SendError::Setup {
                why: format!("it answered {status}"),
            }),
            StatusCode::PAYLOAD_TOO_LARGE => Err(SendError::TooLarge {
                why: format!("it answered {status}"),
            }),
            status if status.is_client_error() => Err(never(format!("it answered {status}"))),
            status => Err(SendError::Setup {
                why: format!("it answered {status}"),
            }),
        }
    }

    /// Creates the client when it is first needed: the certificate file may not exist yet.
    async fn connect(&self) -> Result<Client, SendError> {
        let later = |why: String| SendError::Later { why, pause: None };
        let url = Url::parse(&self.target.url).map_err(|error| later(error.to_string()))?;
        let mut launch = RemoteLaunch::new(self.target.url.clone());
        launch.allow_private = true;
        launch.ca_file = self.target.ca_file.clone();
        let made = self.clients.client(&url, &launch).await;
        made.map(|(client, _)| client)
            .map_err(|error| later(error.to_string()))
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.target.headers {
            let unusable = || format!("the header `{name}` cannot be sent");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| unusable())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(headers)
    }
}

fn compressed(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// Reads the beginning of a response; the rest is discarded with its connection.
async fn beginning(response: &mut Response) -> Vec<u8> {
    let mut read = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MOST_ANSWER - read.len();
        read.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if read.len() == MOST_ANSWER {
            break;
        }
    }
    read
}

fn pause(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let pause = Duration::from_secs(seconds.parse().ok()?);
    Some(pause.min(LONGEST_PAUSE))
}

/// Describes a failure without the URL, which may hold a credential.
fn without_url(error: reqwest::Error) -> String {
    let error = error.without_url();
    gantry_model::diagnose::chain(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_endpoint_has_no_credential() {
        let target = OtlpTarget {
            headers: vec![("Authorization".into(), "Basic c2VjcmV0".into())],
            ..OtlpTarget::new("https://user:pass@otel.example/v1/traces?token=secret#x")
        };
        assert_eq!(target.shown(), "https://otel.example/v1/traces");
        let shown = format!("{target:?}");
        assert!(
            !shown.contains("c2VjcmV0") && !shown.contains("pass"),
            "{shown}"
        );
        assert_eq!(OtlpTarget::new("no url").shown(), "an endpoint");
    }
}
