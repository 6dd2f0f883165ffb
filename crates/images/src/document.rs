//! The documents of an image: index, manifest and configuration, of OCI and of Docker.
//!
//! Parses documents from a registry or an archive and refuses ambiguous ones; sends no requests.
//! Entry points: [`Document::parse`], [`ImageDocument::parse`].

mod image;

use serde::Deserialize;
use serde::de::IgnoredAny;

pub(crate) use self::image::ImageDocument;
use crate::digest::Digest;
use crate::error::printable;
use crate::platform::Platform;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// The old format, whose manifests have no digests of layers.
const DOCKER_SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1";

/// The media types requested from a registry.
pub(crate) const ACCEPTED: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];

const CONFIGS: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];

/// How many platforms an error names.
const PLATFORMS_SHOWN: usize = 12;

/// An invalid document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not valid: {why}")]
pub(crate) struct Invalid {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl Invalid {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            why: why.into(),
        }
    }
}

/// A reference to content: its type, digest and size.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    digest: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
}

impl Descriptor {
    /// Returns the digest; an error if it is not one that can be verified.
    pub(crate) fn digest(&self, what: &str) -> Result<Digest, Invalid> {
        let digest = self.digest.parse::<Digest>();
        digest.map_err(|error| Invalid::new(what, printable(&error.to_string())))
    }
}

/// The document that a name resolves to.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// Images for several platforms.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Descriptor>,
}

/// One image.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    /// Lowest first.
    pub(crate) layers: Vec<Descriptor>,
}

/// The members of both forms, so that a document with both can be refused.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    schema_version: Option<u64>,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    fs_layers: Option<IgnoredAny>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Index,
    Manifest,
}

impl Document {
    /// Parses an index or a manifest. `content_type` is the `Content-Type` of the response, if
    /// known.
    pub(crate) fn parse(
        bytes: &[u8],
        content_type: Option<&str>,
        what: &str,
    ) -> Result<Self, Invalid> {
        let delivered = content_type.map(essence).unwrap_or_default();
        let raw: Raw = serde_json::from_slice(bytes).map_err(|error| {
            let why = format!("it is not the JSON of an image: {error}");
            Invalid::new(what, printable(&why))
        })?;
        let named = raw.media_type.as_deref().map(essence).unwrap_or_default();
        let is_schema_1 = |name: &str| name.starts_with(DOCKER_SCHEMA_1);
        if raw.schema_version == Some(1)
            || raw.fs_layers.is_some()
            || is_schema_1(&named)
            || is_schema_1(&delivered)
        {
            let why = "it has the old format (schema 1), which names no verifiable layers";
            return Err(Invalid::new(what, why));
        }
        if raw.schema_version != Some(2) {
            return Err(Invalid::new(what, "its `schemaVersion` is not 2"));
        }
        // The same bytes must mean the same to every reader.
        let kinds: Vec<Kind> = [&named, &delivered]
            .into_iter()
            .filter_map(|t| kind(t))
            .collect();
        let conflict = || Invalid::new(what, "it claims to be an index and a manifest at once");
        if kinds.len() == 2 && kinds[0] != kinds[1] {
            return Err(conflict());
        }
        if kind(&named).is_none() && !named.is_empty() {
            let why = format!("`{}` is not the media type of an image", printable(&named));
            return Err(Invalid::new(what, why));
        }
        match (raw.manifests, raw.config, raw.layers, kinds.first()) {
            (Some(manifests), None, None, None | Some(Kind::Index)) => {
                Ok(Self::Index(Index { manifests }))
            }
            (None, Some(config), Some(layers), None | Some(Kind::Manifest)) => {
                Ok(Self::Manifest(Manifest { config, layers }))
            }
            (None, _, _, Some(Kind::Index)) => Err(Invalid::new(what, "it names no manifests")),
            (None, _, _, _) => Err(Invalid::new(what, "it has no `config` or no `layers`")),
            (Some(_), _, _, _) => Err(conflict()),
        }
    }
}

/// Returns a media type without its parameters.
fn essence(text: &str) -> String {
    let essence = text.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns the kind of a media type. `application/json` and plain text are defaults of some
/// registries and say nothing.
fn kind(media_type: &str) -> Option<Kind> {
    match media_type {
        OCI_INDEX | DOCKER_INDEX => Some(Kind::Index),
        OCI_MANIFEST | DOCKER_MANIFEST => Some(Kind::Manifest),
        _ => None,
    }
}

impl Index {
    /// Returns the manifest for a platform, or the list of available platforms.
    pub(crate) fn select(&self, wanted: &Platform) -> Result<&Descriptor, String> {
        let fits = |entry: &&Descriptor| {
            let offered = entry.platform.as_ref();
            offered.is_some_and(|offered| wanted.accepts(offered))
        };
        if let Some(entry) = self.manifests.iter().find(fits) {
            return Ok(entry);
        }
        // An index with a single image may omit its platform; the configuration has it.
        if let [only] = self.manifests.as_slice()
            && only.platform.is_none()
        {
            return Ok(only);
        }
        let platforms = self
            .manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref());
        // Attestations and other attachments have an unknown platform.
        let mut named: Vec<String> = platforms
            .filter(|platform| platform.os != "unknown")
            .map(|platform| printable(&platform.to_string()))
            .collect();
        named.dedup();
        let more = named.len().saturating_sub(PLATFORMS_SHOWN);
        named.truncate(PLATFORMS_SHOWN);
        let mut offered = named.join(", ");
        if more > 0 {
            offered.push_str(&format!(" and {more} more"));
        }
        Err(if offered.is_empty() {
            "none that it names".to_owned()
        } else {
            offered
        })
    }
}

impl Descriptor {
    /// Returns whether this is an index; an index must not contain another one.
    pub(crate) fn is_index(&self) -> bool {
        kind(&essence(&self.media_type)) == Some(Kind::Index)
    }
}

impl Manifest {
    /// Checks that this is a container image and not another kind of artifact.
    pub(crate) fn check(&self, what: &str) -> Result<(), Invalid> {
        let config = essence(&self.config.media_type);
        if !CONFIGS.contains(&config.as_str()) {
            let why = format!(
                "it is not a container image: its configuration is `{}`",
                printable(&config)
            );
            return Err(Invalid::new(what, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
