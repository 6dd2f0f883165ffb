//! Entries that replace each other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gantry_images::Owners;

use super::{Case, Fine, Refused, case, read};
use crate::tarball::{file, folder, layer};

pub(super) fn cases(_canary: &Path) -> Vec<Case> {
    vec![
        case(
            "one path many times",
            layer(&[file("a", "1"), file("./a", "22"), file("/a", "333")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "333")),
        ),
        case(
            "a file that becomes a folder",
            layer(&[file("a", "x"), folder("a"), file("a/b", "y")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a/b")), "y")),
        ),
        case(
            "a path through a file",
            layer(&[file("a", "x"), file("a/b", "y")]),
            Refused("not a directory"),
        ),
        case(
            "a folder with content that becomes a file",
            layer(&[file("a/b", "x"), file("a", "y")]),
            Refused("not empty"),
        ),
        case(
            "a folder that nobody may enter, with content",
            layer(&[
                folder("a").mode(0),
                file("a/b", "x").mode(0),
                folder("a/c").mode(0),
            ]),
            Fine(|seen| {
                let mode = |path: &str| fs::symlink_metadata(seen.flat.join(path)).unwrap().mode();
                let single = seen.owners == Owners::Single;
                assert_eq!(mode("a") & 0o7777, if single { 0o700 } else { 0 });
                assert_eq!(mode("a/b") & 0o7777, if single { 0o400 } else { 0 });
            }),
        ),
        case(
            "a child before its folder",
            layer(&[file("a/b", "x"), folder("a").mode(0o711).mtime(1_000)]),
            Fine(|seen| {
                let metadata = fs::metadata(seen.flat.join("a")).unwrap();
                assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o711, 1_000));
            }),
        ),
        case(
            "times of folders whose content came later",
            layer(&[
                folder("a").mtime(5),
                folder("a/b").mtime(7),
                file("a/b/c", "x").mtime(9),
            ]),
            Fine(|seen| {
                for root in [&seen.files, &seen.flat] {
                    for (path, time) in [("a", 5), ("a/b", 7), ("a/b/c", 9)] {
                        assert_eq!(
                            fs::metadata(root.join(path)).unwrap().mtime(),
                            time,
                            "{path}"
                        );
                    }
                }
            }),
        ),
    ]
}
