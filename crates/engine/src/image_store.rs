//! The images of a gateway, for administrators and the image driver: list, pull, import, remove,
//! prune. Each project has its own; they share layers. The store is opened on first use. `logins` has
//! a project's credentials for registries, `tags` the last known state of the tags in use.

mod logins;
mod tags;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gantry_images::{
    Credentials, CredentialsError, Dial, Digest, ImageError, ImageRecord, ImageReference,
    ImageStore, ImportProgress, Limits, Owners, Platform, Progress, Pruned, PullRequest, Registry,
    RegistryOptions, StoreOptions, credentials,
};
use gantry_model::id::ProjectName;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use self::logins::{RegistryLogin, RegistryLoginError};
pub use self::tags::ChangedTag;

use self::logins::RegistryLogins;
use self::tags::Tags;
use crate::credentials::Vault;
use crate::http_client::judge_registry;

/// All images of a gateway. Cheap to clone.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

struct Inner {
    folder: PathBuf,
    /// The main owner of the store.
    default_project: ProjectName,
    registry: Registry,
    /// The home of the gateway's user, with the credentials of their container client.
    home: Option<PathBuf>,
    opened: Mutex<Option<ImageStore>>,
    /// Set once there is a vault.
    logins: OnceLock<RegistryLogins>,
    tags: Tags,
}

