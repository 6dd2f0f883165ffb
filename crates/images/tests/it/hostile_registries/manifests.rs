//! Manifests, indexes and configurations that are not what they should be.

use gantry_images::Digest;
use serde_json::{Value, json};

use super::{Case, check, is_config, is_manifest};
use crate::sample::{INDEX, MANIFEST, Sample};
use crate::scripted::{Request, drip, endless, head, reply, silence};

/// Answers the request for the tag with an index.
fn indexed(name: &'static str, code: &'static str, says: &'static str, index: Value) -> Case {
    let index = index.to_string();
    Case::new(name, code, says, move |request, stream| {
        let is_tag = request.path.ends_with("/manifests/1");
        is_tag.then(|| reply(stream, 200, &[("Content-Type", INDEX)], index.as_bytes()))
    })
}

/// Answers every request for a manifest with these bytes.
fn answered(
    name: &'static str,
    says: &'static str,
    content_type: &'static str,
    bytes: &[u8],
) -> Case {
    let bytes = bytes.to_vec();
    Case::new(name, "image.invalid", says, move |request, stream| {
        let headers = [("Content-Type", content_type)];
        is_manifest(request).then(|| reply(stream, 200, &headers, &bytes))
    })
}

fn manifest_status(
    name: &'static str,
    code: &'static str,
    says: &'static str,
    status: u16,
    header: (&'static str, &'static str),
) -> Case {
    Case::new(
        name,
        code,
        says,
        move |request: &Request, stream: &mut _| {
            is_manifest(request).then(|| reply(stream, status, &[header], b"{}"))
        },
    )
}

/// An image with one odd member of how it is to be run.
fn configured(name: &'static str, says: &'static str, member: &str, value: Value) -> Case {
    let image = Sample::small().with_config(|config| config["config"][member] = value);
    Case::of_image(name, "image.invalid", says, image)
}

