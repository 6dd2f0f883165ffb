//! The last starts of a server: when each began, how it ended, and the end of its stderr. Includes
//! starts that never became ready. Bounded; shown by the status and by `gantry logs --attempt`.

use std::collections::VecDeque;

use crate::driver::ExitStatus;

/// How many starts are kept.
const KEPT: usize = 10;

/// One start of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The number of this start, counted from 1.
    pub number: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Whether the server became ready.
    pub was_ready: bool,
    /// How it ended, in a sentence.
    pub how: Option<String>,
    /// The exit code of the server.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed for reaching its memory limit.
    pub oom_killed: bool,
    /// Whether it reached its process limit at some time.
    pub pids_limit_hit: bool,
    /// The end of its stderr.
    pub stderr_tail: String,
}

/// The last starts of a server, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts(VecDeque<Attempt>);

impl Attempts {
    /// Returns the starts that are kept, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.0.iter()
    }

    /// Returns the newest start.
    pub fn last(&self) -> Option<&Attempt> {
        self.0.back()
    }

    /// Records that a start begins.
    pub(crate) fn begin(&mut self, number: u64, now_ms: u64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Attempt {
            number,
            started_ms: now_ms,
            ended_ms: None,
            was_ready: false,
            how: None,
            exit_code: None,
            signal: None,
            oom_killed: false,
            pids_limit_hit: false,
            stderr_tail: String::new(),
        });
    }

    /// Records that the newest start became ready.
    pub(crate) fn ready(&mut self) {
        if let Some(attempt) = self.0.back_mut() {
            attempt.was_ready = true;
        }
    }

    /// Adds what the newest start has written so far, if it has not ended.
    pub(crate) fn show(&mut self, stderr_tail: String) {
        if let Some(attempt) = self.0.back_mut().filter(|last| last.ended_ms.is_none()) {
            attempt.stderr_tail = stderr_tail;
        }
    }

    /// Records how the newest start ended; only the first end counts.
    pub(crate) fn end(
        &mut self,
        now_ms: u64,
        how: &str,
        exit: Option<&ExitStatus>,
        stderr_tail: String,
    ) {
        let Some(attempt) = self.0.back_mut().filter(|last| last.ended_ms.is_none()) else {
            return;
        };
        attempt.ended_ms = Some(now_ms);
        attempt.how = Some(how.to_owned());
        attempt.stderr_tail = stderr_tail;
        if let Some(exit) = exit {
            attempt.exit_code = exit.code;
            attempt.signal = exit.signal;
            attempt.oom_killed = exit.oom_killed;
            attempt.pids_limit_hit = exit.pids_limit_hit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row 1.9
    #[test]
    fn an_attempt_keeps_how_it_ended_and_the_oldest_goes() {
        let mut attempts = Attempts::default();
        for number in 1..=KEPT as u64 + 2 {
            attempts.begin(number, number * 1000);
        }
        let exit = ExitStatus {
            code: Some(137),
            oom_killed: true,
            ..ExitStatus::default()
        };
        attempts.show("so far".to_owned());
        assert_eq!(attempts.last().unwrap().stderr_tail, "so far");
        attempts.end(99_000, "killed: out of memory", Some(&exit), "tail".into());
        attempts.show("of the next".to_owned());
        attempts.end(99_999, "stopped", None, String::new());
        assert_eq!(attempts.iter().count(), KEPT);
        assert_eq!(attempts.iter().next().unwrap().number, 3);
        let last = attempts.last().unwrap();
        assert_eq!(last.ended_ms, Some(99_000), "the first end counts");
        assert_eq!(
            (last.exit_code, last.oom_killed, last.was_ready),
            (Some(137), true, false)
        );
        assert_eq!(last.stderr_tail, "tail");
    }
}
