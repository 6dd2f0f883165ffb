//! The views of images in the gateway's store.

use std::time::UNIX_EPOCH;

use gantry_engine::images::{ImageRecord, Pruned};
use gantry_engine::{ChangedTag, ServerView};
use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339;

/// An image that is in the store.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ImageView {
    /// The name it was pulled or imported by.
    image: String,
    /// What the name was resolved to.
    digest: String,
    platform: String,
    /// What its layers take on disk; those it shares with others included.
    bytes: u64,
    /// Its layers, lowest first.
    layers: Vec<LayerView>,
    pulled: String,
    pulled_ms: u64,
    /// Whether it came from an archive or a folder.
    imported: bool,
    /// The servers that are registered with it.
    servers: Vec<String>,
    /// What the tag is now in its registry, if a server was seen to run another image.
    changed: Option<ChangedTagView>,
}

/// A tag that points to another image than the one that runs. fault C6
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ChangedTagView {
    /// What the tag is now.
    digest: String,
    /// When that was seen first.
    seen: String,
    seen_ms: u64,
}

impl ChangedTagView {
    pub(super) fn of(changed: &ChangedTag) -> Self {
        Self {
            digest: changed.digest.clone(),
            seen: rfc3339(changed.seen_ms),
            seen_ms: changed.seen_ms,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct LayerView {
    digest: String,
    bytes: u64,
}

impl ImageView {
    /// Shows an image with the servers that are registered with it.
    pub(in crate::api) fn of(record: &ImageRecord, servers: &[ServerView]) -> Self {
        let pulled = record.pulled_at.duration_since(UNIX_EPOCH);
        let pulled_ms = pulled.map_or(0, |time| time.as_millis() as u64);
        Self {
            image: record.reference.to_string(),
            digest: record.digest.to_string(),
            platform: record.platform.to_string(),
            bytes: record.layers.iter().map(|layer| layer.bytes).sum(),
            layers: record
                .layers
                .iter()
                .map(|layer| LayerView {
                    digest: layer.diff_id.to_string(),
                    bytes: layer.bytes,
                })
                .collect(),
            pulled: rfc3339(pulled_ms),
            pulled_ms,
            imported: record.imported,
            servers: servers
                .iter()
                .map(|server| server.spec.name.to_string())
                .collect(),
            changed: servers
                .iter()
                .find_map(|server| server.changed_tag.as_ref())
                .map(ChangedTagView::of),
        }
    }
}

/// What was freed.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct PrunedView {
    /// How many layers, or volumes.
    removed: u64,
    bytes: u64,
}

/// The images that were removed, and what that freed.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct PrunedImagesView {
    images: Vec<String>,
    /// How many layers; those of other images stay.
    removed: u64,
    bytes: u64,
}

impl PrunedImagesView {
    pub(in crate::api) fn of(pruned: &gantry_engine::PrunedImages) -> Self {
        Self {
            images: pruned.images.iter().map(ToString::to_string).collect(),
            removed: pruned.layers.layers,
            bytes: pruned.layers.bytes,
        }
    }
}

impl PrunedView {
    pub(in crate::api) fn of(pruned: Pruned) -> Self {
        Self {
            removed: pruned.layers,
            bytes: pruned.bytes,
        }
    }

    pub(in crate::api) fn of_volumes(pruned: gantry_engine::PrunedVolumes) -> Self {
        Self {
            removed: pruned.volumes as u64,
            bytes: pruned.bytes,
        }
    }
}
