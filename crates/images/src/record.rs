//! Image records: what a name was resolved to, in one small file each.
//!
//! Written whole or not at all. Entry point: [`Records`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::platform::Platform;
use crate::reference::ImageReference;

/// An image that is in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The name it was pulled or imported by.
    pub reference: ImageReference,
    /// What the name was resolved to: the digest of an index or a manifest, as registries show it.
    pub digest: Digest,
    /// The digest of the manifest for the platform; the same where there is no index.
    pub manifest: Digest,
    /// What it is made for.
    pub platform: Platform,
    /// How it wants to be run.
    pub config: ImageConfig,
    /// Its layers, lowest first. One may occur twice.
    pub layers: Vec<Layer>,
    /// When it was pulled or imported, to the second.
    #[serde(with = "seconds")]
    pub pulled_at: SystemTime,
}

/// A layer of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The digest of its uncompressed tar, by which it is kept.
    pub diff_id: Digest,
    /// What it takes on disk.
    pub bytes: u64,
}

mod seconds {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, SystemTime, UNIX_EPOCH,
    };

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_secs().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let seconds = u64::deserialize(from)?;
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        time.ok_or_else(|| serde::de::Error::custom("a time beyond all clocks"))
    }
}
