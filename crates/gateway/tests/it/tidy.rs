//! Rules over the source tree: who may import whom, how long a file may be, what must not appear.
//!
//! Each rule says what it found and where, so that a failure reads as a task.

mod call_path;
mod graph;
mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of lines of code in one file, comments, blank lines and test modules not counted.
const LONGEST: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Returns every Rust file under a folder, with its path from the root and its text.
fn sources(under: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root.join(under), &mut found);
    let named = found.into_iter().map(|path| {
        let name = path
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        (name, fs::read_to_string(&path).unwrap())
    });
    let sources: Vec<_> = named.collect();
    assert!(!sources.is_empty(), "there are no sources under `{under}`");
    sources
}

/// Returns the files of a module: `x.rs` and everything in `x/`.
fn room(of: &str, name: &str) -> Vec<(String, String)> {
    let (file, folder) = (format!("{of}/{name}.rs"), format!("{of}/{name}/"));
    sources(of)
        .into_iter()
        .filter(|(path, _)| *path == file || path.starts_with(&folder))
        .collect()
}

/// Returns the lines of code: without comments, blank lines and test modules.
fn code(text: &str) -> Vec<&str> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .collect()
}

fn assert_none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Returns the files whose code contains any of the words.
fn naming(files: &[(String, String)], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for line in code(text) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{path}: `{word}` in `{line}`"));
            }
        }
    }
    found
}

#[test]
fn imports_between_crates_go_one_way() {
    let allowed: [(&str, &[&str]); 6] = [
        ("model", &[]),
        ("store", &["gantry-model"]),
        ("sandbox", &["gantry-model"]),
        ("images", &["gantry-model"]),
        (
            "engine",
            &[
                "gantry-model",
                "gantry-store",
                "gantry-sandbox",
                "gantry-images",
            ],
        ),
        ("gateway", &["gantry-model", "gantry-engine"]),
    ];
    let mut found = Vec::new();
    for (name, allowed) in allowed {
        let text = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let after = text.split("[dependencies]").nth(1).unwrap_or_default();
        for line in after.lines().take_while(|line| !line.starts_with('[')) {
            let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if dependency.starts_with("gantry-") && !allowed.contains(&dependency) {
                found.push(format!("`{name}` depends on `{dependency}`"));
            }
        }
    }
    assert_none(
        "imports go gateway → engine → {store, sandbox, images} → model",
        &found,
    );
}

#[test]
fn surfaces_do_not_know_each_other_nor_the_store() {
    let gateway = "crates/gateway/src";
    let api = naming(&room(gateway, "api"), &["crate::mcp", "gantry_store"]);
    let mcp = naming(&room(gateway, "mcp"), &["crate::api", "gantry_store"]);
    assert_none(
        "`api` and `mcp` never import each other nor the store",
        &[api, mcp].concat(),
    );
}

#[test]
fn output_is_written_in_one_place() {
    let own = ["cli/output", "cli/prompt.rs", "example.rs", "/tests"];
    let files: Vec<_> = [
        "crates/gateway/src",
        "crates/engine/src",
        "crates/store/src",
    ]
    .into_iter()
    .flat_map(sources)
    .filter(|(path, _)| !own.iter().any(|own| path.contains(own)))
    .collect();
    let words = [
        "stdout().lock",
        "stderr().lock",
        "io::stderr)",
        "eprint",
        "println!(",
    ];
    assert_none(
        "stdout and stderr are written through `cli/output`",
        &naming(&files, &words),
    );
}

#[test]
fn drivers_and_transports_do_not_know_each_other() {
    let engine = "crates/engine/src";
    let driver = naming(
        &room(engine, "driver"),
        &["crate::transport", "super::transport"],
    );
    let transport = naming(
        &room(engine, "transport"),
        &["crate::driver", "super::driver"],
    );
    assert_none(
        "the runner joins driver and transport",
        &[driver, transport].concat(),
    );
}

#[test]
fn few_modules_name_the_sandbox_and_the_images() {
    let drivers = ["driver/process", "driver/hosted", "driver/image"];
    let keepers = [
        "driver/image",
        "disk/tree",
        "image_store",
        "project/images",
        "error/engine",
    ];
    let mut files = sources("crates/engine");
    files.extend(sources("crates/gateway/src"));
    let elsewhere = |word: &str, rooms: &[&str]| {
        let is_room = |path: &str| {
            let inside = path.strip_prefix("crates/engine/src/");
            inside.is_some_and(|path| rooms.iter().any(|room| path.starts_with(room)))
        };
        let others = files.iter().filter(|(path, _)| !is_room(path));
        naming(&others.cloned().collect::<Vec<_>>(), &[word])
    };
    let sandbox = elsewhere("gantry_sandbox::", &drivers);
    let images = elsewhere("gantry_images::", &keepers);
    assert_none(
        "the sandbox is named by the drivers that run something, the images by those who keep them",
        &[sandbox, images].concat(),
    );
}

