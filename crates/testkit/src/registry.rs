//! Debian's `docker-registry` on loopback, and a client that pushes what tests made: a registry that knows
//! nothing of us. Entry points: [`ImageRegistry::start`] and [`ImageRegistry::push`].

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::image::Archive;
use crate::wait::eventually;

/// `ann` with the password `hunter2`, as the registry's file has it.
const PASSWORDS: &str = "ann:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";
/// Who may pull and push where a registry is closed.
pub const USER: (&str, &str) = ("ann", "hunter2");
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// The file in its folder that the registry logs every request to.
const LOG: &str = "log";
const PATIENCE: Duration = Duration::from_secs(20);

/// A registry that runs until it is dropped.
#[derive(Debug)]
pub struct ImageRegistry {
    address: SocketAddr,
    process: Child,
    is_closed: bool,
    folder: PathBuf,
}

/// Who may use a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryAccess {
    /// Everybody.
    Open,
    /// [`USER`].
    Closed,
}

/// One answer of the registry.
struct Answer {
    status: u16,
    location: String,
}

impl Drop for ImageRegistry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl ImageRegistry {
    /// Starts a registry in a folder of its own.
    pub fn start(access: RegistryAccess) -> Self {
        for _ in 0..5 {
            let mut registry = Self::spawn(access);
            let up = eventually(PATIENCE, || {
                registry
                    .process
                    .try_wait()
                    .is_ok_and(|ended| ended.is_some())
                    || registry.request("GET", "/v2/", "", &[]).is_ok()
            });
            // Somebody else may have taken the port meanwhile: then another is tried.
            if up.is_some()
                && registry
                    .process
                    .try_wait()
                    .is_ok_and(|ended| ended.is_none())
            {
                return registry;
            }
        }
        panic!("docker-registry does not start");
    }

    fn spawn(access: RegistryAccess) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let name = format!("gantry-registry-{}-{}", std::process::id(), address.port());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a temporary folder");
        let root = folder.display();
        let auth = match access {
            RegistryAccess::Closed => {
                format!("auth:\n  htpasswd:\n    realm: test\n    path: {root}/passwords\n")
            }
            RegistryAccess::Open => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    \
             rootdirectory: {root}/storage\nhttp:\n  addr: {address}\n{auth}"
        );
        let file = folder.join("config.yml");
        fs::write(&file, config).expect("a temporary file");
        fs::write(folder.join("passwords"), PASSWORDS).expect("a temporary file");
        let log = fs::File::create(folder.join(LOG)).expect("a temporary file");
        let errors = log.try_clone().expect("an open file");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        Self {
            address,
            process: process.expect("docker-registry is installed, see `.ci/needs`"),
            is_closed: access == RegistryAccess::Closed,
            folder,
        }
    }

    /// Returns where it listens, as images name it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the whole name of `repository:tag` here, whether or not it was pushed.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Pushes an image as `repository:tag`; returns its whole name.
    pub fn push(&self, name: &str, image: &Archive) -> String {
        let (config, layer) = image.parts();
        self.push_parts(name, &config, &[layer])
    }

    /// Pushes an image that is a configuration and layers, plain tar archives; returns its whole name.
    pub fn push_parts(&self, name: &str, config: &Value, layers: &[Vec<u8>]) -> String {
        let (repository, tag) = name.split_once(':').unwrap_or((name, "latest"));
        let config = config.to_string().into_bytes();
        let described = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        for blob in layers.iter().chain([&config]) {
            self.push_blob(repository, blob);
        }
        let layers: Vec<Value> = layers.iter().map(|layer| described(LAYER, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described(CONFIG, &config),
            "layers": layers,
        });
        self.push_manifest(repository, tag, MANIFEST, manifest.to_string().as_bytes())
    }

    /// Pushes a manifest or an index under a tag; returns the whole name of the image.
    pub fn push_manifest(&self, repository: &str, tag: &str, kind: &str, bytes: &[u8]) -> String {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let answer = self.request("PUT", &path, kind, bytes);
        assert_eq!(answer.expect("a manifest is taken").status, 201, "{path}");
        self.image(&format!("{repository}:{tag}"))
    }

    /// Pushes a layer or a configuration.
    pub fn push_blob(&self, repository: &str, blob: &[u8]) {
        let path = format!("/v2/{repository}/blobs/uploads/");
        let begun = self.request("POST", &path, "", &[]);
        let begun = begun.expect("an upload begins");
        assert_eq!(begun.status, 202, "{path}");
        let place = begun.location;
        let place = place.split_once("/v2/").map_or("", |(_, rest)| rest);
        let mark = if place.contains('?') { '&' } else { '?' };
        let path = format!("/v2/{place}{mark}digest={}", digest(blob));
        let done = self.request("PUT", &path, "application/octet-stream", blob);
        assert_eq!(done.expect("a blob is taken").status, 201, "{path}");
    }

    /// Returns how often a tag was requested.
    pub fn requests_for(&self, tag: &str) -> usize {
        let log = fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
        let path = format!("/manifests/{tag} ");
        log.lines().filter(|line| line.contains(&path)).count()
    }

    /// Sends one request on a connection of its own.
    fn request(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        if !kind.is_empty() {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        if self.is_closed {
            let pair = BASE64_STANDARD.encode(format!("{}:{}", USER.0, USER.1));
            head.push_str(&format!("Authorization: Basic {pair}\r\n"));
        }
        stream.write_all(head.as_bytes())?;
        stream.write_all(b"\r\n")?;
        stream.write_all(body)?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let mut location = String::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("location") {
                value.trim().clone_into(&mut location);
            }
        }
        reader.read_to_end(&mut Vec::new())?;
        Ok(Answer { status, location })
    }
}

/// Returns the digest of a blob as manifests have it.
pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
