//! Parses the head of a proxy request, and rewrites it for forwarding. Only decides.

use super::Destination;

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) to: Destination,
    pub(super) asked: Asked,
}

/// The kind of a proxy request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A tunnel.
    Tunnel,
    /// A plain request, rewritten for forwarding: with its path only, and `Connection: close`.
    Request(Vec<u8>),
}

impl Head {
    /// Parses a head with its empty line; `None` if it is neither a tunnel nor a plain request.
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") || method.is_empty() {
            return None;
        }
        if method == "CONNECT" {
            return Some(Self {
                to: Destination::parse(target)?,
                asked: Asked::Tunnel,
            });
        }
        let rest = target.strip_prefix("http://")?;
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let to = Destination::parse(authority)
            .or_else(|| Destination::parse(&format!("{authority}:80")))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut sent = format!("{method} {slash}{path} {version}\r\n");
        for line in lines {
            let name = line.split(':').next().unwrap_or_default().trim();
            let own = ["connection", "proxy-connection", "proxy-authorization"];
            if line.contains(['\r', '\n']) {
                return None;
            }
            if !own.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                sent.push_str(line);
                sent.push_str("\r\n");
            }
        }
        sent.push_str("Connection: close\r\n\r\n");
        Some(Self {
            to,
            asked: Asked::Request(sent.into_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_and_a_plain_request_are_read_and_nothing_else() {
        let read = |text: &str| Head::read(text.as_bytes());
        let tunnel = read("CONNECT Example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(tunnel.to.to_string(), "example.com:443");
        assert_eq!(tunnel.asked, Asked::Tunnel);
        let plain = read(
            "GET http://a.example/x?y=1 HTTP/1.1\r\nHost: a.example\r\nProxy-Connection: keep-alive\r\n\r\n",
        )
        .unwrap();
        assert_eq!(plain.to.to_string(), "a.example:80");
        let Asked::Request(sent) = plain.asked else {
            panic!("a request");
        };
        assert_eq!(
            String::from_utf8(sent).unwrap(),
            "GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
        );
        for bad in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:0 HTTP/1.1\r\n\r\n",
            "CONNECT a b:1 HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/2\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nX: 1\nHost: b\r\n\r\n",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
