//! The name of an image: registry, repository, tag and digest.
//!
//! Short names refer to Docker Hub. A parsed reference is valid and normalized, so that two
//! spellings of one image are equal. Entry point: [`ImageReference`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::Digest;
use crate::error::ImageError;

/// The registry of short names.
const HUB: &str = "docker.io";
/// Other names of the same registry.
const HUB_ALIASES: [&str; 3] = [
    "index.docker.io",
    "registry-1.docker.io",
    "registry.hub.docker.com",
];
/// The longest repository in the distribution specification.
const LONGEST_REPOSITORY: usize = 255;
/// The longest tag in the distribution specification.
const LONGEST_TAG: usize = 128;

/// A normalized image reference: `registry/repository`, with a tag, a digest or both.
///
/// With both, the digest decides and the tag is informative.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageReference {
    /// Returns the registry as it is named, such as `docker.io` or `localhost:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the path of the image in its registry, such as `library/python`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag; `None` only where a digest stands alone.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest that the image must have.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns the same image by digest only.
    pub fn pinned(&self, digest: Digest) -> Self {
        Self {
            tag: None,
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// Returns the part to request from a registry: the digest, else the tag.
    pub(crate) fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ImageReference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        parse(text).map_err(|why| ImageError::Reference {
            text: text.chars().take(300).collect(),
            why,
        })
    }
}

fn parse(text: &str) -> Result<ImageReference, String> {
    if text.len() > 1024 {
        return Err("it is longer than 1,024 bytes".to_owned());
    }
    if text.contains("://") {
        return Err("a reference has no `https://` before it".to_owned());
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => {
            let digest = digest
                .parse::<Digest>()
                .map_err(|error| error.to_string())?;
            (name, Some(digest))
        }
        None => (text, None),
    };
    // A colon after the last slash precedes the tag; before it, a port.
    let (name, tag) = match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
        _ => (name, None),
    };
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first.to_ascii_lowercase(), rest.to_owned()),
        _ => (HUB.to_owned(), name.to_owned()),
    };
    check_registry(&registry)?;
    if repository.is_empty() {
        return Err("it names no repository".to_owned());
    }
    let is_hub = registry == HUB || HUB_ALIASES.contains(&registry.as_str());
    let (registry, repository) = match is_hub {
        true if !repository.contains('/') => (HUB.to_owned(), format!("library/{repository}")),
        true => (HUB.to_owned(), repository),
        false => (registry, repository),
    };
    check_repository(&repository)?;
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let tag = match (tag, &digest) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, Some(_)) => None,
        (None, None) => Some("latest".to_owned()),
    };
    Ok(ImageReference {
        registry,
        repository,
        tag,
        digest,
    })
}

/// Returns whether the first part is a registry: it cannot be a namespace of Docker Hub.
fn is_registry(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost" || part.chars().any(|c| c.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), String> {
    let refused = || Err(format!("`{registry}` is not the name of a registry"));
    let (host, port) = match registry
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, port)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return refused();
            }
            (
                None,
                port.strip_prefix(':').or(port.is_empty().then_some("443")),
            )
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), Some("443")),
        },
    };
    let is_port = |port: &str| {
        port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if !port.is_some_and(is_port) {
        return refused();
    }
    let Some(host) = host else {
        return Ok(());
    };
    let is_label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > 253 || !host.split('.').all(is_label) {
        return refused();
    }
    Ok(())
}

fn check_repository(repository: &str) -> Result<(), String> {
    if repository.len() > LONGEST_REPOSITORY {
        return Err(format!(
            "its repository is longer than {LONGEST_REPOSITORY} bytes"
        ));
    }
    if repository.chars().any(|c| c.is_ascii_uppercase()) {
        return Err("its repository must be lower case".to_owned());
    }
    if !repository.split('/').all(is_component) {
        return Err(format!(
            "`{repository}` is not a repository: its parts are letters, digits, and single `.`, `_`, `__` or dashes between them"
        ));
    }
    Ok(())
}

