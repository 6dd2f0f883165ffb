//! A folder of files with mistakes, each beside the exact message that it gets.
//!
//! `corpus/NAME.EXT` is checked by `gantry config check --config NAME.EXT`, and what that prints is
//! compared with `corpus/NAME.EXT.expected`. YAML is not read at all, so that no YAML can do harm.

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;

use super::Folder;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config/corpus")
}

// faults G1, G2, G3, G4, G6, G7, rows 2.19 and 2.20
#[test]
fn every_bad_file_gets_its_exact_message() {
    let folder = Folder::new();
    let mut names: Vec<String> = fs::read_dir(corpus())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".expected"))
        .collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        fs::copy(corpus().join(name), folder.at(name)).unwrap();
        let output = folder.run(&["config", "check", "--config", name]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let beside = corpus().join(format!("{name}.expected"));
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if told != expected {
            wrong.push(format!("{name}: expected\n{expected}\nbut told\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// fault G1
#[test]
fn a_file_of_a_hundred_megabytes_is_refused_without_being_read() {
    let folder = Folder::new();
    let file = fs::File::create(folder.at("big.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    let output = folder.run(&["config", "check", "--config", "big.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"
    config.too_long

      × big.json: the configuration file is longer than 4 MiB
      help: name a file that contains servers and little else
    ");
}

// fault G1
#[test]
fn yaml_is_not_read() {
    let folder = Folder::new();
    folder.write("bomb.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n");
    let output = folder.run(&["config", "check", "--config", "bomb.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"
    config.syntax

      × invalid JSON: unexpected word
       ╭─[bomb.yaml:1:1]
     1 │ *: ** [*, *]
       · ┬
       · ╰── here
     2 │ *: ** [**, **]
       ╰────
      help: put texts and names into double quotes
    ");
}
