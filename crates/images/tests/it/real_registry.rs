//! Pulls from Debian's `docker-registry`, which knows nothing of us. faults C4 and C6

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_images::{Credentials, Digest, ImageReference, Platform};
use gantry_model::diagnose::Diagnose;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use crate::puller::Puller;
use crate::sample::{Blob, INDEX, MANIFEST, REPOSITORY, Sample, noise, tar};

/// `ann` with the password `hunter2`.
const PASSWORDS: &str = "ann:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";

/// A registry in a temporary folder, until it is dropped.
struct Registry {
    address: SocketAddr,
    process: Child,
    client: Client,
    is_closed: bool,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Registry {
    async fn start(is_closed: bool) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        for _ in 0..5 {
            let mut registry = Self::spawn(is_closed);
            if registry.answers().await {
                return registry;
            }
        }
        panic!("docker-registry does not start");
    }

    fn spawn(is_closed: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Somebody else may take the port meanwhile: then another is tried.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let root = folder.path().display();
        let auth = match is_closed {
            true => format!("auth:\n  htpasswd:\n    realm: test\n    path: {root}/passwords\n"),
            false => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\n\
             storage:\n  filesystem:\n    rootdirectory: {root}/storage\n\
             http:\n  addr: {address}\n{auth}"
        );
        fs::write(folder.path().join("config.yml"), config).unwrap();
        fs::write(folder.path().join("passwords"), PASSWORDS).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            address,
            process: process.expect("docker-registry is installed, see `.ci/needs`"),
            client: Client::builder().no_proxy().build().unwrap(),
            is_closed,
            _folder: folder,
        }
    }

    /// Waits until it answers, or has ended.
    async fn answers(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && self.process.try_wait().unwrap().is_none() {
            let url = format!("http://{}/v2/", self.address);
            if self.client.get(url).send().await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn send(&self, request: RequestBuilder) -> reqwest::Response {
        let request = match self.is_closed {
            true => request.basic_auth("ann", Some("hunter2")),
            false => request,
        };
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response
    }

    async fn push_blob(&self, bytes: &[u8]) {
        let url = format!("http://{}/v2/{REPOSITORY}/blobs/uploads/", self.address);
        let begun = self.send(self.client.post(url)).await;
        assert_eq!(begun.status(), StatusCode::ACCEPTED);
        let mut url = url::Url::parse(begun.headers()["location"].to_str().unwrap()).unwrap();
        url.query_pairs_mut()
            .append_pair("digest", &Digest::of(bytes).to_string());
        self.send(self.client.put(url).body(bytes.to_vec())).await;
    }

    async fn push_manifest(&self, name: &str, media_type: &str, bytes: Vec<u8>) {
        let url = format!("http://{}/v2/{REPOSITORY}/manifests/{name}", self.address);
        let request = self.client.put(url).header("Content-Type", media_type);
        self.send(request.body(bytes)).await;
    }

    async fn push(&self, tag: &str, image: &Sample) -> ImageReference {
        for layer in &image.layers {
            self.push_blob(&layer.bytes).await;
        }
        self.push_blob(&image.config).await;
        self.push_manifest(tag, MANIFEST, image.manifest_bytes())
            .await;
        format!("{}/{REPOSITORY}:{tag}", self.address)
            .parse()
            .unwrap()
    }
}

fn image(seed: u64) -> Sample {
    Sample::new(vec![
        Blob::gzip(&tar("base", &noise(2 << 20, 1))),
        Blob::zstd(&tar("tool", &noise(1 << 20, seed))),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let registry = Registry::start(false).await;
    let (old, new) = (image(2), image(3));
    let tag = registry.push("1", &old).await;
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
    registry.push("1", &new).await;
    assert_eq!(resolve().await.unwrap(), new.digest());
    assert_eq!(
        puller.store.find(&tag).unwrap().unwrap().digest,
        old.digest()
    );
    assert_eq!(puller.pull(&pinned).await.unwrap().digest, old.digest());
    assert_eq!(puller.pull(&tag).await.unwrap().digest, new.digest());
    puller.assert_whole(&[&tag, &pinned]);

    let missing = format!("{}/{REPOSITORY}:none", registry.address)
        .parse()
        .unwrap();
    let error = puller.pull(&missing).await.unwrap_err();
    assert_eq!(error.code(), "image.not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_resolved_to_the_hosts_platform() {
    let registry = Registry::start(false).await;
    let (own, other) = (
        image(4),
        image(5).with_config(|config| config["architecture"] = json!("s390x")),
    );
    registry.push("own", &own).await;
    registry.push("other", &other).await;
    let entry = |image: &Sample, architecture: &str| {
        let platform = json!({"os": "linux", "architecture": architecture});
        let size = image.manifest_bytes().len();
        json!({"mediaType": MANIFEST, "digest": image.digest(), "size": size, "platform": platform})
    };
    let host = Platform::host().architecture;
    let manifests = [entry(&other, "s390x"), entry(&own, &host)];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string();
    let digest = Digest::of(index.as_bytes());
    registry
        .push_manifest("all", INDEX, index.into_bytes())
        .await;
    let puller = Puller::new();
    let tag: ImageReference = format!("{}/{REPOSITORY}:all", registry.address)
        .parse()
        .unwrap();
    let record = puller.pull(&tag).await.unwrap();
    assert_eq!((record.digest, record.manifest), (digest, own.digest()));
    assert_eq!(record.platform.architecture, host);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_registry_wants_the_password() {
    let registry = Registry::start(true).await;
    let tag = registry.push("1", &image(6)).await;
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
