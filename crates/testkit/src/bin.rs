//! Where the built programs of this crate are: next to the running test, in the same target
//! directory. A binary that is missing or older than its source is built first, since cargo does
//! not build a dependency's binaries for a test. Entry points: [`evilpeer`], [`treegen`] and [`fixture`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const PROGRAMS: [&str; 3] = ["evilpeer", "treegen", "fixture"];

/// Returns the path of the built `evilpeer`.
pub fn evilpeer() -> PathBuf {
    directory().join("evilpeer")
}

/// Returns the path of the built `treegen`.
pub fn treegen() -> PathBuf {
    directory().join("treegen")
}

/// Returns the path of the built `fixture`.
pub fn fixture() -> PathBuf {
    directory().join("fixture")
}

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = profile_directory();
        if PROGRAMS.iter().any(|name| is_stale(&directory.join(name))) {
            build(&directory);
        }
        directory
    })
}

/// The directory of the running executable, without the `deps` that tests live in.
fn profile_directory() -> PathBuf {
    let executable = std::env::current_exe().expect("a running program has a path");
    let mut directory = executable
        .parent()
        .expect("a program is in a directory")
        .to_owned();
    if directory.ends_with("deps") {
        directory.pop();
    }
    directory
}

fn is_stale(binary: &Path) -> bool {
    let Ok(built) = fs::metadata(binary).and_then(|data| data.modified()) else {
        return true;
    };
    newest(&Path::new(CRATE).join("src")).is_some_and(|written| written > built)
}

fn newest(directory: &Path) -> Option<SystemTime> {
    fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            if path.is_dir() {
                newest(&path)
            } else {
                fs::metadata(path).ok()?.modified().ok()
            }
        })
        .max()
}

fn build(directory: &Path) {
    let profile = directory
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("debug");
    let target = directory
        .parent()
        .expect("a profile's directory is in the target directory");
    let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args(["build", "--quiet", "--package", "gantry-testkit", "--bins"])
        .args([
            "--profile",
            if profile == "debug" { "dev" } else { profile },
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(CRATE)
        .stdin(Stdio::null())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "building the test kit's programs failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for name in PROGRAMS {
        // Cargo leaves a program alone that a change does not concern, such as one to its tests;
        // without this it would look stale to every test from then on.
        let program = fs::File::open(directory.join(name)).expect("cargo has built it");
        program
            .set_modified(SystemTime::now())
            .expect("what cargo has built is ours");
    }
}
