//! The graph of modules: which top-level module of a crate imports which, read off the paths
//! `crate::…` and `super::…` in its source. It has no cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{assert_none, code, sources};

/// Imports that are part of a cycle and are still to be cut. Nothing may be added.
const TO_CUT: [(&str, &str, &str); 3] = [
    ("gateway", "config", "app"),
    ("gateway", "http", "api"),
    ("gateway", "http", "mcp"),
];

/// What is known of one top-level module.
#[derive(Default)]
struct Module {
    /// The modules that it imports, each with the first place where it does.
    imports: BTreeMap<String, String>,
}

/// The top-level modules of a crate.
struct Graph {
    krate: &'static str,
    modules: BTreeMap<String, Module>,
    /// Imports of what is no module: a name that the root of the crate only passes on.
    through_root: Vec<String>,
}

impl Graph {
    fn read(krate: &'static str) -> Self {
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
            krate,
            modules: BTreeMap::new(),
            through_root: Vec::new(),
        };
        for (path, text) in &files {
            let own = name(path);
            let lines = code(text);
            let module = graph.modules.entry(own.clone()).or_default();
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

    /// Returns the imports without those that are still to be cut.
    fn edges(&self) -> BTreeMap<&str, Vec<&str>> {
        let is_known = |from: &str, to: &str| TO_CUT.contains(&(self.krate, from, to));
        let modules = self.modules.iter().map(|(name, module)| {
            let imports = module.imports.keys().map(String::as_str);
            let imports = imports.filter(|import| !is_known(name, import)).collect();
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
        for (_, from, to) in TO_CUT.iter().filter(|(of, ..)| *of == krate) {
            let module = graph.modules.get(*from);
            if !module.is_some_and(|module| module.imports.contains_key(*to)) {
                found.push(format!("{krate}: {from} → {to} is cut: strike it off"));
            }
        }
    }
    assert_none("the graph of modules has no cycle", &found);
}

#[test]
fn paths_are_found_however_they_are_written() {
    let text = "use crate::a::B; use crate::{c, d::{E, F}, g::H}; use super::super::i::J; \
                use super::k; crate::l::m(); my_crate::n; pub(in crate::o) fn p() {}";
    let found: Vec<_> = imports(text, 2).into_iter().collect();
    assert_eq!(found, ["a", "c", "d", "g", "i", "l", "o"]);
}
