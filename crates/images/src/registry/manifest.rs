//! Resolves the name of an image to its manifest and configuration, each verified by its digest.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::request::Ask;
use super::{RegistryError, Session};
use crate::compression::Compression;
use crate::digest::Digest;
use crate::document::{ACCEPTED, Descriptor, Document, ImageDocument, Invalid, Manifest};
use crate::error::printable;
use crate::platform::Platform;
use crate::store::Limits;

const DIGEST_HEADER: &str = "docker-content-digest";

/// What a name resolves to.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The digest of the index or manifest that the name itself resolves to.
    pub(crate) digest: Digest,
    /// The digest of the manifest for the platform.
    pub(crate) manifest: Digest,
    pub(crate) document: ImageDocument,
    /// Lowest first.
    pub(crate) layers: Vec<LayerBlob>,
}

/// A layer as stored in the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerBlob {
    pub(crate) diff_id: Digest,
    /// The digest of the compressed blob.
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

impl From<Invalid> for RegistryError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid {
            what: invalid.what,
            why: invalid.why,
        }
    }
}

impl Session {
    /// Resolves the image for a platform: the tag once, everything else by digest.
    pub(crate) async fn resolve(
        &self,
        platform: &Platform,
        limits: &Limits,
    ) -> Result<Resolved, RegistryError> {
        let target = self.image.target();
        let what = format!("manifest `{}`", printable(&target));
        let (digest, first) = self.document(&target, &what, None, limits).await?;
        let (manifest_digest, manifest) = match first {
            Document::Manifest(manifest) => (digest, manifest),
            Document::Index(index) => {
                let entry = index.select(platform);
                let entry = entry.map_err(|offered| RegistryError::NoPlatform {
                    wanted: platform.clone(),
                    offered,
                })?;
                self.image_of_index(entry, limits).await?
            }
        };
        let what = format!("manifest `{manifest_digest}`");
        manifest.check(&what)?;
        let blobs = layer_blobs(&manifest, &what, limits)?;
        let config = manifest.config.digest("the configuration's descriptor")?;
        let document = self
            .configuration(&manifest.config, &config, limits)
            .await?;
        check_platform(&document, platform)?;
        if document.diff_ids.len() != blobs.len() {
            let why = format!(
                "its configuration names {} layers, it has {}",
                document.diff_ids.len(),
                blobs.len()
            );
            return Err(Invalid::new(&what, why).into());
        }
        let layers = document.diff_ids.iter().zip(blobs);
        let layers = layers.map(|(diff_id, (digest, size))| LayerBlob {
            diff_id: *diff_id,
            digest,
            size,
        });
        Ok(Resolved {
            digest,
            manifest: manifest_digest,
            layers: layers.collect(),
            document,
        })
    }

    /// Returns the current digest of the name.
    pub(crate) async fn digest(&self, limits: &Limits) -> Result<Digest, RegistryError> {
        let target = self.image.target();
        let what = format!("manifest `{}`", printable(&target));
        let response = self
            .ask(&manifest_ask(Method::HEAD, &self.image, &target, &what))
            .await?;
        match announced(response.headers()) {
            Some(digest) => Ok(digest),
            None => Ok(self.document(&target, &what, None, limits).await?.0),
        }
    }

    async fn image_of_index(
        &self,
        entry: &Descriptor,
        limits: &Limits,
    ) -> Result<(Digest, Manifest), RegistryError> {
        let digest = entry.digest("the index")?;
        let what = format!("manifest `{digest}`");
        let nested = || {
            Invalid::new(
                &what,
                "the index refers to another index, which is not supported",
            )
        };
        if entry.is_index() {
            return Err(nested().into());
        }
        let size = Some(entry.size);
        match self
            .document(&digest.to_string(), &what, size, limits)
            .await?
        {
            (digest, Document::Manifest(manifest)) => Ok((digest, manifest)),
            (_, Document::Index(_)) => Err(nested().into()),
        }
    }

    /// Fetches and verifies an index or manifest.
    async fn document(
        &self,
        target: &str,
        what: &str,
        size: Option<u64>,
        limits: &Limits,
    ) -> Result<(Digest, Document), RegistryError> {
        let response = self
            .ask(&manifest_ask(Method::GET, &self.image, target, what))
            .await?;
        let headers = response.headers().clone();
        let bytes = self.body(response, what, limits.manifest_bytes).await?;
        check_size(what, &bytes, size)?;
        let got = Digest::of(&bytes);
        let note = encoding_note(&headers);
        // The digest in the reference is required; without one, the digest that the registry
        // announced.
        let expected = target
            .parse::<Digest>()
            .ok()
            .or_else(|| announced(&headers));
        check_digest(what, expected.unwrap_or(got), got, note)?;
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        Ok((got, Document::parse(&bytes, content_type, what)?))
    }

