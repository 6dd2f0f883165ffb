//! Which part of a schema can be checked: a copy without the rest, and a list of what was removed.
//!
//! A server's schema may use unknown keywords, patterns of unknown syntax, or references to other
//! documents. The tool stays usable: such parts are removed from the copy that values are checked
//! against, and counted; clients still get the original definition. Older dialects are translated
//! where the meaning is clear. Removing a part never causes a value to be rejected that the whole
//! schema accepts: see [`taint`]. Entry point: [`judgeable`].

mod keywords;
mod numbers;
mod references;
mod taint;

use std::collections::HashSet;

use gantry_model::jsonrpc::pointer_step;
use gantry_model::naming::is_unprintable;
use serde_json::{Map, Value};

use self::references::Reference;
use super::graph::{self, Examined, Shape};

/// The deepest nesting of the schema's own text.
const DEEPEST: usize = 64;
/// The most removed parts that are listed.
const MOST_TOLD: usize = 16;
/// How often the shape is examined again after a removal.
const ROUNDS: usize = 64;

/// A part of a schema that values are not checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unchecked {
    /// Where it is in the schema: a JSON pointer, empty for the whole.
    pub(crate) part: String,
    /// Why it cannot be checked.
    pub(crate) reason: String,
}

/// The dialects that are checked differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Drafts 4, 6 and 7: a `$ref` hides its sibling keywords, `items` may be an array.
    Draft7,
    Draft2019,
    Draft2020,
}

impl Dialect {
    /// Returns the dialect that a `$schema` names.
    fn named(uri: &str) -> Option<Self> {
        let uri = uri.trim().trim_end_matches(['#', '/']);
        let path = uri
            .strip_prefix("https://")
            .or_else(|| uri.strip_prefix("http://"))?;
        match path.strip_prefix("json-schema.org/")? {
            "draft-04/schema" | "draft-06/schema" | "draft-07/schema" => Some(Self::Draft7),
            "draft/2019-09/schema" => Some(Self::Draft2019),
            "draft/2020-12/schema" | "schema" => Some(Self::Draft2020),
            _ => None,
        }
    }

    fn uri(self) -> &'static str {
        match self {
            Self::Draft7 => "http://json-schema.org/draft-07/schema#",
            Self::Draft2019 => "https://json-schema.org/draft/2019-09/schema",
            Self::Draft2020 => "https://json-schema.org/draft/2020-12/schema",
        }
    }
}

/// The part of a schema that can be checked.
#[derive(Debug)]
pub(super) struct Judgeable {
    pub(super) schema: Value,
    pub(super) shape: Shape,
    pub(super) unchecked: Vec<Unchecked>,
}

/// Removes what cannot be checked from a schema; a schema that is too large is not checked at all.
pub(super) fn judgeable(schema: Value) -> Judgeable {
    let mut cleaner = Cleaner::of(schema);
    cleaner.clean();
    cleaner.finish()
}

