//! A store in a temporary folder, pulls into it, and what must hold after each.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_images::{
    Credentials, Dial, ImageError, ImageRecord, ImageReference, ImageStore, Limits, Owners,
    Platform, PullRequest, Registry, RegistryOptions, StoreOptions,
};
use tokio_util::sync::CancellationToken;

use crate::sample::REPOSITORY;

/// A store, and the way to registries under a rule that allows 127.0.0.1 only.
pub(crate) struct Puller {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: ImageStore,
    pub(crate) registry: Registry,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) stop: CancellationToken,
}

impl Puller {
    pub(crate) fn new() -> Self {
        Self::with(Duration::from_secs(20), limits())
    }

    /// Makes one with another patience and other limits.
    pub(crate) fn with(patience: Duration, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = ImageStore::open(StoreOptions {
            root: folder.path().join("store"),
            owners: Owners::Single,
            limits,
        });
        Self {
            folder,
            store: store.unwrap(),
            registry: registry(patience),
            credentials: None,
            stop: CancellationToken::new(),
        }
    }

    pub(crate) async fn pull(&self, image: &ImageReference) -> Result<ImageRecord, ImageError> {
        let request = PullRequest {
            platform: Platform::host(),
            credentials: self.credentials.clone(),
            progress: &|_| {},
            stop: &self.stop,
        };
        self.store.pull(&self.registry, image, request).await
    }

    /// Checks that the store has exactly these images, whole, and nothing half done.
    pub(crate) fn assert_whole(&self, images: &[&ImageReference]) {
        let records = self.store.list().unwrap();
        let names: Vec<_> = records.iter().map(|record| &record.reference).collect();
        let mut images = images.to_vec();
        images.sort();
        assert_eq!(names, images);
        for record in &records {
            let root = self.store.root(record).unwrap();
            for layer in &root.lower {
                assert!(root.base.join(layer).is_dir(), "{layer}");
            }
        }
        let left = entries(&self.folder.path().join("store/tmp"));
        assert!(left.is_empty(), "half done: {left:?}");
    }
}

/// Small enough that what breaks them is quick to make.
pub(crate) fn limits() -> Limits {
    Limits {
        manifest_bytes: 1 << 20,
        layer_bytes: 48 << 20,
        image_bytes: 96 << 20,
        ..Limits::default()
    }
}

fn registry(patience: Duration) -> Registry {
    let addresses = |dial: &Dial<'_>| {
        let own: IpAddr = [127, 0, 0, 1].into();
        match dial.host == "127.0.0.1" && dial.address == own {
            true => Ok(()),
            false => Err(format!("`{}` is a private address", dial.address)),
        }
    };
    let mut options = RegistryOptions::new(Arc::new(addresses));
    options.timeouts.connect = Duration::from_secs(5);
    options.timeouts.answer = patience;
    options.timeouts.no_progress = patience;
    options.timeouts.retry_pause = Duration::from_millis(2);
    options.timeouts.longest_pause = Duration::from_millis(500);
    Registry::new(options)
}

/// Returns the sample of a registry by its tag.
pub(crate) fn tagged(address: SocketAddr) -> ImageReference {
    format!("{address}/{REPOSITORY}:1").parse().unwrap()
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
