//! A project's credentials for image registries, for administrators. Each change is recorded before
//! its effect, without the secret. Entry point: [`Project::log_in`].

use std::sync::Arc;

use gantry_images::Credentials;
use serde_json::json;

use crate::acts::{Actor, Draft};
use crate::error::EngineError;
use crate::image_store::RegistryLogin;
use crate::project::Project;

impl Project {
    /// Returns the registries that the project has credentials for.
    pub async fn registry_logins(&self) -> Result<Vec<RegistryLogin>, EngineError> {
        Ok(self.machine.images.logins(self.name()).await?)
    }

    /// Stores credentials for a registry, encrypted; they are sent to that registry and its token
    /// server when an image is pulled.
    pub async fn log_in(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        registry: String,
        credentials: Credentials,
    ) -> Result<RegistryLogin, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let username = match &credentials {
                Credentials::Basic { user, .. } => Some(user.as_str()),
                Credentials::Token(_) => None,
            };
            let draft = Draft::new("image.login", registry.as_str());
            let draft = draft.after(json!({ "username": username }));
            let images = &project.machine.images;
            let log_in = images.log_in(project.name(), &registry, credentials);
            let log_in = async { Ok(log_in.await?) };
            project.acts.run(&by, draft, log_in).await
        })
        .await
    }

    /// Removes the credentials of a registry.
    pub async fn log_out(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        registry: String,
    ) -> Result<(), EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let draft = Draft::new("image.logout", registry.as_str());
            let images = &project.machine.images;
            let log_out = async { Ok(images.log_out(project.name(), &registry).await?) };
            project.acts.run(&by, draft, log_out).await
        })
        .await
    }
}
