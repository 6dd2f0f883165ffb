//! One request to a registry: authenticates on demand, follows allowed redirects, and retries
//! temporary failures.
//!
//! Invariant: credentials and tokens are sent only to the registry's own origin.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use gantry_model::diagnose::chain;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::address::{self, Refused};
use super::challenge::Challenge;
use super::pace::{Pace, Stalled};
use super::sign_in::Authorization;
use super::{RegistryError, Session};
use crate::error::printable;

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;
/// How often a request is retried after a temporary failure.
const MOST_RETRIES: u32 = 3;
/// How many bytes of an error body are read.
const ERROR_BYTES: u64 = 8 << 10;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask<'a> {
    /// A description of the content, for errors.
    pub(super) what: &'a str,
    pub(super) method: Method,
    /// The path below `/v2/`.
    pub(super) path: String,
    pub(super) accept: Option<String>,
    /// The first requested byte, if not all are requested.
    pub(super) from: Option<u64>,
}

impl Session {
    /// Sends a request until there is a response with content, or an error.
    pub(super) async fn ask(&self, ask: &Ask<'_>) -> Result<Response, RegistryError> {
        let mut signed_in = false;
        let mut retries = 0;
        loop {
            let shown = self.sign_in.current();
            let (response, is_registry) = self.follow(ask, shown.as_ref()).await?;
            let status = response.status();
            match status {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                // Only the registry itself may ask for credentials.
                StatusCode::UNAUTHORIZED if is_registry && !signed_in => {
                    signed_in = true;
                    let Some(challenge) = Challenge::choose(response.headers()) else {
                        return Err(self.refused(response).await);
                    };
                    drop(response);
                    self.sign_in(challenge, shown).await?;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(self.refused(response).await);
                }
                StatusCode::NOT_FOUND => {
                    let what = ask.what.to_owned();
                    return Err(RegistryError::NotFound { what });
                }
                StatusCode::TOO_MANY_REQUESTS => {
                    let retry_after = retry_after(response.headers());
                    drop(response);
                    let pause = retry_after.unwrap_or_else(|| self.pause(retries));
                    let is_long = pause > self.options.timeouts.longest_pause;
                    if retries == MOST_RETRIES || is_long {
                        return Err(RegistryError::RateLimited { retry_after });
                    }
                    retries += 1;
                    self.wait(pause).await?;
                }
                _ if status.is_server_error() && retries < MOST_RETRIES => {
                    drop(response);
                    let pause = self.pause(retries);
                    retries += 1;
                    self.wait(pause).await?;
                }
                _ => {
                    return Err(RegistryError::Status {
                        what: ask.what.to_owned(),
                        status: status.as_u16(),
                    });
                }
            }
        }
    }

    /// Sends a request and follows redirects; returns whether the response comes from the registry
    /// itself.
    async fn follow(
        &self,
        ask: &Ask<'_>,
        shown: Option<&Authorization>,
    ) -> Result<(Response, bool), RegistryError> {
        let refused = |why: String| RegistryError::Redirect {
            what: ask.what.to_owned(),
            why,
        };
        let url = self.base.join(&ask.path);
        let mut url = url.map_err(|error| refused(error.to_string()))?;
        let mut via = "the registry";
        for _ in 0..=MOST_REDIRECTS {
            let is_registry = url.origin() == self.base.origin();
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(accept) = ask.accept.as_deref().and_then(|text| text.parse().ok()) {
                headers.insert(ACCEPT, accept);
            }
            if let Some(range) = ask
                .from
                .and_then(|from| format!("bytes={from}-").parse().ok())
            {
                headers.insert(RANGE, range);
            }
            if let Some(shown) = shown.filter(|_| is_registry) {
                headers.insert(AUTHORIZATION, shown.header().clone());
            }
            let request = self.client.request(ask.method.clone(), url.clone());
            let response = self.send(request.headers(headers), &url, via).await?;
            if !is_redirect(response.status()) {
                return Ok((response, is_registry));
            }
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            url = next.ok_or_else(|| refused("it names no target".to_owned()))?;
            self.check_scheme(&url).map_err(&refused)?;
            via = "a redirect";
        }
        let why = format!("there are more than {MOST_REDIRECTS} redirects in a row");
        Err(refused(why))
    }

