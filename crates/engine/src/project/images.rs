//! The images of a project, for administrators: pull, import, remove, prune. Each is recorded
//! before its effect. The state of tags is in `tags`, the credentials for registries in `logins`.
//! Entry point: [`Project::pull_image`].

mod logins;
mod pinned;
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

/// What a prune has removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrunedImages {
    /// The removed images.
    pub images: Vec<ImageReference>,
    /// The layers that no other image needed.
    pub layers: Pruned,
}

impl Project {
    /// Returns the images that the project has pulled or imported.
    pub async fn images(&self) -> Result<Vec<ImageRecord>, EngineError> {
        Ok(self.machine.images.list(self.name()).await?)
    }

    /// Pulls an image; by default with the project's credentials for the registry, or with those of
    /// the gateway's user, if this is the user's project.
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
            let pull = project.fetch(&image, credentials, &progress, &stop);
            project.acts.run(&by, draft, pull).await
        })
        .await
    }

    /// Pulls an image and records the state of its tag.
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
        let pulling = images.pull(self.name(), image, credentials, progress, stop);
        let record = pulling.await?;
        images.note_tag(self.name(), image, &record.digest);
        Ok(record)
    }

    /// Returns the credentials for the registry of an image; `None`, with a warning, if they cannot
    /// be read.
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
            let images = &project.machine.images;
            let import = images.import(project.name(), &archive, progress, &stop);
            let import = async { Ok(import.await?) };
            project.acts.run(&by, draft, import).await
        })
        .await
    }

    /// Removes the name of an image, and the layers that are no longer used.
    pub async fn remove_image(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        image: ImageReference,
    ) -> Result<Pruned, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.remove", image.to_string());
            let images = &project.machine.images;
            let remove = async { Ok(images.remove(project.name(), &image).await?) };
            project.acts.run(&by, draft, remove).await
        })
        .await
    }

    /// Removes the project's images that none of these references names, and the layers that no
    /// project uses.
    pub async fn prune_images(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        kept: Vec<ImageReference>,
    ) -> Result<PrunedImages, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.prune", "");
            let kept_names: Vec<String> = kept.iter().map(ToString::to_string).collect();
            let draft = draft.before(json!({ "kept": kept_names }));
            let prune = async { Ok(project.prune(&kept).await?) };
            project.acts.run(&by, draft, prune).await
        })
        .await
    }

    async fn prune(&self, kept: &[ImageReference]) -> Result<PrunedImages, ImageError> {
        let images = &self.machine.images;
        let mut pruned = PrunedImages::default();
        // A server may refer by digest to an image that is recorded under a tag.
        let mut used = Vec::new();
        for reference in kept {
            let found = images.find(self.name(), reference).await?;
            used.extend(found.map(|record| record.reference));
        }
        for record in images.list(self.name()).await? {
            if !kept.contains(&record.reference) && !used.contains(&record.reference) {
                let removed = images.remove(self.name(), &record.reference).await?;
                pruned.layers.layers += removed.layers;
                pruned.layers.bytes += removed.bytes;
                pruned.images.push(record.reference);
            }
        }
        let rest = images.prune().await?;
        pruned.layers.layers += rest.layers;
        pruned.layers.bytes += rest.bytes;
        Ok(pruned)
    }
}
