//! The views of images in the gateway's store.

use std::time::UNIX_EPOCH;

use gantry_engine::images::{ImageRecord, Pruned};
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
    /// The servers that are registered with it.
    servers: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct LayerView {
    digest: String,
    bytes: u64,
}

impl ImageView {
    pub(in crate::api) fn of(record: &ImageRecord, servers: Vec<String>) -> Self {
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
            servers,
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
