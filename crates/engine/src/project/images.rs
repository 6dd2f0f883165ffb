//! The images of the gateway, as administrators change them: pulled, imported, removed, pruned. Each is
//! on record before its effect. What registries say of tags is in `tags`, the credentials for them in
//! `logins`. Entry point: [`Project::pull_image`].

mod logins;
pub(crate) mod tags;

use std::path::PathBuf;
use std::sync::Arc;

use gantry_images::{
    Credentials, ImageError, ImageRecord, ImageReference, ImportProgress, Progress, Pruned,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::error::EngineError;

impl Project {
    /// Returns the images there are, all projects' together.
    pub async fn images(&self) -> Result<Vec<ImageRecord>, EngineError> {
        Ok(self.machine.images.list().await?)
    }

    /// Pulls an image; without credentials with those that the project was given for the registry, or that
    /// the gateway's own person has, if this is their project.
    pub async fn pull_image(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        image: ImageReference,
        credentials: Option<Credentials>,
        progress: impl Fn(Progress) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<ImageRecord, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.pull", image.to_string());
            let act = project.acts.begin(&by, draft).await?;
            let pulled = project.fetch(&image, credentials, &progress, &stop).await;
            act.end(&pulled).await;
            pulled
        })
        .await
    }

    /// Pulls an image and notes what its tag is.
    pub(super) async fn fetch(
        &self,
        image: &ImageReference,
        credentials: Option<Credentials>,
        progress: &(dyn Fn(Progress) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<ImageRecord, EngineError> {
        let credentials = match credentials {
            Some(credentials) => Some(credentials),
            None => self.registry_credentials(image).await,
        };
        let images = &self.machine.images;
        let record = images.pull(image, credentials, progress, stop).await?;
        images.note_tag(self.name(), image, &record.digest);
        Ok(record)
    }

    /// Returns what the registry of an image is shown; nothing if that cannot be had, which is told.
    pub(super) async fn registry_credentials(&self, image: &ImageReference) -> Option<Credentials> {
        let images = &self.machine.images;
        let found = images.credentials(self.name(), self.is_default(), image);
        found.await.unwrap_or_else(|error| {
            let why = gantry_model::diagnose::chain(&error);
            tracing::warn!(image = %image, why, "pulling without credentials");
            None
        })
    }

    /// Imports the images of an archive or a folder on the gateway's machine.
    pub async fn import_images(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        archive: PathBuf,
        progress: impl Fn(ImportProgress) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<Vec<ImageRecord>, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.import", archive.display().to_string());
            let act = project.acts.begin(&by, draft).await?;
            let images = &project.machine.images;
            let imported = images.import(&archive, progress, &stop).await;
            let imported = imported.map_err(EngineError::from);
            act.end(&imported).await;
            imported
        })
        .await
    }

    /// Removes the name of an image, and the layers that nothing else uses.
    pub async fn remove_image(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        image: ImageReference,
    ) -> Result<Pruned, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.remove", image.to_string());
            let act = project.acts.begin(&by, draft).await?;
            let removed = project.machine.images.remove(&image).await;
            let removed = removed.map_err(EngineError::from);
            act.end(&removed).await;
            removed
        })
        .await
    }

    /// Removes the images that no registered server names, and the layers that nothing uses.
    pub async fn prune_images(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        kept: Vec<ImageReference>,
    ) -> Result<Pruned, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.prune", "");
            let kept_names: Vec<String> = kept.iter().map(ToString::to_string).collect();
            let draft = draft.before(json!({ "kept": kept_names }));
            let act = project.acts.begin(&by, draft).await?;
            let pruned = project.prune(&kept).await.map_err(EngineError::from);
            act.end(&pruned).await;
            pruned
        })
        .await
    }

    async fn prune(&self, kept: &[ImageReference]) -> Result<Pruned, ImageError> {
        let images = &self.machine.images;
        let mut freed = Pruned::default();
        // A server may name by its digest what is recorded under a tag.
        let mut used = Vec::new();
        for reference in kept {
            used.extend(images.find(reference).await?.map(|record| record.reference));
        }
        for record in images.list().await? {
            if !kept.contains(&record.reference) && !used.contains(&record.reference) {
                let removed = images.remove(&record.reference).await?;
                freed.layers += removed.layers;
                freed.bytes += removed.bytes;
            }
        }
        let rest = images.prune().await?;
        freed.layers += rest.layers;
        freed.bytes += rest.bytes;
        Ok(freed)
    }
}
