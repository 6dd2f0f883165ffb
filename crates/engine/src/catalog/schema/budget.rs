//! Counts the steps of a check and ends one that takes too many.
//!
//! A compiled schema cannot be told to stop, so every subschema gets a keyword that counts; when
//! the budget is used up, that keyword unwinds out of the check (without the panic hook), and
//! [`run`] returns nothing. Entry points: [`count_steps`] before compiling, [`run`] around a check.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};
use tokio::time::Instant;

/// The keyword that counts.
pub(super) const STEP: &str = "x-gantry-step";

/// How long a check may take (fault A9).
const LONGEST: Duration = Duration::from_millis(50);
/// The steps of a check that asks only whether a value fits.
const VERDICT_STEPS: u32 = 2_000_000;
/// The steps of a check that collects reasons, each of which takes memory.
const REASON_STEPS: u32 = 50_000;
/// Steps between two looks at the clock.
const STRIDE: u32 = 1 << 10;

/// What a check may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    steps: u32,
    until: Option<Instant>,
}

impl Budget {
    pub(super) fn verdict() -> Self {
        Self {
            steps: VERDICT_STEPS,
            until: Some(Instant::now() + LONGEST),
        }
    }

    pub(super) fn reasons() -> Self {
        Self {
            steps: REASON_STEPS,
            until: Some(Instant::now() + LONGEST),
        }
    }

    const fn unlimited() -> Self {
        Self {
            steps: u32::MAX,
            until: None,
        }
    }
}

thread_local! {
    static LEFT: Cell<Budget> = const { Cell::new(Budget::unlimited()) };
}

/// The payload of the unwinding.
struct Exhausted;

/// Runs a check on this thread; nothing if it used up its budget, or panicked.
pub(super) fn run<T>(budget: Budget, check: impl FnOnce() -> T) -> Option<T> {
    let before = LEFT.replace(budget);
    let outcome = catch(check);
    LEFT.set(before);
    outcome
}

/// Runs foreign code whose panics must not be ours.
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    // Compiled schemas are only read, so nothing half-changed is left behind.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// The keyword that takes one step.
pub(super) struct Step;

impl<'i> Keyword<'i> for Step {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        step();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        step();
        true
    }
}

fn step() {
    let mut left = LEFT.get();
    let late = left.steps.is_multiple_of(STRIDE)
        && left.until.is_some_and(|until| Instant::now() >= until);
    if (left.steps == 0 || late) && cfg!(panic = "unwind") {
        resume_unwind(Box::new(Exhausted));
    }
    left.steps = left.steps.saturating_sub(1);
    LEFT.set(left);
}

/// Puts the counting keyword into every subschema.
pub(super) fn count_steps(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    for (keyword, value) in members.iter_mut() {
        match (keyword.as_str(), value) {
            // Values that look like schemas, and are data.
            ("enum" | "const" | "default" | "examples" | "required", _) => {}
            (_, Value::Array(items)) => items.iter_mut().for_each(count_steps),
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies",
                Value::Object(schemas),
            ) => count_each(schemas),
            (_, inner) => count_steps(inner),
        }
    }
    members.insert(STEP.to_owned(), Value::Bool(true));
}

fn count_each(schemas: &mut Map<String, Value>) {
    schemas.values_mut().for_each(count_steps);
}
