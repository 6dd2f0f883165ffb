//! The path of one `tools/call`, read off the sources and compared with ARCHITECTURE.md.
//!
//! Each function of the table must hand the call to the next one itself: the call stands in its body,
//! or in the body of one of the functions right before it, which passed it on as a closure or a
//! future. So the table leaves no function of ours out, and a new one between two of them fails here.

use std::fs;

use super::root;

/// The maximum number of functions that hand a call on, and that hand its answer back.
const OUT: usize = 25;
const BACK: usize = 12;
/// Through how many functions a closure or a future may be passed before it is called.
const PASSED: usize = 3;

/// A function of the table.
struct Step {
    name: String,
    file: String,
    body: String,
}

impl Step {
    /// Reads a row `| 3 | `Type::name` | `crate/module` |`.
    fn read(row: &str) -> Self {
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let (name, file) = (cells[2].to_owned(), cells[3].to_owned());
        let (krate, module) = file.split_once('/').expect("`crate/module`");
        let path = root().join(format!("crates/{krate}/src/{module}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no `{file}`"));
        let body = body(&text, &name).unwrap_or_else(|| panic!("`{file}` has no `{name}`"));
        Self { name, file, body }
    }

    /// Returns whether its body calls a function, or one that it holds under that name.
    fn calls(&self, function: &str) -> bool {
        let function = last(function);
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let mut places = self.body.match_indices(function);
        places.any(|(at, _)| {
            let before = self.body[..at].chars().next_back();
            let after = &self.body[at + function.len()..];
            let is_called = after.starts_with('(') || after.starts_with(")(");
            is_called && !before.is_some_and(is_name) && !self.body[..at].ends_with("fn ")
        })
    }
}

fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns the text of a function: of a type if its name has one, else of the file.
fn body(text: &str, name: &str) -> Option<String> {
    let item = |text: &str, indent: &str| {
        let lines = text.lines();
        let head = format!("fn {}", last(name));
        let is_head = |line: &&str| {
            let depth = line.len() - line.trim_start().len();
            let named = line
                .split_once(&head)
                .is_some_and(|(_, rest)| rest.starts_with(['(', '<']));
            depth == indent.len() && named
        };
        let mut lines = lines.skip_while(|line| !is_head(line));
        let end = format!("{indent}}}");
        let mut found: Vec<&str> = vec![lines.next()?];
        found.extend(lines.take_while(|line| *line != end));
        Some(found.join("\n"))
    };
    match name.split_once("::") {
        Some((owner, _)) if owner.starts_with(char::is_uppercase) => {
            let mut rest = text;
            while let Some(at) = rest.find("\nimpl") {
                let block = &rest[at + 1..];
                let block = &block[..block.find("\n}").map_or(block.len(), |end| end + 2)];
                let head = block.split('{').next().unwrap_or_default();
                let mut words = head.split(|letter: char| !letter.is_alphanumeric());
                if words.any(|word| word == owner)
                    && let Some(found) = item(block, "    ")
                {
                    return Some(found);
                }
                rest = &rest[at + 5..];
            }
            None
        }
        _ => item(text, ""),
    }
}

/// Returns the functions of the table with this heading.
fn table(heading: &str) -> Vec<Step> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(Step::read).collect()
}

#[test]
fn the_path_of_a_call_is_the_one_in_architecture() {
    let out = table("| # | out |");
    assert!(
        (2..=OUT).contains(&out.len()),
        "{} functions out",
        out.len()
    );
    for at in 1..out.len() {
        let (step, before) = (&out[at], &out[at.saturating_sub(PASSED)..at]);
        let is_called = before.iter().any(|before| before.calls(&step.name));
        assert!(
            is_called,
            "`{}` in `{}` is not called by the functions before it: is one missing from the table?",
            step.name, step.file
        );
    }
    let back = table("| # | back |");
    assert!(
        (2..=BACK).contains(&back.len()),
        "{} functions back",
        back.len()
    );
    for (at, step) in back.iter().enumerate().skip(1) {
        let mut callers = back[..at].iter().chain(&back[at + 1..]).chain(&out);
        // The runtime polls futures.
        let is_polled = last(&step.name) == "poll";
        assert!(
            is_polled || callers.any(|caller| caller.calls(&step.name)),
            "`{}` in `{}` is called by no function of the path",
            step.name,
            step.file
        );
    }
}

#[test]
fn a_function_that_is_missing_from_the_path_is_noticed() {
    let text =
        "fn a() {\n    b();\n}\n\nfn b() {\n    self.c(1);\n}\n\nimpl C {\n    fn c() {}\n}\n";
    let step = |name: &str| Step {
        name: name.to_owned(),
        file: String::new(),
        body: body(text, name).unwrap(),
    };
    assert!(step("a").calls("b") && step("b").calls("C::c"));
    assert!(!step("a").calls("C::c") && !step("b").calls("b"));
    assert!(body(text, "C::d").is_none());
}