/// Returns whether a part consists of letters and digits, separated by one `.`, one or two `_`, or
/// any number of dashes.
fn is_component(part: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !is_word(*first) || !is_word(*last) {
        return false;
    }
    let between = bytes.split(|c| is_word(*c));
    between
        .into_iter()
        .all(|gap| matches!(gap, b"" | b"." | b"_" | b"__") || gap.iter().all(|c| *c == b'-'))
}

fn check_tag(tag: &str) -> Result<(), String> {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let starts = tag.bytes().next().is_some_and(is_word);
    let rest = tag.bytes().all(|c| is_word(c) || matches!(c, b'.' | b'-'));
    if !starts || !rest || tag.len() > LONGEST_TAG {
        return Err(format!(
            "`{}` is not a tag: up to {LONGEST_TAG} letters, digits, `.`, `_` and `-`",
            tag.chars().take(LONGEST_TAG).collect::<String>()
        ));
    }
    Ok(())
}

impl Serialize for ImageReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_lead_to_docker_hub() {
        let normal = [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("mcp/memory", "docker.io/mcp/memory:latest"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("index.docker.io/mcp/x:1", "docker.io/mcp/x:1"),
            ("ghcr.io/a/b/c:v1.2", "ghcr.io/a/b/c:v1.2"),
            ("GHCR.io/a/b", "ghcr.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("127.0.0.1:5000/a:b", "127.0.0.1:5000/a:b"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
        ];
        for (text, expected) in normal {
            let reference: ImageReference = text.parse().unwrap();
            assert_eq!(reference.to_string(), expected, "{text}");
            assert_eq!(expected.parse::<ImageReference>().unwrap(), reference);
        }
    }

    #[test]
    fn a_digest_decides_and_needs_no_tag() {
        let digest = Digest::of(b"");
        let alone: ImageReference = format!("ghcr.io/a@{digest}").parse().unwrap();
        assert_eq!((alone.tag(), alone.digest()), (None, Some(&digest)));
        assert_eq!(alone.to_string(), format!("ghcr.io/a@{digest}"));
        let both: ImageReference = format!("ghcr.io/a:1@{digest}").parse().unwrap();
        assert_eq!((both.tag(), both.digest()), (Some("1"), Some(&digest)));
        assert_eq!(both.target(), digest.to_string());
        assert_eq!(both.pinned(digest), alone);
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        let long = format!("a/{}", "b".repeat(300));
        let refused = [
            ("", "names no repository"),
            ("Python", "lower case"),
            ("ghcr.io/A/b", "lower case"),
            ("https://ghcr.io/a", "no `https://`"),
            ("ghcr.io/", "names no repository"),
            ("ghcr.io/a//b", "not a repository"),
            ("ghcr.io/../b", "not a repository"),
            ("ghcr.io/a/../../v2", "not a repository"),
            ("ghcr.io/a%2fb", "not a repository"),
            ("ghcr.io/a?x=1", "not a repository"),
            ("ghcr.io/a#b", "not a repository"),
            ("ghcr.io/a b", "not a repository"),
            ("ghcr.io/a...b", "not a repository"),
            ("ghcr.io/a___b", "not a repository"),
            ("ghcr.io/a:", "not a tag"),
            ("ghcr.io/a:.x", "not a tag"),
            ("ghcr.io/a:x y", "not a tag"),
            ("ghcr.io/a@sha256:12", "not a digest"),
            ("ghcr.io/a@md5:12", "not a digest"),
            ("user:pw@ghcr.io/a", "not a digest"),
            ("ghcr.io:0/a", "not the name of a registry"),
            ("ghcr.io:99999/a", "not the name of a registry"),
            ("ghcr.io:+1/a", "not the name of a registry"),
            ("-x.io/a", "not the name of a registry"),
            ("a..io/a", "not the name of a registry"),
            ("[::1/a", "not the name of a registry"),
            (&long, "longer than 255"),
        ];
        for (text, why) in refused {
            let error = text.parse::<ImageReference>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
