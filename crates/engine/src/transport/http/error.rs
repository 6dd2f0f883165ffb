//! Why a remote server could not be reached or understood: one class each, with what to do.
//!
//! Texts contain no secret of ours: origins are shown, never whole URLs or headers, and at most 200
//! escaped bytes of what a server sent. Entry points: [`HttpError`] and `of`.

use std::error::Error;
use std::io;
use std::time::Duration;

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::spec::period;

use crate::credentials::SignInError;
use crate::http_client::{NotPublic, SetupError, Unresolved};

/// Bytes of a server's response that are quoted. fault H8
const QUOTED: usize = 200;
/// The reason shown for a connect timeout.
const NO_CONNECTION: &str = "took no connection";
/// The library's error for a proxy that neither opens a tunnel nor asks for credentials.
const NO_TUNNEL: &str = "tunnel error: unsuccessful";

/// Why a remote server could not be reached, or its response not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Its host name does not resolve.
    #[error("the name `{host}` cannot be resolved")]
    Dns {
        /// The name.
        host: String,
    },
    /// It resolves to a private address that is not allowed by name.
    #[error("`{host}` resolves to private address `{address}`")]
    Address {
        /// The host as written.
        host: String,
        /// The address it resolves to.
        address: String,
    },
    /// Nothing listens there.
    #[error("{origin} refused the connection")]
    Refused {
        /// Where.
        origin: String,
    },
    /// It is unreachable.
    #[error("{origin} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        origin: String,
        /// The network error.
        why: String,
    },
    /// The proxy is unreachable or refuses to connect.
    #[error("the proxy {proxy} on the way to {origin} {why}")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The destination.
        origin: String,
        /// What went wrong.
        why: String,
    },
    /// The TLS handshake failed.
    #[error("TLS with {origin} failed: {why}")]
    Tls {
        /// Where.
        origin: String,
        /// What is wrong.
        why: String,
    },
    /// Connecting or waiting for a response timed out.
    #[error("{origin} {what} within {}", period::show(*after))]
    Silent {
        /// Where.
        origin: String,
        /// What timed out.
        what: &'static str,
        /// The time limit.
        after: Duration,
    },
    /// The connection was closed before the response was complete.
    #[error("the connection to {origin} was cut: {why}")]
    Cut {
        /// Where.
        origin: String,
        /// How.
        why: String,
    },
    /// It answered 401.
    #[error("{origin} answered 401: it wants other credentials")]
    Unauthorized {
        /// Where.
        origin: String,
        /// Its `WWW-Authenticate` challenge.
        challenge: Option<String>,
    },
    /// There is no token for it, or the token lacks a scope.
    #[error("{why}")]
    SignIn {
        /// The error code.
        code: &'static str,
        /// What is missing.
        why: String,
        /// What to do.
        hint: Option<String>,
        /// Whether it concerns this request only, or all requests.
        only_this: bool,
        /// Whether a person has to sign in.
        needs_person: bool,
    },
    /// It answered 403.
    #[error("{origin} answered 403: it does not allow this")]
    Forbidden {
        /// Where.
        origin: String,
        /// Its `WWW-Authenticate` challenge.
        challenge: Option<String>,
    },
    /// It is rate limiting us, now or since an earlier response.
    #[error("{origin} answered {status}: rate limited, retry in {}", in_seconds(*retry_after))]
    Limited {
        /// Where.
        origin: String,
        /// The status, 429 or 503.
        status: u16,
        /// The delay, at most a minute.
        retry_after: Duration,
    },
    /// It reported a failure of its own.
    #[error("{origin} answered {status}: `{said}`")]
    Failed {
        /// Where.
        origin: String,
        /// The status, 5xx.
        status: u16,
        /// The beginning of its response.
        said: String,
        /// Its `Retry-After`, at most a minute.
        retry_after: Option<Duration>,
    },
    /// It answered with an unexpected status.
    #[error("{origin} answered {status}: `{said}`")]
    Status {
        /// Where.
        origin: String,
        /// The status.
        status: u16,
        /// The beginning of its response.
        said: String,
    },
    /// Its response is not a JSON-RPC message.
    #[error("{origin} answered {status} with `{found}` where a message is expected: `{said}`")]
    Content {
        /// Where.
        origin: String,
        /// The status.
        status: u16,
        /// The content type, if any.
        found: String,
        /// The beginning of its response.
        said: String,
    },
    /// It redirects to a place that is not followed.
    #[error("{origin}: redirect to `{to}` refused")]
    Redirect {
        /// Where.
        origin: String,
        /// The redirect's target, without parts that may be secret.
        to: String,
    },
    /// It violated the rules of sessions.
    #[error("the session with {origin} cannot go on: {why}")]
    Session {
        /// Where.
        origin: String,
        /// What went wrong.
        why: String,
    },
    /// Something needed to reach it is missing.
    #[error("connection setup with {origin} failed: {why}")]
    Setup {
        /// Where.
        origin: String,
        /// What is missing.
        why: String,
    },
}

