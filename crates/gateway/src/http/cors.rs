//! CORS: origins whose web pages may use the MCP endpoint, as configured.
//!
//! An allowed origin is echoed, never `*`; others get no CORS headers, and credentials are never
//! allowed. The REST API allows no cross-origin use. Entry points: [`Origin`], [`preflight`] and
//! [`Origin::dress`].

use std::fmt;
use std::str::FromStr;

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// What a page may send.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// The headers that a page may send.
const HEADERS: &str = "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, \
    Last-Event-ID, Mcp-Method, Mcp-Name, traceparent, tracestate, baggage, X-Gantry-User-Id, \
    X-Gantry-Session-Id, X-Gantry-Run-Id, X-Gantry-Step";
/// The prefix of headers that mirror arguments of a call.
const ARGUMENT: &str = "mcp-param-";
/// Maximum number of those per preflight.
const MOST_ARGUMENTS: usize = 64;
/// The headers of an answer that a page may read.
const EXPOSED: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After";
/// How many seconds a browser may cache a preflight.
const MAX_AGE: &str = "3600";

const REQUEST_PRIVATE: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The origin of web pages: scheme, host, and port unless it is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(Box<str>);

/// The text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a scheme and a host, as in `https://app.example.com` or `http://localhost:3000`")]
pub struct NoOrigin;

impl FromStr for Origin {
    type Err = NoOrigin;

    fn from_str(text: &str) -> Result<Self, NoOrigin> {
        let text = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://").ok_or(NoOrigin)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let is_scheme =
            scheme.bytes().all(fits) && scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if !is_scheme || scheme == "file" || authority.is_empty() || !authority.bytes().all(is_host)
        {
            return Err(NoOrigin);
        }
        let port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let authority = authority.strip_suffix(port).unwrap_or(authority);
        match authority {
            "" => Err(NoOrigin),
            authority => Ok(Self(format!("{scheme}://{authority}").into())),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Origin {
    /// Returns whether an `Origin` header is this origin.
    pub(super) fn is(&self, said: &str) -> bool {
        self.0.eq_ignore_ascii_case(said)
    }

    /// Adds the CORS headers to a response.
    pub(crate) fn dress(&self, headers: &mut HeaderMap) {
        if let Ok(origin) = HeaderValue::try_from(&*self.0) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            let exposed = HeaderValue::from_static(EXPOSED);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }
}

/// Marks a response as dependent on the origin.
pub(crate) fn vary(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// Returns whether a request is a preflight.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight of an allowed origin. Needs no key: browsers send none.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed(asked));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    // Some browsers also ask before a page may reach a private network.
    if asked
        .get(REQUEST_PRIVATE)
        .is_some_and(|asks| asks == "true")
    {
        headers.insert(ALLOW_PRIVATE, HeaderValue::from_static("true"));
    }
    let varies = "Access-Control-Request-Method, Access-Control-Request-Headers";
    headers.append(VARY, HeaderValue::from_static(varies));
    response
}

/// Returns the allowed headers, including requested ones that mirror arguments.
fn allowed(asked: &HeaderMap) -> HeaderValue {
    let asked = asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let asked = asked.filter_map(|value| value.to_str().ok());
    let names = asked.flat_map(|value| value.split(',')).map(str::trim);
    let own = names.filter(|name| {
        let start = name.get(..ARGUMENT.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(ARGUMENT))
            && HeaderName::try_from(*name).is_ok()
    });
    let mut all = HEADERS.to_owned();
    for name in own.take(MOST_ARGUMENTS) {
        all.push_str(", ");
        all.push_str(name);
    }
    HeaderValue::try_from(all).unwrap_or(HeaderValue::from_static(HEADERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        let table = [
            ("https://App.Example", "https://app.example"),
            ("https://app.example/", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80", "http://localhost"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
            ("tauri://localhost", "tauri://localhost"),
        ];
        for (text, wanted) in table {
            let origin: Origin = text.parse().unwrap();
            assert_eq!(origin.to_string(), wanted, "{text}");
            assert!(origin.is(wanted));
        }
        let bad = [
            "*",
            "null",
            "",
            "app.example",
            "https://",
            "https://*",
            "https://*.example",
            "://x",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "file:///x",
            "file://",
            "https://a b",
            "https://:443",
            "ht tp://a",
        ];
        for text in bad {
            assert_eq!(text.parse::<Origin>(), Err(NoOrigin), "{text}");
        }
    }

    #[test]
    fn headers_that_repeat_arguments_may_be_sent() {
        let mut asked = HeaderMap::new();
        asked.insert(
            ACCESS_CONTROL_REQUEST_HEADERS,
            "authorization, mcp-param-region,x-evil, mcp-param-"
                .parse()
                .unwrap(),
        );
        let allowed = allowed(&asked);
        let allowed = allowed.to_str().unwrap();
        assert!(
            allowed.ends_with(", mcp-param-region, mcp-param-"),
            "{allowed}"
        );
        assert!(!allowed.contains("evil") && allowed.contains("Last-Event-ID"));
    }
}
