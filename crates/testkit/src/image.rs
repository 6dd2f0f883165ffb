//! Makes an image for tests: a scripted server, its libraries and busybox, as the archive that `docker
//! save` writes. Entry points: [`Archive::peer`] and [`Archive::save`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::bin;
use crate::registry::digest;

/// What busybox is called by in the image.
const APPLETS: [&str; 16] = [
    "sh", "cat", "sleep", "ls", "id", "wget", "nc", "dd", "mkdir", "rm", "touch", "hostname",
    "seq", "grep", "chmod", "mount",
];
const BLOCK: usize = 512;

/// An image that is being made.
#[derive(Debug, Clone)]
pub struct Archive {
    name: String,
    files: BTreeMap<String, Entry>,
    /// The owners of those that are not root's.
    owners: BTreeMap<String, u32>,
    config: Map<String, Value>,
    architecture: String,
}

#[derive(Debug, Clone)]
enum Entry {
    Folder(u32),
    File(Vec<u8>, u32),
    Link(String),
}

impl Archive {
    /// Begins an image with `evilpeer` as its entry point, `treegen`, and busybox.
    pub fn peer(name: &str) -> Self {
        let mut archive = Self {
            name: name.to_owned(),
            files: BTreeMap::new(),
            owners: BTreeMap::new(),
            config: Map::new(),
            architecture: match std::env::consts::ARCH {
                "aarch64" => "arm64",
                _ => "amd64",
            }
            .to_owned(),
        };
        archive.program(&bin::evilpeer(), "bin/evilpeer");
        archive.program(&bin::treegen(), "bin/treegen");
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
        let busybox = busybox.into_iter().find(|path| path.is_file());
        archive.program(busybox.expect("busybox is installed"), "bin/busybox");
        for applet in APPLETS {
            let link = Entry::Link("busybox".to_owned());
            archive.files.insert(format!("bin/{applet}"), link);
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000:node:/home/node:/bin/sh\n";
        archive
            .file("etc/passwd", passwd.as_bytes(), 0o644)
            .file("etc/group", b"root:x:0:\nnode:x:1000:\n", 0o644)
            .file("image", name.as_bytes(), 0o644)
            .folder("tmp", 0o1777)
            .config("Entrypoint", json!(["/bin/evilpeer", "--inside"]))
            .config("Env", json!(["PATH=/bin", "FROM_IMAGE=yes"]))
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, content: &[u8], mode: u32) -> Self {
        let entry = Entry::File(content.to_vec(), mode);
        self.files.insert(path.to_owned(), entry);
        self
    }

    /// Adds a folder.
    #[must_use]
    pub fn folder(mut self, path: &str, mode: u32) -> Self {
        self.files.insert(path.to_owned(), Entry::Folder(mode));
        self
    }

    /// Gives a file or folder to a user and the group of the same id.
    #[must_use]
    pub fn owner(mut self, path: &str, id: u32) -> Self {
        self.owners.insert(path.to_owned(), id);
        self
    }

    /// Sets a member of the image's configuration, such as `User`.
    #[must_use]
    pub fn config(mut self, member: &str, value: Value) -> Self {
        self.config.insert(member.to_owned(), value);
        self
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, target: &str) -> Self {
        let entry = Entry::Link(target.to_owned());
        self.files.insert(path.to_owned(), entry);
        self
    }

    /// Says that it is made for these processors, whatever is in it.
    #[must_use]
    pub fn architecture(mut self, name: &str) -> Self {
        name.clone_into(&mut self.architecture);
        self
    }

    fn program(&mut self, program: &Path, name: &str) {
        let content = fs::read(program).expect("the program is there");
        self.files
            .insert(name.to_owned(), Entry::File(content, 0o755));
        for library in libraries(program) {
            let content = fs::read(&library).expect("a library is there");
            let name = library.to_string_lossy();
            let name = name.trim_start_matches('/').to_owned();
            self.files.insert(name, Entry::File(content, 0o755));
        }
    }

    /// Writes the archive.
    pub fn save(&self, to: &Path) -> io::Result<()> {
        let (config, layer) = self.parts();
        let manifest =
            json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let mut tar = Tar::default();
        tar.add("manifest.json", manifest.to_string().as_bytes(), 0o644);
        tar.add("config.json", config.to_string().as_bytes(), 0o644);
        tar.add("layer.tar", &layer, 0o644);
        File::create(to)?.write_all(&tar.finish())
    }

    /// Returns the image's configuration and its one layer.
    pub(crate) fn parts(&self) -> (Value, Vec<u8>) {
        let layer = self.layer();
        let mut config = configuration(&Value::Object(self.config.clone()), &[&layer]);
        config["architecture"] = json!(self.architecture);
        (config, layer)
    }

    fn layer(&self) -> Vec<u8> {
        let mut tar = Tar::default();
        for (path, entry) in &self.files {
            tar.owner = self.owners.get(path).copied().unwrap_or(0);
            match entry {
                Entry::Folder(mode) => tar.entry(path, b'5', *mode, &[], ""),
                Entry::File(content, mode) => tar.add(path, content, *mode),
                Entry::Link(target) => tar.entry(path, b'2', 0o777, &[], target),
            }
        }
        tar.finish()
    }
}

/// Returns the configuration of an image of this machine's kind, with these layers.
pub fn configuration(config: &Value, layers: &[&[u8]]) -> Value {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    json!({
        "os": "linux",
        "architecture": architecture,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
}

/// Returns the libraries that a program is linked with, its loader included.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = Command::new("ldd").arg(program).output();
    let said = said.expect("ldd is installed").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let words = said.split_whitespace();
    let paths = words.filter(|word| word.starts_with('/') && !word.ends_with(':'));
    paths.map(PathBuf::from).collect()
}

/// A tar archive in the ustar form.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
    /// The owner of the next entries.
    owner: u32,
}

impl Tar {
    fn add(&mut self, path: &str, content: &[u8], mode: u32) {
        self.entry(path, b'0', mode, content, "");
    }

    fn entry(&mut self, path: &str, kind: u8, mode: u32, content: &[u8], target: &str) {
        assert!(path.len() < 100 && target.len() < 100, "short names only");
        let owner = format!("{:07o}", self.owner);
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, &owner);
        put(116, &owner);
        put(124, &format!("{:011o}", content.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(157, target);
        put(257, "ustar");
        put(263, "00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(length, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}
