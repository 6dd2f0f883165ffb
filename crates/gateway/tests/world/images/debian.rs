//! Layers of a Debian root, made of the packages that this machine itself has installed, and of the
//! servers that `.ci/world` brought. Made once per machine, below `target/`. Entry point: [`layer`].

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::parts::{node_path, part};

/// What a server in Python or JavaScript needs of Debian.
const PACKAGES: [&str; 24] = [
    "base-files",
    "base-passwd",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libssl3",
    "libexpat1",
    "libsqlite3-0",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libuuid1",
    "libncursesw6",
    "libtinfo6",
    "libreadline8",
    "libdb5.3",
    "tzdata",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "python3-minimal",
    "dash",
    "busybox-static",
];
/// What no server reads.
const LEFT_OUT: [&str; 4] = [
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/locale",
    "/usr/share/lintian",
];

/// A layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    /// Debian.
    Base,
    /// Node.
    Node,
    /// The servers of npm.
    Npm,
    /// The servers of PyPI.
    PyPi,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Node => "node",
            Self::Npm => "npm",
            Self::PyPi => "pypi",
        }
    }

    /// Says what the layer was made of, so that another is made when that changes.
    fn made_of(self) -> String {
        let mark = |path: &str| fs::read_to_string(part(path)).unwrap_or_default();
        match self {
            Self::Base => PACKAGES.join(" "),
            Self::Node => mark("node/.brought"),
            Self::Npm => mark("servers/.brought"),
            Self::PyPi => mark("pypi-servers/.brought"),
        }
    }
}

/// Returns a layer as a plain tar archive.
pub(super) fn layer(layer: Layer) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debian-layers");
    fs::create_dir_all(&folder).unwrap();
    let (file, mark) = (
        folder.join(format!("{}.tar", layer.name())),
        folder.join(format!("{}.mark", layer.name())),
    );
    let made_of = layer.made_of();
    if fs::read_to_string(&mark).is_ok_and(|known| known == made_of) {
        return fs::read(&file).unwrap();
    }
    // Whoever makes it at the same time makes the same.
    let new = folder.join(format!("{}.{}.new", layer.name(), std::process::id()));
    match layer {
        Layer::Base => base(&new),
        Layer::Node => node(&new, &folder),
        Layer::Npm => tree(
            &new,
            &part("servers/node_modules"),
            "opt/servers/node_modules",
        ),
        Layer::PyPi => {
            let packages = part("pypi-servers/lib/python3.11/site-packages");
            tree(&new, &packages, "opt/python");
        }
    }
    fs::rename(&new, &file).unwrap();
    fs::write(&mark, made_of).unwrap();
    fs::read(&file).unwrap()
}

/// Archives the files of the packages, at the places that they have behind this machine's links.
fn base(to: &Path) {
    let said = Command::new("dpkg")
        .arg("-L")
        .args(PACKAGES)
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let mut files = BTreeSet::new();
    for line in said.lines().filter(|line| line.starts_with('/')) {
        let path = Path::new(line);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let Ok(parent) = parent.canonicalize() else {
            continue;
        };
        let path = parent.join(name);
        let is_wanted = !LEFT_OUT.iter().any(|prefix| path.starts_with(prefix));
        let is_file = fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir());
        if is_wanted && is_file {
            files.insert(path);
        }
    }
    assert!(files.len() > 500, "dpkg lists only {} files", files.len());
    // The folders that every root has, and the links of a merged `/usr`.
    let stage = tempfile::tempdir().unwrap();
    for folder in [
        "tmp",
        "proc",
        "sys",
        "dev",
        "data",
        "files",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/sbin",
    ] {
        fs::create_dir_all(stage.path().join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        let target = format!("usr/{link}");
        std::os::unix::fs::symlink(target, stage.path().join(link)).unwrap();
    }
    let is_there = |name: &str| files.iter().any(|path| path.ends_with(name));
    if !is_there("bin/sh") {
        std::os::unix::fs::symlink("dash", stage.path().join("usr/bin/sh")).unwrap();
    }
    if !is_there("bin/python3") {
        std::os::unix::fs::symlink("python3.11", stage.path().join("usr/bin/python3")).unwrap();
    }
    let etc = stage.path().join("etc");
    fs::create_dir_all(&etc).unwrap();
    fs::write(
        etc.join("passwd"),
        "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n",
    )
    .unwrap();
    fs::write(etc.join("group"), "root:x:0:\nuser:x:1000:\n").unwrap();
    let etc_files = ["/etc/passwd", "/etc/group"].map(PathBuf::from);
    let list = files
        .iter()
        .filter(|path| !etc_files.contains(path))
        .map(|path| path.to_str().unwrap().trim_start_matches('/'));
    let list: Vec<&str> = list.collect();
    let mut tar = tar(to);
    tar.args(["--directory"]).arg(stage.path()).arg(".");
    tar.args([
        "--directory",
        "/",
        "--no-recursion",
        "--null",
        "--files-from",
        "-",
    ]);
    let mut child = tar.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(list.join("\0").as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "tar fails");
}

/// Archives Node without what debuggers need.
fn node(to: &Path, folder: &Path) {
    let stage = folder.join(format!("node-{}", std::process::id()));
    let bin = stage.join("usr/bin");
    fs::create_dir_all(&bin).unwrap();
    let stripped = Command::new("strip")
        .args(["--strip-debug", "-o"])
        .arg(bin.join("node"))
        .arg(node_path())
        .status();
    assert!(stripped.unwrap().success(), "strip fails");
    let done = tar(to).arg("--directory").arg(&stage).arg("usr").status();
    assert!(done.unwrap().success(), "tar fails");
    fs::remove_dir_all(&stage).unwrap();
}

/// Archives a folder of this machine under another name.
fn tree(to: &Path, from: &Path, name: &str) {
    let done = tar(to)
        .arg(format!("--transform=s,^\\.,{name},"))
        .args(["--exclude=__pycache__", "--exclude=.bin", "--directory"])
        .arg(from)
        .arg(".")
        .status();
    assert!(done.unwrap().success(), "tar fails");
}

fn tar(to: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--format=pax",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.args([
        "--mtime=@0",
        "--pax-option=delete=atime,delete=ctime",
        "--file",
    ])
    .arg(to);
    tar
}