/// Removes one more part that turned out to be unusable; `None` if there is no such part.
pub(super) fn without(judgeable: Judgeable, part: &str, reason: String) -> Option<Judgeable> {
    let Judgeable {
        schema, unchecked, ..
    } = judgeable;
    let mut cleaner = Cleaner::of(schema);
    cleaner.unchecked = unchecked;
    cleaner.dialect();
    // The nearest part that can be removed: a keyword, or one of its members.
    let (holder, last) = part.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match cleaner.schema.pointer_mut(holder)? {
        Value::Object(members) => drop(members.shift_remove(&last)?),
        Value::Array(items) => *items.get_mut(last.parse::<usize>().ok()?)? = Value::Bool(true),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    cleaner.leave(part, reason);
    // It is unknown which schema the part belonged to, so all enclosing ones count.
    let mut context = holder;
    loop {
        cleaner.tainted.insert(context.to_owned());
        match context.rsplit_once('/') {
            Some((next, _)) => context = next,
            None => break,
        }
    }
    Some(cleaner.finish())
}

/// Returns a schema of which nothing is checked.
pub(super) fn nothing(reason: String) -> Judgeable {
    Judgeable {
        schema: Value::Bool(true),
        shape: Shape::default(),
        unchecked: vec![Unchecked {
            part: String::new(),
            reason,
        }],
    }
}

/// Removes the parts of a schema that cannot be checked.
struct Cleaner {
    schema: Value,
    dialect: Dialect,
    /// The schema's `$id`, by which it may refer to itself.
    id: String,
    unchecked: Vec<Unchecked>,
    /// The paths of schemas that lack a removed part.
    tainted: HashSet<String>,
    /// The paths of schemas that were visited.
    seen: HashSet<String>,
    /// References whose targets are not resolved yet.
    references: Vec<Reference>,
    anchors: HashSet<String>,
}

impl Cleaner {
    fn of(schema: Value) -> Self {
        Self {
            schema,
            dialect: Dialect::Draft2020,
            id: String::new(),
            unchecked: Vec::new(),
            tainted: HashSet::new(),
            seen: HashSet::new(),
            references: Vec::new(),
            anchors: HashSet::new(),
        }
    }

    /// Records a part that is not checked.
    fn leave(&mut self, part: &str, reason: String) {
        if self.unchecked.len() < MOST_TOLD {
            self.unchecked.push(Unchecked {
                part: shown(part),
                reason: shown(&reason),
            });
        }
    }

    fn clean(&mut self) {
        self.dialect();
        let mut schema = std::mem::take(&mut self.schema);
        if let Value::Object(root) = &mut schema {
            self.own_id(root);
        }
        self.schema(&mut schema, String::new(), 0, false);
        self.schema = schema;
        self.follow();
    }

    /// Determines the schema's dialect and removes `$schema`.
    fn dialect(&mut self) {
        let root = self.schema.as_object_mut();
        let named = root.and_then(|root| root.shift_remove("$schema"));
        let Some(named) = named.filter(|named| !named.is_null()) else {
            return;
        };
        match named.as_str().and_then(Dialect::named) {
            Some(dialect) => self.dialect = dialect,
            None => {
                let reason = format!("`{named}` is not a known dialect; 2020-12 is assumed");
                self.leave("/$schema", reason);
            }
        }
    }

    /// Remembers the schema's `$id` for references to itself, and removes it.
    fn own_id(&mut self, root: &mut Map<String, Value>) {
        for keyword in ["$id", "id"] {
            let own = |id: &str| !id.starts_with('#');
            let id = root.get(keyword).and_then(Value::as_str);
            if let Some(id) = id.filter(|id| own(id)) {
                self.id = id.trim_end_matches('#').to_owned();
                root.shift_remove(keyword);
                return;
            }
        }
    }

    /// Examines the shape until nothing more has to be removed.
    fn finish(mut self) -> Judgeable {
        if let Err(reason) = graph::check_depth(&self.schema) {
            return self.whole(reason);
        }
        for _ in 0..ROUNDS {
            match graph::examine(&self.schema) {
                Err(reason) => return self.whole(reason),
                Ok(Examined::Cut(cuts)) => {
                    for cut in cuts {
                        self.cut(&cut);
                    }
                }
                Ok(Examined::Fine { shape, edges }) => {
                    if self.tainted.is_empty() {
                        return self.done(shape);
                    }
                    self.weaken(&edges);
                    // Weakening changed the shape.
                    self.tainted.clear();
                }
            }
        }
        self.whole("it is too complex".to_owned())
    }

    fn done(mut self, shape: Shape) -> Judgeable {
        if let Value::Object(root) = &mut self.schema
            && !root.is_empty()
        {
            let uri = Value::String(self.dialect.uri().to_owned());
            root.insert("$schema".to_owned(), uri);
        }
        Judgeable {
            schema: self.schema,
            shape,
            unchecked: self.unchecked,
        }
    }

    fn whole(self, reason: String) -> Judgeable {
        let mut nothing = nothing(reason);
        nothing.unchecked.extend(self.unchecked);
        nothing.unchecked.truncate(MOST_TOLD);
        nothing
    }
}

/// Appends a step to a JSON pointer.
fn below(path: &str, step: &str) -> String {
    format!("{path}/{}", pointer_step(step))
}

/// Shortens a text and escapes control characters.
fn shown(text: &str) -> String {
    let mut short = String::new();
    for (count, character) in text.chars().enumerate() {
        if count >= 160 {
            short.push('…');
            break;
        }
        if is_unprintable(character) {
            short.extend(character.escape_unicode());
        } else {
            short.push(character);
        }
    }
    short
}

#[cfg(test)]
mod tests;
