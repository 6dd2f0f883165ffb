//! Owners of images share layers, and nothing that they have no right to. fault T1

use crate::puller::{Puller, tagged};
use crate::sample::{Blob, Sample, serve_well, tar};

// fault T1
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_others_is_given_to_who_shows_its_content_only() {
    let secret = tar("secret", b"of one owner");
    let image = Sample::new(vec![Blob::gzip(&secret)]);
    let server = serve_well(&image);
    let main = Puller::new();
    let record = main.pull(&tagged(server.address)).await.unwrap();
    let other = main.store.of("other").unwrap();
    assert!(other.list().unwrap().is_empty());
    assert!(other.find(&record.reference).unwrap().is_none());
    assert!(other.remove(&record.reference).is_err());

    // Another registry claims to have the layer, and has other bytes.
    let mut lies = Blob::gzip(&tar("other", b"content"));
    lies.diff_id = image.layers[0].diff_id;
    let claimed = Sample::new(vec![lies]);
    let liar = serve_well(&claimed);
    let with = |store: gantry_images::ImageStore| Puller {
        folder: tempfile::tempdir().unwrap(),
        store,
        registry: main.registry.clone(),
        credentials: None,
        stop: main.stop.clone(),
    };
    let other = with(other);
    other.pull(&tagged(liar.address)).await.unwrap_err();
    assert!(other.store.list().unwrap().is_empty());
    main.assert_whole(&[&record.reference]);

    // Its own registry gives it the content once more; the layer is there once.
    let blobs = server.count("GET", "/blobs/");
    let own = other.pull(&record.reference).await.unwrap();
    assert_eq!(server.count("GET", "/blobs/") - blobs, 2);
    assert_eq!(other.store.list().unwrap(), std::slice::from_ref(&own));
    let again = other.pull(&record.reference).await.unwrap();
    assert_eq!(again.layers, record.layers);
    assert_eq!(
        server.count("GET", "/blobs/") - blobs,
        3,
        "the configuration"
    );

    // Each removes its own only.
    assert_eq!(main.store.remove(&record.reference).unwrap().layers, 0);
    assert!(other.store.root(&own).is_ok());
    assert_eq!(main.store.forget("other").unwrap().layers, 1);
    assert!(other.store.list().unwrap().is_empty());
    main.assert_whole(&[]);
}

// fault T1
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_outlives_its_image_is_nobody_elses() {
    let secret = tar("secret", b"of one owner");
    let image = Sample::new(vec![Blob::gzip(&secret)]);
    let server = serve_well(&image);
    let main = Puller::new();
    let record = main.pull(&tagged(server.address)).await.unwrap();
    // A server runs it while its name is removed.
    let _running = main.store.root(&record).unwrap();
    main.store.remove(&record.reference).unwrap();

    let mut lies = Blob::gzip(&tar("other", b"content"));
    lies.diff_id = image.layers[0].diff_id;
    let liar = serve_well(&Sample::new(vec![lies]));
    let other = Puller {
        folder: tempfile::tempdir().unwrap(),
        store: main.store.of("other").unwrap(),
        registry: main.registry.clone(),
        credentials: None,
        stop: main.stop.clone(),
    };
    other.pull(&tagged(liar.address)).await.unwrap_err();
    assert!(other.store.list().unwrap().is_empty());
}
