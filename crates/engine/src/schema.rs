//! A compiled JSON Schema of a tool, with bounds on what checking a value may cost.
//!
//! 2020-12 unless `$schema` says otherwise; no schema is ever fetched. What cannot be checked, or
//! could blow up, is removed before compiling and listed by [`Schema::unchecked`]. Every check is
//! counted, and an expensive one runs on a blocking thread, of which each server has a few. Entry
//! points: [`Schema::of_arguments`], [`Schema::check`], [`Permits::run`].

mod budget;
mod counted;
mod ecma;
mod graph;
mod headers;
mod issues;
mod judgeable;
mod pattern;
mod permits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gantry_model::jsonrpc::Raw;
use jsonschema::{PatternOptions, ValidationError, Validator};
use memchr::{memchr2, memchr3_iter};
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::budget::Budget;
use self::counted::{Counted, Seen};
use self::graph::Shape;
pub(crate) use self::headers::{mirrored, without_headers};
pub(crate) use self::issues::too_costly;
use self::judgeable::Judgeable;
pub(crate) use self::judgeable::Unchecked;
use self::pattern::{PATTERN, PATTERN_BYTES, Pattern};
pub(crate) use self::permits::{CheckPermits, Permits};
use crate::error::Issue;

/// The longest accepted schema, in bytes.
const LONGEST: usize = 256 << 10;
/// Longer values, in bytes, are checked on a blocking thread.
const INLINE_BYTES: usize = 512 << 10;
/// Values of at most this many bytes count as short; their parts are not counted.
const SHORT_BYTES: usize = 16 << 10;
/// The maximum number of parts of a longer value that is still checked on the caller's own thread.
const INLINE_PARTS: usize = 4 << 10;

/// How many parts the library rejects are removed, one after the other, before giving up.
const MOST_REPAIRS: usize = 16;
/// Values with more parts are not checked: each part takes many times its length in memory.
const MOST_PARTS: usize = 1 << 20;

/// Why a value is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaMismatch {
    /// It does not match the schema.
    Issues(Vec<Issue>),
    /// It was not checked: too many expensive checks of the same server were running.
    Busy,
}

/// Why a tool with this schema cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its schema has an invalid `x-mcp-header`: {0}")]
pub(crate) struct SchemaError(&'static str);

/// Where a value is checked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// On the caller's own thread.
    Inline,
    /// On a blocking thread.
    Heavy,
}

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    rule: Rule,
    shape: Shape,
    unchecked: Vec<Unchecked>,
    /// How many strings were left unchecked because their pattern took too long.
    unjudged: AtomicU64,
}

#[derive(Debug)]
enum Rule {
    /// Every value is valid.
    Anything,
    /// Every object is valid, so values need not be read.
    AnyObject,
    Checked(Box<Validator<Counted>>),
}

impl Schema {
    /// Compiles the schema of a tool's arguments, which are always an object.
    pub(crate) fn of_arguments(raw: Raw<'_>) -> Result<Self, SchemaError> {
        let schema = match read(raw) {
            Ok(schema) => schema,
            Err(reason) => return Ok(Self::unjudged(Rule::AnyObject, reason)),
        };
        headers::check(&schema).map_err(SchemaError)?;
        let mut compiled = Self::compile(schema);
        if matches!(compiled.rule, Rule::Anything) {
            compiled.rule = Rule::AnyObject;
        }
        Ok(compiled)
    }

    /// Compiles the schema of a tool's structured result.
    pub(crate) fn of_result(raw: Raw<'_>) -> Self {
        match read(raw) {
            Ok(schema) => Self::compile(schema),
            Err(reason) => Self::unjudged(Rule::Anything, reason),
        }
    }

    /// Checks the `x-mcp-header` annotations of an arguments schema.
    pub(crate) fn check_headers(raw: Raw<'_>) -> Result<(), SchemaError> {
        if !headers::are_in(raw) {
            return Ok(());
        }
        match read(raw) {
            Ok(schema) => headers::check(&schema).map_err(SchemaError),
            Err(_) => Ok(()),
        }
    }

