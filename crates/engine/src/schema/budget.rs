//! Counts the cost of a schema check and aborts a check that costs too much.
//!
//! A compiled schema has no way to stop early, so every access to the value is charged to the
//! budget of the thread. When the budget is used up, the charge unwinds out of the check (without
//! the panic hook) and [`run`] returns `None`. The budget counts units rather than time, so that
//! the result does not depend on the load of the machine; the clock is checked now and then in case
//! a unit took longer than expected.
//! Entry points: [`run`] around a check, [`charge`] and its variants inside it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::time::Instant;

/// Budget of a check on the caller's own thread: a fraction of a millisecond.
const INLINE_UNITS: u64 = 20_000;
/// Base budget of a check on a blocking thread: about 50 ms (fault A9).
const VERDICT_UNITS: u64 = 5_000_000;
/// Budget added for each byte of the value, so that reading a long value once always fits.
const UNITS_PER_BYTE: u64 = 4;
/// Budget for collecting error messages, each of which takes memory.
const REASON_UNITS: u64 = 200_000;
/// Part of the budget of a blocking check that patterns may use.
const PATTERN_UNITS: u64 = 1_000_000;
/// Units between two checks of the clock.
const STRIDE: u64 = 1 << 12;
/// Bytes that are compared, hashed or counted for one unit.
const BYTES_PER_UNIT: usize = 32;
/// Subschemas applied to one value for one unit, if they do not read the value, as `true` does.
const SCHEMAS_PER_UNIT: u64 = 64;
/// Pattern states times text bytes that are matched for one unit.
const MATCHES_PER_UNIT: u64 = 16;
/// The maximum number of states times bytes that are matched in one step, which cannot be interrupted.
pub(super) const MATCHES_AT_ONCE: u64 = 4 << 20;

/// Properties of a schema that make each access to a value more expensive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// How many subschemas apply to the same value.
    pub(super) schemas: u64,
    /// The total number of states of all patterns for property names.
    pub(super) name_states: u64,
}

/// The budget of one check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    units: u64,
    until: Option<Instant>,
    weight: Weight,
    /// The part that patterns may use together, so that the rest of the value is always checked.
    patterns: u64,
    /// Whether a string whose pattern exceeds the budget counts as a match.
    assumed: bool,
}

impl Budget {
    /// Returns the budget of a check on the caller's own thread.
    pub(super) fn inline(weight: Weight) -> Self {
        Self {
            units: INLINE_UNITS,
            until: None,
            weight,
            patterns: INLINE_UNITS,
            assumed: true,
        }
    }

    /// Returns the budget for deciding whether a value of this many bytes is valid.
    pub(super) fn verdict(weight: Weight, bytes: usize, until: Instant) -> Self {
        let for_bytes = UNITS_PER_BYTE * bytes as u64;
        Self {
            units: VERDICT_UNITS + for_bytes,
            until: Some(until),
            weight,
            patterns: PATTERN_UNITS + for_bytes,
            assumed: true,
        }
    }

    /// Returns the same budget, with unchecked patterns counted as mismatches.
    pub(super) fn assuming_mismatches(self) -> Self {
        Self {
            assumed: false,
            ..self
        }
    }

    /// Returns the budget for collecting error messages.
    pub(super) fn reasons(weight: Weight, until: Instant) -> Self {
        Self {
            units: REASON_UNITS,
            until: Some(until),
            weight,
            patterns: REASON_UNITS / 2,
            assumed: true,
        }
    }
}

/// The remaining budget of this thread's check; unlimited if no check runs.
struct RemainingBudget {
    units: Cell<u64>,
    /// The clock is checked when this many units are left.
    next_look: Cell<u64>,
    until: Cell<Option<Instant>>,
    /// Units for reaching a value.
    arrival: Cell<u64>,
    /// States for each byte of a property name.
    name_states: Cell<u64>,
    /// What patterns may still use together; always less than the whole budget.
    patterns: Cell<u64>,
    /// Whether a string whose pattern exceeds that counts as a match.
    assumed: Cell<bool>,
    /// The number of strings whose pattern exceeded that.
    unjudged: Cell<u64>,
}

impl RemainingBudget {
    fn set_units(&self, units: u64) {
        self.units.set(units);
        self.next_look.set(units.saturating_sub(STRIDE));
    }

    fn replace(&self, units: u64, budget: Option<Budget>) {
        self.set_units(units);
        let patterns = budget.map_or(u64::MAX, |budget| budget.patterns);
        self.patterns.set(patterns);
        self.assumed.set(budget.is_none_or(|budget| budget.assumed));
        self.until.set(budget.and_then(|budget| budget.until));
        let weight = budget.map_or_else(Weight::default, |budget| budget.weight);
        self.arrival.set(1 + weight.schemas / SCHEMAS_PER_UNIT);
        self.name_states.set(weight.name_states);
    }
}

