//! `index.json` of an OCI image layout: manifests, configurations and layers by their digests.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::source::Source;
use super::{Found, Problem};
use crate::compression::Compression;
use crate::digest::Digest;
use crate::document::{Descriptor, Document, ImageDocument, Manifest};
use crate::error::printable;
use crate::platform::Platform;
use crate::store::Limits;

/// How deep indexes may be nested.
const MOST_INDEXES: usize = 2;
/// The annotation with the full name of an image, as written by containerd.
const FULL_NAME: &str = "io.containerd.image.name";
/// The annotation with a tag or a full name, as written by other tools.
const NAME: &str = "org.opencontainers.image.ref.name";

/// The fields of `index.json` that [`Document`] ignores.
#[derive(Deserialize)]
struct Names {
    manifests: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Returns the images of `index.json` for a platform.
pub(super) fn images(
    source: &Source,
    platform: &Platform,
    limits: &Limits,
) -> Result<Vec<Found>, Problem> {
    let Some(text) = source.document_if_any("index.json", limits.manifest_bytes)? else {
        let why = "it has neither a `manifest.json` nor an `index.json`".to_owned();
        return Err(Problem::Invalid(why));
    };
    let Document::Index(index) = Document::parse(&text, None, "its `index.json`")? else {
        return Err(Problem::Invalid(
            "its `index.json` is not an index".to_owned(),
        ));
    };
    let names: Names = serde_json::from_slice(&text).map_err(|error| {
        let error = printable(&error.to_string());
        Problem::Invalid(format!("its `index.json` is not valid: {error}"))
    })?;
    let fits = |descriptor: &&Descriptor| {
        let offered = descriptor.platform.as_ref();
        offered.is_none_or(|offered| platform.accepts(offered))
    };
    if !index.manifests.iter().any(|descriptor| fits(&descriptor)) {
        index.select(platform).map_err(|offered| {
            Problem::Invalid(format!(
                "it has no image for {platform}, only for {offered}"
            ))
        })?;
    }
    let named = index.manifests.iter().zip(names.manifests);
    let mut found = Vec::new();
    for (descriptor, named) in named.filter(|(descriptor, _)| fits(descriptor)) {
        let (digest, manifest) = resolve(source, descriptor, platform, limits)?;
        found.push(Found {
            names: name(&named).into_iter().collect(),
            digest,
            ..image(source, &manifest, digest, limits)?
        });
    }
    Ok(found)
}

/// Follows a descriptor to the manifest for a platform; returns the digest of the first descriptor.
fn resolve(
    source: &Source,
    descriptor: &Descriptor,
    platform: &Platform,
    limits: &Limits,
) -> Result<(Digest, Manifest), Problem> {
    let named = descriptor.digest("a manifest")?;
    let mut descriptor = descriptor.clone();
    for _ in 0..=MOST_INDEXES {
        let bytes = blob(source, &descriptor, "a manifest", limits)?;
        match Document::parse(&bytes, Some(&descriptor.media_type), "a manifest")? {
            Document::Manifest(manifest) => return Ok((named, manifest)),
            Document::Index(index) => {
                let selected = index.select(platform).map_err(|offered| {
                    Problem::Invalid(format!(
                        "it has no image for {platform}, only for {offered}"
                    ))
                })?;
                descriptor = selected.clone();
            }
        }
    }
    Err(Problem::Invalid(
        "its indexes are nested too deeply".to_owned(),
    ))
}

fn image(
    source: &Source,
    manifest: &Manifest,
    digest: Digest,
    limits: &Limits,
) -> Result<Found, Problem> {
    manifest.check("a manifest")?;
    let config = blob(
        source,
        &manifest.config,
        "the image's configuration",
        limits,
    )?;
    let mut layers = Vec::new();
    for layer in &manifest.layers {
        if Compression::of_media_type(&layer.media_type).is_none() {
            let media_type = printable(&layer.media_type);
            return Err(Problem::Invalid(format!("`{media_type}` is not a layer")));
        }
        layers.push(place(&layer.digest("a layer")?));
    }
    Ok(Found {
        names: Vec::new(),
        digest,
        document: ImageDocument::parse(&config, "the image's configuration")?,
        layers,
    })
}

/// Reads a small blob and checks its digest.
fn blob(
    source: &Source,
    descriptor: &Descriptor,
    what: &str,
    limits: &Limits,
) -> Result<Vec<u8>, Problem> {
    let wanted = descriptor.digest(what)?;
    let bytes = source.document(&place(&wanted), limits.manifest_bytes)?;
    let found = Digest::of(&bytes);
    if found != wanted {
        let why = format!("{what} has the digest `{found}`, not `{wanted}`");
        return Err(Problem::Invalid(why));
    }
    Ok(bytes)
}

fn place(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Returns the name of an image if it is complete; a tag alone is not a name.
fn name(named: &Named) -> Option<String> {
    let annotations = named.annotations.as_ref()?;
    let full = annotations.get(FULL_NAME);
    let short = annotations.get(NAME);
    let short = short.filter(|name| name.contains([':', '/']));
    full.or(short).cloned()
}
