//! The graph of modules: which top-level module of a crate imports which, read off the paths
//! `crate::…` and `super::…` in its source. It has no cycle, and ARCHITECTURE.md tells it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

use super::{assert_none, code, root, sources};

/// How far the number of lines in the table may be off: it tells a size, and need not follow every
/// change.
const OFF_BY: usize = 150;

/// What is known of one top-level module.
#[derive(Default)]
struct Module {
    lines: usize,
    /// The modules that it imports, each with the first place where it does.
    imports: BTreeMap<String, String>,
}

/// The top-level modules of a crate.
struct Graph {
    modules: BTreeMap<String, Module>,
    /// Imports of what is no module: a name that the root of the crate only passes on.
    through_root: Vec<String>,
}

impl Graph {
    fn read(krate: &str) -> Self {
        let folder = format!("crates/{krate}/src/");
        let files: Vec<_> = sources(&folder)
            .into_iter()
            .map(|(path, text)| (path[folder.len()..].to_owned(), text))
            .filter(|(path, _)| !["lib.rs", "main.rs"].contains(&path.as_str()))
            .filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/"))
            .collect();
        let name = |path: &str| path.split(['/', '.']).next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = files.iter().map(|(path, _)| name(path)).collect();
        let mut graph = Self {
            modules: BTreeMap::new(),
            through_root: Vec::new(),
        };
        for (path, text) in &files {
            let own = name(path);
            let lines = code(text);
            let module = graph.modules.entry(own.clone()).or_default();
            module.lines += lines.len();
            // A path that is broken over lines is one path.
            let depth = path.matches('/').count() + 1;
            for import in imports(&lines.join(" "), depth) {
                if !names.contains(&import) {
                    let place = format!("{krate}/{path}: `crate::{import}`");
                    graph.through_root.push(place);
                } else if import != own {
                    let place = module.imports.entry(import);
                    place.or_insert_with(|| path.clone());
                }
            }
        }
        graph
    }

    fn edges(&self) -> BTreeMap<&str, Vec<&str>> {
        let modules = self.modules.iter().map(|(name, module)| {
            let imports = module.imports.keys().map(String::as_str).collect();
            (name.as_str(), imports)
        });
        modules.collect()
    }

    /// Returns the shortest way from any module back to itself.
    fn shortest_cycle(&self) -> Option<String> {
        let edges = self.edges();
        let cycles = edges.keys().filter_map(|start| cycle(&edges, start));
        let shortest = cycles.min_by_key(Vec::len)?;
        let told = shortest.windows(2).map(|pair| {
            let place = &self.modules[pair[0]].imports[pair[1]];
            format!("{} imports {} in {place}", pair[0], pair[1])
        });
        Some(told.collect::<Vec<_>>().join("\n  "))
    }
}

/// Returns the names right behind the crate's root in all paths of a text.
fn imports(text: &str, depth: usize) -> BTreeSet<String> {
    let supers = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    for root in ["crate::", supers.as_str()] {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || "_:".contains(before)) {
                continue;
            }
            let after = &text[at + root.len()..];
            match after.strip_prefix('{') {
                Some(list) => found.extend(first_names(list)),
                None => found.extend(first_name(after)),
            }
        }
    }
    found.remove("super");
    found.remove("self");
    found
}

fn first_name(path: &str) -> Option<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let path = path.trim_start();
    let name = path.split(|letter| !is_name(letter)).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the first names of the paths in a list, up to its closing brace.
fn first_names(list: &str) -> Vec<String> {
    let mut names: Vec<String> = first_name(list).into_iter().collect();
    let mut deep = 0;
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => deep += 1,
            '}' if deep == 0 => break,
            '}' => deep -= 1,
            ',' if deep == 0 => names.extend(first_name(&list[at + 1..])),
            _ => {}
        }
    }
    names
}

/// Returns the shortest way from a module back to it, both ends included.
fn cycle<'a>(edges: &BTreeMap<&'a str, Vec<&'a str>>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for &next in &edges[module] {
            if next == start {
                let mut way = vec![start, module];
                while let Some(&before) = from.get(way[way.len() - 1]) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !from.contains_key(next) {
                from.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

#[test]
fn modules_import_each_other_in_one_direction_only() {
    let mut found = Vec::new();
    for krate in ["engine", "gateway"] {
        let graph = Graph::read(krate);
        if let Some(cycle) = graph.shortest_cycle() {
            found.push(format!("{krate} has a cycle:\n  {cycle}"));
        }
        found.extend(graph.through_root.iter().cloned());
    }
    assert_none("the graph of modules has no cycle", &found);
}

#[test]
fn the_architecture_tells_what_each_module_may_import() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut found = Vec::new();
    for krate in ["engine", "gateway"] {
        let graph = Graph::read(krate);
        let told = told(&page, krate);
        for (name, module) in &graph.modules {
            let imports: Vec<&str> = module.imports.keys().map(String::as_str).collect();
            let row = format!(
                "| `{name}` | {} | {} |",
                module.lines,
                imports
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
            match told.get(name) {
                Some((lines, may))
                    if *may == imports
                        && lines.abs_diff(module.lines) <= OFF_BY.max(module.lines / 5) => {}
                Some(_) => found.push(format!("{krate}: another row is true: {row}")),
                None => found.push(format!("{krate} lacks: {row}")),
            }
        }
        let gone = told
            .keys()
            .filter(|name| !graph.modules.contains_key(*name));
        found.extend(gone.map(|name| format!("{krate} has no module `{name}`")));
    }
    assert_none("the tables of modules in ARCHITECTURE.md", &found);
}

/// Returns the rows of a crate's table: the lines of each module, and what it may import.
fn told<'p>(page: &'p str, krate: &str) -> BTreeMap<String, (usize, Vec<&'p str>)> {
    let section = page.split(&format!("### `crates/{krate}`")).nth(1).unwrap();
    let section = section.split("\n### ").next().unwrap_or_default();
    let quoted = |cell: &'p str| -> Vec<&'p str> { cell.split('`').skip(1).step_by(2).collect() };
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?.to_owned();
        let lines = cells.next()?.parse().ok()?;
        Some((name, (lines, quoted(cells.next()?))))
    });
    rows.collect()
}

#[test]
fn paths_are_found_however_they_are_written() {
    let text = "use crate::a::B; use crate::{c, d::{E, F}, g::H}; use super::super::i::J; \
                use super::k; crate::l::m(); my_crate::n; pub(in crate::o) fn p() {}";
    let found: Vec<_> = imports(text, 2).into_iter().collect();
    assert_eq!(found, ["a", "c", "d", "g", "i", "l", "o"]);
}
