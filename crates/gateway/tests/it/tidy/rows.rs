//! Every requirement and fault that the tree names has its entry in `docs/requirements.md` or
//! `docs/faults.md`, and what those pages point at is there.

use std::collections::BTreeMap;
use std::fs;

use super::{assert_none, root, sources};

/// Returns the ids that a comment names: `row 1.10`, `rows 0.6, 2.2 and 2.3`, `fault S3`.
fn named(comment: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut words = comment.split(' ').peekable();
    while let Some(word) = words.next() {
        let word = word.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        let is_of_kind: fn(&str) -> bool = match word {
            "row" | "rows" => is_row,
            "fault" | "faults" => is_fault,
            _ => continue,
        };
        while let Some(next) = words.peek() {
            let id = next.trim_matches(|letter: char| !letter.is_alphanumeric());
            if is_of_kind(id) {
                found.push(id);
            } else if *next != "and" || found.is_empty() {
                break;
            }
            words.next();
        }
    }
    found
}

fn is_row(id: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    id.split_once('.')
        .is_some_and(|(part, row)| is_number(part) && is_number(row))
}

fn is_fault(id: &str) -> bool {
    let number = id.strip_prefix(|letter: char| letter.is_ascii_uppercase());
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Returns the entries of a page: each id with the files it points at.
fn entries(page: &str) -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let id = cells.next()?.to_owned();
        let mut files = Vec::new();
        for part in cells.nth(1)?.trim_end_matches(" |").split("; ") {
            let (krate, names) = part.split_once(": ")?;
            let names = names.split('`').skip(1).step_by(2);
            files.extend(names.map(|name| format!("{krate}/{name}")));
        }
        (is_row(&id) || is_fault(&id)).then_some((id, files))
    });
    rows.collect()
}

#[test]
fn every_row_and_fault_that_is_named_is_listed() {
    let mut listed = entries("docs/requirements.md");
    listed.extend(entries("docs/faults.md"));
    let files = sources("crates");
    let mut found = Vec::new();
    for (path, text) in &files {
        let comments = text.lines().filter_map(|line| line.split_once("//"));
        for id in comments.flat_map(|(_, comment)| named(comment)) {
            if !listed.contains_key(id) {
                found.push(format!("{path} names {id}, which is not listed"));
            }
        }
    }
    for (id, pointed) in &listed {
        for name in pointed {
            let (krate, name) = name.split_once('/').unwrap();
            let paths = ["src", "tests"].map(|part| format!("crates/{krate}/{part}/{name}.rs"));
            let file = files.iter().find(|(path, _)| paths.contains(path));
            if !file.is_some_and(|(_, text)| text.contains(id.as_str())) {
                found.push(format!(
                    "{id} points at {krate} `{name}`, which does not name it"
                ));
            }
        }
    }
    assert_none("docs/requirements.md and docs/faults.md", &found);
}

#[test]
fn ids_are_found_however_they_are_written() {
    let ids = |comment| named(comment).join(" ");
    assert_eq!(ids(" row 1.10"), "1.10");
    assert_eq!(ids(" rows 0.6, 2.2 and 2.3; fault S3."), "0.6 2.2 2.3 S3");
    assert_eq!(ids(" a row of figures (fault T4)"), "T4");
}