/// Why the credentials for a registry cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RegistryCredentialsError {
    /// The credentials stored in the gateway cannot be read.
    #[error(transparent)]
    Login(#[from] RegistryLoginError),
    /// Those of the user's container client cannot be read.
    #[error(transparent)]
    Client(#[from] CredentialsError),
}

impl Images {
    pub(crate) fn new(
        folder: PathBuf,
        default_project: ProjectName,
        home: Option<PathBuf>,
    ) -> Self {
        // The same address rules as for remote servers. fault H4
        let judge = |dial: &Dial<'_>| judge_registry(dial.registry, dial.host, dial.address);
        Self {
            inner: Arc::new(Inner {
                folder,
                default_project,
                registry: Registry::new(RegistryOptions::new(Arc::new(judge))),
                home,
                opened: Mutex::default(),
                logins: OnceLock::new(),
                tags: Tags::default(),
            }),
        }
    }

    /// Sets the vault for registry credentials.
    pub(crate) fn use_vault(&self, vault: Vault) {
        // Only the first is used.
        drop(self.inner.logins.set(RegistryLogins::new(vault)));
    }

    /// Runs an operation on a project's images, on a blocking thread.
    pub(crate) async fn on_store<T: Send + 'static>(
        &self,
        project: &ProjectName,
        work: impl FnOnce(&ImageStore) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let (images, project) = (self.clone(), project.clone());
        let working = tokio::task::spawn_blocking(move || work(&images.store_of(&project)?));
        let stopped = |_| ImageError::Cancelled {
            image: "the image store".to_owned(),
        };
        working.await.map_err(stopped)?
    }

    /// Returns the store with a project's images. Blocks.
    fn store_of(&self, project: &ProjectName) -> Result<ImageStore, ImageError> {
        let store = self.store()?;
        match *project == self.inner.default_project {
            true => Ok(store),
            false => store.of(project.as_str()),
        }
    }

    /// Opens the store on first use. Blocks.
    fn store(&self) -> Result<ImageStore, ImageError> {
        let mut opened = self.inner.opened.lock();
        if let Some(store) = &*opened {
            return Ok(store.clone());
        }
        let owners = match rustix::process::geteuid().is_root() {
            true => Owners::Keep,
            false => Owners::Single,
        };
        let store = ImageStore::open(StoreOptions {
            root: self.inner.folder.clone(),
            owners,
            limits: Limits::default(),
        })?;
        *opened = Some(store.clone());
        Ok(store)
    }

    /// Returns the folder of the store.
    pub(crate) fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// Returns the images of a project.
    pub async fn list(&self, project: &ProjectName) -> Result<Vec<ImageRecord>, ImageError> {
        self.on_store(project, ImageStore::list).await
    }

    /// Returns the record of a name, if the project has pulled or imported the image.
    pub async fn find(
        &self,
        project: &ProjectName,
        image: &ImageReference,
    ) -> Result<Option<ImageRecord>, ImageError> {
        let image = image.clone();
        self.on_store(project, move |store| store.find(&image))
            .await
    }

    /// Pulls an image for a project; layers of its other images are not fetched again.
    pub async fn pull(
        &self,
        project: &ProjectName,
        image: &ImageReference,
        credentials: Option<Credentials>,
        progress: &(dyn Fn(Progress) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<ImageRecord, ImageError> {
        let store = self.on_store(project, |store| Ok(store.clone())).await?;
        let request = PullRequest {
            platform: Platform::host(),
            credentials,
            progress,
            stop,
        };
        store.pull(&self.inner.registry, image, request).await
    }

    /// Returns the current digest of an image's tag, to detect a change.
    pub async fn resolve(
        &self,
        project: &ProjectName,
        image: &ImageReference,
        credentials: Option<Credentials>,
        stop: &CancellationToken,
    ) -> Result<Digest, ImageError> {
        let store = self.on_store(project, |store| Ok(store.clone())).await?;
        let registry = &self.inner.registry;
        store.resolve(registry, image, credentials, stop).await
    }

    /// Returns the project's credentials for the registry of an image: the stored ones, or for the
    /// user's own project (`is_own`) those of the user's container client.
    pub(crate) async fn credentials(
        &self,
        project: &ProjectName,
        is_own: bool,
        image: &ImageReference,
    ) -> Result<Option<Credentials>, RegistryCredentialsError> {
        if let Some(logins) = self.inner.logins.get()
            && let Some(given) = logins.of(project, image).await?
        {
            return Ok(Some(given));
        }
        match &self.inner.home {
            Some(home) if is_own => {
                Ok(credentials::from_client_file(image.registry(), home).await?)
            }
            Some(_) | None => Ok(None),
        }
    }

    pub(crate) async fn logins(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<RegistryLogin>, RegistryLoginError> {
        match self.inner.logins.get() {
            Some(logins) => logins.list(project).await,
            None => Ok(Vec::new()),
        }
    }

    pub(crate) async fn log_in(
        &self,
        project: &ProjectName,
        registry: &str,
        credentials: Credentials,
    ) -> Result<RegistryLogin, RegistryLoginError> {
        let logins = self.inner.logins.get();
        let logins = logins.ok_or(RegistryLoginError::NoVault)?;
        logins.put(project, registry, credentials).await
    }

    pub(crate) async fn log_out(
        &self,
        project: &ProjectName,
        registry: &str,
    ) -> Result<(), RegistryLoginError> {
        let logins = self.inner.logins.get();
        let logins = logins.ok_or(RegistryLoginError::NoVault)?;
        logins.remove(project, registry).await
    }

    /// Records the state of a tag; returns whether it is new.
    pub(crate) fn note_tag(
        &self,
        project: &ProjectName,
        image: &ImageReference,
        digest: &Digest,
    ) -> bool {
        self.inner.tags.note(project, image, digest)
    }

    /// Returns the new state of a tag, if it is known to differ from this digest.
    pub(crate) fn changed_tag(
        &self,
        project: &ProjectName,
        image: &str,
        digest: &str,
    ) -> Option<ChangedTag> {
        let image: ImageReference = image.parse().ok()?;
        self.inner.tags.other_than(project, &image, digest)
    }

    /// Forgets the tags that no server of a project uses.
    pub(crate) fn keep_tags(&self, project: &ProjectName, named: &HashSet<ImageReference>) {
        self.inner.tags.keep(project, named);
    }

    /// Imports the images of a `docker save` archive, an OCI layout archive or its folder.
    pub async fn import(
        &self,
        project: &ProjectName,
        archive: &Path,
        progress: impl Fn(ImportProgress) + Send + Sync + 'static,
        stop: &CancellationToken,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let (archive, stop) = (archive.to_owned(), stop.clone());
        self.on_store(project, move |store| {
            store.import(&archive, &progress, &stop)
        })
        .await
    }

    /// Removes a name, and the layers that are no longer used.
    pub async fn remove(
        &self,
        project: &ProjectName,
        image: &ImageReference,
    ) -> Result<Pruned, ImageError> {
        let image = image.clone();
        self.on_store(project, move |store| store.remove(&image))
            .await
    }

    /// Removes layers that no image of any project and no instance uses.
    pub async fn prune(&self) -> Result<Pruned, ImageError> {
        let project = self.inner.default_project.clone();
        self.on_store(&project, ImageStore::prune).await
    }

    /// Removes the images of a deleted project. Blocks.
    pub(crate) fn forget(&self, project: &ProjectName) -> Result<Pruned, ImageError> {
        if !self.inner.folder.exists() {
            return Ok(Pruned::default());
        }
        self.store()?.forget(project.as_str())
    }
}
