//! The form of an image's reference: `[registry[:port]/]repository[:tag][@sha256:…]`.
//!
//! Checked as text, before any request to a registry; the puller resolves short names. Entry point:
//! [`check_reference`].

/// The longest reference that is taken.
const LONGEST: usize = 512;

/// Returns what is wrong with a reference. fault C8
pub(in crate::spec) fn check_reference(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > LONGEST {
        return Err("it is longer than 512 characters");
    }
    if text.starts_with('-') {
        return Err("it looks like a flag");
    }
    if text.contains("://") {
        return Err("it is a URL");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err("its digest is not `sha256:` and 64 hex digits");
    }
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("its tag has other characters than letters, digits, `.`, `_` and `-`");
    }
    let (registry, repository) = match path.split_once('/') {
        Some((first, rest)) if is_host(first) => (Some(first), rest),
        _ => (None, path),
    };
    if registry.is_some_and(|registry| !is_registry(registry)) {
        return Err("its registry is not a host name");
    }
    let components = repository.split('/');
    if repository.is_empty() || !components.clone().all(is_component) {
        return Err(
            "its repository has other characters than lower-case letters, digits, `.`, `_`, \
                    `-` and `/`",
        );
    }
    Ok(())
}

/// Returns whether the first component is a registry rather than part of a repository.
fn is_host(first: &str) -> bool {
    first.contains(['.', ':', '[']) || first == "localhost"
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = |label: &str| {
        let edges = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !edges && label.bytes().all(is_plain)
    };
    let is_name = |host: &str| host.split('.').all(is_label);
    let is_address = |host: &str| {
        let inside = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        inside.is_some_and(|inside| inside.parse::<core::net::Ipv6Addr>().is_ok())
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && (is_name(host) || is_address(host)) && port.is_none_or(is_port)
}

fn is_component(text: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(is_edge)
        && bytes.last().copied().is_some_and(is_edge)
        && bytes
            .iter()
            .all(|byte| is_edge(*byte) || matches!(byte, b'.' | b'_' | b'-'))
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with(['.', '-'])
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    hex.len() == 64 && hex.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_in_their_usual_forms_are_taken() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        let tagged = format!("ghcr.io/org/x:v1@sha256:{}", "0".repeat(64));
        for text in [
            "busybox",
            "emergent/mcp-langfuse:latest",
            "127.0.0.1:5000/team/server:1.0",
            "localhost/x",
            "[::1]:5000/x",
            "ghcr.io/a/b_c/d.e",
            &digest,
            &tagged,
        ] {
            assert_eq!(check_reference(text), Ok(()), "{text}");
        }
    }

    // fault C8
    #[test]
    fn what_is_no_reference_is_refused() {
        let short = format!("busybox@sha256:{}", "a".repeat(63));
        let long = "a".repeat(513);
        for text in [
            "",
            "--privileged",
            "-v/:/host",
            "Busybox",
            "a b",
            "a\nb",
            "a/../b",
            "../x",
            "a..b/x",
            "-a.b/x",
            "a//b",
            "/a",
            "a:",
            "a:t ag",
            "a@md5:00",
            "a:-x",
            "https://ghcr.io/x",
            "ghcr.io:99999/x",
            "ghcr.io:/x",
            "${IMAGE}",
            "a\0",
            &short,
            &long,
        ] {
            assert!(check_reference(text).is_err(), "{text}");
        }
    }
}
