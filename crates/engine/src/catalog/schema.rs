//! A JSON Schema of a tool's: compiled once, with bounds on what checking a value may cost.
//!
//! 2020-12 unless `$schema` says otherwise, regular expressions in linear time, and no schema is
//! ever fetched. What could blow up is refused when it is compiled or run with counted steps.
//! Entry points: [`Schema::of_arguments`], [`Schema::check`], [`Schema::check_now`], [`aside`].

mod budget;
mod graph;
mod headers;
mod issues;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::jsonrpc::Raw;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::budget::{Budget, STEP};
use self::graph::Shape;
pub(super) use self::headers::{mirrored, without_headers};
pub(super) use self::issues::too_costly;
use crate::error::Issue;

/// The longest schema.
const LONGEST: usize = 64 << 10;
/// The largest compiled regular expression, in bytes.
const PATTERN_BYTES: usize = 256 << 10;
/// Schemas that expand to more subschemas than this are run with counted steps.
const UNCOUNTED: u64 = 64;
/// Schemas that expand to more are never checked on the caller's own thread.
const INLINE: u64 = 2_000;
/// Expanded subschemas times bytes of the value that are checked on the caller's own thread.
const INLINE_WORK: u64 = 4 << 20;
/// The longest value that is matched against patterns on the caller's own thread.
const INLINE_PATTERN_BYTES: usize = 16 << 10;
/// How long a check on a thread of its own is waited for, queueing and parsing included.
const PATIENCE: Duration = Duration::from_secs(1);

/// Heavy checks of the whole process at one time, so that they never fill the blocking threads.
static HEAVY: Semaphore = Semaphore::const_new(HEAVY_CHECKS as usize);

/// Why a value is not let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It does not fit.
    Issues(Vec<Issue>),
    /// It could not be looked at: too many heavy checks were under way.
    Busy,
}

/// How many heavy checks run at once.
pub(crate) const HEAVY_CHECKS: u32 = 4;

/// Does heavy work on a thread of its own; nothing if it does not end in time.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, Unfit> {
    let until = Instant::now() + PATIENCE;
    let permit = match timeout_at(until, HEAVY.acquire()).await {
        Ok(permit) => permit,
        Err(_elapsed) => return Err(Unfit::Busy),
    };
    let held = move || {
        let _permit = permit;
        work()
    };
    let worked = timeout_at(until, tokio::task::spawn_blocking(held)).await;
    Ok(worked.ok().and_then(Result::ok))
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("its schema is longer than {} KiB", LONGEST >> 10)]
    TooLong,
    #[error("its schema is no JSON")]
    NoJson,
    #[error("its schema nests deeper than {0}")]
    TooDeep(usize),
    #[error("its schema has more than {0} subschemas")]
    TooMany(usize),
    #[error("its schema refers to another document: `{0}`")]
    Remote(String),
    #[error("its schema refers to `{0}`, which is not there")]
    Dangling(String),
    #[error("its schema embeds another with an `$id` of its own")]
    Embedded,
    #[error("its schema refers to itself without end")]
    Endless,
    #[error("its schema combines too many alternatives")]
    Combinatorial,
    #[error("its schema has an invalid `x-mcp-header`: {0}")]
    Header(&'static str),
    #[error("its schema is invalid: {0}")]
    Invalid(String),
}

/// Where a value is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// At once, on the caller's own thread.
    Inline,
    /// On a thread of its own.
    Heavy,
}

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    rule: Rule,
    shape: Shape,
}

#[derive(Debug)]
enum Rule {
    /// Every value fits.
    Anything,
    /// Every object fits, so that no value need be read.
    AnyObject,
    Checked(Box<Validator>),
}

impl Schema {
    /// Compiles the schema of a tool's arguments.
    pub(crate) fn of_arguments(raw: Raw<'_>) -> Result<Self, SchemaError> {
        let schema = read(raw)?;
        headers::check(&schema).map_err(SchemaError::Header)?;
        Self::compile(schema)
    }

