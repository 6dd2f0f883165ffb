//! What an image may cost, and what ends it early.

use std::fs;
use std::time::Duration;

use gantry_images::{Digest, Limits};
use gantry_model::diagnose::Diagnose;
use gantry_testkit::proof;
use tokio_util::sync::CancellationToken;

use crate::arena::{Arena, as_root_and_nobody, told};
use crate::saved::{save, save_head};
use crate::tarball::{archive, file, folder, layer, pax, symlink};

#[test]
fn entries_are_counted_with_their_extension_headers_and_implied_folders() {
    let limits = Limits {
        entries: 20,
        ..Limits::default()
    };
    let arena = Arena::new(limits);
    let files = |count: usize| -> Vec<u8> {
        layer(
            &(0..count)
                .map(|at| file(format!("{at}"), ""))
                .collect::<Vec<_>>(),
        )
    };
    arena.import(&save("few:1", &[files(20)])).unwrap();
    let headers: Vec<_> = (0..11)
        .flat_map(|_| [pax(&[]), file("a", "").bytes()])
        .collect();
    let deep = layer(&[file("a/".repeat(20) + "b", "")]);
    for many in [files(21), archive(&headers), deep] {
        let error = arena.import(&save("many:1", &[many])).unwrap_err();
        assert_eq!(error.code(), "image.too_large");
        assert!(
            told(&error).contains("more than 20 entries"),
            "{}",
            told(&error)
        );
        arena.assert_whole();
    }
}

// Half a million entries, each a file of its own: refused at the limit, in time, and nothing is left.
#[test]
fn half_a_million_entries_end_at_the_limit() {
    let count = proof::count(500_000, 5_000);
    as_root_and_nobody(|| {
        let limits = Limits {
            entries: count,
            ..Limits::default()
        };
        let arena = Arena::new(limits);
        let before = arena.canary();
        let mut bytes = Vec::with_capacity((count as usize + 4) * 512);
        for at in 0..=count {
            bytes.extend_from_slice(&file(format!("{}/{at}", at / 1_000), "").header());
        }
        bytes.resize(bytes.len() + 1_024, 0);
        let began = std::time::SystemTime::now();
        let error = arena.import(&save("many:1", &[bytes])).unwrap_err();
        assert_eq!(error.code(), "image.too_large", "{}", told(&error));
        assert!(began.elapsed().unwrap() < Duration::from_secs(300));
        assert_eq!(arena.canary(), before);
        arena.assert_whole();
    });
}

#[test]
fn a_layer_has_a_deadline_and_can_be_cancelled() {
    let limits = Limits {
        layer_time: Duration::ZERO,
        ..Limits::default()
    };
    let arena = Arena::new(limits);
    let image = save("slow:1", &[layer(&[file("a", "x")])]);
    let error = arena.import(&image).unwrap_err();
    assert_eq!(error.code(), "image.unpack_deadline", "{}", told(&error));
    arena.assert_whole();

    let arena = Arena::new(Limits::default());
    let path = arena.path("work-archive");
    fs::write(&path, &image).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let error = arena.store.import(&path, &|_| (), &stop).unwrap_err();
    assert_eq!(error.code(), "image.cancelled", "{}", told(&error));
    arena.assert_whole();
    let image = arena.import(&image).unwrap().remove(0);
    let root = arena.store.root(&image).unwrap();
    let flat = arena.path("work-flat");
    let error = root.flat(&flat, &stop).unwrap_err();
    assert_eq!(error.code(), "image.cancelled", "{}", told(&error));
    assert!(!flat.exists());
    arena.assert_whole();
}

#[test]
fn content_that_is_not_what_was_named_is_refused() {
    let arena = Arena::new(Limits::default());
    let wanted = Digest::of(b"something else");
    let mut parts = vec![save_head("wrong:1", &[wanted])];
    parts.push(file("layers/0", layer(&[file("a", "x")])).bytes());
    let error = arena.import(&archive(&parts)).unwrap_err();
    assert_eq!(error.code(), "image.digest");
    assert!(
        told(&error).contains(&wanted.to_string()),
        "{}",
        told(&error)
    );
    arena.assert_whole();
    assert_eq!(arena.store.prune().unwrap().layers, 0);
}

#[test]
fn an_image_is_bounded_as_a_whole() {
    let limits = Limits {
        image_bytes: 5_000,
        ..Limits::default()
    };
    let arena = Arena::new(limits);
    let part = |name: &str| layer(&[file(name, vec![b'x'; 3_000])]);
    arena.import(&save("small:1", &[part("a")])).unwrap();
    let error = arena
        .import(&save("large:1", &[part("a"), part("b")]))
        .unwrap_err();
    assert!(
        told(&error).contains("larger than 5000 bytes"),
        "{}",
        told(&error)
    );
    assert_eq!(error.code(), "image.too_large");
    arena.assert_whole();
    assert_eq!(
        arena.store.prune().unwrap().layers,
        0,
        "the layer that only the large one had is gone"
    );
}

#[test]
fn a_path_through_a_symbolic_link_of_a_lower_layer_is_refused() {
    as_root_and_nobody(|| {
        let arena = Arena::new(Limits::default());
        let canary = arena.canary();
        let out = arena.path("canary");
        let lower = layer(&[
            symlink("lib", out.as_os_str().as_encoded_bytes()),
            folder("usr"),
        ]);
        let evil = layer(&[file("lib/evil", "x")]);
        let error = arena
            .import(&save("image:1", &[lower.clone(), evil.clone()]))
            .unwrap_err();
        assert_eq!(error.code(), "image.layer_refused");
        assert!(
            told(&error).contains("symbolic link of a lower layer"),
            "{}",
            told(&error)
        );

        // One that is given an entry later does not hide the next.
        let links = layer(&[symlink("bin", "/usr/bin"), symlink("lib", "/usr/lib")]);
        let later = layer(&[file("bin/a", "x"), folder("bin"), file("lib/evil", "x")]);
        let error = arena.import(&save("image:3", &[links, later])).unwrap_err();
        assert!(told(&error).contains("`lib`"), "{}", told(&error));

        // With an entry for the folder, or where the link is gone, it is the folder that counts.
        let declared = layer(&[file("lib/evil", "x"), folder("lib")]);
        let gone = layer(&[file(".wh.lib", "")]);
        for layers in [vec![lower.clone(), declared], vec![lower, gone, evil]] {
            let image = arena.import(&save("image:2", &layers)).unwrap().remove(0);
            let root = arena.store.root(&image).unwrap();
            let flat = arena.flat(&root, &format!("flat-{}", layers.len()));
            assert_eq!(fs::read_to_string(flat.join("lib/evil")).unwrap(), "x");
        }
        assert_eq!(arena.canary(), canary);
    });
}