thread_local! {
    static LEFT: RemainingBudget = const {
        RemainingBudget {
            units: Cell::new(u64::MAX),
            next_look: Cell::new(0),
            until: Cell::new(None),
            arrival: Cell::new(1),
            name_states: Cell::new(0),
            patterns: Cell::new(u64::MAX),
            assumed: Cell::new(true),
            unjudged: Cell::new(0),
        }
    };
}

/// The panic payload that ends a check.
struct Exhausted;

/// Runs a check on this thread and returns its result and the number of strings whose pattern was
/// not checked; `None` if the check used up its budget or panicked. Checks do not nest.
pub(super) fn run<T>(budget: Budget, check: impl FnOnce() -> T) -> Option<(T, u64)> {
    LEFT.with(|left| left.replace(budget.units, Some(budget)));
    let outcome = catch(check);
    let unjudged = LEFT.with(|left| {
        left.replace(u64::MAX, None);
        left.unjudged.take()
    });
    outcome.map(|outcome| (outcome, unjudged))
}

/// Matches a string within the budget for patterns. If that is exceeded, the string stays unchecked
/// and the check continues; an inline check ends instead and is repeated on a blocking thread.
pub(super) fn pattern(matches: impl FnOnce() -> bool) -> bool {
    let (before, allowed) = LEFT.with(|left| {
        let before = left.units.get();
        let is_inline = left.until.get().is_none();
        (
            before,
            (!is_inline).then(|| left.patterns.get().min(before)),
        )
    });
    let Some(allowed) = allowed else {
        return matches();
    };
    let matched = match allowed {
        0 => None,
        _ => {
            LEFT.with(|left| left.set_units(allowed));
            let matched = catch(matches);
            LEFT.with(|left| {
                let spent = allowed - left.units.get();
                left.patterns.set(left.patterns.get() - spent);
                left.set_units(before - spent);
            });
            matched
        }
    };
    matched.unwrap_or_else(|| {
        // Ends the whole check if it is past its deadline.
        look();
        LEFT.with(|left| {
            left.unjudged.set(left.unjudged.get() + 1);
            left.assumed.get()
        })
    })
}

/// Runs library code and catches its panics.
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    // Compiled schemas are read-only, so a panic leaves no half-changed state behind.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Charges one access to a value.
pub(super) fn step() {
    charge(1);
}

/// Charges reaching a value, including subschemas that do not read it.
pub(super) fn arrive() {
    charge(LEFT.with(|left| left.arrival.get()));
}

/// Charges reading this many bytes of a string.
pub(super) fn bytes(count: usize) {
    if count >= BYTES_PER_UNIT {
        charge((count / BYTES_PER_UNIT) as u64);
    }
}

/// Charges access to a property, including the patterns that its name is matched against.
pub(super) fn member(name: &str) {
    let (arrival, states) = LEFT.with(|left| (left.arrival.get(), left.name_states.get()));
    let matches = states.saturating_mul(name.len() as u64);
    if matches > MATCHES_AT_ONCE {
        exhausted();
    }
    charge(arrival + (name.len() / BYTES_PER_UNIT) as u64 + matches / MATCHES_PER_UNIT);
}

/// Charges matching a string against a pattern in one step: states times bytes.
pub(super) fn matching(matches: u64) {
    charge(1 + matches / MATCHES_PER_UNIT);
}

/// Subtracts units from the remaining budget; ends the check if none are left.
pub(super) fn charge(units: u64) {
    let is_due = LEFT.with(|left| {
        let rest = left.units.get().saturating_sub(units);
        left.units.set(rest);
        rest <= left.next_look.get()
    });
    if is_due {
        look();
    }
}

/// Ends an inline check (one without a deadline) before work that must not run on the caller's own
/// thread.
pub(super) fn leave_inline() {
    let is_inline = LEFT.with(|left| left.until.get().is_none());
    if is_inline {
        exhausted();
    }
}

/// Ends the check if its deadline has passed.
#[cold]
pub(super) fn look() {
    let ended = LEFT.with(|left| {
        let rest = left.units.get();
        left.next_look.set(rest.saturating_sub(STRIDE));
        rest == 0
            || left
                .until
                .get()
                .is_some_and(|until| Instant::now() >= until)
    });
    if ended {
        exhausted();
    }
}

/// Ends the check.
pub(super) fn exhausted() -> ! {
    resume_unwind(Box::new(Exhausted))
}
