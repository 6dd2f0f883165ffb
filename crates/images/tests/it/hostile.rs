//! Layers that mean harm, each alone and on a layer with a symbolic link that leads out of the store, as
//! root and as a plain user, in overlay form and flat: nothing outside the store is touched, a refusal
//! says why, memory stays small, and the store stays whole.

mod extensions;
mod hard_links;
mod kinds;
mod orders;
mod paths;
mod sizes;
mod symlinks;
mod whiteouts;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use gantry_images::{Digest, ImageError, Limits, Owners};
use gantry_model::diagnose::Diagnose;

use crate::arena::{Arena, as_root_and_nobody, told};
use crate::saved::save_head;
use crate::tarball::{Item, file, folder, layer, symlink};

/// What an unpacked layer is judged by.
struct Unpacked<'a> {
    /// The layer itself, in overlay form.
    files: PathBuf,
    /// One folder of it and what lies below.
    flat: PathBuf,
    owners: Owners,
    canary: &'a Path,
}

enum Expected {
    /// Refused, with this in the message.
    Refused(&'static str),
    /// Refused as too large.
    TooLarge,
    Unpacked(fn(&Unpacked<'_>)),
}
use Expected::{Refused, TooLarge, Unpacked as Fine};

struct Case {
    name: &'static str,
    layer: Vec<u8>,
    /// Zeros that follow, as a hole in the file.
    hole: u64,
    expected: Expected,
}

fn case(name: &'static str, layer: Vec<u8>, expected: Expected) -> Case {
    Case {
        name,
        layer,
        hole: 0,
        expected,
    }
}

fn read(path: &Path) -> String {
    let metadata = fs::symlink_metadata(path).unwrap();
    assert!(metadata.is_file(), "{} is not a file", path.display());
    fs::read_to_string(path).unwrap()
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0_u8; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

/// What stands in the place of a hidden name.
fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.file_type().is_char_device() && metadata.rdev() == 0)
}

/// Without its first slash.
fn inside(root: &Path, absolute: &Path) -> PathBuf {
    root.join(absolute.strip_prefix("/").unwrap())
}

/// What lies below a hostile layer.
fn base(canary: &Path) -> Vec<u8> {
    layer(&[
        symlink("escape", canary.as_os_str().as_encoded_bytes()),
        folder("hidden"),
        file("hidden/lower", "lower"),
    ])
}

/// Writes an archive with a layer and the hole after it, on other layers.
fn write_archive(path: &Path, below: &[Vec<u8>], case: &Case) {
    let mut diff_ids: Vec<Digest> = below.iter().map(|layer| Digest::of(layer)).collect();
    diff_ids.push(Digest::of(&case.layer));
    let mut out = File::create(path).unwrap();
    out.write_all(&save_head("hostile:1", &diff_ids)).unwrap();
    for (at, layer) in below.iter().enumerate() {
        out.write_all(&file(format!("layers/{at}"), layer).bytes())
            .unwrap();
    }
    let bytes = case.layer.len() as u64 + case.hole;
    let entry: Item = file(format!("layers/{}", below.len()), "").size(bytes);
    out.write_all(&entry.header()).unwrap();
    out.write_all(&case.layer).unwrap();
    let end = out.metadata().unwrap().len() + case.hole;
    out.set_len((end + 1024).next_multiple_of(512)).unwrap();
}

/// The most memory the process had, and has, in kilobytes.
fn memory() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("VmHWM:"), field("VmRSS:"))
}

fn check_all(cases: fn(&Path) -> Vec<Case>) {
    as_root_and_nobody(|| {
        let limits = Limits {
            layer_bytes: 64 << 20,
            ..Limits::default()
        };
        let arena = Arena::new(limits);
        let canary = arena.path("canary");
        let before = arena.canary();
        let base = base(&canary);
        for (at, case) in cases(&canary).iter().enumerate() {
            for below in [&[][..], std::slice::from_ref(&base)] {
                let what = format!(
                    "{} ({:?}, on {} layers)",
                    case.name,
                    arena.owners(),
                    below.len()
                );
                let archive = arena.path("work-archive");
                write_archive(&archive, below, case);
                let (_, idle) = memory();
                // Begins a new measure of the most memory; only root may, and its threads share it.
                drop(fs::write("/proc/self/clear_refs", "5"));
                let stop = tokio_util::sync::CancellationToken::new();
                let imported = arena.store.import(&archive, &|_| (), &stop);
                let (most, _) = memory();
                if arena.owners() == Owners::Keep {
                    assert!(most < idle + 64 * 1024, "{what}: {idle} kB, then {most} kB");
                }
                judge(
                    &arena,
                    case,
                    imported,
                    &format!("flat-{at}-{}", below.len()),
                    &what,
                );
                assert_eq!(arena.canary(), before, "{what}");
                arena.store.prune().unwrap();
                arena.assert_whole();
            }
        }
    });
}

fn judge(
    arena: &Arena,
    case: &Case,
    imported: Result<Vec<gantry_images::ImageRecord>, ImageError>,
    flat: &str,
    what: &str,
) {
    match (&case.expected, imported) {
        (Refused(reason), Err(error)) => {
            let told = told(&error);
            assert!(told.contains(reason), "{what}: {told}");
            assert!(told.contains("hostile:1"), "{what}: {told}");
            assert_eq!(error.code(), "image.layer_refused", "{what}: {told}");
            assert!(error.hint().is_some(), "{what}");
        }
        (TooLarge, Err(error)) => {
            assert_eq!(error.code(), "image.too_large", "{what}: {}", told(&error));
        }
        (Fine(check), Ok(records)) => {
            let root = arena.store.root(&records[0]).unwrap();
            let flat = arena.flat(&root, flat);
            check(&Unpacked {
                files: root.base.join(&root.lower[0]),
                flat: flat.clone(),
                owners: arena.owners(),
                canary: &arena.path("canary"),
            });
            drop(root);
            arena.store.remove(&records[0].reference).unwrap();
            fs::remove_dir_all(flat).unwrap();
        }
        (Refused(_) | TooLarge, Ok(_)) => panic!("{what}: was not refused"),
        (Fine(_), Err(error)) => panic!("{what}: {}", told(&error)),
    }
}

// Hostile paths.
#[test]
fn paths_stay_inside() {
    check_all(paths::cases);
}

#[test]
fn symbolic_links_are_not_followed() {
    check_all(symlinks::cases);
}

#[test]
fn hard_links_stay_in_their_layer() {
    check_all(hard_links::cases);
}

#[test]
fn extension_headers_are_bounded_and_unambiguous() {
    check_all(extensions::cases);
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    check_all(whiteouts::cases);
}

#[test]
fn types_modes_and_attributes_grant_nothing() {
    check_all(kinds::cases);
}

#[test]
fn entries_replace_each_other_in_order() {
    check_all(orders::cases);
}

#[test]
fn sizes_and_ends_are_checked() {
    check_all(sizes::cases);
}

#[test]
fn there_are_enough_hostile_layers() {
    let canary = Path::new("/canary");
    let tables = [
        paths::cases,
        symlinks::cases,
        hard_links::cases,
        extensions::cases,
        whiteouts::cases,
        kinds::cases,
        orders::cases,
        sizes::cases,
    ];
    let count: usize = tables.iter().map(|table| table(canary).len()).sum();
    println!("{count} hostile layers");
    assert!(count >= 60, "{count}");
}
