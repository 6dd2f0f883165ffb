//! The Host and Origin checks of every route.
//!
//! A page loaded from elsewhere must not reach the gateway, neither by a rebound DNS name nor
//! across origins. The port of `Host` is not checked, since ports may be forwarded. Pages of
//! configured origins may use the MCP endpoint. Never rebuilds a URL from a header. Entry points:
//! `HostPolicy::check` and `HostPolicy::check_page`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};

use super::cors::Origin;
use super::error::Problem;

/// The accepted host names.
#[derive(Debug, Clone)]
pub struct HostPolicy {
    names: Vec<Box<str>>,
    any_address: bool,
    /// The origins whose pages may use the MCP endpoint.
    origins: Vec<Origin>,
}

impl HostPolicy {
    /// Allows `localhost`, the loopback addresses, the bound addresses and the given further names.
    ///
    /// Bound to all addresses, any literal address is allowed too: DNS rebinding needs a name.
    pub fn new(bound: &[SocketAddr], further: &[String]) -> Self {
        let mut names: Vec<Box<str>> = vec!["localhost".into(), "127.0.0.1".into(), "[::1]".into()];
        let mut any_address = false;
        for address in bound {
            any_address |= address.ip().is_unspecified();
            names.push(literal(address.ip()).into());
        }
        for name in further {
            if let Some(host) = host_of(name) {
                names.push(host.to_ascii_lowercase().into());
            }
        }
        names.sort();
        names.dedup();
        Self {
            names,
            any_address,
            origins: Vec::new(),
        }
    }

    /// Lets pages of these origins use the MCP endpoint.
    pub fn with_origins(mut self, origins: &[Origin]) -> Self {
        self.origins = origins.to_vec();
        self
    }

    /// Returns whether responses depend on the origin.
    pub(crate) fn has_origins(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Refuses a request with an unreadable host (400), another host, as after DNS rebinding, or a
    /// foreign origin (403). faults U8 and U9
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        self.judge_page(uri, headers, &[]).map(|_| ())
    }

    /// Does the same, but allows configured origins, and returns the matching one.
    pub(crate) fn check_page(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<&Origin>, Problem> {
        self.judge_page(uri, headers, &self.origins)
    }

    fn judge_page<'o>(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        allowed: &'o [Origin],
    ) -> Result<Option<&'o Origin>, Problem> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let Some(host) = host else {
            return Err(foreign().malformed());
        };
        self.judge(host)?;
        if let Some(authority) = uri.authority() {
            self.judge(authority.as_str())?;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(None);
        };
        let origin = origin.to_str().unwrap_or("null");
        let is_only = origins.next().is_none();
        let known = allowed.iter().find(|allowed| allowed.is(origin));
        if is_only && (known.is_some() || is_same_origin(origin, host)) {
            return Ok(known);
        }
        Err(Problem::new("http.origin")
            .with_detail("requests from other web pages are not accepted")
            .with_hint(
                "send no Origin header unless the page was served by this gateway, or allow its \
                 origin on the MCP endpoint with `gantry up --origin`",
            ))
    }

    /// Refuses requests that did not come from our own pages: a change must have an `Origin`, and
    /// `Sec-Fetch-Site` must be same-origin. `check` has checked the origin itself.
    pub(crate) fn check_own_page(&self, parts: &Parts) -> Result<(), Problem> {
        let is_reading = matches!(parts.method, Method::GET | Method::HEAD);
        let has_origin = parts.headers.contains_key(ORIGIN);
        let site = parts.headers.get("sec-fetch-site");
        let is_ours = site.is_none_or(|site| site == "same-origin");
        match is_ours && (is_reading || has_origin) {
            true => Ok(()),
            false => Err(Problem::new("http.origin")
                .with_detail("a browser session is only for pages of this gateway")
                .with_hint("send `Origin`, the gateway's own address; programs use a key")),
        }
    }

    fn judge(&self, authority: &str) -> Result<(), Problem> {
        match host_of(authority) {
            Some(host) if self.admits(host) => Ok(()),
            Some(_) => Err(foreign()),
            None => Err(foreign().malformed()),
        }
    }

    fn admits(&self, host: &str) -> bool {
        let mut names = self.names.iter();
        names.any(|name| name.eq_ignore_ascii_case(host)) || (self.any_address && is_address(host))
    }
}

fn foreign() -> Problem {
    Problem::new("http.host")
        .with_detail("the Host header does not name this gateway")
        .with_hint("use `localhost`, the address it is bound to, or a name it was configured with")
}

fn literal(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn is_address(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

/// Returns the host of `host[:port]` without a trailing dot; `None` if malformed.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        (&authority[..end], &authority[end..])
    } else {
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    let port_is_fine = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let host_is_fine = match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (port_is_fine && host_is_fine && !host.is_empty()).then_some(host)
}

/// Returns whether a page of this origin was served under the request's own host.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let (authority, port) = match (
        origin.strip_prefix("http://"),
        origin.strip_prefix("https://"),
    ) {
        (Some(authority), _) => (authority, "80"),
        (_, Some(authority)) => (authority, "443"),
        (None, None) => return false,
    };
    let (Some(theirs), Some(ours)) = (host_of(authority), host_of(host)) else {
        return false;
    };
    theirs.eq_ignore_ascii_case(ours) && port_of(authority, port) == port_of(host, port)
}

