//! Layers that lie about their length and content, are cut, drip, or blow up.

use std::io::Write;
use std::net::TcpStream;

use flate2::write::GzEncoder;
use gantry_images::Digest;

use super::{Case, check, is_layer};
use crate::sample::{Blob, GZIP, Sample, ZSTD, gzip, noise, tar, tar_header};
use crate::scripted::{Request, drip, endless, head, reply, silence};

/// Answers the request for the layer of a long image.
fn layer(
    name: &'static str,
    code: &'static str,
    says: &'static str,
    answer: impl Fn(&Request, &mut TcpStream, &[u8]) -> std::io::Result<()> + Send + Sync + 'static,
) -> Case {
    let image = Sample::long();
    let served = image.clone();
    let case = Case::new(name, code, says, move |request, stream| {
        let bytes = &served.layers[0].bytes;
        is_layer(request, &served).then(|| answer(request, stream, bytes))
    });
    case.image(image)
}

/// An image whose only layer has these bytes and claims to be another content.
fn packed(media_type: &'static str, bytes: Vec<u8>, diff_id: Digest) -> Sample {
    Sample::new(vec![Blob {
        media_type,
        bytes,
        diff_id,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_are_longer_shorter_or_other() {
    check(vec![
        layer(
            "endless",
            "image.invalid",
            "bytes instead of",
            |_, stream, bytes| {
                head(stream, 200, &[])?;
                stream.write_all(bytes)?;
                endless(stream, &[0; 4096])
            },
        ),
        layer(
            "announced longer",
            "image.invalid",
            "bytes instead of",
            |_, stream, bytes| {
                head(
                    stream,
                    200,
                    &[("Content-Length", &(bytes.len() + 1).to_string())],
                )?;
                stream.write_all(bytes)
            },
        ),
        layer(
            "announced shorter",
            "image.invalid",
            "bytes instead of",
            |_, stream, bytes| reply(stream, 200, &[], &bytes[..1000]),
        ),
        layer(
            "one byte other",
            "image.digest",
            "instead of",
            |_, stream, bytes| {
                let mut other = bytes.to_vec();
                // The time in the header of gzip, which no checksum of its own covers.
                other[4] ^= 1;
                reply(stream, 200, &[], &other)
            },
        ),
        layer(
            "compressed on the way",
            "image.invalid",
            "bytes instead of",
            |_, stream, bytes| reply(stream, 200, &[("Content-Encoding", "gzip")], &gzip(bytes)),
        ),
        layer(
            "said to be compressed, and other",
            "image.digest",
            "Content-Encoding: br",
            |_, stream, bytes| {
                let mut other = bytes.to_vec();
                other[4] ^= 1;
                reply(stream, 200, &[("Content-Encoding", "br")], &other)
            },
        ),
        layer("missing", "image.not_found", "no layer", |_, stream, _| {
            reply(stream, 404, &[], b"")
        }),
        layer(
            "broken",
            "image.registry",
            "answered 500",
            |_, stream, _| reply(stream, 500, &[], b""),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_stall_or_are_cut() {
    check(vec![
        layer(
            "slow drip",
            "image.unreachable",
            "too slow",
            |_, stream, bytes| {
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                drip(stream, bytes)
            },
        )
        .impatient(),
        layer(
            "stops half way",
            "image.unreachable",
            "too slow",
            |_, stream, bytes| {
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..bytes.len() / 2])?;
                silence(stream)
            },
        )
        .impatient(),
        layer(
            "cut again and again",
            "image.unreachable",
            "no connection",
            |request, stream, bytes| {
                let from = request
                    .header("range")
                    .and_then(|range| range[6..].strip_suffix('-'));
                let from: usize = from.map_or(0, |from| from.parse().unwrap());
                let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                let length = (bytes.len() - from).to_string();
                let status = if from == 0 { 200 } else { 206 };
                head(
                    stream,
                    status,
                    &[("Content-Length", &length), ("Content-Range", &range)],
                )?;
                stream.write_all(&bytes[from..from + 10])
            },
        ),
        layer(
            "goes on elsewhere",
            "image.invalid",
            "requested were",
            |request, stream, bytes| {
                let length = bytes.len().to_string();
                if request.header("range").is_none() {
                    head(stream, 200, &[("Content-Length", &length)])?;
                    return stream.write_all(&bytes[..100_000]);
                }
                let range = format!("bytes 5-{}/{length}", bytes.len() - 1);
                reply(stream, 206, &[("Content-Range", &range)], &bytes[5..])
            },
        ),
        layer(
            "goes on with something else",
            "image.digest",
            "instead of",
            |request, stream, bytes| {
                let length = bytes.len().to_string();
                if request.header("range").is_none() {
                    head(stream, 200, &[("Content-Length", &length)])?;
                    return stream.write_all(&bytes[..4]);
                }
                let mut rest = bytes[4..].to_vec();
                rest[0] ^= 1;
                let range = format!("bytes 4-{}/{length}", bytes.len() - 1);
                reply(stream, 206, &[("Content-Range", &range)], &rest)
            },
        ),
        layer(
            "range without end",
            "image.invalid",
            "bytes instead of",
            |request, stream, bytes| {
                if request.header("range").is_none() {
                    head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                    return stream.write_all(&bytes[..1_500_000]);
                }
                let range = format!("bytes 1500000-{}/{}", bytes.len() - 1, bytes.len());
                head(stream, 206, &[("Content-Range", &range)])?;
                stream.write_all(&bytes[1_500_000..])?;
                endless(stream, &[0; 4096])
            },
        ),
        layer(
            "refuses to go on",
            "image.registry",
            "answered 416",
            |request, stream, bytes| {
                if request.header("range").is_some() {
                    return reply(stream, 416, &[], b"");
                }
                head(stream, 200, &[("Content-Length", &bytes.len().to_string())])?;
                stream.write_all(&bytes[..100_000])
            },
        ),
    ])
    .await;
}

/// Returns gzip of a tar whose file is far larger than allowed, made piece by piece.
fn gzip_bomb(header: Vec<u8>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&header).unwrap();
    for _ in 0..600 {
        encoder.write_all(&[0; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap()
}

/// Returns a frame of zstd that repeats one byte, `blocks` times 128 KiB, in a window of 2^(10+exponent).
fn zstd_bomb(exponent: u8, blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, exponent << 3];
    for block in 1..=blocks {
        let header = (128_u32 << 10) << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_blow_up_or_are_damaged() {
    let content = tar("noise", &noise(100_000, 3));
    let whole = gzip(&content);
    let diff_id = Digest::of(&content);
    let truncated = whole[..whole.len() - 100].to_vec();
    let trailing = [whole.as_slice(), b"trailing"].concat();
    let mut damaged = whole.clone();
    damaged[50_000] ^= 0xff;
    let named = gzip_bomb(tar_header("large", 600 << 20));
    // After the end of the archive, where no entry names it.
    let unnamed = gzip_bomb(vec![0; 1024]);
    let three = (0..3).map(|n| Blob {
        media_type: ZSTD,
        bytes: zstd_bomb(14, 1000 + n),
        diff_id: Digest::of(&[n as u8]),
    });
    check(vec![
        Case::of_image(
            "truncated gzip",
            "image.invalid",
            "cannot be read",
            packed(GZIP, truncated, diff_id),
        ),
        Case::of_image(
            "trailing garbage",
            "image.invalid",
            "cannot be read",
            packed(GZIP, trailing, diff_id),
        ),
        Case::of_image(
            "damaged gzip",
            "image.invalid",
            "cannot be read",
            packed(GZIP, damaged, diff_id),
        ),
        Case::of_image(
            "other content than the configuration says",
            "image.digest",
            "not `",
            packed(GZIP, whole, Digest::of(b"other")),
        ),
        Case::of_image(
            "gzip bomb",
            "image.too_large",
            "larger than",
            packed(GZIP, named, diff_id),
        ),
        Case::of_image(
            "gzip bomb behind the archive",
            "image.too_large",
            "larger than",
            packed(GZIP, unnamed, diff_id),
        ),
        Case::of_image(
            "zstd with a window of a gigabyte",
            "image.invalid",
            "cannot be read",
            packed(ZSTD, zstd_bomb(20, 10), diff_id),
        ),
        Case::of_image(
            "zstd bomb",
            "image.too_large",
            "larger than",
            packed(ZSTD, zstd_bomb(13, 5_000), diff_id),
        ),
        Case::of_image(
            "three zstd bombs at once",
            "image.too_large",
            "larger than",
            Sample::new(three.collect()),
        ),
        Case::of_image(
            "not an archive",
            "image.layer_refused",
            "",
            packed(GZIP, gzip(&noise(5_000, 9)), diff_id),
        ),
    ])
    .await;
}
