//! Types, modes, owners and attributes that grant something.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use gantry_images::Owners;

use super::{Case, Fine, Refused, attribute, case, is_missing};
use crate::arena::NOBODY;
use crate::tarball::{archive, file, folder, item, layer, pax, symlink};

pub(super) fn cases(_canary: &Path) -> Vec<Case> {
    let attributes: &[(&str, &[u8])] = &[
        (
            "SCHILY.xattr.security.capability",
            b"\x01\0\0\x02\xff\xff\xff\xff",
        ),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ("SCHILY.xattr.user.overlay.redirect", b"/canary"),
        ("SCHILY.xattr.user.overlay.whiteout", b""),
        ("SCHILY.xattr.system.posix_acl_access", b"x"),
        ("SCHILY.xattr.user.kept", b"yes"),
    ];
    let large = vec![b'x'; 100_000];
    vec![
        case(
            "a device 0:0, which is a whiteout",
            layer(&[item(b'3', "hidden"), item(b'3', "b/c")]),
            Fine(|seen| assert!(is_missing(&seen.files.join("hidden")))),
        ),
        case(
            "a disk",
            layer(&[item(b'4', "sda").mode(0o666)]),
            Fine(|seen| assert!(is_missing(&seen.flat.join("sda")))),
        ),
        case(
            "a path through a fifo",
            layer(&[item(b'6', "f"), file("f/a", "x")]),
            Refused("not a directory"),
        ),
        case(
            "a fifo",
            layer(&[item(b'6', "f").mode(0o000)]),
            Fine(|seen| {
                let kind = fs::symlink_metadata(seen.flat.join("f"))
                    .unwrap()
                    .file_type();
                assert!(kind.is_fifo());
            }),
        ),
        case(
            "setuid, setgid and sticky",
            layer(&[
                file("a", "x").mode(0o7755),
                folder("b").mode(0o7777),
                item(b'6', "c").mode(0o6666),
                file("d", "x").mode(0o104_755),
            ]),
            Fine(|seen| {
                for root in [&seen.files, &seen.flat] {
                    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().mode() & 0o7777;
                    assert_eq!(mode("a"), 0o755);
                    assert_eq!(mode("b"), 0o1777);
                    assert_eq!(mode("c") & 0o7000, 0);
                    assert_eq!(mode("d"), 0o755);
                }
            }),
        ),
        case(
            "attributes that grant something",
            archive(&[
                pax(attributes),
                file("a", "").bytes(),
                pax(attributes),
                folder("hidden").bytes(),
                pax(attributes),
                symlink("c", "a").bytes(),
            ]),
            Fine(|seen| {
                for path in ["a", "hidden"]
                    .iter()
                    .flat_map(|name| [seen.files.join(name), seen.flat.join(name)])
                {
                    let mut names = vec![0_u8; 1024];
                    let length = rustix::fs::llistxattr(&path, &mut names[..]).unwrap();
                    assert_eq!(&names[..length], b"user.kept\0", "{}", path.display());
                    assert_eq!(attribute(&path, "user.kept").unwrap(), b"yes");
                }
            }),
        ),
        case(
            "an attribute of 100,000 bytes",
            archive(&[
                pax(&[("SCHILY.xattr.user.large", &large)]),
                file("a", "x").bytes(),
            ]),
            Refused("extended attribute `user.large`"),
        ),
        case(
            "an attribute with a zero byte in its name",
            archive(&[
                pax(&[("SCHILY.xattr.user.a\0b", b"x")]),
                file("a", "x").bytes(),
            ]),
            Refused("extended attribute"),
        ),
        case(
            "a volume header",
            layer(&[item(b'V', "volume")]),
            Refused("type `V`"),
        ),
        case(
            "a part of a file",
            layer(&[item(b'M', "a")]),
            Refused("type `M`"),
        ),
        case(
            "a type that nobody knows",
            layer(&[item(0xff, "a")]),
            Refused("not supported"),
        ),
        case(
            "a folder with content",
            layer(&[folder("a").content("x")]),
            Refused("no content"),
        ),
        case(
            "a link with content",
            layer(&[symlink("a", "b").content("x")]),
            Refused("no content"),
        ),
        case(
            "a fifo with content",
            layer(&[item(b'6', "a").content("x")]),
            Refused("no content"),
        ),
        case(
            "owners",
            layer(&[
                file("a", "x").owner(1000),
                folder("b").owner(70_000),
                symlink("c", "a").owner(5),
            ]),
            Fine(|seen| {
                for (name, owner) in [("a", 1000), ("b", 70_000), ("c", 5)] {
                    let found = fs::symlink_metadata(seen.flat.join(name)).unwrap().uid();
                    let kept = seen.owners == Owners::Keep;
                    assert_eq!(found, if kept { owner } else { NOBODY });
                }
            }),
        ),
    ]
}
