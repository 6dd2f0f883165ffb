//! Whiteouts of what is not below, and what follows them.

use std::fs;
use std::path::Path;

use super::{Case, Fine, Refused, case, is_missing, is_whiteout, read};
use crate::tarball::{file, folder, layer, symlink};

pub(super) fn cases(canary: &Path) -> Vec<Case> {
    let out = canary.display().to_string();
    vec![
        case(
            "a whiteout of nothing",
            layer(&[file(".wh.", "")]),
            Refused("whiteout of an empty"),
        ),
        case(
            "a whiteout of the folder itself",
            layer(&[file("a/.wh..", "")]),
            Refused("whiteout of an empty"),
        ),
        case(
            "a whiteout of the folder above",
            layer(&[file(".wh...", "")]),
            Refused("whiteout of an empty"),
        ),
        case(
            "a mark of an old file system",
            layer(&[file(".wh..wh.plnk", "")]),
            Refused("whiteout of an empty"),
        ),
        case(
            "a path through a whiteout",
            layer(&[file(".wh.a/b", "")]),
            Refused("through a whiteout"),
        ),
        case(
            "a whiteout that is a folder",
            layer(&[folder(".wh.a")]),
            Refused("whiteouts are files"),
        ),
        case(
            "a whiteout that is a link",
            layer(&[symlink(".wh.a", "b")]),
            Refused("whiteouts are files"),
        ),
        case(
            "a whiteout out of the root",
            layer(&[file("../.wh.canary", "")]),
            Refused("`..`"),
        ),
        case(
            "a whiteout through a symbolic link",
            layer(&[symlink("a", &out), file("a/.wh.secret", "")]),
            Refused("symbolic link"),
        ),
        case(
            "an opaque mark through a symbolic link",
            layer(&[symlink("a", &out), file("a/.wh..wh..opq", "")]),
            Refused("symbolic link"),
        ),
        case(
            "a whiteout of a lower symbolic link",
            layer(&[file(".wh.escape", "")]),
            Fine(|seen| assert!(is_missing(&seen.flat.join("escape")))),
        ),
        case(
            "a whiteout, then a file",
            layer(&[file(".wh.a", ""), file("a", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "x")),
        ),
        case(
            "a file, then a whiteout",
            layer(&[file("a", "x"), file(".wh.a", "")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "x")),
        ),
        case(
            "a whiteout, then a folder",
            layer(&[
                file(".wh.hidden", ""),
                folder("hidden"),
                file("hidden/a", "x"),
            ]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("hidden/a")), "x");
                assert!(is_missing(&seen.flat.join("hidden/lower")));
            }),
        ),
        case(
            "a whiteout, then a file in a folder of its name",
            layer(&[file(".wh.hidden", ""), file("hidden/a", "x")]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("hidden/a")), "x");
                assert!(is_missing(&seen.flat.join("hidden/lower")));
            }),
        ),
        case(
            "a folder, then a whiteout of it",
            layer(&[file("hidden/a", "x"), file(".wh.hidden", "")]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("hidden/a")), "x");
                assert!(is_missing(&seen.flat.join("hidden/lower")));
            }),
        ),
        case(
            "a whiteout with content",
            layer(&[file(".wh.hidden", "x".repeat(5_000)), file("a", "x")]),
            Fine(|seen| {
                assert!(is_whiteout(&seen.files.join("hidden")));
                assert!(is_missing(&seen.flat.join("hidden")));
                assert_eq!(read(&seen.flat.join("a")), "x");
            }),
        ),
        case(
            "an opaque root",
            layer(&[file(".wh..wh..opq", ""), file("a", "x")]),
            Fine(|seen| {
                let names = fs::read_dir(&seen.flat).unwrap();
                let names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
                assert_eq!(names, ["a"]);
            }),
        ),
    ]
}