fn layer_change(
    name: &'static str,
    code: &'static str,
    says: &'static str,
    key: &str,
    value: Value,
) -> Case {
    let image = Sample::small().with_manifest(|manifest| manifest["layers"][0][key] = value);
    Case::of_image(name, code, says, image)
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_do_not_end_or_do_not_come() {
    let none = ("X-None", "1");
    check(vec![
        Case::new(
            "endless manifest",
            "image.too_large",
            "larger than the limit",
            |request, stream| {
                is_manifest(request).then(|| {
                    head(stream, 200, &[("Content-Type", MANIFEST)])?;
                    endless(stream, &[b' '; 4096])
                })
            },
        ),
        Case::new(
            "announced over the limit",
            "image.too_large",
            "larger than the limit",
            |request, stream| {
                is_manifest(request).then(|| {
                    head(stream, 200, &[("Content-Length", "99999999999")])?;
                    silence(stream)
                })
            },
        ),
        Case::new(
            "shorter than announced",
            "image.unreachable",
            "no connection",
            |request, stream| {
                is_manifest(request).then(|| head(stream, 200, &[("Content-Length", "1000")]))
            },
        ),
        Case::new(
            "slow drip",
            "image.unreachable",
            "too slow",
            |request, stream| {
                is_manifest(request).then(|| {
                    head(stream, 200, &[("Content-Length", "100000")])?;
                    drip(stream, &[b' '; 100_000])
                })
            },
        )
        .impatient(),
        Case::new("no answer", "image.unreachable", "too slow", |_, stream| {
            Some(silence(stream))
        })
        .impatient(),
        Case::new("hangs up", "image.unreachable", "no connection", |_, _| {
            Some(Ok(()))
        }),
        Case::new(
            "endless headers",
            "image.unreachable",
            "no connection",
            |_, stream| {
                use std::io::Write;
                let begun = stream.write_all(b"HTTP/1.1 200 OK\r\n");
                Some(begun.and_then(|()| endless(stream, &b"X-More: headers\r\n".repeat(100))))
            },
        ),
        Case::new(
            "not HTTP",
            "image.unreachable",
            "no connection",
            |_, stream| {
                use std::io::Write;
                Some(stream.write_all(b"220 mail.example ESMTP\r\n"))
            },
        ),
        manifest_status("missing", "image.not_found", "no manifest `1`", 404, none),
        manifest_status("teapot", "image.registry", "answered 418", 418, none),
        manifest_status("broken", "image.registry", "answered 503", 503, none),
        manifest_status("too often", "image.rate_limited", "429", 429, none),
        manifest_status(
            "come back tomorrow",
            "image.rate_limited",
            "429",
            429,
            ("Retry-After", "86400"),
        ),
        manifest_status(
            "forbidden",
            "image.unauthorized",
            "refuses access",
            403,
            none,
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_are_none() {
    let deep = "[".repeat(500_000);
    let signed = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let schema_1 = br#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#;
    let small = Sample::small();
    let mut both = small.manifest.clone();
    both["manifests"] = json!([]);
    both.as_object_mut().unwrap().remove("mediaType");
    let compressed = crate::sample::gzip(&small.manifest_bytes());
    check(vec![
        answered(
            "web page",
            "not the JSON",
            "text/html",
            b"<html>hello</html>",
        ),
        answered("empty", "not the JSON", MANIFEST, b""),
        answered(
            "nested half a million deep",
            "not the JSON",
            MANIFEST,
            deep.as_bytes(),
        ),
        answered("schema 1", "schema 1", signed, schema_1),
        answered("manifest as index", "names no manifests", INDEX, &{
            let mut plain = small.manifest.clone();
            plain.as_object_mut().unwrap().remove("mediaType");
            plain.to_string().into_bytes()
        }),
        answered(
            "index and manifest",
            "at once",
            "application/json",
            both.to_string().as_bytes(),
        ),
        Case::new(
            "compressed on the way",
            "image.invalid",
            "not the JSON",
            move |request, stream| {
                let headers = [("Content-Type", MANIFEST), ("Content-Encoding", "gzip")];
                is_manifest(request).then(|| reply(stream, 200, &headers, &compressed))
            },
        ),
        Case::new(
            "another than was named",
            "image.digest",
            "instead of",
            |request, stream| {
                let other = Sample::long().manifest_bytes();
                is_manifest(request)
                    .then(|| reply(stream, 200, &[("Content-Type", MANIFEST)], &other))
            },
        )
        .pinned(),
        Case::new(
            "another than was announced",
            "image.digest",
            "instead of",
            |request, stream| {
                let (bytes, other) = (
                    Sample::small().manifest_bytes(),
                    Digest::of(b"other").to_string(),
                );
                let headers = [
                    ("Content-Type", MANIFEST),
                    ("Docker-Content-Digest", other.as_str()),
                ];
                is_manifest(request).then(|| reply(stream, 200, &headers, &bytes))
            },
        ),
        Case::of_image(
            "a chart",
            "image.invalid",
            "not a container image",
            Sample::small().with_manifest(|manifest| {
                manifest["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json");
            }),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_that_lead_nowhere() {
    let digest = Sample::small().digest();
    let size = Sample::small().manifest_bytes().len();
    let host = gantry_images::Platform::host();
    let platform = json!({"os": host.os, "architecture": host.architecture});
    let of = |entry: Value| json!({"schemaVersion": 2, "manifests": [entry]});
    let entry =
        json!({"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform});
    let with = |key: &str, value: Value| {
        let mut entry = entry.clone();
        entry[key] = value;
        of(entry)
    };
    let other = json!({"os": "plan9", "architecture": "mips"});
    check(vec![
        indexed(
            "other platform",
            "image.platform",
            "only for: plan9/mips",
            with("platform", other),
        ),
        indexed(
            "empty index",
            "image.platform",
            "none that it names",
            json!({"schemaVersion": 2, "manifests": []}),
        ),
        indexed(
            "index in an index",
            "image.invalid",
            "another index",
            with("mediaType", json!(INDEX)),
        ),
        indexed(
            "lying size",
            "image.invalid",
            "bytes instead of",
            with("size", json!(size + 1)),
        ),
        indexed(
            "missing manifest",
            "image.not_found",
            "no manifest",
            with("digest", json!(Digest::of(b"gone"))),
        ),
        indexed(
            "unverifiable digest",
            "image.invalid",
            "not a digest",
            with("digest", json!("md5:abc")),
        ),
        indexed(
            "path for a digest",
            "image.invalid",
            "not a digest",
            with("digest", json!("../../../../admin")),
        ),
        // Every request is answered by an index that leads to itself in name.
        Case::new(
            "index that never ends",
            "image.invalid",
            "bytes instead of",
            {
                let index = of(entry.clone()).to_string();
                move |request: &Request, stream: &mut _| {
                    is_manifest(request)
                        .then(|| reply(stream, 200, &[("Content-Type", INDEX)], index.as_bytes()))
                }
            },
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_and_configurations_that_cannot_be() {
    let many = Sample::small().with_manifest(|manifest| {
        let layer = manifest["layers"][0].clone();
        manifest["layers"] = Value::Array(vec![layer; 5_000]);
    });
    let sum = Sample::small().with_manifest(|manifest| {
        let mut layer = manifest["layers"][0].clone();
        layer["size"] = json!(40 << 20);
        manifest["layers"] = Value::Array(vec![layer; 3]);
    });
    let small = Sample::small();
    let endless_config = small.clone();
    let wrong_config = small.clone();
    check(vec![
        Case::of_image(
            "five thousand layers",
            "image.too_large",
            "5000 layers",
            many,
        ),
        Case::of_image(
            "large together",
            "image.too_large",
            "the image is larger",
            sum,
        ),
        layer_change(
            "negative size",
            "image.invalid",
            "not the JSON",
            "size",
            json!(-1),
        ),
        layer_change(
            "size beyond all",
            "image.too_large",
            "larger than the limit",
            "size",
            json!(u64::MAX),
        ),
        layer_change(
            "size as text",
            "image.invalid",
            "not the JSON",
            "size",
            json!("12"),
        ),
        layer_change(
            "unknown kind of layer",
            "image.invalid",
            "unknown media type",
            "mediaType",
            json!("text/html"),
        ),
        layer_change(
            "no digest",
            "image.invalid",
            "not a digest",
            "digest",
            json!(""),
        ),
        Case::of_image(
            "configuration over the limit",
            "image.too_large",
            "configuration",
            Sample::small().with_manifest(|manifest| {
                manifest["config"]["size"] = json!(1_u64 << 40);
            }),
        ),
        Case::new(
            "endless configuration",
            "image.too_large",
            "configuration",
            move |request, stream| {
                is_config(request, &endless_config).then(|| {
                    head(stream, 200, &[])?;
                    endless(stream, &[b' '; 4096])
                })
            },
        ),
        Case::new(
            "wrong configuration",
            "image.digest",
            "configuration",
            move |request, stream| {
                let wrong = vec![b' '; wrong_config.config.len()];
                is_config(request, &wrong_config).then(|| reply(stream, 200, &[], &wrong))
            },
        ),
        Case::of_image(
            "more layers than it is made of",
            "image.invalid",
            "names 2 layers",
            Sample::small().with_config(|config| {
                let layer = config["rootfs"]["diff_ids"][0].clone();
                config["rootfs"]["diff_ids"] = json!([layer, layer]);
            }),
        ),
        Case::of_image(
            "for another machine after all",
            "image.platform",
            "only for: linux/s390x",
            Sample::small().with_config(|config| {
                config["architecture"] = json!("s390x");
            }),
        ),
        configured("arguments with NUL", "NUL", "Cmd", json!(["a\0b"])),
        configured(
            "thousands of volumes",
            "3000 volumes; at most 64",
            "Volumes",
            (0..3000).map(|n| (format!("/{n}"), json!({}))).collect(),
        ),
        configured(
            "a volume of half a megabyte",
            "a volume has 524289 bytes",
            "Volumes",
            json!({(format!("/{}", "v".repeat(1 << 19))): {}}),
        ),
        configured(
            "a program that clears the terminal",
            "a program contains control",
            "Entrypoint",
            json!(["/bin/\u{1b}[2J"]),
        ),
        configured(
            "a program of half a megabyte",
            "a program has 524288 bytes",
            "Entrypoint",
            json!(["p".repeat(1 << 19)]),
        ),
        configured(
            "a user of half a megabyte",
            "a user has 524288 bytes",
            "User",
            json!("u".repeat(1 << 19)),
        ),
        configured(
            "a working folder with line breaks",
            "a working folder contains control",
            "WorkingDir",
            json!("/a\n/b"),
        ),
        Case::of_image(
            "no configuration at all",
            "image.invalid",
            "not the JSON",
            Sample::small().with_config(|config| {
                *config = json!([]);
            }),
        ),
    ])
    .await;
}