impl HttpError {
    /// Classifies an error of the HTTP client.
    pub(super) fn of(origin: &str, error: &reqwest::Error, connect: Duration) -> Self {
        let origin = origin.to_owned();
        let (mut why, mut in_tunnel) = (String::new(), false);
        let mut link: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(cause) = link {
            if let Some(NotPublic { host, address }) = cause.downcast_ref() {
                let (host, address) = (host.clone(), address.to_string());
                return Self::Address { host, address };
            }
            if let Some(Unresolved { host }) = cause.downcast_ref() {
                let host = host.clone();
                return Self::Dns { host };
            }
            if let Some(why) = tls_failure(cause) {
                return Self::Tls { origin, why };
            }
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                let kind = innermost(io).kind();
                if kind == io::ErrorKind::ConnectionRefused {
                    return Self::Refused { origin };
                }
                if is_end(kind) && error.is_connect() && !in_tunnel {
                    let why = "the server ended the connection in the middle of it".to_owned();
                    return Self::Tls { origin, why };
                }
            }
            why = cause.to_string();
            in_tunnel |= why.starts_with("tunnel error");
            link = cause.source();
        }
        let why = safe(why.as_bytes());
        if error.is_connect() && error.is_timeout() {
            let (what, after) = (NO_CONNECTION, connect);
            return Self::Silent {
                origin,
                what,
                after,
            };
        }
        if error.is_connect() {
            return Self::Unreachable { origin, why };
        }
        if error.is_builder() {
            return Self::Setup { origin, why };
        }
        Self::Cut { origin, why }
    }

    /// Attributes a connect error to the proxy: with a proxy, nothing else is connected to, except
    /// what lies behind a tunnel.
    pub(super) fn on_the_way(self, proxy: Option<&str>) -> Self {
        let Some(proxy) = proxy else { return self };
        let (origin, why) = if let Self::Refused { origin } = self {
            (origin, "refused the connection".to_owned())
        } else if let Self::Unreachable { origin, why } = self {
            if why == NO_TUNNEL {
                let why = "the proxy on the way has no way to it".to_owned();
                return Self::Unreachable { origin, why };
            }
            (origin, format!("cannot be passed: {why}"))
        } else if let Self::Silent {
            origin,
            what: NO_CONNECTION,
            after,
        } = self
        {
            if origin.starts_with("https:") {
                let what = NO_CONNECTION;
                return Self::Silent {
                    origin,
                    what,
                    after,
                };
            }
            let after = period::show(after);
            (origin, format!("{NO_CONNECTION} within {after}"))
        } else {
            return self;
        };
        let proxy = proxy.to_owned();
        Self::Proxy { proxy, origin, why }
    }

    /// Makes the error for a response that ended too early.
    pub(crate) fn cut(origin: &str, why: &str) -> Self {
        Self::Cut {
            origin: origin.to_owned(),
            why: why.to_owned(),
        }
    }

    /// Makes the error for a session that cannot continue.
    pub(crate) fn session(origin: &str, why: &str) -> Self {
        Self::Session {
            origin: origin.to_owned(),
            why: why.to_owned(),
        }
    }

    /// Returns whether nothing more can be sent without reconnecting to the server.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(
            self,
            Self::Dns { .. }
                | Self::Address { .. }
                | Self::Refused { .. }
                | Self::Unreachable { .. }
                | Self::Proxy { .. }
                | Self::Tls { .. }
                | Self::Unauthorized { .. }
                | Self::Session { .. }
                | Self::Setup { .. }
                | Self::SignIn {
                    only_this: false,
                    ..
                }
                | Self::Silent {
                    what: NO_CONNECTION,
                    ..
                }
        )
    }

    /// Returns whether the server may simply not support this request in this era.
    pub(crate) fn is_unknowing(&self) -> bool {
        matches!(
            self,
            Self::Status { .. } | Self::Failed { .. } | Self::Content { .. }
        )
    }

    /// Returns whether the server accepts no POST at this URL, so that it may offer SSE there.
    pub(crate) fn is_not_streamable(&self) -> bool {
        matches!(self, Self::Status { status, .. } if matches!(status, 400 | 404 | 405))
    }

    /// Returns whether an idempotent call is worth retrying. fault H13
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        matches!(
            self,
            Self::Cut { .. }
                | Self::Failed {
                    retry_after: None,
                    ..
                }
        )
    }

    /// Returns the delay that the server asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Limited { retry_after, .. } = self {
            return Some(*retry_after);
        }
        if let Self::Failed { retry_after, .. } = self {
            return *retry_after;
        }
        None
    }
}

impl From<SetupError> for HttpError {
    fn from(SetupError { origin, why }: SetupError) -> Self {
        Self::Setup { origin, why }
    }
}

impl From<SignInError> for HttpError {
    fn from(error: SignInError) -> Self {
        Self::SignIn {
            code: error.code(),
            why: error.to_string(),
            hint: error.hint(),
            only_this: matches!(error, SignInError::Scope { .. }),
            needs_person: error.needs_person(),
        }
    }
}

