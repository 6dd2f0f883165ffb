//! The shape of a schema before it is compiled: what applies to what, and how that can multiply.
//!
//! Refuses what has no end (references in a circle that never go deeper into the value), what is
//! too large, and what lies in another document. Nothing here recurses over references.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::budget::Weight;
use super::{SchemaError, pattern};

/// The deepest nesting of the schema's own text.
const DEEPEST: usize = 64;
/// The most subschemas, and the most of them that one value may be checked against (fault A9).
const MOST: usize = 10_000;
/// The longest chain of subschemas and references that apply to one value: each link takes stack,
/// once more for every level of the value.
const LONGEST_CHAIN: u64 = 24;

/// What matters of a schema's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// It refers to itself, deeper in the value each time.
    pub(super) recursive: bool,
    /// What makes a single look at a value dearer.
    pub(super) weight: Weight,
}

/// Examines a schema, or says why it must not be used.
pub(super) fn examine(schema: &Value) -> Result<Shape, SchemaError> {
    check_depth(schema, DEEPEST)?;
    let mut graph = Graph::new(schema);
    graph.add(schema)?;
    graph.settle()?;
    let here =
        order(&graph.nodes, |node| Box::new(node.here.iter())).ok_or(SchemaError::Endless)?;
    let mut chain = vec![1_u64; graph.nodes.len()];
    let mut paths = vec![1_u64; graph.nodes.len()];
    for &index in here.iter().rev() {
        for &below in &graph.nodes[index].here {
            chain[index] = chain[index].max(chain[below] + 1);
            paths[index] = paths[index].saturating_add(paths[below]);
        }
    }
    if chain.iter().any(|&length| length > LONGEST_CHAIN)
        || paths.iter().any(|&count| count > MOST as u64)
    {
        return Err(SchemaError::Combinatorial);
    }
    let all = order(&graph.nodes, |node| {
        Box::new(node.here.iter().chain(&node.below))
    });
    Ok(Shape {
        recursive: all.is_none(),
        weight: Weight {
            schemas: paths.into_iter().max().unwrap_or(1),
            name_states: graph.name_states,
        },
    })
}

/// A subschema, and what it applies.
#[derive(Default)]
struct Node {
    /// To the value itself.
    here: Vec<usize>,
    /// To parts of the value.
    below: Vec<usize>,
}

struct Graph<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    /// Subschemas by their address, which is theirs alone while the schema is borrowed.
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

    fn add(&mut self, schema: &'a Value) -> Result<usize, SchemaError> {
        if let Some(&index) = self.known.get(&std::ptr::from_ref(schema)) {
            return Ok(index);
        }
        let index = self.nodes.len();
        if index >= MOST {
            return Err(SchemaError::TooMany(MOST));
        }
        self.nodes.push(Node::default());
        self.known.insert(schema, index);
        if let Value::Object(members) = schema {
            self.waiting.push((index, members));
        }
        Ok(index)
    }

    /// Follows everything that was added, and then the references, until nothing is new.
    fn settle(&mut self) -> Result<(), SchemaError> {
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
        }
    }

    fn keyword(
        &mut self,
        index: usize,
        keyword: &str,
        value: &'a Value,
    ) -> Result<(), SchemaError> {
        match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                self.references.push((index, reference));
            }
            ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                self.anchors.insert(name, index);
            }
            ("$id", Value::String(id)) => match id.strip_prefix('#') {
                Some(name) => {
                    self.anchors.insert(name, index);
                }
                None if index == 0 => {}
                None => return Err(SchemaError::Embedded),
            },
            ("id", Value::String(_)) if index != 0 && self.is_draft_4() => {
                return Err(SchemaError::Embedded);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => self.here(index, schemas)?,
            ("not" | "if" | "then" | "else", schema) => self.here(index, [schema])?,
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                self.here(index, schemas.values().filter(|schema| !schema.is_array()))?;
            }
            ("properties", Value::Object(schemas)) => self.below(index, schemas.values())?,
            ("patternProperties", Value::Object(schemas)) => {
                let states = schemas.keys().map(|pattern| pattern::states(pattern));
                self.name_states = states.fold(self.name_states, u64::saturating_add);
                self.below(index, schemas.values())?;
            }
            ("items" | "prefixItems", Value::Array(schemas)) => self.below(index, schemas)?,
            (
                "items"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "contentSchema",
                schema @ (Value::Object(_) | Value::Bool(_)),
            ) => self.below(index, [schema])?,
            ("$defs" | "definitions", Value::Object(schemas)) => {
                for schema in schemas.values() {
                    self.add(schema)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn here(
        &mut self,
        index: usize,
        schemas: impl IntoIterator<Item = &'a Value>,
    ) -> Result<(), SchemaError> {
        for schema in schemas {
            let other = self.add(schema)?;
            self.nodes[index].here.push(other);
        }
        Ok(())
    }

    fn below(
        &mut self,
        index: usize,
        schemas: impl IntoIterator<Item = &'a Value>,
    ) -> Result<(), SchemaError> {
        for schema in schemas {
            let other = self.add(schema)?;
            self.nodes[index].below.push(other);
        }
        Ok(())
    }

    fn resolve(&mut self, reference: &'a str) -> Result<usize, SchemaError> {
        let own = self
            .root
            .get("$id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let own = own.trim_end_matches('#');
        let fragment = match reference.strip_prefix(own) {
            Some("") => "",
            _ if reference.starts_with('#') => &reference[1..],
            Some(rest) if rest.starts_with('#') => &rest[1..],
            _ => return Err(SchemaError::Remote(cut(reference))),
        };
        let dangling = || SchemaError::Dangling(cut(reference));
        if fragment.is_empty() || fragment.starts_with('/') {
            let target = self
                .root
                .pointer(&unescape(fragment))
                .ok_or_else(dangling)?;
            return self.add(target);
        }
        self.anchors.get(fragment).copied().ok_or_else(dangling)
    }

    fn is_draft_4(&self) -> bool {
        let dialect = self.root.get("$schema").and_then(Value::as_str);
        dialect.is_some_and(|dialect| dialect.contains("draft-04"))
    }
}

/// Sorts the nodes so that each comes before what it points to; nothing if they form a circle.
fn order<'n>(
    nodes: &'n [Node],
    edges: impl Fn(&'n Node) -> Box<dyn Iterator<Item = &'n usize> + 'n>,
) -> Option<Vec<usize>> {
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
    (sorted.len() == nodes.len()).then_some(sorted)
}

fn check_depth(value: &Value, left: usize) -> Result<(), SchemaError> {
    let deeper = |value: &Value| match left.checked_sub(1) {
        Some(left) => check_depth(value, left),
        None => Err(SchemaError::TooDeep(DEEPEST)),
    };
    match value {
        Value::Object(members) => members.values().try_for_each(deeper),
        Value::Array(items) => items.iter().try_for_each(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Undoes the percent-encoding of a reference's fragment.
fn unescape(fragment: &str) -> String {
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

fn cut(reference: &str) -> String {
    reference
        .chars()
        .take(100)
        .flat_map(char::escape_debug)
        .collect()
}