    /// Returns the parts of a schema that cannot be checked, without compiling it.
    pub(crate) fn unchecked_of(raw: Raw<'_>) -> Vec<Unchecked> {
        match read(raw) {
            Ok(schema) => judgeable::judgeable(schema).unchecked,
            Err(reason) => judgeable::nothing(reason).unchecked,
        }
    }

    /// Returns how many strings were left unchecked because their pattern took too long.
    pub(crate) fn unjudged_texts(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    /// Returns the parts of the schema that are not checked; only the first ones if there are many.
    pub(crate) fn unchecked(&self) -> &[Unchecked] {
        &self.unchecked
    }

    fn unjudged(rule: Rule, reason: String) -> Self {
        let Judgeable {
            shape, unchecked, ..
        } = judgeable::nothing(reason);
        Self {
            rule,
            shape,
            unchecked,
            unjudged: AtomicU64::new(0),
        }
    }

    fn compile(schema: Value) -> Self {
        let mut judged = judgeable::judgeable(schema);
        for _ in 0..MOST_REPAIRS {
            if let Some(rule) = trivial(&judged.schema) {
                return Self::of_rule(rule, judged);
            }
            let (part, reason) = match build(&judged.schema) {
                Ok(validator) => return Self::of_rule(Rule::Checked(validator), judged),
                Err(refused) => refused,
            };
            match judgeable::without(judged, &part, reason) {
                Some(rest) => judged = rest,
                None => break,
            }
        }
        Self::unjudged(Rule::Anything, "it could not be compiled".to_owned())
    }

    fn of_rule(rule: Rule, judged: Judgeable) -> Self {
        Self {
            rule,
            shape: judged.shape,
            unchecked: judged.unchecked,
            unjudged: AtomicU64::new(0),
        }
    }

    /// Returns where a value is checked first. An inline check that turns out expensive moves to a
    /// blocking thread.
    pub(crate) fn cost(&self, value: Raw<'_>) -> Cost {
        let text = value.text().as_bytes();
        let is_short = || {
            let parts = memchr3_iter(b',', b'[', b'{', text);
            text.len() <= SHORT_BYTES
                || (text.len() <= INLINE_BYTES && parts.take(INLINE_PARTS).count() < INLINE_PARTS)
        };
        match &self.rule {
            Rule::Anything | Rule::AnyObject => Cost::Inline,
            // Recursive schemas need more stack.
            Rule::Checked(_) if !self.shape.recursive && is_short() => Cost::Inline,
            Rule::Checked(_) => Cost::Heavy,
        }
    }

    /// Checks a value. An expensive check runs on a blocking thread with a time limit.
    pub(crate) async fn check(
        self: &Arc<Self>,
        value: Raw<'_>,
        permits: &Permits,
    ) -> Result<(), SchemaMismatch> {
        if self.cost(value) == Cost::Inline
            && let Some(judged) = self.judge(value, None)
        {
            return judged.map_err(SchemaMismatch::Issues);
        }
        let (schema, text) = (Arc::clone(self), value.to_buf());
        let checked = permits.run(move |until| schema.check_until(text.as_raw(), until));
        let checked = checked.await?;
        checked
            .unwrap_or_else(|| Err(vec![issues::too_costly()]))
            .map_err(SchemaMismatch::Issues)
    }

    /// Checks a value on this thread within the full budget, however expensive it is.
    pub(crate) fn check_until(&self, value: Raw<'_>, until: Instant) -> Result<(), Vec<Issue>> {
        let judged = self.judge(value, Some(until));
        judged.unwrap_or_else(|| Err(vec![issues::too_costly()]))
    }

    /// Checks a value; `None` if that exceeds the budget. Without a deadline, the budget is that of
    /// an inline check.
    fn judge(&self, value: Raw<'_>, until: Option<Instant>) -> Option<Result<(), Vec<Issue>>> {
        let validator = match &self.rule {
            Rule::Anything => return Some(Ok(())),
            Rule::AnyObject if value.is_object() => return Some(Ok(())),
            Rule::AnyObject => return Some(Err(vec![issues::no_object()])),
            Rule::Checked(validator) => validator,
        };
        let (weight, bytes) = (self.shape.weight, value.text().len());
        if bytes > 2 * MOST_PARTS && parts(value.text().as_bytes()) > MOST_PARTS {
            return None;
        }
        let Ok(value) = value.deserialize::<Value>() else {
            return Some(Err(vec![issues::unreadable()]));
        };
        let (verdict, reasons) = match until {
            None => (Budget::inline(weight), Budget::inline(weight)),
            Some(until) => (
                Budget::verdict(weight, bytes, until),
                Budget::reasons(weight, until),
            ),
        };
        let is_valid = || validator.is_valid(Seen(&value));
        let (mut fits, unjudged) = budget::run(verdict, is_valid)?;
        if unjudged > 0 {
            self.unjudged.fetch_add(unjudged, Ordering::Relaxed);
            // Inside a `not` or an `if`, assuming that an unchecked pattern matches can fail the
            // value. So try the opposite assumption, too.
            fits = fits || budget::run(verdict.assuming_mismatches(), is_valid)?.0;
        }
        if fits {
            return Some(Ok(()));
        }
        let list = || issues::list(validator.iter_errors(Seen(&value)), &value);
        let issues = budget::run(reasons, list).map(|(issues, _)| issues);
        match (issues.filter(|issues| !issues.is_empty()), until) {
            (Some(issues), _) => Some(Err(issues)),
            (None, Some(_)) => Some(Err(vec![issues::unexplained()])),
            (None, None) => None,
        }
    }
}

/// Counts the values of a JSON text: one, plus one for each comma and for each array or object.
fn parts(text: &[u8]) -> usize {
    let mut count = 1;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => at = string_end(text, at),
            _ => {}
        }
    }
    count
}

