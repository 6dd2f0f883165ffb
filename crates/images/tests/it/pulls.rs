//! Pulls that succeed although something happens on the way, and what is kept of them. fault C6

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gantry_images::{
    Credentials, Digest, ImageError, LayerProgress, Platform, Progress, PullRequest,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::puller::{Puller, limits, tagged};
use crate::sample::{Blob, INDEX, MANIFEST, Sample, noise, serve, serve_well, tar};
use crate::scripted::{Server, head, reply, silence};

fn file(puller: &Puller, record: &gantry_images::ImageRecord, name: &str) -> Vec<u8> {
    let root = puller.store.root(record).unwrap();
    let layers = root
        .lower
        .iter()
        .map(|layer| root.base.join(layer).join(name));
    std::fs::read(layers.into_iter().find(|path| path.exists()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_resolved_once_and_its_digest_recorded() {
    let image = Sample::new(vec![
        Blob::gzip(&tar("a", b"one")),
        Blob::zstd(&tar("b", b"two")),
        Blob::gzip(&tar("c", b"three")),
    ]);
    let server = serve_well(&image);
    let puller = Puller::new();
    let record = puller.pull(&tagged(server.address)).await.unwrap();
    assert_eq!(
        (record.digest, record.manifest),
        (image.digest(), image.digest())
    );
    assert_eq!(record.config.entrypoint, ["/tool"]);
    assert_eq!(record.config.user, "7");
    assert_eq!(record.layers.len(), 3);
    assert_eq!(file(&puller, &record, "b"), b"two");
    assert_eq!(
        puller.store.find(&record.reference).unwrap(),
        Some(record.clone())
    );
    assert_eq!(server.count("HEAD", ""), 0);
    assert_eq!(server.count("GET", "/manifests/"), 1);

    // A second pull asks for the manifest only, and its configuration.
    let before = server.requests().len();
    let again = puller.pull(&record.reference).await.unwrap();
    assert_eq!(again.digest, record.digest);
    assert_eq!(server.requests().len() - before, 2);
    puller.assert_whole(&[&record.reference]);
}

/// Between two requests the tag moves: what was resolved first is what is pulled.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moves_meanwhile_changes_nothing() {
    let (old, new) = (Sample::small(), Sample::long());
    let host = Platform::host();
    let index = |image: &Sample| {
        let platform = json!({"os": host.os, "architecture": host.architecture});
        let size = image.manifest_bytes().len();
        let entry = json!({"mediaType": MANIFEST, "digest": image.digest(), "size": size, "platform": platform});
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string()
    };
    let (before, after) = (index(&old), index(&new));
    let digest = Digest::of(before.as_bytes());
    let asked = AtomicUsize::new(0);
    let server = serve(
        &old,
        Arc::new(move |request, stream| {
            let is_tag = request.path.ends_with("/manifests/1");
            is_tag.then(|| {
                let nth = asked.fetch_add(1, Ordering::Relaxed);
                let index = if nth == 0 { &before } else { &after };
                reply(stream, 200, &[("Content-Type", INDEX)], index.as_bytes())
            })
        }),
    );
    let puller = Puller::new();
    let image = tagged(server.address);
    let record = puller.pull(&image).await.unwrap();
    assert_eq!((record.digest, record.manifest), (digest, old.digest()));
    // Asked again, the tag leads elsewhere; the record stays what it was.
    let now = puller
        .store
        .resolve(&puller.registry, &image, None, &puller.stop)
        .await;
    assert_ne!(now.unwrap(), digest);
    assert_eq!(puller.store.find(&image).unwrap().unwrap().digest, digest);
    let pinned = image.pinned(digest);
    assert_eq!(puller.store.find(&pinned).unwrap().unwrap().digest, digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_cut_goes_on_where_it_was() {
    for is_ranged in [true, false] {
        let image = Sample::long();
        let bytes = image.layers[0].bytes.clone();
        let path = format!("/blobs/{}", Digest::of(&bytes));
        let cuts = AtomicUsize::new(0);
        let server = serve(
            &image,
            Arc::new(move |request, stream| {
                if !request.path.ends_with(&path) || cuts.fetch_add(1, Ordering::Relaxed) >= 2 {
                    return None;
                }
                let from = request
                    .header("range")
                    .and_then(|range| range[6..].strip_suffix('-'));
                let from: usize = from
                    .filter(|_| is_ranged)
                    .map_or(0, |from| from.parse().unwrap());
                let (length, end) = ((bytes.len() - from).to_string(), bytes.len() - 1);
                let range = format!("bytes {from}-{end}/{}", bytes.len());
                let status = if from == 0 { 200 } else { 206 };
                let headers = [
                    ("Content-Length", length.as_str()),
                    ("Content-Range", &range),
                ];
                Some(head(stream, status, &headers).and_then(|()| {
                    use std::io::Write;
                    stream.write_all(&bytes[from..from + 1_000_000])
                }))
            }),
        );
        let puller = Puller::new();
        let record = puller.pull(&tagged(server.address)).await.unwrap();
        assert_eq!(file(&puller, &record, "noise"), noise(3 << 20, 7));
        let ranges = server
            .requests()
            .iter()
            .filter(|request| request.header("range").is_some())
            .count();
        assert_eq!(ranges, 2);
    }
}

/// A registry that is away for a moment, or asks to wait for one, is asked again.
#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_waited_for() {
    let troubles: [(u16, &[(&str, &str)]); 3] =
        [(503, &[]), (429, &[("Retry-After", "0")]), (500, &[])];
    let nth = AtomicUsize::new(0);
    let server = serve(
        &Sample::small(),
        Arc::new(move |request, stream| {
            let (status, headers) = troubles.get(nth.fetch_add(1, Ordering::Relaxed))?;
            request
                .path
                .contains("manifests")
                .then(|| reply(stream, *status, headers, b""))
        }),
    );
    let puller = Puller::new();
    puller.pull(&tagged(server.address)).await.unwrap();
    assert_eq!(server.count("GET", "/manifests/"), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_an_image_has_twice_is_fetched_once() {
    let layer = Blob::gzip(&tar("a", b"one"));
    let image = Sample::new(vec![
        layer.clone(),
        Blob::gzip(&tar("b", b"two")),
        layer.clone(),
    ]);
    let server = serve_well(&image);
    let puller = Puller::new();
    let record = puller.pull(&tagged(server.address)).await.unwrap();
    assert_eq!(record.layers.len(), 3);
    assert_eq!(
        server.count("GET", &Digest::of(&layer.bytes).to_string()),
        1
    );
    assert_eq!(puller.store.root(&record).unwrap().lower.len(), 2);
}

/// Two names of one image, pulled at once: every layer is downloaded once.
#[tokio::test(flavor = "multi_thread")]
async fn two_pulls_at_once_share_their_layers() {
    let image = Sample::long();
    let server = serve_well(&image);
    let puller = Puller::new();
    let one = tagged(server.address);
    let other = one.pinned(image.digest());
    let (first, second) = tokio::join!(puller.pull(&one), puller.pull(&other));
    assert_eq!(first.unwrap().digest, second.unwrap().digest);
    let layer = Digest::of(&image.layers[0].bytes).to_string();
    assert_eq!(server.count("GET", &layer), 1);
    puller.assert_whole(&[&one, &other]);
}

/// A registry with a token server; tokens end after two requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_this_repository_and_renewed_when_it_ends() {
    let given = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&given);
    let tokens = Server::start(Arc::new(move |_, stream| {
        let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
        let body = format!(r#"{{"access_token":"token-{nth}","expires_in":1}}"#);
        reply(stream, 200, &[], body.as_bytes())
    }));
    let realm = format!("http://{}/token?account=x", tokens.address);
    let challenge = format!(
        "Bearer realm=\"{realm}\",service=\"the registry\",scope=\"repository:other:push\""
    );
    let uses = AtomicUsize::new(0);
    let server = serve(
        &Sample::small(),
        Arc::new(move |request, stream| {
            let valid = format!("Bearer token-{}", given.load(Ordering::Relaxed));
            let is_valid = request.header("authorization") == Some(&valid);
            if is_valid && uses.fetch_add(1, Ordering::Relaxed) != 2 {
                return None;
            }
            Some(reply(
                stream,
                401,
                &[("WWW-Authenticate", &challenge)],
                b"{}",
            ))
        }),
    );
    let mut puller = Puller::new();
    puller.credentials = Some(Credentials::Basic {
        user: "ann".to_owned(),
        password: "hunter2".to_owned(),
    });
    puller.pull(&tagged(server.address)).await.unwrap();
    let asked = tokens.requests();
    assert_eq!(asked.len(), 2);
    for request in &asked {
        assert_eq!(
            request.header("authorization"),
            Some("Basic YW5uOmh1bnRlcjI=")
        );
        let wanted = "/token?account=x&service=the+registry&scope=repository%3Ateam%2Ftool%3Apull";
        assert_eq!(request.path, wanted);
    }
    let basic = |request: &crate::scripted::Request| {
        request
            .header("authorization")
            .is_some_and(|shown| shown.starts_with("Basic"))
    };
    assert!(
        !server.requests().iter().any(basic),
        "the registry saw the password"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_token_is_exchanged() {
    let tokens = Server::start(Arc::new(|_, stream| {
        reply(stream, 200, &[], br#"{"access_token":"t"}"#)
    }));
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\"",
        tokens.address
    );
    let server = serve(
        &Sample::small(),
        Arc::new(move |request, stream| {
            let is_valid = request.header("authorization") == Some("Bearer t");
            (!is_valid).then(|| reply(stream, 401, &[("WWW-Authenticate", &challenge)], b"{}"))
        }),
    );
    let mut puller = Puller::new();
    puller.credentials = Some(Credentials::Token("identity&x".to_owned()));
    puller.pull(&tagged(server.address)).await.unwrap();
    let asked = tokens.requests();
    assert_eq!((asked.len(), asked[0].method.as_str()), (1, "POST"));
    assert!(
        asked[0].body.contains("refresh_token=identity%26x"),
        "{}",
        asked[0].body
    );
    assert!(
        asked[0]
            .body
            .contains("scope=repository%3Ateam%2Ftool%3Apull"),
        "{}",
        asked[0].body
    );
}

/// Cancelled in the middle of a layer: the pull ends at once and leaves nothing half done.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_pull_leaves_nothing() {
    let image = Sample::long();
    let bytes = image.layers[0].bytes.clone();
    let path = format!("/blobs/{}", Digest::of(&bytes));
    let server = serve(
        &image,
        Arc::new(move |request, stream| {
            request.path.ends_with(&path).then(|| {
                use std::io::Write;
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..2_000_000])?;
                silence(stream)
            })
        }),
    );
    let puller = Puller::new();
    let stop = puller.stop.clone();
    let image = tagged(server.address);
    let request = PullRequest {
        platform: Platform::host(),
        credentials: None,
        progress: &|progress| {
            let is_layer = matches!(
                progress,
                Progress::Layer {
                    state: LayerProgress::Downloading { .. },
                    ..
                }
            );
            if is_layer {
                stop.cancel();
            }
        },
        stop: &puller.stop,
    };
    let pulled = puller.store.pull(&puller.registry, &image, request);
    let error = tokio::time::timeout(Duration::from_secs(5), pulled)
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, ImageError::Cancelled { .. }), "{error:?}");
    puller.assert_whole(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_as_a_whole_has_a_deadline() {
    let server = serve(
        &Sample::small(),
        Arc::new(|_, stream| Some(silence(stream))),
    );
    let mut limits = limits();
    limits.pull_deadline = Duration::from_millis(300);
    let puller = Puller::with(Duration::from_secs(60), limits);
    let error = puller.pull(&tagged(server.address)).await.unwrap_err();
    let told = gantry_model::diagnose::chain(&error);
    assert!(told.contains("the pull took longer"), "{told}");
    puller.assert_whole(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_in_order() {
    let image = Sample::long();
    let server = serve_well(&image);
    let puller = Puller::new();
    let seen = Mutex::new(Vec::new());
    let name = tagged(server.address);
    let tell = |progress| seen.lock().push(progress);
    let request = || PullRequest {
        platform: Platform::host(),
        credentials: None,
        progress: &tell,
        stop: &puller.stop,
    };
    puller
        .store
        .pull(&puller.registry, &name, request())
        .await
        .unwrap();
    let told = std::mem::take(&mut *seen.lock());
    let size = image.layers[0].bytes.len() as u64;
    assert_eq!(
        told[0],
        Progress::Resolved {
            digest: image.digest(),
            layers: 1,
            bytes: size
        }
    );
    let received: Vec<u64> = told
        .iter()
        .filter_map(|progress| match progress {
            Progress::Layer {
                state: LayerProgress::Downloading { received, .. },
                ..
            } => Some(*received),
            Progress::Resolved { .. } | Progress::Layer { .. } | Progress::Done { .. } => None,
        })
        .collect();
    assert!(
        received.is_sorted() && received.last() == Some(&size),
        "{received:?}"
    );
    assert!((2..20).contains(&received.len()), "{received:?}");
    assert_eq!(
        told.last(),
        Some(&Progress::Done {
            digest: image.digest()
        })
    );

    puller
        .store
        .pull(&puller.registry, &name, request())
        .await
        .unwrap();
    let is_present = |progress: &Progress| {
        matches!(
            progress,
            Progress::Layer {
                state: LayerProgress::Present,
                ..
            }
        )
    };
    assert!(seen.lock().iter().any(is_present));
}

/// Whoever pulls goes away: the thread that unpacks ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pull_leaves_nothing() {
    let image = Sample::long();
    let bytes = image.layers[0].bytes.clone();
    let path = format!("/blobs/{}", Digest::of(&bytes));
    let reached = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&reached);
    let server = serve(
        &image,
        Arc::new(move |request, stream| {
            request.path.ends_with(&path).then(|| {
                use std::io::Write;
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..2_000_000])?;
                seen.store(true, Ordering::Relaxed);
                silence(stream)
            })
        }),
    );
    let puller = Puller::new();
    let name = tagged(server.address);
    let mut pull = Box::pin(puller.pull(&name));
    while !reached.load(Ordering::Relaxed) {
        let pause = tokio::time::timeout(Duration::from_millis(10), &mut pull).await;
        assert!(pause.is_err(), "it ended");
    }
    drop(pull);
    let tmp = puller.folder.path().join("store/tmp");
    let swept = async {
        while std::fs::read_dir(&tmp).unwrap().next().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), swept)
        .await
        .unwrap();
    puller.assert_whole(&[]);
}
