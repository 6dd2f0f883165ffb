//! Symbolic links on the way, in the place, and below.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::{Case, Fine, Refused, case, read};
use crate::tarball::{archive, file, folder, item, layer, long, symlink};

pub(super) fn cases(canary: &Path) -> Vec<Case> {
    let out = canary.display().to_string();
    let secret = format!("{out}/secret");
    let through = "path leads through a symbolic link";
    vec![
        case(
            "a file through a symbolic link",
            layer(&[symlink("a", &out), file("a/evil", "x")]),
            Refused(through),
        ),
        case(
            "a file through a relative symbolic link",
            layer(&[symlink("a", "../../../../canary"), file("a/evil", "x")]),
            Refused(through),
        ),
        case(
            "a file through a symbolic link to the root",
            layer(&[symlink("a", "."), file("a/evil", "x")]),
            Refused(through),
        ),
        case(
            "a folder through two symbolic links",
            layer(&[symlink("b", &out), symlink("a", "b"), folder("a/evil")]),
            Refused(through),
        ),
        case(
            "a symbolic link through a symbolic link",
            layer(&[symlink("a", &out), symlink("a/evil", "x")]),
            Refused(through),
        ),
        case(
            "a file through a link of the kernel",
            layer(&[symlink("a", "/proc/self/root"), file("a/tmp/evil", "x")]),
            Refused(through),
        ),
        case(
            "a file through a symbolic link to itself",
            layer(&[symlink("a", "a"), file("a/b", "x")]),
            Refused(through),
        ),
        case(
            "a folder that becomes a symbolic link",
            layer(&[folder("a"), symlink("a", &out), file("a/evil", "x")]),
            Refused(through),
        ),
        case(
            "a folder with content that becomes a symbolic link",
            layer(&[file("a/b", "x"), symlink("a", &out), file("a/evil", "x")]),
            Refused("not empty"),
        ),
        case(
            "a symbolic link that becomes a folder",
            layer(&[symlink("a", &out), folder("a"), file("a/evil", "x")]),
            Fine(|seen| {
                assert_eq!(read(&seen.flat.join("a/evil")), "x");
                assert!(fs::symlink_metadata(seen.files.join("a")).unwrap().is_dir());
            }),
        ),
        case(
            "a symbolic link with a slash after it",
            layer(&[symlink("a", &out), folder("a/"), file("a/evil", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a/evil")), "x")),
        ),
        case(
            "a file in the place of a symbolic link",
            layer(&[symlink("a", &secret), file("a", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "x")),
        ),
        case(
            "a fifo in the place of a symbolic link",
            layer(&[symlink("a", &secret), item(b'6', "a")]),
            Fine(|seen| {
                let kind = fs::symlink_metadata(seen.flat.join("a"))
                    .unwrap()
                    .file_type();
                assert!(kind.is_fifo());
            }),
        ),
        case(
            "a symbolic link that leads out, with an owner and a mode",
            layer(&[symlink("a", &secret).mode(0o7777).owner(1000)]),
            Fine(|seen| {
                let target = fs::read_link(seen.flat.join("a")).unwrap();
                assert_eq!(target, seen.canary.join("secret"));
            }),
        ),
        case(
            "a symbolic link to nothing",
            layer(&[symlink("a", "")]),
            Refused("link target is empty"),
        ),
        case(
            "a symbolic link of 4,001 bytes",
            archive(&[long(b'K', "x".repeat(4_001)), symlink("a", "b").bytes()]),
            Refused("at most 4000"),
        ),
        case(
            "a folder in the place of a lower symbolic link",
            layer(&[folder("escape"), file("escape/evil", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("escape/evil")), "x")),
        ),
        case(
            "a file in the place of a lower symbolic link",
            layer(&[file("escape", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("escape")), "x")),
        ),
    ]
}
