//! Fetches a small document from the web for a command, under the address rules of remote servers:
//! public addresses, and those that the URL itself names. Redirects are checked again, one that
//! leaves HTTPS is refused, and size and time are limited. Sends no credentials. fault H4
//!
//! Entry point: [`fetch`].

use std::time::Duration;

use gantry_model::spec::RemoteLaunch;
use reqwest::header::{ACCEPT, LOCATION};
use reqwest::{Client, Response};
use tokio::time::timeout;
use url::Url;

use crate::http_client::{AddressPolicy, Clients, NotPublic};

/// How many redirects are followed.
const REDIRECTS: usize = 5;
/// The longest part of a URL that is shown.
const SHOWN: usize = 200;

/// The limits of a fetch.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// The longest document.
    pub bytes: usize,
    /// Time limit, including redirects.
    pub within: Duration,
}

/// A document, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The HTTP status.
    pub status: u16,
    /// The content.
    pub body: Vec<u8>,
}

/// Why a document cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It is not an HTTP URL.
    #[error("`{url}` is not an http or https URL")]
    Url {
        /// The text, truncated.
        url: String,
    },
    /// The address is not public, and the URL does not name it.
    #[error("`{host}` resolves to private address `{address}`")]
    Address {
        /// The host.
        host: String,
        /// Its address.
        address: String,
    },
    /// It cannot be reached.
    #[error("`{origin}` cannot be reached: {why}")]
    Unreachable {
        /// Scheme, host and port.
        origin: String,
        /// What went wrong.
        why: String,
    },
    /// It redirects to a refused target.
    #[error("`{origin}` redirects {why}")]
    Redirect {
        /// Scheme, host and port.
        origin: String,
        /// Why it is refused.
        why: String,
    },
    /// It exceeds the limit.
    #[error("the response of `{origin}` exceeds {limit} bytes")]
    TooLarge {
        /// Scheme, host and port.
        origin: String,
        /// The limit.
        limit: usize,
    },
    /// It took too long.
    #[error("no complete response from `{origin}` within {} s", within.as_secs())]
    Slow {
        /// Scheme, host and port.
        origin: String,
        /// The time limit.
        within: Duration,
    },
}

/// Fetches what is at a URL.
pub async fn fetch(url: &str, limits: FetchLimits) -> Result<Fetched, FetchError> {
    let unusable = || FetchError::Url { url: shown(url) };
    let parsed = Url::parse(url).map_err(|_| unusable())?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
        return Err(unusable());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(unusable());
    }
    let origin = origin(&parsed);
    let fetching = Box::pin(follow(parsed, limits.bytes));
    let late = |_| FetchError::Slow {
        origin,
        within: limits.within,
    };
    timeout(limits.within, fetching).await.map_err(late)?
}

async fn follow(start: Url, limit: usize) -> Result<Fetched, FetchError> {
    let clients = Clients::default();
    let launch = RemoteLaunch::new(start.as_str());
    let (client, policy) = clients.client(&start, &launch).await.map_err(|error| {
        let origin = origin(&start);
        let why = error.to_string();
        FetchError::Unreachable { origin, why }
    })?;
    let mut url = start;
    for _ in 0..=REDIRECTS {
        let response = ask(&client, &policy, &url).await?;
        if !response.status().is_redirection() {
            return read(response, &url, limit).await;
        }
        url = next(&response, &url)?;
    }
    Err(FetchError::Redirect {
        origin: origin(&url),
        why: format!("more than {REDIRECTS} times"),
    })
}

async fn ask(client: &Client, policy: &AddressPolicy, url: &Url) -> Result<Response, FetchError> {
    policy.judge(url).map_err(|error| refused(&error))?;
    let request = client.get(url.clone()).header(ACCEPT, "application/json");
    request.send().await.map_err(|error| {
        let mut causes = std::iter::successors(
            Some(&error as &(dyn std::error::Error + 'static)),
            |error| error.source(),
        );
        match causes.find_map(|cause| cause.downcast_ref::<NotPublic>()) {
            Some(error) => refused(error),
            None => unreachable_at(url, &error),
        }
    })
}

/// Returns the target of a redirect, if it may be followed.
fn next(response: &Response, url: &Url) -> Result<Url, FetchError> {
    let refused = |why: String| FetchError::Redirect {
        origin: origin(url),
        why,
    };
    let place = response.headers().get(LOCATION);
    let place = place.and_then(|place| place.to_str().ok());
    let place = place.ok_or_else(|| refused("nowhere".to_owned()))?;
    let next = url.join(place);
    let next = next.map_err(|_| refused(format!("to `{}`, which is not a URL", shown(place))))?;
    let leaves_tls = url.scheme() == "https" && next.scheme() != "https";
    if leaves_tls || !matches!(next.scheme(), "http" | "https") {
        return Err(refused(format!(
            "to `{}`, which is not encrypted",
            shown(next.as_str())
        )));
    }
    if !next.username().is_empty() || next.password().is_some() {
        return Err(refused("to a URL with credentials".to_owned()));
    }
    Ok(next)
}

async fn read(mut response: Response, url: &Url, limit: usize) -> Result<Fetched, FetchError> {
    let too_large = || FetchError::TooLarge {
        origin: origin(url),
        limit,
    };
    let declared = response.content_length().unwrap_or_default();
    if declared > limit as u64 {
        return Err(too_large());
    }
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|error| unreachable_at(url, &error))?
    {
        if body.len() + piece.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(Fetched { status, body })
}

fn refused(error: &NotPublic) -> FetchError {
    FetchError::Address {
        host: error.host.clone(),
        address: error.address.to_string(),
    }
}

fn unreachable_at(url: &Url, error: &reqwest::Error) -> FetchError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    FetchError::Unreachable {
        origin: origin(url),
        why: cause.to_string(),
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Truncates a text, and removes characters that are unsafe on a terminal.
fn shown(text: &str) -> String {
    let text = text.chars().take(SHOWN);
    text.filter(|c| !gantry_model::naming::is_unprintable(*c))
        .collect()
}
