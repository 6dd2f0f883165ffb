//! The shape of a schema before it is compiled: which subschemas apply to which, and how often.
//!
//! Finds infinite recursion (a cycle of references that never goes deeper into the value) and
//! combinatorial growth, so that both can be removed. Nothing here recurses over references.

use std::collections::HashMap;

use gantry_model::jsonrpc::pointer_step;
use serde_json::{Map, Value};

use super::budget::Weight;
use super::pattern;

/// The deepest nesting of the schema's own text.
const DEEPEST: usize = 64;
/// The most subschemas, and the most that may apply to one value (fault A9).
const MOST: usize = 10_000;
/// The longest chain of subschemas and references that apply to one value. Each link takes stack at
/// every level of the value.
const LONGEST_CHAIN: u64 = 24;

/// The keywords that refer to another subschema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// The keywords that apply a schema to the value itself.
const IN_PLACE: [&str; 12] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
];

/// The result of examining a schema's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Whether the schema refers to itself, deeper in the value each time.
    pub(super) recursive: bool,
    /// How expensive one access to a value is.
    pub(super) weight: Weight,
}

/// The outcome of examining a schema.
pub(super) enum Examined {
    Fine {
        shape: Shape,
        edges: Edges,
    },
    /// Keywords that must be removed first.
    Cut(Vec<DroppedKeywords>),
}

/// Keywords of one schema that must not be checked.
pub(super) struct DroppedKeywords {
    /// The JSON pointer of the schema.
    pub(super) path: String,
    pub(super) keywords: &'static [&'static str],
    pub(super) reason: &'static str,
}

/// Which schemas apply which others.
pub(super) struct Edges {
    /// The JSON pointer of each schema.
    pub(super) places: Vec<String>,
    /// For each schema, the schemas that apply it.
    pub(super) applied_by: Vec<Vec<usize>>,
}

/// Examines a schema in which all references resolve, or returns why it is too large.
pub(super) fn examine(schema: &Value) -> Result<Examined, String> {
    let mut graph = Graph::new(schema);
    graph.add(schema, String::new())?;
    graph.settle()?;
    let here = order(&graph.nodes, |node| Box::new(node.here.iter()));
    if here.len() < graph.nodes.len() {
        return Ok(Examined::Cut(graph.endless(&here)));
    }
    let (cuts, most) = graph.combinatorial(&here);
    if !cuts.is_empty() {
        return Ok(Examined::Cut(cuts));
    }
    let all = order(&graph.nodes, |node| {
        Box::new(node.here.iter().chain(&node.below))
    });
    let shape = Shape {
        recursive: all.len() < graph.nodes.len(),
        weight: Weight {
            schemas: most,
            name_states: graph.name_states,
        },
    };
    Ok(Examined::Fine {
        shape,
        edges: graph.edges(),
    })
}

