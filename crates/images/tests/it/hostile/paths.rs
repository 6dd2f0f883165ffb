//! Paths that lead out, or that no file system has.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gantry_images::Owners;

use super::{Case, Fine, Refused, case, inside, read};
use crate::tarball::{archive, file, folder, hard_link, layer, long, pax, seal, symlink};

pub(super) fn cases(canary: &Path) -> Vec<Case> {
    let evil = format!("{}/evil", canary.display());
    let deep = "d/".repeat(129);
    vec![
        case(
            "a path out of the root",
            layer(&[file("../canary/evil", "x")]),
            Refused("`..`"),
        ),
        case(
            "a path in and out again",
            layer(&[file("a/../../canary/evil", "x")]),
            Refused("`..`"),
        ),
        case(
            "a folder that ends with two dots",
            layer(&[folder("a/..")]),
            Refused("`..`"),
        ),
        case(
            "two dots and nothing else",
            layer(&[folder("..")]),
            Refused("`..`"),
        ),
        case(
            "an absolute path",
            layer(&[file(&evil, "x")]),
            Fine(|seen| assert_eq!(read(&inside(&seen.flat, &seen.canary.join("evil"))), "x")),
        ),
        case(
            "many slashes",
            layer(&[file("////a//.//b", "x")]),
            Fine(|seen| assert_eq!(read(&seen.files.join("a/b")), "x")),
        ),
        case("no path", layer(&[file("", "x")]), Refused("path is empty")),
        case(
            "a path of 4,001 bytes",
            archive(&[
                long(b'L', "a/".repeat(2_000) + "b"),
                file("short", "x").bytes(),
            ]),
            Refused("at most 4000"),
        ),
        case(
            "a name of 256 bytes",
            archive(&[long(b'L', "n".repeat(256)), file("short", "x").bytes()]),
            Refused("at most 255"),
        ),
        case(
            "129 folders in each other",
            archive(&[pax(&[("path", deep.as_bytes())]), folder("d").bytes()]),
            Refused("128 folders deep"),
        ),
        case(
            "128 folders in each other",
            archive(&[pax(&[("path", &deep.as_bytes()[2..])]), folder("d").bytes()]),
            Fine(|seen| assert!(seen.flat.join("d/".repeat(128)).is_dir())),
        ),
        case(
            "a zero byte in a PAX path",
            archive(&[pax(&[("path", b"a\0/../b")]), file("a", "x").bytes()]),
            Refused("zero byte"),
        ),
        case(
            "a zero byte in a long name",
            archive(&[long(b'L', "a\0b"), file("a", "x").bytes()]),
            Refused("zero byte"),
        ),
        case(
            "a name with a line break",
            layer(&[file("a\nb", "x")]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a\nb")), "x")),
        ),
        case(
            "a name that is not UTF-8",
            layer(&[file(b"\xff\xfe", "x")]),
            Fine(|seen| {
                use std::os::unix::ffi::OsStrExt;
                let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
                assert_eq!(read(&seen.flat.join(name)), "x");
            }),
        ),
        case(
            "the root as a file",
            layer(&[file(".", "x")]),
            Refused("root"),
        ),
        case(
            "the root as a symbolic link",
            layer(&[symlink("/", "/etc")]),
            Refused("root"),
        ),
        case(
            "the root as a hard link",
            layer(&[hard_link("./", "a")]),
            Refused("root"),
        ),
        case(
            "a root that nobody may enter",
            layer(&[folder("./").mode(0), file("a", "x")]),
            Fine(|seen| {
                let mode = fs::metadata(&seen.files).unwrap().mode() & 0o7777;
                assert_eq!(
                    mode,
                    if seen.owners == Owners::Keep {
                        0
                    } else {
                        0o700
                    }
                );
            }),
        ),
        case(
            "a header of the seventies",
            {
                let mut bytes = file("old", "x").bytes();
                bytes[257..265].fill(0);
                seal(&mut bytes[..512]);
                archive(&[bytes])
            },
            Fine(|seen| assert_eq!(read(&seen.flat.join("old")), "x")),
        ),
    ]
}
