//! Where the tags of images point now, as far as somebody looked: what a registry said last, by project
//! and reference. Nothing is taken by looking. fault C6

use std::collections::{HashMap, HashSet};

use gantry_images::{Digest, ImageReference};
use gantry_model::id::ProjectName;
use parking_lot::Mutex;

use crate::clock::unix_ms;

/// A tag that points to another image than the one that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTag {
    /// What the registry says the tag is now.
    pub digest: String,
    /// When that was seen first, in milliseconds since 1970.
    pub seen_ms: u64,
}

/// What the registries said last.
#[derive(Debug, Default)]
pub(super) struct Tags {
    seen: Mutex<HashMap<(ProjectName, ImageReference), ChangedTag>>,
}

impl Tags {
    /// Notes where a tag points; returns whether that is news.
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

    /// Returns what a tag points to, if that is something else than this digest.
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

    /// Forgets the tags of a project that no server of it names any more.
    pub(super) fn keep(&self, project: &ProjectName, named: &HashSet<ImageReference>) {
        let mut seen = self.seen.lock();
        seen.retain(|(owner, image), _| owner != project || named.contains(image));
    }
}