#[test]
fn the_model_neither_waits_nor_reads_nor_tells_the_time() {
    let words = [
        "tokio::",
        "std::fs",
        "std::net",
        "std::env",
        "Instant::now",
        "SystemTime::now",
    ];
    assert_none(
        "`model` has no I/O and no clock",
        &naming(&sources("crates/model/src"), &words),
    );
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut found = Vec::new();
    for (path, text) in sources("crates") {
        let lines = code(&text).len();
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        if lines > LONGEST && !is_test {
            found.push(format!(
                "{path} has {lines} lines of code, at most {LONGEST} are allowed"
            ));
        }
        if !text.starts_with("//!") {
            found.push(format!("{path} does not begin with `//!`"));
        }
        if path.ends_with("/mod.rs") {
            found.push(format!(
                "{path}: modules are `x.rs` and `x/`, never `mod.rs`"
            ));
        }
    }
    assert_none("files are short and begin with a module comment", &found);
}

#[test]
fn nothing_is_left_for_later() {
    // Joined, so that this file does not name them.
    let words = [
        ["to", "do!("],
        ["unimpl", "emented!("],
        ["#[ign", "ore"],
        ["#[al", "low("],
        ["dbg", "!("],
    ];
    let words: Vec<String> = words.iter().map(|parts| parts.concat()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for (path, text) in sources("crates") {
        for line in text.lines().map(str::trim) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{path}: `{word}`"));
            }
        }
    }
    assert_none("finished code only", &found);
}

#[test]
fn dependencies_come_from_the_registry_and_are_wanted() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut found = Vec::new();
    for line in lock.lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && !source.starts_with("\"registry+")
        {
            found.push(format!("foreign source {source}"));
        }
        for refused in ["openssl-sys", "native-tls", "openssl"] {
            if line == format!("name = \"{refused}\"") {
                found.push(format!("refused crate `{refused}`"));
            }
        }
    }
    assert_none("`Cargo.lock`", &found);
}

#[test]
fn no_crate_comes_in_two_versions_without_a_reason() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    assert!(deny.contains("multiple-versions = \"deny\""));
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim_matches('"')
        };
        let known = versions.entry(value("name = ")).or_default();
        known.push(value("version = "));
    }
    let skipped: Vec<&str> = deny
        .split("crate = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next().filter(|name| name.contains('@')))
        .collect();
    let is_skipped = |name: &str, version: &str| {
        let exact = |skipped: &&str| {
            let (of, begins) = skipped.split_once('@').unwrap_or_default();
            of == name && format!("{version}.").starts_with(&format!("{begins}."))
        };
        skipped.iter().any(exact)
    };
    let mut found = Vec::new();
    for (name, versions) in &versions {
        let unexplained = versions.iter().filter(|version| !is_skipped(name, version));
        if versions.len() > 1 && unexplained.count() > 1 {
            found.push(format!("`{name}` comes as {}", versions.join(" and ")));
        }
    }
    for skipped in &skipped {
        let name = skipped.split('@').next().unwrap_or_default();
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            found.push(format!("`{skipped}` need not be skipped any more"));
        }
    }
    assert_none("`deny.toml` allows", &found);
}

#[test]
fn every_code_is_documented() {
    let page = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let mut found = Vec::new();
    for (path, text) in sources("crates")
        .into_iter()
        .filter(|(path, _)| !path.contains("/tests"))
    {
        for code in codes(&text) {
            if !page.contains(&format!("`{code}`")) {
                found.push(format!("`{code}` of {path}"));
            }
        }
    }
    assert_none("`docs/errors.md` lacks", &found);
}

#[test]
fn errors_get_their_status_in_one_place() {
    let gateway = "crates/gateway/src";
    let table = fs::read_to_string(root().join(gateway).join("http/error/status.rs")).unwrap();
    let mut found = Vec::new();
    for (path, text) in sources(gateway) {
        for code in problems(&text) {
            if !code.starts_with("gateway.") && !table.contains(&format!("\"{code}\"")) {
                found.push(format!("{path}: `{code}` has no status"));
            }
        }
    }
    assert_none("`http/error/status` knows every code of our own", &found);
}

#[test]
fn every_code_has_a_page() {
    let table = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let codes: Vec<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let folder = root().join("docs/errors");
    let mut found = Vec::new();
    for code in &codes {
        let page = fs::read_to_string(folder.join(format!("{code}.md"))).unwrap_or_default();
        let begins = page.starts_with(&format!("# `{code}`\n\n"));
        let parts = ["- Responsible party: ", "\n## What to do\n\n"];
        if !begins || !parts.iter().all(|part| page.contains(part)) {
            found.push(format!(
                "docs/errors/{code}.md must have the form of its neighbours"
            ));
        }
    }
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !codes.contains(&name.trim_end_matches(".md")) {
            found.push(format!(
                "docs/errors/{name} is of no code in docs/errors.md"
            ));
        }
    }
    assert_none("one page per code", &found);
}

/// Returns the codes that a file gives out: in the bodies of `fn code`, and those of problems.
fn codes(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut found = Vec::new();
    for body in text.split("fn code(&self) -> &'static str {").skip(1) {
        let body = body.split("\n    }").next().unwrap_or_default();
        found.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    found.extend(problems(text));
    found
}

/// Returns the codes of the problems that a file makes itself.
fn problems(text: &str) -> Vec<String> {
    let calls = ["Problem::new(", "unauthorized("];
    let calls = calls.iter().flat_map(|call| text.split(call).skip(1));
    let codes = calls.filter_map(|after| after.trim_start().strip_prefix('"')?.split('"').next());
    codes.map(str::to_owned).collect()
}