    async fn configuration(
        &self,
        descriptor: &Descriptor,
        digest: &Digest,
        limits: &Limits,
    ) -> Result<ImageDocument, RegistryError> {
        let what = format!("configuration `{digest}`");
        if descriptor.size > limits.manifest_bytes {
            let limit = limits.manifest_bytes;
            return Err(RegistryError::TooLarge { what, limit });
        }
        let response = self
            .ask(&blob_ask(&self.image, digest, &what, None))
            .await?;
        let headers = response.headers().clone();
        let bytes = self.body(response, &what, limits.manifest_bytes).await?;
        check_size(&what, &bytes, Some(descriptor.size))?;
        check_digest(&what, *digest, Digest::of(&bytes), encoding_note(&headers))?;
        Ok(ImageDocument::parse(&bytes, &what)?)
    }
}

fn manifest_ask<'a>(
    method: Method,
    image: &crate::reference::ImageReference,
    target: &str,
    what: &'a str,
) -> Ask<'a> {
    Ask {
        what,
        method,
        path: format!("{}/manifests/{target}", image.repository()),
        accept: Some(ACCEPTED.join(", ")),
        from: None,
    }
}

pub(super) fn blob_ask<'a>(
    image: &crate::reference::ImageReference,
    digest: &Digest,
    what: &'a str,
    from: Option<u64>,
) -> Ask<'a> {
    Ask {
        what,
        method: Method::GET,
        path: format!("{}/blobs/{digest}", image.repository()),
        accept: None,
        from,
    }
}

/// Checks sizes and types of the layers before any of them is fetched.
fn layer_blobs(
    manifest: &Manifest,
    what: &str,
    limits: &Limits,
) -> Result<Vec<(Digest, u64)>, RegistryError> {
    if manifest.layers.len() > limits.layers {
        return Err(RegistryError::TooManyLayers {
            got: manifest.layers.len(),
            limit: limits.layers,
        });
    }
    let mut total: u64 = 0;
    let mut blobs = Vec::new();
    for layer in &manifest.layers {
        let digest = layer.digest(what)?;
        if Compression::of_media_type(&layer.media_type).is_none() {
            let why = format!(
                "its layer `{digest}` has the unknown media type `{}`",
                printable(&layer.media_type)
            );
            return Err(Invalid::new(what, why).into());
        }
        if layer.size > limits.layer_bytes {
            return Err(RegistryError::TooLarge {
                what: format!("layer `{digest}`"),
                limit: limits.layer_bytes,
            });
        }
        total = total.saturating_add(layer.size);
        blobs.push((digest, layer.size));
    }
    if total > limits.image_bytes {
        return Err(RegistryError::TooLarge {
            what: "the image".to_owned(),
            limit: limits.image_bytes,
        });
    }
    Ok(blobs)
}

/// Checks the platform in the configuration, which may contradict the index.
fn check_platform(document: &ImageDocument, wanted: &Platform) -> Result<(), RegistryError> {
    let offered = &document.platform;
    // If the configuration has no variant, that of the index counts.
    let wanted_here = Platform {
        variant: wanted.variant.clone().filter(|_| offered.variant.is_some()),
        ..wanted.clone()
    };
    if wanted_here.accepts(offered) {
        return Ok(());
    }
    Err(RegistryError::NoPlatform {
        wanted: wanted.clone(),
        offered: printable(&offered.to_string()),
    })
}

fn check_size(what: &str, bytes: &Bytes, expected: Option<u64>) -> Result<(), RegistryError> {
    let got = bytes.len() as u64;
    match expected {
        Some(expected) if expected != got => Err(RegistryError::Length {
            what: what.to_owned(),
            expected,
            got,
        }),
        _ => Ok(()),
    }
}

pub(super) fn check_digest(
    what: &str,
    expected: Digest,
    got: Digest,
    note: String,
) -> Result<(), RegistryError> {
    if expected == got {
        return Ok(());
    }
    Err(RegistryError::Digest {
        what: what.to_owned(),
        expected,
        got,
        note,
    })
}

fn announced(headers: &HeaderMap) -> Option<Digest> {
    headers
        .get(DIGEST_HEADER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns a note if a body was compressed although this was not requested.
pub(super) fn encoding_note(headers: &HeaderMap) -> String {
    let encoding = headers.get(reqwest::header::CONTENT_ENCODING);
    match encoding.and_then(|value| value.to_str().ok()) {
        None | Some("identity" | "") => String::new(),
        Some(encoding) => {
            let encoding = printable(encoding);
            format!(" (it came with `Content-Encoding: {encoding}`, which was not requested)")
        }
    }
}
