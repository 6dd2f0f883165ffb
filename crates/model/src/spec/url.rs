//! Which URLs a remote server may have. fault G7

/// Why a URL is not valid for a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme than `http` and `https`.
    #[error("the scheme `{scheme}` is not allowed")]
    Scheme {
        /// The scheme, escaped and truncated.
        scheme: String,
    },
    /// No scheme at all.
    #[error("it has no scheme")]
    NoScheme,
    /// No host.
    #[error("it has no host")]
    Host,
    /// A name or a password before the host.
    #[error("it contains a user name or a password")]
    UserInfo,
    /// A part after `#`, which is never sent.
    #[error("it has a part after `#`")]
    Fragment,
    /// A blank, a control character or a backslash.
    #[error("it contains a blank, a backslash or a control character")]
    Character,
    /// An IP address in an unusual spelling, which hides its value. fault H4
    #[error("its host is an address in an unusual spelling")]
    Spelling,
}

impl UrlError {
    /// Returns what to write instead.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Scheme { .. } | Self::NoScheme | Self::Host => {
                "write for example `https://example.com/mcp`"
            }
            Self::UserInfo => "put credentials into `headers`",
            Self::Fragment => "remove the `#` and what follows it",
            Self::Character => "escape it as `%20` and the like",
            Self::Spelling => "write the address as `127.0.0.1` or `[::1]`",
        }
    }
}

/// Checks that a text is the URL of a server: `http` or `https`, with a host and without hidden
/// parts.
pub fn check_url(url: &str) -> Result<(), UrlError> {
    // Clients read `\` as `/`, which would hide the real host.
    if url.contains(|letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\')
    {
        return Err(UrlError::Character);
    }
    let (scheme, rest) = url.split_once(':').ok_or(UrlError::NoScheme)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        let scheme = scheme
            .chars()
            .take(20)
            .flat_map(char::escape_debug)
            .collect();
        return Err(UrlError::Scheme { scheme });
    }
    let rest = rest.strip_prefix("//").ok_or(UrlError::Host)?;
    if url.contains('#') {
        return Err(UrlError::Fragment);
    }
    let authority = rest.split(['/', '?', '\\']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() {
        return Err(UrlError::Host);
    }
    let is_bracketed = authority.starts_with('[');
    if !is_bracketed && hides_an_address(host) {
        return Err(UrlError::Spelling);
    }
    Ok(())
}

/// Returns whether a host would be read as an IPv4 address without looking like one: browsers and
/// libraries read `0x7f.1`, `2130706433` and `127.1` as `127.0.0.1`.
fn hides_an_address(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_encoded = host.contains('%') || !host.is_ascii();
    let usual = || host.parse::<core::net::Ipv4Addr>().is_ok();
    is_encoded || is_number && !usual()
}

/// Returns whether a text is the URL of a proxy: `http`, an optional login, a host, and no path.
pub(super) fn is_plain_proxy(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    check_url(&format!("http://{host}")).is_ok()
        && !rest.contains(|letter: char| {
            letter.is_control() || letter.is_whitespace() || matches!(letter, '/' | '?' | '#')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault G7
    #[test]
    fn only_plain_web_addresses_are_taken() {
        for good in [
            "https://example.com/mcp?x=a@b",
            "http://[::1]:8080",
            "HTTP://a",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        let check =
            |url: &str, error: &UrlError| assert_eq!(check_url(url).as_ref(), Err(error), "{url}");
        for scheme in ["file", "javascript", "ftp"] {
            let error = UrlError::Scheme {
                scheme: scheme.to_owned(),
            };
            check(&format!("{scheme}:///etc/passwd"), &error);
        }
        check("example.com", &UrlError::NoScheme);
        check("https:///mcp", &UrlError::Host);
        check("https:example.com", &UrlError::Host);
        check("https://user:pw@example.com", &UrlError::UserInfo);
        check("https://example.com#x", &UrlError::Fragment);
        check("https://example.com/a b", &UrlError::Character);
        // fault H4
        for host in [
            "0x7f.1",
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "127.0.0.0x1",
            "ⓛocalhost",
        ] {
            check(&format!("http://{host}/mcp"), &UrlError::Spelling);
        }
        assert_eq!(check_url("http://127.0.0.1:1/x"), Ok(()));
        assert_eq!(check_url("http://7.example.com/x"), Ok(()));
    }
}
