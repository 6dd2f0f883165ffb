//! Images from archives and folders, right and wrong.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use gantry_images::{Digest, ImageError, ImageRecord, ImportProgress, Limits};
use gantry_model::diagnose::Diagnose;
use tokio_util::sync::CancellationToken;

use crate::arena::{Arena, as_root_and_nobody, told};
use crate::saved::{config, save};
use crate::tarball::{archive, file, folder, hard_link, layer, symlink};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The files of an OCI layout with one image.
fn layout(name: &str, layers: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let mut files = vec![(
        "oci-layout".to_owned(),
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    )];
    let mut blob = |bytes: Vec<u8>, media_type: &str| {
        let digest = Digest::of(&bytes);
        let descriptor = serde_json::json!({
            "mediaType": media_type, "digest": digest, "size": bytes.len(),
        });
        files.push((format!("blobs/sha256/{}", digest.hex()), bytes));
        descriptor
    };
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| blob(gzip(layer), "application/vnd.oci.image.layer.v1.tar+gzip"))
        .collect();
    let config = blob(
        config(&diff_ids).into_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": layers,
    });
    let mut entry = blob(manifest.to_string().into_bytes(), manifest_type);
    entry["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": name });
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [entry] });
    files.push(("index.json".to_owned(), index.to_string().into_bytes()));
    files
}

fn pack(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    archive(
        &files
            .iter()
            .map(|(name, bytes)| file(name, bytes).bytes())
            .collect::<Vec<_>>(),
    )
}

