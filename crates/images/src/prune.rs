//! Removes images, and layers that no image needs.

use std::collections::HashSet;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::layers::Pruned;
use crate::reference::ImageReference;
use crate::store::ImageStore;

impl ImageStore {
    /// Forgets an image by its name and removes the layers that only it had. Layers that are in use stay
    /// until they are pruned. Blocks.
    pub fn remove(&self, image: &ImageReference) -> Result<Pruned, ImageError> {
        if !self.shared.records.remove(image)? {
            return Err(ImageError::Absent {
                image: image.to_string(),
            });
        }
        self.prune()
    }

    /// Removes every layer that no image needs and nobody uses. Blocks.
    pub fn prune(&self) -> Result<Pruned, ImageError> {
        self.shared.layers.sweep(|| {
            let mut marked: HashSet<Digest> = HashSet::new();
            for image in self.shared.records.list()? {
                marked.extend(image.layers.iter().map(|layer| layer.diff_id));
            }
            Ok(marked)
        })
    }
}
