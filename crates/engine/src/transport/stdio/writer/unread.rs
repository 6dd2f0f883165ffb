//! Which calls lie unread in a child's stdin, told by how many bytes are still in the pipe.
//!
//! A child that reads nothing for the deadline is stalled until it reads again (fault S13). One that
//! has never read is still starting, `npx` with its download before the server for one, and the
//! handshake has a bound of its own. Only lines that were written whole are known here. Never asks
//! the pipe itself.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The most calls whose place is remembered; of an older one it is not known whether it was read.
const KEPT: usize = 1024;
/// How often within the deadline the pipe is looked at.
const LOOKS: u32 = 20;

/// What was written to the pipe and may not be read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// How many bytes were ever written.
    written: u64,
    /// Calls, and where their line ends.
    calls: VecDeque<(u64, u64)>,
    /// How far the child had read, and since when it has read no further; `None` while nothing
    /// needs to be watched.
    read: Option<(u64, Instant)>,
    looked: Option<Instant>,
    stalled: bool,
}

impl Unread {
    /// Notes lines that were written, with the calls among them; true if nothing was watched before.
    pub(super) fn written(&mut self, bytes: usize, calls: &[(u64, usize)]) -> bool {
        let before = self.written;
        self.written += bytes as u64;
        if calls.is_empty() {
            return false;
        }
        let ends = calls
            .iter()
            .map(|(call, end)| (*call, before + *end as u64));
        self.calls.extend(ends);
        let surplus = self.calls.len().saturating_sub(KEPT);
        self.calls.drain(..surplus);
        let news = self.read.is_none();
        if news {
            let now = Instant::now();
            (self.read, self.looked) = (Some((before, now)), Some(now));
        }
        news
    }

    /// Returns when the pipe is to be looked at, if it is.
    pub(super) fn next_look(&self, deadline: Duration) -> Option<Instant> {
        self.read?;
        Some(self.looked? + deadline / LOOKS)
    }

    /// Notes that the pipe cannot be judged now.
    pub(super) fn put_off(&mut self) {
        self.looked = Some(Instant::now());
    }

    /// Takes in how many bytes are in the pipe; returns all unread calls once nothing has been read
    /// for the deadline.
    pub(super) fn look(&mut self, in_pipe: usize, deadline: Duration) -> Vec<u64> {
        let now = Instant::now();
        self.looked = Some(now);
        if in_pipe == 0 {
            self.calls.clear();
            (self.read, self.stalled) = (None, false);
            return Vec::new();
        }
        let unread = self.unread(in_pipe);
        let position = self.written.saturating_sub(in_pipe as u64);
        match self.read {
            Some(_) if position == 0 => Vec::new(),
            Some((read, since)) if position <= read => {
                if self.stalled || now.duration_since(since) < deadline {
                    return Vec::new();
                }
                self.stalled = true;
                unread
            }
            Some(_) | None => {
                (self.read, self.stalled) = (Some((position, now)), false);
                Vec::new()
            }
        }
    }

    /// Gives a child that is busy with what it has read another deadline.
    pub(super) fn spare(&mut self) {
        self.stalled = false;
        if let Some((_, since)) = &mut self.read {
            *since = Instant::now();
        }
    }

    /// Tells whether the child has read nothing for the deadline.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Returns the calls whose line is not read, with so many bytes in the pipe.
    pub(super) fn unread(&mut self, in_pipe: usize) -> Vec<u64> {
        let position = self.written.saturating_sub(in_pipe as u64);
        let read = self.calls.partition_point(|(_, end)| *end <= position);
        self.calls.drain(..read);
        self.calls.iter().map(|(call, _)| *call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn what_lies_unread_for_the_deadline_is_told_once_and_forgotten_when_read() {
        // fault S13
        let mut unread = Unread::default();
        assert_eq!(unread.next_look(DEADLINE), None);
        assert!(unread.written(30, &[(1, 10), (2, 30)]));
        assert!(!unread.written(10, &[(3, 10)]), "it is watched already");
        assert!(unread.next_look(DEADLINE).is_some());
        tokio::time::sleep(DEADLINE / 2).await;
        assert!(unread.look(25, DEADLINE).is_empty(), "it has read a call");
        tokio::time::sleep(DEADLINE - Duration::from_millis(1)).await;
        assert!(unread.look(25, DEADLINE).is_empty());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(unread.look(25, DEADLINE), [2, 3]);
        assert!(unread.is_stalled());
        assert!(unread.look(25, DEADLINE).is_empty(), "told once");
        assert!(unread.look(5, DEADLINE).is_empty());
        assert!(!unread.is_stalled());
        assert!(unread.look(0, DEADLINE).is_empty());
        assert_eq!(unread.next_look(DEADLINE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_has_never_read_is_still_starting() {
        let mut unread = Unread::default();
        unread.written(10, &[(1, 10)]);
        tokio::time::sleep(DEADLINE * 10).await;
        assert!(unread.look(10, DEADLINE).is_empty());
        assert!(!unread.is_stalled());
        unread.written(10, &[(2, 10)]);
        assert!(unread.look(10, DEADLINE).is_empty(), "it has begun to read");
        tokio::time::sleep(DEADLINE).await;
        assert_eq!(unread.look(10, DEADLINE), [2]);
        assert!(unread.is_stalled());
    }

    #[tokio::test(start_paused = true)]
    async fn unread_lines_that_are_remembered_are_bounded() {
        let mut unread = Unread::default();
        for call in 0..5000 {
            unread.written(1, &[(call, 1)]);
        }
        assert_eq!(unread.unread(5000).len(), KEPT);
    }
}
