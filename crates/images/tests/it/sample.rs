//! Images made for tests, and a registry that serves one as it should.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use flate2::write::GzEncoder;
use gantry_images::{Digest, Platform};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use crate::scripted::{Request, Server, reply};

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// The repository of every sample.
pub(crate) const REPOSITORY: &str = "team/tool";

/// Returns a tar of one file.
pub(crate) fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut tar = tar_header(name, content.len() as u64);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

/// Returns the header of a file.
pub(crate) fn tar_header(name: &str, size: u64) -> Vec<u8> {
    let mut header = vec![0_u8; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(content: &[u8]) -> Vec<u8> {
    compress_to_vec(content, CompressionLevel::Fastest)
}

/// Returns bytes that do not compress.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A layer as a registry has it.
#[derive(Clone)]
pub(crate) struct Blob {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) diff_id: Digest,
}

impl Blob {
    pub(crate) fn gzip(tar: &[u8]) -> Self {
        Self {
            media_type: GZIP,
            bytes: gzip(tar),
            diff_id: Digest::of(tar),
        }
    }

    pub(crate) fn zstd(tar: &[u8]) -> Self {
        Self {
            media_type: ZSTD,
            bytes: zstd(tar),
            diff_id: Digest::of(tar),
        }
    }
}

/// An image as a registry has it; every part can be changed before it is served.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) layers: Vec<Blob>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Value,
}

impl Sample {
    pub(crate) fn new(layers: Vec<Blob>) -> Self {
        let diff_ids: Vec<String> = layers
            .iter()
            .map(|layer| layer.diff_id.to_string())
            .collect();
        let platform = Platform::host();
        let config = json!({
            "os": platform.os,
            "architecture": platform.architecture,
            "config": {"Entrypoint": ["/tool"], "Env": ["PATH=/bin"], "User": "7"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let mut sample = Self {
            layers,
            config: config.to_string().into_bytes(),
            manifest: Value::Null,
        };
        sample.describe();
        sample
    }

    /// A small image of one gzip layer.
    pub(crate) fn small() -> Self {
        Self::new(vec![Blob::gzip(&tar("hello", b"hello"))])
    }

    /// An image of one layer that is long enough to be cut.
    pub(crate) fn long() -> Self {
        Self::new(vec![Blob::gzip(&tar("noise", &noise(3 << 20, 7)))])
    }

    /// Writes the manifest for the parts as they are.
    pub(crate) fn describe(&mut self) {
        let layers = self.layers.iter().map(|layer| {
            json!({"mediaType": layer.media_type, "digest": Digest::of(&layer.bytes), "size": layer.bytes.len()})
        });
        self.manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": Digest::of(&self.config), "size": self.config.len()},
            "layers": layers.collect::<Vec<_>>(),
        });
    }

    pub(crate) fn with_config(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut config: Value = serde_json::from_slice(&self.config).unwrap();
        change(&mut config);
        self.config = config.to_string().into_bytes();
        self.describe();
        self
    }

    pub(crate) fn with_manifest(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.manifest);
        self
    }

    pub(crate) fn manifest_bytes(&self) -> Vec<u8> {
        self.manifest.to_string().into_bytes()
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest_bytes())
    }

    /// Returns every path of the registry with its content type and bytes.
    fn paths(&self) -> HashMap<String, (&'static str, Vec<u8>)> {
        let manifest = (MANIFEST, self.manifest_bytes());
        let at = |kind: &str, name: String| format!("/v2/{REPOSITORY}/{kind}/{name}");
        let mut paths = HashMap::from([
            (at("manifests", "1".to_owned()), manifest.clone()),
            (at("manifests", self.digest().to_string()), manifest),
        ]);
        let layers = self.layers.iter().map(|layer| &layer.bytes);
        for bytes in layers.chain([&self.config]) {
            let path = at("blobs", Digest::of(bytes).to_string());
            paths.insert(path, ("application/octet-stream", bytes.clone()));
        }
        paths
    }
}

/// What a test changes: answers a request, or leaves it to the registry.
pub(crate) type Script =
    Arc<dyn Fn(&Request, &mut TcpStream) -> Option<io::Result<()>> + Send + Sync>;

/// Serves an image, but for what the script does.
pub(crate) fn serve(sample: &Sample, script: Script) -> Server {
    let paths = sample.paths();
    Server::start(Arc::new(move |request, stream| {
        if let Some(done) = script(request, stream) {
            return done;
        }
        let Some((content_type, bytes)) = paths.get(&request.path) else {
            return reply(stream, 404, &[], b"{}");
        };
        let digest = Digest::of(bytes).to_string();
        let headers = [
            ("Content-Type", *content_type),
            ("Docker-Content-Digest", &digest),
        ];
        if request.method == "HEAD" {
            return reply(stream, 200, &headers, b"");
        }
        let range = request.header("range").and_then(|range| {
            let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
            from.parse::<usize>()
                .ok()
                .filter(|from| *from < bytes.len())
        });
        match range {
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                reply(stream, 206, &[("Content-Range", &range)], &bytes[from..])
            }
            None => reply(stream, 200, &headers, bytes),
        }
    }))
}

/// Serves an image as it should be served.
pub(crate) fn serve_well(sample: &Sample) -> Server {
    serve(sample, Arc::new(|_, _| None))
}
