//! Pulls from Debian's `docker-registry`, which knows nothing of us. faults C4 and C6

use std::fs;

use gantry_images::{Credentials, Digest, ImageReference, Platform};
use gantry_model::diagnose::Diagnose;
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use serde_json::json;
use tokio::time::Instant;

use crate::puller::Puller;
use crate::sample::{Blob, INDEX, MANIFEST, REPOSITORY, Sample, noise, tar};

/// Pushes an image under a tag; returns its whole name.
fn push(registry: &ImageRegistry, tag: &str, image: &Sample) -> ImageReference {
    for layer in &image.layers {
        registry.push_blob(REPOSITORY, &layer.bytes);
    }
    registry.push_blob(REPOSITORY, &image.config);
    let name = registry.push_manifest(REPOSITORY, tag, MANIFEST, &image.manifest_bytes());
    name.parse().unwrap()
}

fn image(seed: u64) -> Sample {
    Sample::new(vec![
        Blob::gzip(&tar("base", &noise(2 << 20, 1))),
        Blob::zstd(&tar("tool", &noise(1 << 20, seed))),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let registry = ImageRegistry::start(RegistryAccess::Open);
    let (old, new) = (image(2), image(3));
    let tag = push(&registry, "1", &old);
    let puller = Puller::new();

    // Two at once, by two names.
    let pinned = tag.pinned(old.digest());
    let (by_tag, by_digest) = tokio::join!(puller.pull(&tag), puller.pull(&pinned));
    let (by_tag, by_digest) = (by_tag.unwrap(), by_digest.unwrap());
    assert_eq!(by_tag.digest, old.digest());
    assert_eq!(
        (by_tag.digest, &by_tag.layers),
        (by_digest.digest, &by_digest.layers)
    );
    let root = puller.store.root(&by_tag).unwrap();
    let contents = [("tool", noise(1 << 20, 2)), ("base", noise(2 << 20, 1))];
    for (layer, (name, content)) in root.lower.iter().zip(contents) {
        assert!(
            fs::read(root.base.join(layer).join(name)).unwrap() == content,
            "{name}"
        );
    }
    drop(root);

    // Again: everything is here.
    let began = Instant::now();
    let again = puller.pull(&tag).await.unwrap();
    println!("second pull: {:?}", began.elapsed());
    assert_eq!(again.layers, by_tag.layers);

    // The tag moves: it is seen, and changes nothing until it is pulled.
    let resolve = || {
        puller
            .store
            .resolve(&puller.registry, &tag, None, &puller.stop)
    };
    assert_eq!(resolve().await.unwrap(), old.digest());
    push(&registry, "1", &new);
    assert_eq!(resolve().await.unwrap(), new.digest());
    assert_eq!(
        puller.store.find(&tag).unwrap().unwrap().digest,
        old.digest()
    );
    assert_eq!(puller.pull(&pinned).await.unwrap().digest, old.digest());
    assert_eq!(puller.pull(&tag).await.unwrap().digest, new.digest());
    puller.assert_whole(&[&tag, &pinned]);

    let missing = registry.image(&format!("{REPOSITORY}:none"));
    let missing = missing.parse().unwrap();
    let error = puller.pull(&missing).await.unwrap_err();
    assert_eq!(error.code(), "image.not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_resolved_to_the_hosts_platform() {
    let registry = ImageRegistry::start(RegistryAccess::Open);
    let (own, other) = (
        image(4),
        image(5).with_config(|config| config["architecture"] = json!("s390x")),
    );
    push(&registry, "own", &own);
    push(&registry, "other", &other);
    let entry = |image: &Sample, architecture: &str| {
        let platform = json!({"os": "linux", "architecture": architecture});
        let size = image.manifest_bytes().len();
        json!({"mediaType": MANIFEST, "digest": image.digest(), "size": size, "platform": platform})
    };
    let host = Platform::host().architecture;
    let manifests = [entry(&other, "s390x"), entry(&own, &host)];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string();
    let digest = Digest::of(index.as_bytes());
    let tag = registry.push_manifest(REPOSITORY, "all", INDEX, index.as_bytes());
    let puller = Puller::new();
    let tag: ImageReference = tag.parse().unwrap();
    let record = puller.pull(&tag).await.unwrap();
    assert_eq!((record.digest, record.manifest), (digest, own.digest()));
    assert_eq!(record.platform.architecture, host);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_registry_wants_the_password() {
    let registry = ImageRegistry::start(RegistryAccess::Closed);
    let tag = push(&registry, "1", &image(6));
    let mut puller = Puller::new();
    let error = puller.pull(&tag).await.unwrap_err();
    assert_eq!(error.code(), "image.unauthorized");
    let basic = |password: &str| {
        Some(Credentials::Basic {
            user: "ann".to_owned(),
            password: password.to_owned(),
        })
    };
    puller.credentials = basic("wrong");
    let error = puller.pull(&tag).await.unwrap_err();
    assert_eq!(error.code(), "image.unauthorized");
    puller.assert_whole(&[]);
    puller.credentials = basic("hunter2");
    puller.pull(&tag).await.unwrap();
    puller.assert_whole(&[&tag]);
}