fn port_of<'a>(authority: &'a str, default: &'a str) -> &'a str {
    let after = authority.rfind(']').map_or(0, |end| end + 1);
    authority[after..]
        .rsplit_once(':')
        .map_or(default, |(_, port)| port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> HostPolicy {
        let bound = "192.0.2.7:4100".parse().unwrap();
        HostPolicy::new(&[bound], &["Gantry.Example".to_owned()])
    }

    fn status(uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::try_from(*name).unwrap(),
                value.parse().unwrap(),
            );
        }
        let verdict = policy().check(&uri.parse().unwrap(), &map);
        verdict.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    // fault U8
    #[test]
    fn only_our_own_names_are_answered() {
        let good = [
            "localhost",
            "LOCALHOST:9",
            "localhost.:4100",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:80",
        ];
        for host in
            good.into_iter()
                .chain(["192.0.2.7:4100", "gantry.example", "GANTRY.example.:1"])
        {
            assert_eq!(status("/mcp", &[("host", host)]), 200, "{host}");
        }
        let malformed = [
            "a/?x=",
            "localhost/?x=",
            "localhost:99999",
            "localhost:80:80",
        ];
        let more = ["", ":80", ".", "user@localhost", "[::1", "localhost:+1"];
        for host in malformed.into_iter().chain(more) {
            assert_eq!(status("/mcp", &[("host", host)]), 400, "{host}");
        }
        // fault U9: a name that was rebound to our address
        let others = [
            "evil.example",
            "[::2]",
            "127.0.0.1.evil.example",
            "192.0.2.8",
            "localhost..",
        ];
        for host in others {
            assert_eq!(status("/mcp", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status("/mcp", &[]), 400);
        assert_eq!(
            status("/mcp", &[("host", "localhost"), ("host", "localhost")]),
            400
        );
    }

    // fault U8
    #[test]
    fn an_absolute_form_target_must_name_us_too() {
        assert_eq!(
            status("http://localhost/mcp", &[("host", "localhost")]),
            200
        );
        assert_eq!(
            status("http://evil.example/mcp", &[("host", "localhost")]),
            403
        );
        assert_eq!(
            status("http://localhost/mcp", &[("host", "evil.example")]),
            403
        );
    }

    // fault U9
    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = ("host", "localhost:4100");
        for origin in ["http://localhost:4100", "http://LOCALHOST:4100"] {
            assert_eq!(status("/", &[host, ("origin", origin)]), 200, "{origin}");
        }
        let foreign = [
            "null",
            "http://evil.example",
            "http://localhost:4101",
            "file://",
            "",
        ];
        for origin in foreign
            .into_iter()
            .chain(["https://localhost", "http://localhost:4100/x"])
        {
            assert_eq!(status("/", &[host, ("origin", origin)]), 403, "{origin}");
        }
        let ours = ("origin", "http://localhost:4100");
        assert_eq!(status("/", &[host, ours, ours]), 403);
        assert_eq!(
            status(
                "/",
                &[("host", "localhost"), ("origin", "http://localhost:80")]
            ),
            200
        );
    }

    #[test]
    fn pages_of_configured_origins_come_to_the_endpoint_alone() {
        let origins = ["https://app.example".parse().unwrap()];
        let policy = policy().with_origins(&origins);
        let asked = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost:4100".parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            let uri = "/mcp".parse().unwrap();
            let page = policy.check_page(&uri, &headers);
            let page = page.map(|origin| origin.map(ToString::to_string)).ok();
            (page, policy.check(&uri, &headers).is_ok())
        };
        let allowed = Some(Some("https://app.example".to_owned()));
        assert_eq!(asked("https://app.example"), (allowed, false));
        assert_eq!(asked("http://localhost:4100"), (Some(None), true));
        for foreign in ["http://app.example", "https://app.example:444", "null", "*"] {
            assert_eq!(asked(foreign), (None, false), "{foreign}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "evil.example".parse().unwrap());
        headers.insert(ORIGIN, "https://app.example".parse().unwrap());
        assert!(
            policy
                .check_page(&"/mcp".parse().unwrap(), &headers)
                .is_err()
        );
    }

    #[test]
    fn bound_to_everything_any_literal_address_is_us() {
        let policy = HostPolicy::new(&["0.0.0.0:1".parse().unwrap()], &[]);
        assert!(policy.judge("10.1.2.3:80").is_ok() && policy.judge("[fe80::1]").is_ok());
        assert!(policy.judge("evil.example").is_err() && policy.judge("0x7f.1").is_err());
    }
}
