//! Hard links to what does not belong to the layer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Case, Fine, Refused, case, read};
use crate::tarball::{archive, file, folder, hard_link, layer, pax, symlink};

pub(super) fn cases(canary: &Path) -> Vec<Case> {
    let out = canary.display().to_string();
    let secret = format!("{out}/secret");
    vec![
        case(
            "a hard link out of the root",
            layer(&[hard_link("a", "../canary/secret")]),
            Refused("`..`"),
        ),
        case(
            "a hard link to an absolute path",
            layer(&[hard_link("a", &secret)]),
            Refused("not in this layer"),
        ),
        case(
            "a hard link to nothing",
            layer(&[hard_link("a", "b")]),
            Refused("not in this layer"),
        ),
        case(
            "a hard link without a target",
            layer(&[hard_link("a", "")]),
            Refused("link target is empty"),
        ),
        case(
            "a hard link to a folder",
            layer(&[folder("b"), hard_link("a", "b")]),
            Refused("hard link to the directory"),
        ),
        case(
            "a hard link to the root",
            layer(&[hard_link("a", "/")]),
            Refused("hard link to the directory"),
        ),
        case(
            "a hard link through a symbolic link",
            layer(&[symlink("b", &out), hard_link("a", "b/secret")]),
            Refused("link target leads through a symbolic link"),
        ),
        case(
            "a hard link through a file",
            layer(&[file("b", "x"), hard_link("a", "b/c")]),
            Refused("not a directory"),
        ),
        case(
            "a hard link into a symbolic link",
            layer(&[symlink("b", &out), file("c", "x"), hard_link("b/evil", "c")]),
            Refused("path leads through a symbolic link"),
        ),
        case(
            "a hard link to a symbolic link",
            layer(&[symlink("b", &secret), hard_link("a", "b"), file("a", "x")]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("a")), "x");
                assert!(
                    fs::symlink_metadata(seen.flat.join("b"))
                        .unwrap()
                        .is_symlink()
                );
            }),
        ),
        case(
            "a hard link to itself",
            layer(&[file("a", "x"), hard_link("a", "a")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "x")),
        ),
        case(
            "a hard link that is written to",
            layer(&[file("a", "first"), hard_link("b", "a"), file("b", "second")]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("a")), "first");
                assert_eq!(read(&seen.flat.join("b")), "second");
            }),
        ),
        case(
            "two names of one file",
            layer(&[
                file("a", "x"),
                hard_link("b/c", "/a"),
                hard_link("d", "b/c"),
            ]),
            Fine(|seen| {
                for root in [&seen.files, &seen.flat] {
                    assert_eq!(fs::metadata(root.join("d")).unwrap().nlink(), 3);
                }
            }),
        ),
        case(
            "a hard link with content",
            layer(&[file("b", "x"), hard_link("a", "b").content("y")]),
            Refused("no content"),
        ),
        case(
            "a hard link to a whiteout",
            layer(&[file(".wh.b", ""), hard_link("a", "b")]),
            Refused("not in this layer"),
        ),
        case(
            "a PAX target out of the root",
            archive(&[
                pax(&[("linkpath", b"../canary/secret")]),
                hard_link("a", "b").bytes(),
            ]),
            Refused("`..`"),
        ),
    ]
}
