//! Changes to a raw object, applied while it is written: one copy, everything else byte-exact.
//!
//! An [`Edit`] sets and removes members of the object itself and of its `_meta`. Set members come
//! first in the written object, the rest keeps its order. A value that is not an object is
//! written unchanged.

use std::borrow::Cow;

use super::raw::{Raw, RawBuf};
use super::text::quote_into;

/// The member in which MCP carries metadata.
const META: &str = "_meta";

/// A raw object and its changes.
#[derive(Debug, Clone)]
pub struct Edit<'a> {
    object: Raw<'a>,
    members: Vec<Change<'a>>,
    meta: Vec<Change<'a>>,
}

/// A borrowed or owned value.
#[derive(Debug, Clone)]
enum Value<'a> {
    Slice(Raw<'a>),
    Buffer(RawBuf),
}

#[derive(Debug, Clone)]
struct Change<'a> {
    key: Cow<'a, str>,
    /// The new value, or `None` to remove the member.
    value: Option<Value<'a>>,
}

impl Change<'_> {
    fn raw(&self) -> Option<Raw<'_>> {
        self.value.as_ref().map(|value| match value {
            Value::Slice(raw) => *raw,
            Value::Buffer(buffer) => buffer.as_raw(),
        })
    }
}

impl<'a> Edit<'a> {
    /// Starts with an unchanged object.
    pub fn new(object: Raw<'a>) -> Self {
        Self {
            object,
            members: Vec::new(),
            meta: Vec::new(),
        }
    }

    /// Sets a member.
    pub fn set(&mut self, key: &'a str, value: Raw<'a>) -> &mut Self {
        change(&mut self.members, key, Some(Value::Slice(value)));
        self
    }

    /// Sets a member to an owned value.
    pub fn set_buf(&mut self, key: &'a str, value: RawBuf) -> &mut Self {
        change(&mut self.members, key, Some(Value::Buffer(value)));
        self
    }

    /// Removes a member.
    pub fn remove(&mut self, key: &'a str) -> &mut Self {
        change(&mut self.members, key, None);
        self
    }

    /// Sets a key of `_meta`, which is created if it is absent.
    pub fn set_meta(&mut self, key: &'a str, value: Raw<'a>) -> &mut Self {
        change(&mut self.meta, key, Some(Value::Slice(value)));
        self
    }

    /// Sets a key of `_meta` to an owned value.
    pub fn set_meta_buf(&mut self, key: &'a str, value: RawBuf) -> &mut Self {
        change(&mut self.meta, key, Some(Value::Buffer(value)));
        self
    }

    /// Removes a key of `_meta`, and with its last key `_meta` itself.
    pub fn remove_meta(&mut self, key: impl Into<Cow<'a, str>>) -> &mut Self {
        change(&mut self.meta, key, None);
        self
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.meta.is_empty()
    }

    /// Returns whether the result certainly contains no line break.
    pub fn is_one_line(&self) -> bool {
        let mut changes = self
            .members
            .iter()
            .chain(&self.meta)
            .filter_map(Change::raw);
        self.object.is_one_line() && changes.all(Raw::is_one_line)
    }

    /// Appends the changed object to `out`.
    pub fn write_into(&self, out: &mut Vec<u8>) {
        if self.is_empty() || !self.object.is_object() {
            out.extend_from_slice(self.object.text().as_bytes());
        } else {
            write_object(out, self.object, &self.members, Some(&self.meta));
        }
    }

    /// Returns the changed object.
    pub fn to_buf(&self) -> RawBuf {
        let mut out = Vec::with_capacity(self.size_hint());
        self.write_into(&mut out);
        RawBuf::written(out, self.is_one_line())
    }

    pub(super) fn size_hint(&self) -> usize {
        let changes = self.members.iter().chain(&self.meta);
        let added: usize = changes
            .map(|c| c.key.len() + c.raw().map_or(0, |raw| raw.text().len()) + 4)
            .sum();
        self.object.text().len() + added + 16
    }
}

fn change<'a>(
    changes: &mut Vec<Change<'a>>,
    key: impl Into<Cow<'a, str>>,
    value: Option<Value<'a>>,
) {
    let key = key.into();
    match changes.iter_mut().find(|change| change.key == key) {
        Some(change) => change.value = value,
        None => changes.push(Change { key, value }),
    }
}

/// Writes `object` with `changes`; `meta` are the changes of its `_meta`, if it may have one.
fn write_object(
    out: &mut Vec<u8>,
    object: Raw<'_>,
    changes: &[Change<'_>],
    meta: Option<&[Change<'_>]>,
) {
    let start = out.len();
    let separate = |out: &mut Vec<u8>| out.push(if out.len() == start { b'{' } else { b',' });
    for change in changes {
        if let Some(value) = change.raw() {
            separate(out);
            quote_into(out, &change.key);
            out.push(b':');
            out.extend_from_slice(value.text().as_bytes());
        }
    }
    let mut meta = meta.filter(|meta| !meta.is_empty());
    for member in object.members() {
        if changes.iter().any(|change| member.is(&change.key)) {
            continue;
        }
        if let Some(changes) = meta.take_if(|_| member.is(META)) {
            write_meta(out, member.value, changes, &separate);
            continue;
        }
        separate(out);
        out.extend_from_slice(member.key.text().as_bytes());
        out.push(b':');
        out.extend_from_slice(member.value.text().as_bytes());
    }
    if let Some(changes) = meta.filter(|_| changes.iter().all(|change| change.key != META)) {
        write_meta(out, Raw::EMPTY_OBJECT, changes, &separate);
    }
    if out.len() == start {
        out.push(b'{');
    }
    out.push(b'}');
}

/// Writes a `_meta` member, unless it would be empty.
fn write_meta(
    out: &mut Vec<u8>,
    old: Raw<'_>,
    changes: &[Change<'_>],
    separate: &impl Fn(&mut Vec<u8>),
) {
    let before = out.len();
    separate(out);
    quote_into(out, META);
    out.push(b':');
    let value = out.len();
    let old = if old.is_object() {
        old
    } else {
        Raw::EMPTY_OBJECT
    };
    write_object(out, old, changes, None);
    if out.len() == value + 2 {
        out.truncate(before);
    }
}

/// Returns `object` with one member replaced or added.
pub fn with_member(object: Raw<'_>, key: &str, value: Raw<'_>) -> RawBuf {
    Edit::new(object).set(key, value).to_buf()
}

/// Returns `object` without the members named.
pub fn without_members(object: Raw<'_>, keys: &[&str]) -> RawBuf {
    let mut edit = Edit::new(object);
    for key in keys {
        edit.remove(key);
    }
    edit.to_buf()
}

/// Returns `params` with keys of `_meta` set (`Some`) or removed (`None`).
pub fn merge_meta(params: Option<Raw<'_>>, changes: &[(&str, Option<Raw<'_>>)]) -> RawBuf {
    let mut edit = Edit::new(params.unwrap_or(Raw::EMPTY_OBJECT));
    for (key, value) in changes {
        match value {
            Some(value) => edit.set_meta(key, *value),
            None => edit.remove_meta(*key),
        };
    }
    edit.to_buf()
}