    /// Sends a request if its address is allowed.
    pub(super) async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        via: &'static str,
    ) -> Result<Response, RegistryError> {
        let not_allowed = |error: Refused| RegistryError::AddressRefused {
            what: via,
            host: error.host,
            why: error.why,
        };
        let registry = self.image.registry();
        address::judge_literal(&self.options, registry, url).map_err(not_allowed)?;
        let waited = self.options.timeouts.answer;
        let response = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(RegistryError::Cancelled),
            response = request.send() => response,
            () = tokio::time::sleep(waited) => {
                let what = format!("no answer from `{}`", origin(url));
                return Err(RegistryError::Slow { what, waited, got: 0 });
            }
        };
        response.map_err(|error| match refusal(&error) {
            Some(refused) => not_allowed(refused),
            None => unreachable(url, error),
        })
    }

    /// Checks that a redirect or token URL keeps TLS and contains no user name.
    pub(super) fn check_scheme(&self, url: &Url) -> Result<(), String> {
        let shown = printable(&origin(url));
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("`{shown}` has a name or a password in it"));
        }
        match url.scheme() {
            "https" => Ok(()),
            "http" if address::is_loopback(url) && self.base.scheme() == "http" => Ok(()),
            _ => Err(format!("`{shown}` is not encrypted")),
        }
    }

    /// Reads a body with a size limit.
    pub(super) async fn body(
        &self,
        mut response: Response,
        what: &str,
        limit: u64,
    ) -> Result<Bytes, RegistryError> {
        let too_large = || RegistryError::TooLarge {
            what: what.to_owned(),
            limit,
        };
        if response
            .content_length()
            .is_some_and(|length| length > limit)
        {
            return Err(too_large());
        }
        let url = response.url().clone();
        let mut pace = Pace::new(&self.options.timeouts, &self.stop);
        let mut body = BytesMut::new();
        loop {
            match pace.next(&mut response).await {
                Ok(Some(piece)) if (body.len() + piece.len()) as u64 > limit => {
                    return Err(too_large());
                }
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => return Ok(body.freeze()),
                Err(stalled) => return Err(stalled.into_error(what, &url)),
            }
        }
    }

    /// Waits, unless cancelled.
    pub(super) async fn wait(&self, pause: Duration) -> Result<(), RegistryError> {
        let waited = self.stop.run_until_cancelled(tokio::time::sleep(pause));
        waited.await.ok_or(RegistryError::Cancelled)
    }

    /// Returns the pause before the next attempt.
    pub(super) fn pause(&self, retries: u32) -> Duration {
        let timeouts = &self.options.timeouts;
        let pause = timeouts.retry_pause.saturating_mul(1 << retries.min(10));
        pause.min(timeouts.longest_pause)
    }

    /// Returns the error for denied access, with the registry's own message if there is one.
    async fn refused(&self, response: Response) -> RegistryError {
        let status = response.status();
        let body = self.body(response, "the refusal", ERROR_BYTES).await;
        let why = body.ok().and_then(|body| error_message(&body));
        RegistryError::Unauthorized {
            shown: self.sign_in.has_credentials(),
            why: why.unwrap_or_else(|| format!("it answered {}", status.as_u16())),
        }
    }
}

impl Stalled {
    pub(super) fn into_error(self, what: &str, url: &Url) -> RegistryError {
        match self {
            Self::Slow { waited, got } => RegistryError::Slow {
                what: what.to_owned(),
                waited,
                got,
            },
            Self::Cut(error) => unreachable(url, error),
            Self::Cancelled => RegistryError::Cancelled,
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Returns the error of a failed connection. Paths and queries may contain signatures, so only the
/// origin is shown.
fn unreachable(url: &Url, error: reqwest::Error) -> RegistryError {
    RegistryError::Unreachable {
        origin: origin(url),
        why: printable(&chain(&error.without_url())),
    }
}

/// Finds the refusal of the address check in the sources of an error.
fn refusal(error: &reqwest::Error) -> Option<Refused> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return Some(refused.clone());
        }
        cause = error.source();
    }
    None
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Reads the messages of `{"errors":[{"code":…,"message":…}]}`.
fn error_message(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        errors: Vec<One>,
    }
    #[derive(serde::Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let first = answer.errors.first()?;
    Some(printable(&format!("{}: {}", first.code, first.message)))
}
