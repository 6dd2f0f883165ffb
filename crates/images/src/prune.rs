//! Removes images, and layers that no image needs.

use std::collections::HashSet;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::layers::Pruned;
use crate::record::Records;
use crate::reference::ImageReference;
use crate::store::ImageStore;

impl ImageStore {
    /// Removes an image by its name, and the layers that only it used. Layers in use stay until
    /// they are pruned. Blocks.
    pub fn remove(&self, image: &ImageReference) -> Result<Pruned, ImageError> {
        if !self.records.remove(image)? {
            return Err(ImageError::Absent {
                image: image.to_string(),
            });
        }
        self.prune()
    }

    /// Removes unused layers after a failed pull or import. Blocks.
    pub(crate) fn sweep_failed(&self) {
        if let Err(error) = self.prune() {
            let error = gantry_model::diagnose::chain(&error);
            tracing::warn!(error, "layers of an image that failed were not removed");
        }
    }

    /// Removes every layer that no image of any owner needs and that is not in use. Blocks.
    pub fn prune(&self) -> Result<Pruned, ImageError> {
        self.shared.layers.sweep(|| {
            let mut marked: HashSet<Digest> = HashSet::new();
            for records in Records::all(&self.shared.options.root)? {
                let images = records.list()?.into_iter();
                let layers = images.flat_map(|image| image.layers);
                marked.extend(layers.map(|layer| layer.diff_id));
            }
            Ok(marked)
        })
    }
}
