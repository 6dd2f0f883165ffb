//! Sizes, times and ends that are not what they say.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Case, Fine, Refused, TooLarge, case, read};
use crate::tarball::{binary, file, layer, octal};

pub(super) fn cases(_canary: &Path) -> Vec<Case> {
    let whole = layer(&[file("a", "x".repeat(2_000))]);
    let cut = |bytes: usize| whole[..bytes].to_vec();
    let mut wrong_sum = whole.clone();
    wrong_sum[0] = b'b';
    let single = [file("a", "x").bytes(), vec![0; 512], file("b", "x").bytes()];
    let garbage = [whole.clone(), b"garbage after the end".repeat(1_000)].concat();
    let mut negative_uid = [0xff; 8];
    negative_uid[7] = 0xfe;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    let gzip = gzip.finish().unwrap();
    let inner = layer(&[file("inner.tar.gz", &gzip)]);
    vec![
        case(
            "a size beyond the end",
            layer(&[file("a", "x").size(1 << 20)]),
            Refused("ends in the middle"),
        ),
        case(
            "a size beyond the limit",
            layer(&[file("a", "x").size((1 << 33) - 1)]),
            TooLarge,
        ),
        case(
            "a size of 63 bits",
            layer(&[file("a", "x").raw_size(binary(0x80, i64::MAX))]),
            TooLarge,
        ),
        case(
            "a size of 90 bits",
            layer(&[file("a", "x").raw_size(binary(0x8f, 1))]),
            Refused("`size`"),
        ),
        case(
            "a size below zero",
            layer(&[file("a", "x").raw_size(binary(0xff, -512))]),
            Refused("`size`"),
        ),
        case(
            "a size in letters",
            layer(&[file("a", "x").raw_size(*b"0000000000x\0")]),
            Refused("`size`"),
        ),
        case(
            "a size of nothing, with content",
            layer(&[file("a", "x").size(0)]),
            Refused("checksum"),
        ),
        case(
            "a size that is a little larger",
            layer(&[file("a", "x".repeat(512)).size(1024), file("b", "y")]),
            Refused("checksum"),
        ),
        case(
            "a time before 1970",
            layer(&[file("a", "x").raw_mtime(binary(0xff, -1))]),
            Fine(|seen| assert_eq!(fs::metadata(seen.flat.join("a")).unwrap().mtime(), 0)),
        ),
        case(
            "a time after the sun's end",
            layer(&[file("a", "x").raw_mtime(binary(0x80, i64::MAX))]),
            Fine(|seen| {
                assert!(fs::metadata(seen.flat.join("a")).unwrap().mtime() > 2_000_000_000)
            }),
        ),
        case(
            "an owner below zero in binary",
            layer(&[file("a", "x").raw_uid(negative_uid)]),
            Refused("owner"),
        ),
        case("a cut header", cut(100), Refused("ends in the middle")),
        case("a cut content", cut(1_000), Refused("ends in the middle")),
        case(
            "a cut padding",
            cut(512 + 2_010),
            Refused("ends in the middle"),
        ),
        case(
            "no end marker",
            cut(512 + 2_048),
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")).len(), 2_000)),
        ),
        case(
            "one zero block",
            single.concat(),
            Refused("single zero block"),
        ),
        case(
            "garbage after the end",
            garbage,
            Fine(|seen| assert_eq!(read(&seen.flat.join("a")).len(), 2_000)),
        ),
        case("a wrong checksum", wrong_sum, Refused("checksum")),
        case(
            "no archive at all",
            b"#!/bin/sh\necho harm\n".repeat(100),
            Refused("checksum"),
        ),
        case(
            "nothing",
            Vec::new(),
            Fine(|seen| assert!(seen.flat.is_dir())),
        ),
        case(
            "zeros",
            vec![0; 10_240],
            Fine(|seen| assert!(seen.flat.is_dir())),
        ),
        case(
            "an archive in an archive",
            inner,
            Fine(|seen| {
                let metadata = fs::metadata(seen.flat.join("inner.tar.gz")).unwrap();
                assert!(metadata.is_file());
            }),
        ),
        Case {
            hole: 100 << 20,
            ..case(
                "more zeros after the end than are allowed",
                whole.clone(),
                TooLarge,
            )
        },
        Case {
            hole: 100 << 20,
            ..case(
                "a file that is larger than is allowed",
                file("a", "").raw_size(octal(100 << 20)).header(),
                TooLarge,
            )
        },
    ]
}
