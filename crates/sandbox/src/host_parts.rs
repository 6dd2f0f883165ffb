//! The parts of the host that a hosted command sees in its separate root: programs and libraries,
//! read-only, and an own `/etc` with what programs need to run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Command, Network};
use crate::protocol::STEP_READ_ONLY;
use crate::root::OwnRoot;
use crate::search::candidates;
use crate::steps::Step;

/// The user id of a hosted command in its own root.
pub(crate) const SERVER_ID: u32 = 1000;
pub(crate) const SERVER_HOME: &str = "/home/server";

/// Programs and libraries. Symbolic links among them stay links.
const PARTS: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix",
];

/// The visible files of the host's `/etc`: none contains secrets or names of people.
const SETTINGS: [&str; 21] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "gai.conf",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "perl",
    "pki",
    "protocols",
    "python3",
    "services",
    "ssl",
    "terminfo",
    "timezone",
];

/// Folders that are covered nevertheless.
const PRIVATE: [&str; 2] = ["/etc/ssl/private", "/etc/pki/tls/private"];

/// Returns whether a path is visible.
pub(crate) fn shows(path: &Path) -> bool {
    PARTS.iter().any(|part| path.starts_with(part))
}

/// Returns the file that a command runs, if there is one.
pub(crate) fn program(command: &Command) -> Option<PathBuf> {
    let candidates = candidates(command).into_iter();
    let mut files = candidates.map(|candidate| command.cwd.join(candidate));
    files.find(|file| file.is_file())
}

/// Returns the steps that fill the root.
pub(crate) fn steps(command: &Command, root: &OwnRoot) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in PARTS {
        let Ok(metadata) = fs::symlink_metadata(part) else {
            continue;
        };
        if metadata.is_symlink() {
            if let Ok(text) = fs::read_link(part) {
                steps.push(Step::link(part, text));
            }
        } else if metadata.is_dir() {
            steps.push(Step::bind(part, part).with(STEP_READ_ONLY));
        }
    }
    for (name, content) in [
        ("passwd", users()),
        ("group", groups()),
        ("hosts", hosts(&root.hostname)),
        ("hostname", format!("{}\n", root.hostname)),
        ("resolv.conf", resolver(command.network)),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n".to_owned(),
        ),
    ] {
        steps.push(Step::file(format!("/etc/{name}"), 0o644, content));
    }
    for name in SETTINGS {
        // A link's target may not exist in the root, so the real file is mounted.
        if let Ok(real) = fs::canonicalize(Path::new("/etc").join(name)) {
            let shown = Step::bind(real, format!("/etc/{name}")).with(STEP_READ_ONLY);
            steps.push(shown.optional());
        }
    }
    // `/dev` is not mounted yet, so only folders can be covered; these are folders.
    steps.extend(PRIVATE.iter().map(Step::mask));
    steps.push(Step::directory("/var", 0o755));
    steps.push(Step::link("/var/tmp", "/tmp"));
    steps.push(Step::directory("/run", 0o755));
    steps.push(Step::directory("/root", 0o700));
    steps
}

fn users() -> String {
    format!(
        "root:x:0:0:root:/root:/bin/sh\n\
         server:x:{SERVER_ID}:{SERVER_ID}:server:{SERVER_HOME}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    )
}

fn groups() -> String {
    format!("root:x:0:\nserver:x:{SERVER_ID}:\nnogroup:x:65534:\n")
}

pub(crate) fn hosts(host_name: &str) -> String {
    format!("127.0.0.1\tlocalhost {host_name}\n::1\tlocalhost ip6-localhost ip6-loopback\n")
}

/// Returns the resolver's configuration: the host's if the host's network is granted.
pub(crate) fn resolver(network: Network) -> String {
    match network {
        Network::Full => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        Network::None | Network::Inside => String::new(),
    }
}