/// Checks that a value is not nested too deeply for recursion.
pub(super) fn check_depth(value: &Value) -> Result<(), String> {
    fn is_within(value: &Value, left: usize) -> bool {
        let deeper = |value: &Value| {
            left.checked_sub(1)
                .is_some_and(|left| is_within(value, left))
        };
        match value {
            Value::Object(members) => members.values().all(deeper),
            Value::Array(items) => items.iter().all(deeper),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    if is_within(value, DEEPEST) {
        Ok(())
    } else {
        Err(format!("it nests deeper than {DEEPEST}"))
    }
}

/// A subschema and the subschemas it applies.
#[derive(Default)]
struct Node {
    path: String,
    /// Applied to the value itself.
    here: Vec<usize>,
    /// Applied to parts of the value.
    below: Vec<usize>,
    /// Those of `here` that are reached by a reference.
    referred: Vec<usize>,
}

struct Graph<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    /// Subschemas by address, which is unique while the schema is borrowed.
    known: HashMap<*const Value, usize>,
    waiting: Vec<(usize, &'a Map<String, Value>)>,
    anchors: HashMap<&'a str, usize>,
    references: Vec<(usize, &'a str)>,
    name_states: u64,
}

impl<'a> Graph<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            nodes: Vec::new(),
            known: HashMap::new(),
            waiting: Vec::new(),
            anchors: HashMap::new(),
            references: Vec::new(),
            name_states: 0,
        }
    }

    fn add(&mut self, schema: &'a Value, path: String) -> Result<usize, String> {
        if let Some(&index) = self.known.get(&std::ptr::from_ref(schema)) {
            return Ok(index);
        }
        let index = self.nodes.len();
        if index >= MOST {
            return Err(format!("it has more than {MOST} subschemas"));
        }
        self.nodes.push(Node {
            path,
            ..Node::default()
        });
        self.known.insert(schema, index);
        if let Value::Object(members) = schema {
            self.waiting.push((index, members));
        }
        Ok(index)
    }

    /// Adds all reachable subschemas, following references, until nothing new is found.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            while let Some((index, members)) = self.waiting.pop() {
                for (keyword, value) in members {
                    self.keyword(index, keyword, value)?;
                }
            }
            let Some((index, reference)) = self.references.pop() else {
                return Ok(());
            };
            let target = self.resolve(reference)?;
            self.nodes[index].here.push(target);
            self.nodes[index].referred.push(target);
        }
    }

    fn keyword(&mut self, index: usize, keyword: &str, value: &'a Value) -> Result<(), String> {
        match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                self.references.push((index, reference));
            }
            ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                self.anchors.insert(name, index);
            }
            ("$id", Value::String(id)) => {
                if let Some(name) = id.strip_prefix('#') {
                    self.anchors.insert(name, index);
                }
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                for (place, schema) in schemas.iter().enumerate() {
                    self.here(index, &[keyword, &place.to_string()], schema)?;
                }
            }
            ("not" | "if" | "then" | "else", schema) => self.here(index, &[keyword], schema)?,
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                for (name, schema) in schemas.iter().filter(|(_, schema)| !schema.is_array()) {
                    self.here(index, &[keyword, name], schema)?;
                }
            }
            ("properties" | "patternProperties", Value::Object(schemas)) => {
                if keyword == "patternProperties" {
                    let states = schemas.keys().map(|pattern| pattern::states(pattern));
                    self.name_states = states.fold(self.name_states, u64::saturating_add);
                }
                for (name, schema) in schemas {
                    self.below(index, &[keyword, name], schema)?;
                }
            }
            ("items" | "prefixItems", Value::Array(schemas)) => {
                for (place, schema) in schemas.iter().enumerate() {
                    self.below(index, &[keyword, &place.to_string()], schema)?;
                }
            }
            (
                "items"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains",
                schema @ (Value::Object(_) | Value::Bool(_)),
            ) => self.below(index, &[keyword], schema)?,
            ("$defs" | "definitions", Value::Object(schemas)) => {
                for (name, schema) in schemas {
                    let path = self.path(index, &[keyword, name]);
                    self.add(schema, path)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn path(&self, index: usize, steps: &[&str]) -> String {
        let mut path = self.nodes[index].path.clone();
        for step in steps {
            path.push('/');
            path.push_str(&pointer_step(step));
        }
        path
    }

    fn here(&mut self, index: usize, steps: &[&str], schema: &'a Value) -> Result<(), String> {
        let path = self.path(index, steps);
        let other = self.add(schema, path)?;
        self.nodes[index].here.push(other);
        Ok(())
    }

    fn below(&mut self, index: usize, steps: &[&str], schema: &'a Value) -> Result<(), String> {
        let path = self.path(index, steps);
        let other = self.add(schema, path)?;
        self.nodes[index].below.push(other);
        Ok(())
    }

    fn resolve(&mut self, reference: &'a str) -> Result<usize, String> {
        let missing = || "it refers to something that is not there".to_owned();
        let fragment = reference.trim_start_matches('#');
        if fragment.is_empty() || fragment.starts_with('/') {
            let path = unescape(fragment);
            let target = self.root.pointer(&path).ok_or_else(missing)?;
            return self.add(target, path);
        }
        let anchor = self.anchors.get(fragment).copied();
        anchor.ok_or_else(missing)
    }

    /// Returns the references that form a cycle without going deeper into the value.
    fn endless(&self, ordered: &[usize]) -> Vec<DroppedKeywords> {
        let mut is_left = vec![true; self.nodes.len()];
        for &index in ordered {
            is_left[index] = false;
        }
        // Nodes that a cycle leads to are not part of it.
        let mut onward = vec![0_usize; self.nodes.len()];
        let mut applied_by: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let left = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| is_left[*index]);
        for (index, node) in left {
            for &other in node.here.iter().filter(|&&other| is_left[other]) {
                onward[index] += 1;
                applied_by[other].push(index);
            }
        }
        let mut ends: Vec<usize> = (0..self.nodes.len())
            .filter(|&index| is_left[index] && onward[index] == 0)
            .collect();
        while let Some(index) = ends.pop() {
            is_left[index] = false;
            for &other in &applied_by[index] {
                onward[other] -= 1;
                if onward[other] == 0 {
                    ends.push(other);
                }
            }
        }
        let circling = self.nodes.iter().enumerate().filter(|(index, node)| {
            is_left[*index] && node.referred.iter().any(|&other| is_left[other])
        });
        circling
            .map(|(_, node)| DroppedKeywords {
                path: node.path.clone(),
                keywords: &REFERENCES,
                reason: "it refers to itself without end",
            })
            .collect()
    }

    /// Returns the keywords that apply too many schemas to one value, and the largest number among
    /// the rest.
    fn combinatorial(&self, ordered: &[usize]) -> (Vec<DroppedKeywords>, u64) {
        let mut chain = vec![1_u64; self.nodes.len()];
        let mut paths = vec![1_u64; self.nodes.len()];
        let mut cuts = Vec::new();
        for &index in ordered.iter().rev() {
            for &below in &self.nodes[index].here {
                chain[index] = chain[index].max(chain[below] + 1);
                paths[index] = paths[index].saturating_add(paths[below]);
            }
            if chain[index] > LONGEST_CHAIN || paths[index] > MOST as u64 {
                (chain[index], paths[index]) = (1, 1);
                cuts.push(DroppedKeywords {
                    path: self.nodes[index].path.clone(),
                    keywords: &IN_PLACE,
                    reason: "it combines too many alternatives",
                });
            }
        }
        (cuts, paths.into_iter().max().unwrap_or(1))
    }

    fn edges(self) -> Edges {
        let mut applied_by = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for &other in node.here.iter().chain(&node.below) {
                applied_by[other].push(index);
            }
        }
        Edges {
            places: self.nodes.into_iter().map(|node| node.path).collect(),
            applied_by,
        }
    }
}

/// Sorts the nodes topologically. Nodes in a cycle, and nodes reachable from one, are missing.
fn order<'n>(
    nodes: &'n [Node],
    edges: impl Fn(&'n Node) -> Box<dyn Iterator<Item = &'n usize> + 'n>,
) -> Vec<usize> {
    let mut pointed_at = vec![0_usize; nodes.len()];
    for node in nodes {
        for &other in edges(node) {
            pointed_at[other] += 1;
        }
    }
    let mut sorted: Vec<usize> = (0..nodes.len())
        .filter(|&index| pointed_at[index] == 0)
        .collect();
    let mut next = 0;
    while let Some(&index) = sorted.get(next) {
        next += 1;
        for &other in edges(&nodes[index]) {
            pointed_at[other] -= 1;
            if pointed_at[other] == 0 {
                sorted.push(other);
            }
        }
    }
    sorted
}

/// Decodes the percent-encoding of a reference's fragment.
pub(super) fn unescape(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