/// Returns the position after the end of a string whose content begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(step) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += step;
        if text[at] == b'"' {
            return at + 1;
        }
        // An escaped character cannot end the string.
        at += 2;
    }
    text.len()
}

fn read(raw: Raw<'_>) -> Result<Value, String> {
    if raw.text().len() > LONGEST {
        return Err(format!("it is longer than {} KiB", LONGEST >> 10));
    }
    let unread = |_| "it contains a number or a text that cannot be read".to_owned();
    raw.deserialize().map_err(unread)
}

/// Compiles a schema, or returns the part that the library rejects, and why.
fn build(schema: &Value) -> Result<Box<Validator<Counted>>, (String, String)> {
    let options = jsonschema::options_for::<Counted>()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
        .with_format("regex", pattern::is_regex)
        .with_keyword(PATTERN, |_, value, _| {
            let pattern = value.as_str().map(Pattern::new);
            let none = || ValidationError::custom("it is not a regular expression");
            let pattern = pattern.and_then(Result::ok).ok_or_else(none)?;
            Ok(Box::new(pattern))
        });
    match budget::catch(|| options.build(schema)) {
        Some(Ok(validator)) => Ok(Box::new(validator)),
        Some(Err(error)) => Err((error.instance_path().to_string(), issues::of_schema(&error))),
        None => Err((String::new(), String::new())),
    }
}

/// Returns the rule of a schema that constrains only the type of the value.
fn trivial(schema: &Value) -> Option<Rule> {
    if *schema == Value::Bool(true) {
        return Some(Rule::Anything);
    }
    let members = schema.as_object()?;
    let mut object = false;
    for (keyword, value) in members {
        match keyword.as_str() {
            "type" if value == "object" => object = true,
            "properties" | "patternProperties" | "$defs" | "definitions" if is_empty(value) => {}
            "required" if value.as_array().is_some_and(Vec::is_empty) => {}
            "additionalProperties" if *value == Value::Bool(true) => {}
            "$schema" => {}
            _ => return None,
        }
    }
    Some(if object {
        Rule::AnyObject
    } else {
        Rule::Anything
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests;
