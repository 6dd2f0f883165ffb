//! Counts what a check costs and ends one that costs too much.
//!
//! A compiled schema cannot be told to stop, so every look at the value is charged to the budget of
//! the thread; when it is used up, the charge unwinds out of the check (without the panic hook) and
//! [`run`] returns nothing. Units are counted rather than time, so that a value is judged the same on
//! a busy machine; the clock is looked at now and then, in case a unit took longer than it should.
//! Entry points: [`run`] around a check, [`charge`] and its neighbours inside of it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::time::Instant;

/// What a check on the caller's own thread may use: a fraction of a millisecond.
const INLINE_UNITS: u64 = 20_000;
/// What a check on a thread of its own may use whatever the size of the value: about 50 ms
/// (fault A9).
const VERDICT_UNITS: u64 = 5_000_000;
/// What each byte of the value adds to that, so that reading a long value once is never too much.
const UNITS_PER_BYTE: u64 = 4;
/// What may be used to collect reasons, each of which takes memory.
const REASON_UNITS: u64 = 200_000;
/// What patterns may use of a check on a thread of its own, whatever the size of the value.
const PATTERN_UNITS: u64 = 1_000_000;
/// Units between two looks at the clock.
const STRIDE: u64 = 1 << 12;
/// Bytes that are compared, hashed or counted for one unit.
const BYTES_PER_UNIT: usize = 32;
/// Subschemas that may look at one value for one unit without touching it, as `true` does.
const SCHEMAS_PER_UNIT: u64 = 64;
/// States of a pattern times bytes of a text that are matched for one unit.
const MATCHES_PER_UNIT: u64 = 16;
/// The most states times bytes that are matched in one go, where nothing can interrupt it.
pub(super) const MATCHES_AT_ONCE: u64 = 4 << 20;

/// What of a schema makes a single look dearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// How many subschemas apply to one and the same value.
    pub(super) schemas: u64,
    /// The states of all patterns that names of members are matched against.
    pub(super) name_states: u64,
}

/// What a check may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    units: u64,
    until: Option<Instant>,
    weight: Weight,
    /// What of it patterns may use together, so that the rest of the value is judged whatever they cost.
    patterns: u64,
    /// What a text counts as whose pattern costs more: one that matches, or one that does not.
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

    /// Returns the budget of a check that asks only whether a value of this many bytes fits.
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

    /// Returns the same for a check that takes what no pattern could judge for what does not match.
    pub(super) fn assuming_mismatches(self) -> Self {
        Self {
            assumed: false,
            ..self
        }
    }

    /// Returns the budget of a check that collects reasons.
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

/// What is left of the budget of this thread's check; without one there is no end.
struct RemainingBudget {
    units: Cell<u64>,
    /// The clock is looked at when no more units than this are left.
    next_look: Cell<u64>,
    until: Cell<Option<Instant>>,
    /// Units for coming to a value.
    arrival: Cell<u64>,
    /// States for each byte of a member's name.
    name_states: Cell<u64>,
    /// What patterns may still use together: never all there is.
    patterns: Cell<u64>,
    /// What a text counts as whose pattern costs more than that.
    assumed: Cell<bool>,
    /// How many such texts there were.
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

/// The payload of the unwinding.
struct Exhausted;

/// Runs a check on this thread, and tells how many texts no pattern could judge; nothing if it used up
/// its budget, or panicked. Checks do not nest.
pub(super) fn run<T>(budget: Budget, check: impl FnOnce() -> T) -> Option<(T, u64)> {
    LEFT.with(|left| left.replace(budget.units, Some(budget)));
    let outcome = catch(check);
    let unjudged = LEFT.with(|left| {
        left.replace(u64::MAX, None);
        left.unjudged.take()
    });
    outcome.map(|outcome| (outcome, unjudged))
}

/// Matches a text against a pattern within what patterns may use. One that costs more is not judged,
/// and the check goes on; on the caller's own thread the check ends, and is made elsewhere.
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
        // Unless it is the check as a whole that has taken too long.
        look();
        LEFT.with(|left| {
            left.unjudged.set(left.unjudged.get() + 1);
            left.assumed.get()
        })
    })
}

/// Runs foreign code whose panics must not be ours.
pub(super) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    // Compiled schemas are only read, so nothing half-changed is left behind.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Takes one look at a value.
pub(super) fn step() {
    charge(1);
}

/// Comes to a value, at which some subschemas may not look at all.
pub(super) fn arrive() {
    charge(LEFT.with(|left| left.arrival.get()));
}

/// Reads this many bytes of a text.
pub(super) fn bytes(count: usize) {
    if count >= BYTES_PER_UNIT {
        charge((count / BYTES_PER_UNIT) as u64);
    }
}

/// Looks at a member of this name, which is matched against patterns if the schema has any.
pub(super) fn member(name: &str) {
    let (arrival, states) = LEFT.with(|left| (left.arrival.get(), left.name_states.get()));
    let matches = states.saturating_mul(name.len() as u64);
    if matches > MATCHES_AT_ONCE {
        exhausted();
    }
    charge(arrival + (name.len() / BYTES_PER_UNIT) as u64 + matches / MATCHES_PER_UNIT);
}

/// Matches a text against a pattern in one go: states times bytes.
pub(super) fn matching(matches: u64) {
    charge(1 + matches / MATCHES_PER_UNIT);
}

/// Takes units off what is left, and ends the check if there are none.
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

/// Ends a check that has no clock to look at, before something that must not be done on the caller's
/// own thread.
pub(super) fn leave_inline() {
    let is_inline = LEFT.with(|left| left.until.get().is_none());
    if is_inline {
        exhausted();
    }
}

/// Looks at the clock.
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
