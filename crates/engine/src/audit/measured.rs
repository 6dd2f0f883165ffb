//! The measurements of a running call: the duration of each phase, the number of attempts, the
//! results of the checks. Written by the task that does the work, and read once when the call is
//! recorded, even if its client disconnected. Never waits or allocates. Entry point:
//! [`Measured::during`].

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use gantry_store::{Check, Phases};
use tokio::time::Instant;

/// A phase of a call, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Authentication.
    Auth,
    /// Finding the item, and checking the grants.
    Grant,
    /// Checking the arguments.
    Schema,
    /// Waiting for the server to be up and to have a free slot.
    Queue,
    /// Waiting for the server's response.
    Server,
    /// Checking and redacting the result.
    Output,
}

/// The value of a phase that was not reached.
const NOT_REACHED: u32 = u32::MAX;

/// The measurements of one call. Only one task at a time writes them.
#[derive(Debug)]
pub(crate) struct Measured {
    phases: [AtomicU32; 6],
    attempts: AtomicU32,
    input_check: AtomicU8,
    output_check: AtomicU8,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            phases: [const { AtomicU32::new(NOT_REACHED) }; 6],
            attempts: AtomicU32::new(0),
            input_check: AtomicU8::new(0),
            output_check: AtomicU8::new(0),
        }
    }
}

impl Measured {
    /// Starts with the duration of the authentication.
    pub(crate) fn begin(authenticated_in: Duration) -> Self {
        let measured = Self::default();
        measured.add(Phase::Auth, authenticated_in);
        measured
    }

    /// Measures a phase until the guard is dropped.
    pub(crate) fn during(&self, phase: Phase) -> Timing<'_> {
        Timing {
            measured: self,
            phase,
            begun: Instant::now(),
        }
    }

    /// Runs a part of a phase, and measures it.
    pub(crate) fn timed<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let _timing = self.during(phase);
        work()
    }

    /// Adds to the duration of a phase.
    pub(crate) fn add(&self, phase: Phase, took: Duration) {
        let phase = &self.phases[phase as usize];
        let took = u32::try_from(took.as_micros()).unwrap_or(NOT_REACHED);
        let before = phase.load(Ordering::Relaxed);
        let before = if before == NOT_REACHED { 0 } else { before };
        let sum = before.saturating_add(took).min(NOT_REACHED - 1);
        phase.store(sum, Ordering::Relaxed);
    }

    /// Counts an attempt to send the call to its server.
    pub(crate) fn sent(&self) {
        let attempts = self.attempts.load(Ordering::Relaxed);
        self.attempts
            .store(attempts.saturating_add(1), Ordering::Relaxed);
    }

    /// Records the result of the check of the arguments.
    pub(crate) fn input_checked(&self, check: Check) {
        self.input_check.store(check.number(), Ordering::Relaxed);
    }

    /// Records the result of the check of the result.
    pub(crate) fn output_checked(&self, check: Check) {
        self.output_check.store(check.number(), Ordering::Relaxed);
    }

    /// Returns the measurements so far.
    pub(crate) fn read(&self) -> Measurements {
        let [auth_us, grant_us, schema_us, queue_us, server_us, output_us] =
            std::array::from_fn(|at| {
                let us = self.phases[at].load(Ordering::Relaxed);
                (us != NOT_REACHED).then_some(us)
            });
        let attempts = self.attempts.load(Ordering::Relaxed);
        Measurements {
            phases: Phases {
                auth_us,
                grant_us,
                schema_us,
                queue_us,
                server_us,
                output_us,
            },
            attempts: Some(attempts),
            input_check: Check::from_number(self.input_check.load(Ordering::Relaxed)),
            output_check: Check::from_number(self.output_check.load(Ordering::Relaxed)),
        }
    }
}

/// The measurements of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measurements {
    pub(crate) phases: Phases,
    pub(crate) attempts: Option<u32>,
    pub(crate) input_check: Option<Check>,
    pub(crate) output_check: Option<Check>,
}

/// Measures a phase until it is dropped.
#[must_use = "a phase is measured until this is dropped"]
pub(crate) struct Timing<'m> {
    measured: &'m Measured,
    phase: Phase,
    begun: Instant,
}

impl Timing<'_> {
    /// Ends the current phase, and starts another one.
    pub(crate) fn turn_to(&mut self, phase: Phase) {
        let now = Instant::now();
        self.measured
            .add(self.phase, now.saturating_duration_since(self.begun));
        (self.phase, self.begun) = (phase, now);
    }

    /// Ends the current phase at a time in the past, and starts another one there.
    pub(crate) fn turned_to(&mut self, phase: Phase, at: Instant) {
        self.measured
            .add(self.phase, at.saturating_duration_since(self.begun));
        (self.phase, self.begun) = (phase, at.max(self.begun));
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.measured.add(self.phase, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_add_up_and_what_was_not_reached_says_nothing() {
        let measured = Measured::begin(Duration::from_micros(7));
        let mut timing = measured.during(Phase::Queue);
        tokio::time::advance(Duration::from_micros(20)).await;
        timing.turn_to(Phase::Server);
        tokio::time::advance(Duration::from_micros(300)).await;
        drop(timing);
        measured.add(Phase::Server, Duration::from_micros(1));
        measured.sent();
        measured.output_checked(Check::Failed);
        let read = measured.read();
        let expected = Phases {
            auth_us: Some(7),
            queue_us: Some(20),
            server_us: Some(301),
            ..Phases::default()
        };
        assert_eq!(read.phases, expected);
        assert_eq!((read.attempts, read.input_check), (Some(1), None));
        assert_eq!(read.output_check, Some(Check::Failed));
        measured.add(Phase::Server, Duration::from_hours(9));
        assert_eq!(measured.read().phases.server_us, Some(u32::MAX - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_phase_may_have_ended_before_anybody_noticed() {
        let measured = Measured::default();
        let mut timing = measured.during(Phase::Queue);
        let lane = Instant::now() + Duration::from_micros(5);
        tokio::time::advance(Duration::from_micros(50)).await;
        timing.turned_to(Phase::Server, lane);
        drop(timing);
        let phases = measured.read().phases;
        assert_eq!((phases.queue_us, phases.server_us), (Some(5), Some(45)));
    }
}