fn write(folder: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn layers() -> Vec<Vec<u8>> {
    vec![
        layer(&[folder("bin"), file("bin/server", "#!"), file("gone", "x")]),
        layer(&[file(".wh.gone", ""), file("etc/name", "image")]),
    ]
}

/// Fails unless an image is what [`layers`] make.
fn assert_image(arena: &Arena, image: &ImageRecord, name: &str) {
    assert_eq!(image.reference.to_string(), name);
    assert_eq!(image.config.entrypoint, ["/bin/server"]);
    assert_eq!(image.layers.len(), 2);
    let root = arena.store.root(image).unwrap();
    let flat = arena.flat(&root, "flat");
    assert_eq!(fs::read_to_string(flat.join("etc/name")).unwrap(), "image");
    assert!(flat.join("bin/server").exists() && !flat.join("gone").exists());
    fs::remove_dir_all(flat).unwrap();
}

fn import(arena: &Arena, path: &Path) -> Result<Vec<ImageRecord>, ImageError> {
    arena.store.import(path, &|_| (), &CancellationToken::new())
}

#[test]
fn archives_and_folders_of_every_form_are_imported() {
    as_root_and_nobody(|| {
        let arena = Arena::new(Limits::default());
        let full = "registry.example/team/tool:1";
        let manifest = |image: &ImageRecord| image.manifest;

        let saved = save(full, &layers());
        let image = arena.import(&saved).unwrap().remove(0);
        assert_image(&arena, &image, full);
        // Compressed as a whole, as people keep archives.
        let again = arena.import(&gzip(&saved)).unwrap().remove(0);
        assert_eq!(manifest(&again), manifest(&image));
        assert_image(&arena, &again, full);

        let files = layout(full, &layers());
        let index = arena.import(&pack(&files)).unwrap().remove(0);
        assert_image(&arena, &index, full);
        let folder = arena.path("work-layout");
        write(&folder, &files);
        let same = import(&arena, &folder).unwrap().remove(0);
        assert_eq!(manifest(&same), manifest(&index));
        assert_image(&arena, &same, full);

        // Without a name it is named after the file, and pinned.
        let unnamed = arena
            .import(&pack(&layout("latest", &layers())))
            .unwrap()
            .remove(0);
        let name = format!("localhost/work-archive@{}", unnamed.digest);
        assert_image(&arena, &unnamed, &name);
        assert_eq!(arena.store.prune().unwrap().layers, 0);
        arena.assert_whole();
    });
}

#[test]
fn the_manifest_of_docker_comes_before_a_wrong_index() {
    let arena = Arena::new(Limits::default());
    let mut files = layout("tool:1", &layers());
    let diff_ids: Vec<Digest> = layers().iter().map(|layer| Digest::of(layer)).collect();
    let config = config(&diff_ids);
    let id = Digest::of(config.as_bytes());
    let blobs: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let manifest = serde_json::json!([{
        "Config": format!("blobs/sha256/{}", id.hex()),
        "RepoTags": ["tool:1", "tool:latest"],
        "Layers": [blobs[1], blobs[2]],
    }]);
    files.push((
        "manifest.json".to_owned(),
        manifest.to_string().into_bytes(),
    ));
    // With a right index the digest of the manifest is known, with a wrong one that of the image.
    let right = arena.import(&pack(&files)).unwrap();
    assert_eq!(right.len(), 2);
    assert_image(&arena, &right[1], "docker.io/library/tool:latest");
    assert_ne!(right[0].digest, id);
    let index = files
        .iter_mut()
        .find(|(name, _)| name == "index.json")
        .unwrap();
    index.1 = br#"{"schemaVersion":2,"manifests":[]}"#.to_vec();
    let wrong = arena.import(&pack(&files)).unwrap();
    assert_eq!(wrong[0].digest, id);
    assert_image(&arena, &wrong[0], "docker.io/library/tool:1");
}

#[test]
fn old_archives_link_their_layers() {
    let arena = Arena::new(Limits::default());
    let base = layers().remove(0);
    let diff_id = Digest::of(&base);
    let manifest = serde_json::json!([{
        "Config": "config.json", "RepoTags": ["old:1"],
        "Layers": ["one/layer.tar", "two/layer.tar", "three/layer.tar"],
    }]);
    let saved = archive(&[
        folder("one").bytes(),
        file("one/layer.tar", &base).bytes(),
        symlink("two/layer.tar", "../one/layer.tar").bytes(),
        hard_link("three/layer.tar", "two/layer.tar").bytes(),
        file("config.json", config(&[diff_id; 3])).bytes(),
        file("manifest.json", manifest.to_string()).bytes(),
    ]);
    let image = arena.import(&saved).unwrap().remove(0);
    assert_eq!(image.layers.len(), 3);
    assert_eq!(arena.store.root(&image).unwrap().lower.len(), 1);
}

#[test]
fn archives_that_are_none_are_refused_with_a_reason() {
    as_root_and_nobody(|| {
        let arena = Arena::new(Limits {
            manifest_bytes: 10_000,
            ..Limits::default()
        });
        let canary = arena.canary();
        let secret = arena.path("canary/secret");
        let json = |value: &str| archive(&[file("manifest.json", value).bytes()]);
        let entry = |config: &str, layer: &str| {
            json(&format!(
                r#"[{{"Config":"{config}","Layers":["{layer}"]}}]"#
            ))
        };
        let leads_out = archive(&[
            file("manifest.json", r#"[{"Config":"config","Layers":[]}]"#).bytes(),
            symlink("config", secret.as_os_str().as_encoded_bytes()).bytes(),
        ]);
        let circle = archive(&[
            file("manifest.json", r#"[{"Config":"a","Layers":[]}]"#).bytes(),
            symlink("a", "b").bytes(),
            symlink("b", "a").bytes(),
        ]);
        let mut wrong_blob = layout("a:1", &layers());
        wrong_blob[3].1.push(b' ');
        let mut foreign = layout("a:1", &layers());
        let text = String::from_utf8(foreign.pop().unwrap().1).unwrap();
        let text = text.replace(
            "\"annotations\"",
            r#""platform":{"os":"plan9","architecture":"mips"},"annotations""#,
        );
        foreign.push(("index.json".to_owned(), text.into_bytes()));
        let cases = [
            (Vec::new(), "neither a `manifest.json` nor"),
            (
                b"not an archive, but text\n".repeat(50),
                "not a tar archive",
            ),
            (json("{}"), "`manifest.json` is not valid"),
            (json("[]"), "has 0 images"),
            (json(&" ".repeat(10_001)), "more than 10000 bytes"),
            (entry("../canary/secret", "x"), "`..`"),
            (entry("missing", "x"), "has no `missing`"),
            (leads_out, "has no `config`"),
            (circle, "form a cycle"),
            (pack(&wrong_blob), "has the digest"),
            (pack(&foreign), "only for plan9/mips"),
            (gzip(&[0; 100])[..20].to_vec(), "cannot be read"),
            (archive(&vec![file("x", "").bytes(); 4_001]), "4000 entries"),
        ];
        for (bytes, reason) in cases {
            let error = arena.import(&bytes).unwrap_err();
            assert!(told(&error).contains(reason), "{reason}: {}", told(&error));
            assert_eq!(arena.canary(), canary, "{reason}");
            arena.assert_whole();
        }
        for (path, reason) in [
            ("missing", "No such file"),
            ("canary", "neither a `manifest.json`"),
        ] {
            let error = import(&arena, &arena.path(path)).unwrap_err();
            assert_eq!(error.code(), "image.invalid");
            assert!(told(&error).contains(reason), "{reason}: {}", told(&error));
        }
        // A folder whose blobs lead out of it.
        let folder = arena.path("work-links");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&secret, folder.join("manifest.json")).unwrap();
        let error = import(&arena, &folder).unwrap_err();
        assert_eq!(error.code(), "image.invalid", "{}", told(&error));
        assert_eq!(arena.canary(), canary);
    });
}

#[test]
fn a_fifo_is_not_waited_for() {
    let arena = Arena::new(Limits::default());
    let path = arena.path("work-fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let error = import(&arena, &path).unwrap_err();
    assert!(
        told(&error).contains("neither a file nor a folder"),
        "{}",
        told(&error)
    );
}

#[test]
fn removing_an_image_frees_what_only_it_had() {
    let arena = Arena::new(Limits::default());
    let seen = Mutex::new(Vec::new());
    let path = arena.path("work-archive");
    let part = |name: &str| layer(&[file(name, vec![b'x'; 1_000])]);
    fs::write(&path, save("one:1", &[part("shared"), part("one")])).unwrap();
    let progress = |progress: ImportProgress| seen.lock().unwrap().push(progress);
    let stop = CancellationToken::new();
    let one = arena
        .store
        .import(&path, &progress, &stop)
        .unwrap()
        .remove(0);
    let told: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|at| (at.layers_done, at.layers))
        .collect();
    assert_eq!(told, [(1, 2), (2, 2)]);
    let two = arena
        .import(&save("two:1", &[part("shared"), part("two")]))
        .unwrap()
        .remove(0);
    assert_eq!(one.layers[0], two.layers[0]);

    // In use: the name goes at once, the layer when it is free.
    let root = arena.store.root(&one).unwrap();
    assert_eq!(arena.store.remove(&one.reference).unwrap().layers, 0);
    assert!(root.base.join(&root.lower[0]).join("one").exists());
    drop(root);
    let pruned = arena.store.prune().unwrap();
    assert_eq!((pruned.layers, pruned.bytes), (1, 1_000));
    assert_eq!(arena.store.remove(&two.reference).unwrap().layers, 2);
    assert_eq!(
        arena.store.remove(&two.reference).unwrap_err().code(),
        "image.absent"
    );
    assert_eq!(arena.store.root(&two).unwrap_err().code(), "image.store");
    arena.assert_whole();
}

#[test]
fn a_pinned_name_must_be_the_digest_of_the_image() {
    let arena = Arena::new(Limits::default());
    let other = Digest::of(b"other");
    let name = format!("registry.example/team/tool@{other}");
    for archive in [save(&name, &layers()), pack(&layout(&name, &layers()))] {
        let error = arena.import(&archive).unwrap_err();
        assert_eq!(error.code(), "image.invalid", "{}", told(&error));
        assert!(told(&error).contains("has the digest"), "{}", told(&error));
        assert!(arena.store.list().unwrap().is_empty());
    }
    let image = arena.import(&save("team/tool:1", &layers())).unwrap();
    let name = image[0].reference.pinned(image[0].digest).to_string();
    arena.import(&save(&name, &layers())).unwrap();
}
