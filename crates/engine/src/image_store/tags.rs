//! Where image tags point now, as last seen at the registry, by project and reference. Checking
//! pulls nothing. fault C6

use std::collections::{HashMap, HashSet};

use gantry_images::{Digest, ImageReference};
use gantry_model::id::ProjectName;
use parking_lot::Mutex;

use crate::clock::unix_ms;

/// A tag that points to another image than the running one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTag {
    /// The tag's current digest.
    pub digest: String,
    /// When that was first seen, in milliseconds since 1970.
    pub seen_ms: u64,
}

/// The last known state of tags.
#[derive(Debug, Default)]
pub(super) struct Tags {
    seen: Mutex<HashMap<(ProjectName, ImageReference), ChangedTag>>,
}

impl Tags {
    /// Records where a tag points; returns whether that is new.
    pub(super) fn note(
        &self,
        project: &ProjectName,
        image: &ImageReference,
        digest: &Digest,
    ) -> bool {
        let digest = digest.to_string();
        let key = (project.clone(), image.clone());
        let mut seen = self.seen.lock();
        if seen.get(&key).is_some_and(|known| known.digest == digest) {
            return false;
        }
        let seen_ms = unix_ms();
        seen.insert(key, ChangedTag { digest, seen_ms });
        true
    }

    /// Returns the state of a tag if it differs from this digest.
    pub(super) fn other_than(
        &self,
        project: &ProjectName,
        image: &ImageReference,
        digest: &str,
    ) -> Option<ChangedTag> {
        let seen = self.seen.lock();
        let known = seen.get(&(project.clone(), image.clone()))?;
        (known.digest != digest).then(|| known.clone())
    }

    /// Forgets the tags that no server of a project uses.
    pub(super) fn keep(&self, project: &ProjectName, named: &HashSet<ImageReference>) {
        let mut seen = self.seen.lock();
        seen.retain(|(owner, image), _| owner != project || named.contains(image));
    }
}
