//! Builds the pages of `docs/errors` in: a sorted table of code and text.

use std::path::PathBuf;
use std::{env, fs, io};

#[expect(
    clippy::disallowed_methods,
    reason = "cargo configures a build script through the environment"
)]
fn main() -> io::Result<()> {
    // Asked for when it runs: a build that was copied finds the pages of its own sources.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?;
    let folder = PathBuf::from(manifest).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(code) = name.and_then(|name| name.strip_suffix(".md")) {
            println!("cargo::rerun-if-changed={}", path.display());
            pages.push((code.to_owned(), path.canonicalize()?));
        }
    }
    pages.sort();
    let rows = pages
        .iter()
        .map(|(code, path)| format!("    ({code:?}, include_str!({path:?})),\n"));
    let rows: String = rows.collect();
    let table = format!("const PAGES: &[(&str, &str)] = &[\n{rows}];\n");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(PathBuf::from(out).join("error_pages.rs"), table)
}