    /// Compiles the schema of a tool's structured result.
    pub(crate) fn of_result(raw: Raw<'_>) -> Result<Self, SchemaError> {
        Self::compile(read(raw)?)
    }

    fn compile(mut schema: Value) -> Result<Self, SchemaError> {
        let shape = graph::examine(&schema)?;
        if let Some(rule) = trivial(&schema) {
            return Ok(Self { rule, shape });
        }
        if shape.recursive || shape.expanded > UNCOUNTED {
            budget::count_steps(&mut schema);
        }
        let options = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
            .with_keyword(STEP, |_, _, _| Ok(Box::new(budget::Step)));
        match budget::catch(|| options.build(&schema)) {
            Some(Ok(validator)) => Ok(Self {
                rule: Rule::Checked(Box::new(validator)),
                shape,
            }),
            Some(Err(error)) => Err(SchemaError::Invalid(issues::of_schema(&error))),
            None => Err(SchemaError::Invalid("it could not be compiled".to_owned())),
        }
    }

    /// Returns where a value of this many bytes is checked.
    pub(crate) fn cost(&self, bytes: usize) -> Cost {
        let work = self.shape.expanded.saturating_mul(bytes as u64);
        let heavy = match &self.rule {
            Rule::Anything | Rule::AnyObject => false,
            Rule::Checked(_) => {
                self.shape.recursive
                    || self.shape.expanded > INLINE
                    || work > INLINE_WORK
                    || (self.shape.patterns && bytes > INLINE_PATTERN_BYTES)
            }
        };
        if heavy { Cost::Heavy } else { Cost::Inline }
    }

    /// Checks a value; a heavy check runs on a thread of its own and within a bound of time.
    pub(crate) async fn check(self: &Arc<Self>, value: Raw<'_>) -> Result<(), Unfit> {
        if self.cost(value.text().len()) == Cost::Inline {
            return self.check_now(value).map_err(Unfit::Issues);
        }
        let (schema, text) = (Arc::clone(self), value.to_buf());
        let checked = aside(move || schema.check_now(text.as_raw())).await?;
        checked
            .unwrap_or_else(|| Err(vec![issues::too_costly()]))
            .map_err(Unfit::Issues)
    }

    /// Checks a value on this thread, however heavy that is; never longer than the budget.
    pub(crate) fn check_now(&self, value: Raw<'_>) -> Result<(), Vec<Issue>> {
        let validator = match &self.rule {
            Rule::Anything => return Ok(()),
            Rule::AnyObject if value.is_object() => return Ok(()),
            Rule::AnyObject => return Err(vec![issues::no_object()]),
            Rule::Checked(validator) => validator,
        };
        let Ok(value) = value.deserialize::<Value>() else {
            return Err(vec![issues::unreadable()]);
        };
        match budget::run(Budget::verdict(), || validator.is_valid(&value)) {
            Some(true) => Ok(()),
            Some(false) => {
                let list = || issues::list(validator.iter_errors(&value));
                Err(budget::run(Budget::reasons(), list)
                    .unwrap_or_else(|| vec![issues::unexplained()]))
            }
            None => Err(vec![issues::too_costly()]),
        }
    }
}

fn read(raw: Raw<'_>) -> Result<Value, SchemaError> {
    if raw.text().len() > LONGEST {
        return Err(SchemaError::TooLong);
    }
    raw.deserialize().map_err(|_| SchemaError::NoJson)
}

/// Returns the rule of a schema that constrains nothing but the kind of the value.
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
            "$schema" if is_known_dialect(value) => {}
            "title" | "description" | "$comment" => {}
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

fn is_known_dialect(value: &Value) -> bool {
    value.as_str().is_some_and(|dialect| {
        let dialect = dialect.trim_end_matches('#');
        [
            "https://json-schema.org/draft/2020-12/schema",
            "http://json-schema.org/draft-07/schema",
        ]
        .contains(&dialect)
    })
}

#[cfg(test)]
mod tests;
