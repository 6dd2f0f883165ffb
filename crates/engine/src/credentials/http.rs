//! The HTTP client of the OAuth library: the same client, and so the same address rules, as the
//! server's own transport. Never follows a redirect to another origin; limits the size of bodies.
//! Entry point: [`Outbound`].

use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Method, Request, Response, Url};
use rmcp::transport::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

use crate::http_client::Route;

/// The longest body: documents and responses of authorization servers are small.
const LONGEST_BODY: usize = 256 << 10;
/// How many redirects within an origin are followed.
const MOST_REDIRECTS: usize = 3;
/// Time limit of one request.
const ANSWER: Duration = Duration::from_secs(15);

/// Runs the requests of the OAuth client, one at a time.
pub(super) struct Outbound {
    route: Route,
    /// Why the last request was not sent; the OAuth library does not pass this on.
    refusal: Mutex<Option<String>>,
}

/// Responses that are refused.
#[derive(Debug, thiserror::Error)]
enum OutboundError {
    #[error("the response is over 256 KiB")]
    TooLong,
    #[error("no response within {ANSWER:?}")]
    Silent,
    #[error("too many redirects, or a redirect to another origin")]
    Redirect,
}

/// A complete response.
type Answered = Result<http::Response<Vec<u8>>, OAuthHttpClientError>;

impl Outbound {
    /// Creates the client for a server's route.
    pub(super) fn new(route: Route) -> Self {
        Self {
            route,
            refusal: Mutex::default(),
        }
    }

    /// Returns why the last request was not sent, if its address was refused.
    pub(super) fn refusal(&self) -> Option<String> {
        self.last().take()
    }

    fn last(&self) -> MutexGuard<'_, Option<String>> {
        self.refusal.lock()
    }

    /// Gets a document; follows redirects within its origin only.
    pub(super) async fn get(&self, url: &Url) -> Answered {
        let mut url = url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.bounded(Request::new(Method::GET, url.clone())).await?;
            let location = answer.headers().get(LOCATION);
            let location = location.filter(|_| answer.status().is_redirection());
            let Some(location) = location else {
                return Ok(answer);
            };
            let next = url.join(location.to_str()?)?;
            if next.origin() != url.origin() {
                break;
            }
            url = next;
        }
        Err(Box::new(OutboundError::Redirect))
    }

    async fn bounded(&self, request: Request) -> Answered {
        let answer = tokio::time::timeout(ANSWER, self.run(request)).await;
        answer.unwrap_or_else(|_elapsed| Err(Box::new(OutboundError::Silent)))
    }

    async fn run(&self, request: Request) -> Answered {
        *self.last() = None;
        match self.route.execute(request).await {
            Ok(response) => whole(response).await,
            Err(error) => {
                *self.last() = error.refused().map(ToString::to_string);
                Err(Box::new(error))
            }
        }
    }
}

impl OAuthHttpClient for Outbound {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let request = Request::try_from(request.request)?;
            self.bounded(request).await
        })
    }
}

/// Reads the whole body of a response.
async fn whole(response: Response) -> Answered {
    let mut whole = http::Response::new(Vec::new());
    *whole.status_mut() = response.status();
    *whole.headers_mut() = response.headers().clone();
    let kind = response.headers().get(CONTENT_TYPE);
    // An event stream has no end, and contains nothing about signing in.
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return Ok(whole);
    }
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        if whole.body().len() + chunk.len() > LONGEST_BODY {
            return Err(Box::new(OutboundError::TooLong));
        }
        whole.body_mut().extend_from_slice(&chunk);
    }
    Ok(whole)
}
