//! Prevents a flood of refusals from filling the audit.
//!
//! The first twenty a second with the same project, agent, server, tool and code get a row each;
//! the others of that second are counted in one row. The count in the database is at most one
//! import behind. Writes nothing itself; entry points: `Refusals::judge` and `Refusals::due`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::record;

/// How many refusals of one kind get their own row in one window.
const ROWS_EACH: u64 = 20;
const WINDOW: Duration = Duration::from_secs(1);
/// How many kinds are distinguished; beyond that, the tool is ignored.
const KINDS: usize = 1024;

/// How a refusal is recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RefusalVerdict {
    /// In its own row.
    Row,
    /// It is the first to be counted: its row, passed to `count`, stands for those that follow.
    Count(RefusalKind),
    /// It was counted.
    Counted,
}

/// The properties by which refusals are grouped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RefusalKind {
    project: Box<str>,
    agent: Box<str>,
    server: Box<str>,
    tool: Box<str>,
    code: Box<str>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    seen: u64,
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    /// An encoded complete row.
    encoded: Vec<u8>,
    repeats: u64,
    written: u64,
}

/// The refusals of the last second, by kind.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    windows: HashMap<RefusalKind, Window>,
    /// Rows of windows that are over, not written yet.
    ended: Vec<Vec<u8>>,
}

impl Refusals {
    /// Decides how a refusal is recorded.
    pub(super) fn judge(
        &mut self,
        (project, agent): (&str, &str),
        server: &str,
        tool: &str,
        code: &str,
        now: Instant,
    ) -> RefusalVerdict {
        let tool = if self.windows.len() < KINDS { tool } else { "" };
        let kind = RefusalKind {
            project: project.into(),
            agent: agent.into(),
            server: server.into(),
            tool: tool.into(),
            code: code.into(),
        };
        let fresh = || Window {
            since: now,
            seen: 0,
            counted: None,
        };
        let window = self.windows.entry(kind.clone()).or_insert_with(fresh);
        if now.duration_since(window.since) >= WINDOW {
            let over = std::mem::replace(window, fresh());
            self.ended.extend(over.counted.and_then(Counted::finish));
        }
        window.seen += 1;
        if window.seen <= ROWS_EACH {
            return RefusalVerdict::Row;
        }
        match &mut window.counted {
            Some(counted) => {
                counted.repeats += 1;
                RefusalVerdict::Counted
            }
            None => RefusalVerdict::Count(kind),
        }
    }

    /// Stores the encoded row for further refusals of a kind; false if another was faster, so that
    /// there will be no such row.
    pub(super) fn count(&mut self, kind: &RefusalKind, encoded: Vec<u8>) -> bool {
        let counted = Counted {
            encoded,
            repeats: 1,
            written: 0,
        };
        match self.windows.get_mut(kind).map(|window| &mut window.counted) {
            Some(Some(counted)) => {
                counted.repeats += 1;
                false
            }
            Some(none) => {
                *none = Some(counted);
                true
            }
            // The window ended meanwhile, and its rows with it.
            None => {
                self.ended.extend(counted.finish());
                true
            }
        }
    }

    /// Returns the rows to write now, and removes the windows that are over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut due = std::mem::take(&mut self.ended);
        self.windows.retain(|_, window| {
            let over = now.duration_since(window.since) >= WINDOW;
            due.extend(window.counted.as_mut().and_then(Counted::row));
            !over
        });
        due
    }

    /// Returns a row that could not be written.
    pub(super) fn put_back(&mut self, mut encoded: Vec<u8>) {
        record::unseal(&mut encoded);
        // Bounded: while nothing can be written, calls are refused without a row anyway.
        if self.ended.len() < KINDS {
            self.ended.push(encoded);
        }
    }
}

impl Counted {
    /// Returns the row with the count so far, unless it was written.
    fn row(&mut self) -> Option<Vec<u8>> {
        if self.written == self.repeats {
            return None;
        }
        self.written = self.repeats;
        let mut encoded = self.encoded.clone();
        record::set_repeats(&mut encoded, self.repeats);
        Some(encoded)
    }

    fn finish(mut self) -> Option<Vec<u8>> {
        self.row()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least that passes for an encoded row.
    fn row() -> Vec<u8> {
        let mut row = vec![0; 64];
        row[4] = 64;
        row
    }

    #[test]
    fn counts_beyond_twenty_a_second_and_starts_again_after_it() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let judge = |refusals: &mut Refusals, tool: &str, at: Instant| {
            refusals.judge(("local", "agent"), "server", tool, "grant.missing", at)
        };
        for _ in 0..ROWS_EACH {
            assert_eq!(judge(&mut refusals, "t", start), RefusalVerdict::Row);
        }
        let RefusalVerdict::Count(kind) = judge(&mut refusals, "t", start) else {
            panic!("the first beyond the limit starts the count");
        };
        assert!(refusals.count(&kind, row()));
        assert!(!refusals.count(&kind, row()), "one row stands for all");
        assert_eq!(judge(&mut refusals, "t", start), RefusalVerdict::Counted);
        assert_eq!(judge(&mut refusals, "another", start), RefusalVerdict::Row);
        assert_eq!(refusals.due(start).len(), 1);
        assert_eq!(refusals.due(start).len(), 0, "written once per count");
        let later = start + WINDOW;
        assert_eq!(judge(&mut refusals, "t", later), RefusalVerdict::Row);
        assert!(refusals.due(later + WINDOW).is_empty());
        assert!(refusals.windows.is_empty());
    }

    // row 3.2
    #[test]
    fn refusals_of_two_projects_are_counted_apart() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        let mut judge =
            |project| refusals.judge((project, "agent"), "server", "tool", "grant.missing", now);
        let first: Vec<_> = (0..=ROWS_EACH).map(|_| judge("one")).collect();
        assert!(matches!(first.last(), Some(RefusalVerdict::Count(_))));
        assert_eq!(judge("other"), RefusalVerdict::Row);
    }

    #[test]
    fn many_tool_names_do_not_get_around_it() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        let mut rows = 0;
        for name in 0..10 * KINDS {
            let tool = name.to_string();
            match refusals.judge(("local", "agent"), "server", &tool, "tool.unknown", now) {
                RefusalVerdict::Row => rows += 1,
                RefusalVerdict::Count(kind) => assert!(refusals.count(&kind, vec![0; 64])),
                RefusalVerdict::Counted => {}
            }
        }
        assert!(rows <= KINDS as u64 + ROWS_EACH);
        assert!(refusals.windows.len() <= KINDS + 1);
    }
}
