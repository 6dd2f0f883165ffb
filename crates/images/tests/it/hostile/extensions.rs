//! PAX and GNU headers that are too large, or say two things.

use std::path::Path;

use super::{Case, Fine, Refused, case, inside, read};
use crate::tarball::{archive, file, item, layer, long, pax, pax_of};

pub(super) fn cases(canary: &Path) -> Vec<Case> {
    let out = format!("{}/evil", canary.display());
    let plain = || file("a", "x").bytes();
    let huge = |kind: u8| Case {
        hole: 32 << 20,
        ..case(
            "an extension header of 32 MiB",
            item(kind, "huge").size(32 << 20).header(),
            Refused("at most 1048576"),
        )
    };
    vec![
        case(
            "two long names",
            archive(&[long(b'L', "b"), long(b'L', "../c"), plain()]),
            Refused("`path` twice"),
        ),
        case(
            "two long targets",
            archive(&[long(b'K', "b"), long(b'K', "c"), plain()]),
            Refused("twice"),
        ),
        case(
            "two PAX headers",
            archive(&[pax(&[]), pax(&[]), plain()]),
            Refused("`PAX header` twice"),
        ),
        case(
            "a long name and a PAX path",
            archive(&[long(b'L', "b"), pax(&[("path", b"c")]), plain()]),
            Refused("`path` twice"),
        ),
        case(
            "two paths in one PAX header",
            archive(&[pax(&[("path", b"b"), ("path", b"../c")]), plain()]),
            Refused("`path` twice"),
        ),
        case(
            "a PAX size",
            archive(&[pax(&[("size", b"1024")]), plain()]),
            Refused("1024 bytes"),
        ),
        case(
            "a PAX size of nothing",
            archive(&[pax(&[("size", b"0")]), plain()]),
            Refused("0 bytes"),
        ),
        case(
            "a PAX size that is no number",
            archive(&[pax(&[("size", b"-1")]), plain()]),
            Refused("`size`"),
        ),
        case(
            "a PAX path out of the root",
            archive(&[pax(&[("path", b"../e")]), plain()]),
            Refused("`..`"),
        ),
        case(
            "an absolute PAX path",
            archive(&[pax(&[("path", out.as_bytes())]), plain()]),
            Fine(|seen| assert_eq!(read(&inside(&seen.flat, &seen.canary.join("evil"))), "x")),
        ),
        case(
            "an owner below zero",
            archive(&[pax(&[("uid", b"-5")]), plain()]),
            Refused("`uid`"),
        ),
        case(
            "the owner that means none",
            archive(&[pax(&[("gid", b"4294967295")]), plain()]),
            Refused("owner"),
        ),
        case(
            "an owner beyond 32 bits",
            archive(&[pax(&[("uid", b"4294967296")]), plain()]),
            Refused("owner"),
        ),
        case(
            "a PAX time that is none",
            archive(&[pax(&[("mtime", b"1e9")]), plain()]),
            Refused("`mtime`"),
        ),
        case(
            "a PAX header with a wrong length",
            archive(&[item(b'x', "pax").content("99 path=b\n").bytes(), plain()]),
            Refused("malformed"),
        ),
        case(
            "a PAX header without a length",
            archive(&[item(b'x', "pax").content("path=b\n").bytes(), plain()]),
            Refused("malformed"),
        ),
        case(
            "a PAX header at the end",
            archive(&[plain(), pax(&[("path", b"b")])]),
            Refused("without an entry after"),
        ),
        case(
            "a long name at the end",
            archive(&[plain(), long(b'L', "b")]),
            Refused("without an entry after"),
        ),
        huge(b'x'),
        huge(b'L'),
        huge(b'K'),
        huge(b'g'),
        case(
            "a global header that renames",
            archive(&[pax_of(b'g', &[("path", b"../evil")]), plain()]),
            Refused("global PAX header"),
        ),
        case(
            "a global header with a size",
            archive(&[pax_of(b'g', &[("size", b"5")]), plain()]),
            Refused("global PAX header"),
        ),
        case(
            "a global header with attributes",
            archive(&[pax_of(b'g', &[("SCHILY.xattr.user.a", b"5")]), plain()]),
            Refused("global PAX header"),
        ),
        case(
            "a global header with a comment",
            archive(&[pax_of(b'g', &[("comment", b"made by git")]), plain()]),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")), "x")),
        ),
        case(
            "a sparse file of GNU",
            layer(&[item(b'S', "a").gnu().content("x")]),
            Refused("sparse"),
        ),
        case(
            "a sparse file of PAX 0.1",
            archive(&[
                pax(&[
                    ("GNU.sparse.map", b"0,1"),
                    ("GNU.sparse.size", b"99999999999"),
                ]),
                plain(),
            ]),
            Refused("sparse"),
        ),
        case(
            "a sparse file of PAX 1.0",
            archive(&[
                pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.name", b"../b")]),
                plain(),
            ]),
            Refused("sparse"),
        ),
    ]
}
