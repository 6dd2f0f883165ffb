//! The images that registered servers keep to, although their tags may have moved since.

use gantry_images::ImageReference;

use super::Project;
use crate::error::EngineError;

impl Project {
    /// Returns the images that registered servers were last ready with, by their digests.
    pub async fn pinned_images(&self) -> Result<Vec<ImageReference>, EngineError> {
        let rows = self.machine.store.workspaces(self.name()).await?;
        let pinned = rows.into_iter().filter_map(|row| {
            let image: ImageReference = row.image?.parse().ok()?;
            Some(image.pinned(row.image_digest?.parse().ok()?))
        });
        Ok(pinned.collect())
    }
}
