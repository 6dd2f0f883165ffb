//! Both forms of whiteouts for overlay file systems. (The integration tests cover what layers of
//! the store show, with the form that this machine supports.)

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tarball::{Item, file, folder, layer, symlink};

fn unpack_to(path: &Path, items: &[Item], whiteouts: WhiteoutForm) -> Unpacked {
    fs::create_dir_all(path.join("fs")).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let create = |name: &str| {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        options.open(path.join(name)).unwrap()
    };
    let target = Target {
        root: rustix::fs::open(path.join("fs"), flags, rustix::fs::Mode::empty()).unwrap(),
        implied: create("implied"),
        times: create("times"),
        owners: Owners::Keep,
        whiteouts,
    };
    let bounds = Bounds {
        bytes: 1 << 20,
        entries: 1_000,
        time: Duration::from_secs(20),
        stop: &CancellationToken::new(),
        cost: None,
    };
    unpack(&layer(items)[..], target, bounds).unwrap()
}

fn mounted(folder: &Path, namespaces: &str) -> String {
    let script = "cd \"$0\" && mkdir -p point && \
        mount -t overlay overlay -o userxattr,lowerdir=2/fs:1/fs:0/fs point && \
        find point -mindepth 1 -printf '%P %y\\n' | LC_ALL=C sort";
    let mut command = Command::new("unshare");
    let output = command
        .args([namespaces, "sh", "-c", script])
        .arg(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn both_forms_of_whiteouts_hide_the_same() {
    for form in [WhiteoutForm::Device, WhiteoutForm::Attribute] {
        let place = TempDir::new().unwrap();
        let path = place.path();
        let lower = [
            file("a/one", ""),
            file("a/two", ""),
            file("b/lower", "x"),
            file("c/lower", "x"),
            file("d", ""),
            symlink("e", "d"),
            file("f/g/lower", "x"),
            file("empty", ""),
        ];
        unpack_to(&path.join("0"), &lower, form);
        let middle = [
            file("a/.wh.one", ""),
            file("a/empty", ""),
            // Whiteouts beside an opaque mark, before and after it.
            file("b/.wh.lower", ""),
            file("b/.wh..wh..opq", ""),
            file("b/.wh.other", ""),
            file("b/upper", ""),
            file(".wh.c", ""),
            folder("c"),
            file(".wh.d", ""),
            file(".wh.e", ""),
            file("f/.wh.g", ""),
        ];
        unpack_to(&path.join("1"), &middle, form);
        let upper = [file("f/g/upper", ""), file("c/upper", "")];
        unpack_to(&path.join("2"), &upper, form);

        let hidden = fs::symlink_metadata(path.join("1/fs/a/one")).unwrap();
        let device = hidden.file_type().is_char_device() && hidden.rdev() == 0;
        assert_eq!(device, form == WhiteoutForm::Device);
        let seen = "a d\na/empty f\na/two f\nb d\nb/upper f\nc d\nc/upper f\nempty f\nf d\nf/g d\nf/g/upper f\n";
        for namespaces in ["-m", "-Urm"] {
            assert_eq!(mounted(path, namespaces), seen, "{form:?} {namespaces}");
        }
    }
}

#[test]
fn what_was_left_out_is_counted() {
    let folder = TempDir::new().unwrap();
    let device = crate::tarball::item(b'4', "sda");
    let unpacked = unpack_to(
        folder.path(),
        &[device, file("a", "123")],
        WhiteoutForm::Device,
    );
    assert_eq!((unpacked.devices_skipped, unpacked.content_bytes), (1, 3));
    assert_eq!((unpacked.entries, unpacked.opaque_root), (2, false));
}