/// Shows a time in whole seconds, rounded up, so that a retry is not too early.
fn in_seconds(time: Duration) -> String {
    let whole = Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0));
    period::show(whole)
}

/// Returns the innermost cause of an error.
fn innermost(error: &io::Error) -> &io::Error {
    match error.get_ref().and_then(|within| within.downcast_ref()) {
        Some(within) => innermost(within),
        None => error,
    }
}

/// Returns whether the peer closed the connection; with our request unread, that is a reset.
fn is_end(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

/// Returns the TLS error among an error's causes.
fn tls_failure(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(safe(tls.to_string().as_bytes()));
    }
    let within = cause.downcast_ref::<io::Error>()?.get_ref()?;
    tls_failure(within)
}

/// Returns the beginning of a response, on one line and without control characters.
pub(super) fn safe(said: &[u8]) -> String {
    let cut = &said[..said.len().min(QUOTED)];
    let text = String::from_utf8_lossy(cut);
    let plain = |letter: char| match letter {
        letter if letter.is_whitespace() => ' ',
        letter if letter.is_control() || letter == '`' => '\u{fffd}',
        letter => letter,
    };
    let text: String = text.trim().chars().map(plain).collect();
    text
}

impl Diagnose for HttpError {
    fn code(&self) -> &'static str {
        match self {
            Self::Dns { .. } => "remote.dns",
            Self::Address { .. } => "remote.address",
            Self::Refused { .. } => "remote.refused",
            Self::Unreachable { .. } => "remote.unreachable",
            Self::Proxy { .. } => "remote.proxy",
            Self::Tls { .. } => "remote.tls",
            Self::Silent { .. } => "remote.timeout",
            Self::Cut { .. } => "remote.cut",
            Self::Unauthorized { .. } => "remote.unauthorized",
            Self::SignIn { code, .. } => code,
            Self::Forbidden { .. } => "remote.forbidden",
            Self::Limited { .. } => "remote.limited",
            Self::Failed { .. } => "remote.failed",
            Self::Status { status: 404, .. } => "remote.not_found",
            Self::Status { status: 405, .. } => "remote.method",
            Self::Status { .. } => "remote.status",
            Self::Content { .. } => "remote.content_type",
            Self::Redirect { .. } => "remote.redirect",
            Self::Session { .. } => "remote.session",
            Self::Setup { .. } => "remote.setup",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Server
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Dns { .. } => "is the host in `url` spelled right?",
            Self::Address { .. } => {
                "if the server is meant to be there, set `allow_private: true` for it"
            }
            Self::Refused { .. } | Self::Unreachable { .. } => {
                "is the server running, and is the port in `url` right?"
            }
            Self::Proxy { .. } => "look at `proxy` of the server, and at the login in it",
            Self::Tls { .. } => {
                "if its certificate is of your own authority, name that in `ca_file`"
            }
            Self::Silent { .. } | Self::Cut { .. } | Self::Failed { .. } => {
                "call again later if the tool is safe to repeat, or do without it"
            }
            Self::Unauthorized { .. } => {
                "sign in with `gantry auth`, or set `headers.Authorization`"
            }
            Self::Forbidden { .. } => "do the credentials in `headers` allow this?",
            Self::Limited { .. } => "call again later, or do without it",
            Self::Status { .. } => "does `url` have the right path, such as `/mcp` or `/sse`?",
            Self::Content { .. } => "is this the URL of an MCP server, and not of its web page?",
            Self::Redirect { .. } => "set `url` to the redirect target, if you trust it",
            Self::SignIn { hint, .. } => return hint.clone(),
            Self::Session { .. } => return None,
            Self::Setup { .. } => "look at `url`, `proxy` and `ca_file` of the server",
        };
        Some(hint.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_short_and_safe() {
        // fault H8
        let page = format!("<html>\n\x1b[31m`{}", "x".repeat(500));
        let quoted = safe(page.as_bytes());
        assert!(quoted.starts_with("<html> "));
        assert!(quoted.len() <= 210 && !quoted.contains(['\n', '\x1b', '`']));
    }

    #[test]
    fn with_a_proxy_on_the_way_it_is_the_proxy_that_is_not_reached() {
        // row 3.1
        let origin = || "https://far.example".to_owned();
        let told = |error: HttpError| error.on_the_way(Some("http://proxy:1")).to_string();
        let refused = told(HttpError::Refused { origin: origin() });
        let expected =
            "the proxy http://proxy:1 on the way to https://far.example refused the connection";
        assert_eq!(refused, expected);
        let silent = |what| HttpError::Silent {
            origin: origin(),
            what,
            after: Duration::from_secs(5),
        };
        assert!(told(silent(NO_CONNECTION)).ends_with("far.example took no connection within 5s"));
        // What failed behind the proxy is not the proxy's fault.
        let behind = silent("did not answer");
        assert_eq!(told(behind.clone()), behind.to_string());
        let refused = HttpError::Refused { origin: origin() };
        assert_eq!(refused.clone().on_the_way(None), refused);
    }
}
