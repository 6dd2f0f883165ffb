//! What a pull may cost others: the disk, and their turn.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gantry_images::{Digest, LayerProgress, Platform, Progress, PullRequest};
use gantry_model::diagnose::Diagnose;
use tokio::sync::Notify;

use crate::puller::{Puller, limits, tagged};
use crate::sample::{Blob, Sample, ZSTD, noise, serve, serve_well, tar};
use crate::scripted::{head, silence};
use crate::tarball::{file, layer, symlink};

fn layers(puller: &Puller) -> usize {
    let folder = puller.folder.path().join("store/layers");
    fs::read_dir(folder).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_failed_leaves_no_layers() {
    // Every layer is right for itself, and is unpacked before they are found not to fit together.
    let image = Sample::new(vec![
        Blob::gzip(&layer(&[symlink("lib", "/usr/lib")])),
        Blob::gzip(&layer(&[file("lib/evil", "x")])),
    ]);
    let server = serve_well(&image);
    let puller = Puller::new();
    let error = puller.pull(&tagged(server.address)).await.unwrap_err();
    assert_eq!(error.code(), "image.layer_refused", "{error:?}");
    assert_eq!(layers(&puller), 0);
    puller.assert_whole(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_too_large_or_has_no_room_leaves_nothing() {
    let part = |name: &str| Blob::gzip(&tar(name, &vec![0; 3 << 20]));
    let server = serve_well(&Sample::new(vec![part("a"), part("b"), part("c")]));
    let mut small = limits();
    small.image_bytes = 8 << 20;
    let mut full = limits();
    full.reserve_bytes = u64::MAX;
    for (limits, code) in [(small, "image.too_large"), (full, "image.no_space")] {
        let puller = Puller::with(Duration::from_secs(20), limits);
        let error = puller.pull(&tagged(server.address)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        assert_eq!(layers(&puller), 0);
        puller.assert_whole(&[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_download_is_not_that_of_unpacking() {
    let image = Sample::long();
    let bytes = image.layers[0].bytes.clone();
    let path = format!("/blobs/{}", Digest::of(&bytes));
    let server = serve(
        &image,
        Arc::new(move |request, stream| {
            request.path.ends_with(&path).then(|| {
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..2_000_000])?;
                thread::sleep(Duration::from_millis(2_500));
                stream.write_all(&bytes[2_000_000..])
            })
        }),
    );
    let mut limits = limits();
    limits.layer_time = Duration::from_secs(2);
    let puller = Puller::with(Duration::from_secs(20), limits);
    puller.pull(&tagged(server.address)).await.unwrap();
}

/// Returns a zstd frame whose window lets no other be read beside it.
fn large_window(tar: &[u8]) -> Blob {
    let size = u32::try_from(tar.len()).unwrap();
    // A window of 16 MiB, and one raw block, the last.
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x70];
    bytes.extend_from_slice(&((size << 3) | 1).to_le_bytes()[..3]);
    bytes.extend_from_slice(tar);
    Blob {
        media_type: ZSTD,
        bytes,
        diff_id: Digest::of(tar),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_stalls_keeps_nobody_else_from_zstd_layers() {
    let image = Sample::new(vec![Blob::zstd(&tar("noise", &noise(3 << 20, 7)))]);
    let bytes = image.layers[0].bytes.clone();
    let path = format!("/blobs/{}", Digest::of(&bytes));
    let stalling = serve(
        &image,
        Arc::new(move |request, stream| {
            request.path.ends_with(&path).then(|| {
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..2_000_000])?;
                silence(stream)
            })
        }),
    );
    let other = serve_well(&Sample::new(vec![large_window(&tar("a", b"one"))]));
    let (slow, quick) = (
        Puller::with(Duration::from_secs(60), limits()),
        Puller::new(),
    );
    let came = Notify::new();
    let image = tagged(stalling.address);
    let request = PullRequest {
        platform: Platform::host(),
        credentials: None,
        progress: &|progress| {
            if let Progress::Layer {
                state: LayerProgress::Downloading { received, .. },
                ..
            } = progress
                // Reports come every half MiB, later by up to a chunk.
                && received > 500_000
            {
                came.notify_one();
            }
        },
        stop: &slow.stop,
    };
    let stalled = slow.store.pull(&slow.registry, &image, request);
    let (stalled, pulled) = tokio::join!(stalled, async {
        came.notified().await;
        let image = tagged(other.address);
        let pulled = tokio::time::timeout(Duration::from_secs(10), quick.pull(&image)).await;
        slow.stop.cancel();
        quick.stop.cancel();
        pulled
    });
    assert_eq!(stalled.unwrap_err().code(), "image.cancelled");
    pulled.expect("the stalled one is waited for").unwrap();
    slow.assert_whole(&[]);
}
