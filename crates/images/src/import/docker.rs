//! `manifest.json` as written by `docker save`: configuration and layers of each image by file
//! name.

use serde::Deserialize;

use super::source::Source;
use super::{Found, Problem};
use crate::digest::Digest;
use crate::document::{Document, ImageDocument};
use crate::error::printable;
use crate::store::Limits;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Returns the images of `manifest.json`, if there is one.
pub(super) fn images(source: &Source, limits: &Limits) -> Result<Option<Vec<Found>>, Problem> {
    let Some(text) = source.document_if_any("manifest.json", limits.manifest_bytes)? else {
        return Ok(None);
    };
    let entries: Vec<Entry> = serde_json::from_slice(&text).map_err(|error| {
        let error = printable(&error.to_string());
        Problem::Invalid(format!("its `manifest.json` is not valid: {error}"))
    })?;
    let found = entries
        .into_iter()
        .map(|entry| image(source, entry, limits));
    found.collect::<Result<_, _>>().map(Some)
}

fn image(source: &Source, entry: Entry, limits: &Limits) -> Result<Found, Problem> {
    let config = source.document(&entry.config, limits.manifest_bytes)?;
    let id = Digest::of(&config);
    let named = entry.config.rsplit('/').next().unwrap_or_default();
    let named = named.trim_end_matches(".json");
    if named.len() == 64 && named != id.hex() {
        let why = format!("the image's configuration has the digest `{id}`, not `{named}`");
        return Err(Problem::Invalid(printable(&why)));
    }
    Ok(Found {
        names: entry.repo_tags.unwrap_or_default(),
        digest: manifest_of(source, &id, limits).unwrap_or(id),
        document: ImageDocument::parse(&config, "the image's configuration")?,
        layers: entry.layers,
    })
}

/// Returns the digest of the manifest with this configuration if `index.json` leads to one. A
/// missing or wrong index does not matter: `manifest.json` is complete.
fn manifest_of(source: &Source, config: &Digest, limits: &Limits) -> Option<Digest> {
    let index = source.document("index.json", limits.manifest_bytes).ok()?;
    let Document::Index(index) = Document::parse(&index, None, "index.json").ok()? else {
        return None;
    };
    index.manifests.iter().find_map(|descriptor| {
        let digest = descriptor.digest("a manifest").ok()?;
        let name = format!("blobs/sha256/{}", digest.hex());
        let bytes = source.document(&name, limits.manifest_bytes).ok()?;
        let Document::Manifest(manifest) = Document::parse(&bytes, None, "a manifest").ok()? else {
            return None;
        };
        let same = manifest.config.digest("a configuration").ok()? == *config;
        (same && Digest::of(&bytes) == digest).then_some(digest)
    })
}
