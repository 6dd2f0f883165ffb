//! A program that takes a system call away from another one, as a stricter host would: [`build`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../probes/deny.c");

/// Compiles the program into a folder; returns its path. It is run as `deny NAME -- PROGRAM …`; the names
/// are in `probes/deny.c`.
pub fn build(folder: &Path) -> PathBuf {
    let (program, source) = (folder.join("deny"), folder.join("deny.c"));
    fs::write(&source, SOURCE).expect("the folder is writable");
    let output = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .output()
        .expect("the compiler that Rust links with");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "compiling failed:\n{said}");
    program
}
