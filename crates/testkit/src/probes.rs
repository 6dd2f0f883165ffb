//! Attacks from inside: a program with more than a hundred probes of things that a sandboxed server
//! must not be able to do, and the outside world by which they are judged.
//!
//! [`build`] compiles the program (`probes/*.c`, static: it runs in an otherwise empty root, and in
//! gVisor); [`World`] is the target; [`World::judge`] checks the effects. A probe is judged by its
//! effects outside; its own output is for the table in `docs/isolation.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod verdict;
mod world;

pub use verdict::{Kernel, Seen, read, table};
pub use world::World;

const SOURCES: [(&str, &str); 10] = [
    ("probe.h", include_str!("../probes/probe.h")),
    ("main.c", include_str!("../probes/main.c")),
    ("hold.c", include_str!("../probes/hold.c")),
    ("flood.c", include_str!("../probes/flood.c")),
    ("network.c", include_str!("../probes/network.c")),
    ("files.c", include_str!("../probes/files.c")),
    ("processes.c", include_str!("../probes/processes.c")),
    ("kernel.c", include_str!("../probes/kernel.c")),
    ("escape.c", include_str!("../probes/escape.c")),
    ("shared.c", include_str!("../probes/shared.c")),
];

/// Compiles the program into a folder; returns its path.
pub fn build(folder: &Path) -> PathBuf {
    let program = folder.join("probes");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-o"]).arg(&program);
    for (name, text) in SOURCES {
        let source = folder.join(name);
        fs::write(&source, text).expect("the folder is writable");
        if name.ends_with(".c") {
            compiler.arg(source);
        }
    }
    let output = compiler
        .output()
        .expect("the compiler that Rust links with");
    assert!(
        output.status.success(),
        "compiling the probes failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (name, _) in SOURCES {
        fs::remove_file(folder.join(name)).expect("it was just written");
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_is_in_the_table_and_the_other_way_round() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/isolation.md");
        let page = fs::read_to_string(folder).expect("the page is in the repository");
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let probes: Vec<&str> = SOURCES
            .iter()
            .flat_map(|(_, text)| text.lines())
            .filter_map(|line| line.strip_prefix("    {\"")?.split('"').next())
            .collect();
        assert_eq!(listed, probes);
    }
}
