//! Decides what is missing from a journal, from the links between its segments, the mark of the
//! last one, and the state in the store.
//!
//! Pure functions, no I/O. A kill leaves only a torn end after the mark; anything missing before
//! the mark was removed. Entry points: `missing`, `limits` and `held`.

use std::collections::{BTreeMap, BTreeSet};

use gantry_store::{DamageKind, JournalState};

use super::mark::Mark;
use super::segment::{ChainLink, HEADER, Usage};

/// A segment that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadableSegment {
    pub(super) id: u64,
    pub(super) usage: Usage,
}

/// A damage of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: DamageKind,
    pub(super) segment: u64,
    /// The file that is kept.
    pub(super) file: Option<String>,
    pub(super) held: SegmentCalls,
}

/// How many calls the segments from `first` to `last` contained, at most; calls with a row are not
/// lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentCalls {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) calls: Option<u64>,
}

/// Up to where a segment's records must be intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WholeUpTo {
    /// Before this offset everything was written.
    pub(super) end: u64,
    /// How many bytes of it could never be written.
    pub(super) failed: u64,
}

/// Returns the segments that must exist but are missing; `set_aside` are known to be damaged.
pub(super) fn missing(
    state: &JournalState,
    mark: Option<&Mark>,
    present: &[ReadableSegment],
    set_aside: &BTreeSet<u64>,
) -> Vec<Finding> {
    let first_needed = state.position.map(|position| position.segment);
    let is_there =
        |id: u64| set_aside.contains(&id) || present.iter().any(|segment| segment.id == id);
    let is_needed = |id: u64| first_needed.is_none_or(|first| id >= first) && !is_there(id);
    let mut found = BTreeMap::new();
    for (id, link) in linked(present) {
        // A new database never knew the earlier segments.
        let begins =
            state.position.is_none() && linked(present).next().map(|first| first.0) == Some(id);
        if link.previous > 0 && !begins && is_needed(link.previous) {
            let end = link.calls_before;
            found.insert(link.previous, between(state, present, link.previous, end));
        }
    }
    if let Some(mark) = mark
        && (state.position.is_some() || !present.is_empty())
        && is_needed(mark.current)
    {
        let end = mark.calls_before + mark.calls_at_most();
        found.insert(mark.current, between(state, present, mark.current, end));
    }
    if let Some(position) = state.position
        && position.offset > HEADER
        && is_needed(position.segment)
        && found.is_empty()
    {
        found.insert(position.segment, alone(position.segment, None));
    }
    let mut findings: Vec<_> = found
        .into_iter()
        .map(|(segment, held)| Finding {
            kind: DamageKind::Missing,
            segment,
            file: None,
            held,
        })
        .collect();
    if let (Some(run), None) = (state.run, mark) {
        let segment = first_needed.unwrap_or(run.segment);
        findings.push(Finding {
            kind: DamageKind::NoMark,
            segment,
            file: None,
            held: alone(segment, None),
        });
    }
    // The database that this journal was imported into is gone.
    if let (None, None, Some(mark)) = (state.identity, state.position, mark)
        && mark.calls_before + mark.calls > 0
    {
        let calls = mark.calls_before + mark.calls_at_most();
        findings.push(Finding {
            kind: DamageKind::NewDatabase,
            segment: mark.current,
            file: None,
            held: SegmentCalls {
                first: 1,
                last: mark.current,
                calls: Some(calls),
            },
        });
    }
    findings
}

/// Returns up to where each segment's records must be intact.
pub(super) fn limits(mark: Option<&Mark>, present: &[ReadableSegment]) -> BTreeMap<u64, WholeUpTo> {
    let mut limits: BTreeMap<u64, WholeUpTo> = linked(present)
        .map(|(_, link)| {
            let limit = WholeUpTo {
                end: link.previous_end,
                failed: link.previous_failed,
            };
            (link.previous, limit)
        })
        .collect();
    if let Some(mark) = mark {
        let limit = limits.entry(mark.stable.segment).or_default();
        limit.end = limit.end.max(mark.stable.offset);
        if mark.current == mark.stable.segment {
            limit.failed = limit.failed.max(mark.failed);
        }
    }
    limits
}

/// Returns how many calls one segment contained; together with its neighbours if they cannot be
/// distinguished.
pub(super) fn held(
    state: &JournalState,
    mark: Option<&Mark>,
    present: &[ReadableSegment],
    segment: u64,
) -> SegmentCalls {
    let next = linked(present).find(|(id, _)| *id > segment);
    match (next, mark) {
        (Some((_, link)), _) if link.previous == segment => {
            alone(segment, Some(link.previous_calls))
        }
        (Some((id, link)), _) => between(state, present, id - 1, link.calls_before),
        (None, Some(mark)) if mark.current == segment => alone(segment, Some(mark.calls_at_most())),
        // It was allocated in advance and never used.
        (None, Some(mark)) if mark.current < segment => alone(segment, Some(0)),
        (None, Some(mark)) => between(state, present, mark.current - 1, mark.calls_before),
        (None, None) => alone(segment, None),
    }
}

/// Returns the link of a new segment after everything that an earlier gateway process left.
pub(super) fn continued(
    state: &JournalState,
    mark: Option<&Mark>,
    present: &[ReadableSegment],
) -> ChainLink {
    let last = linked(present).last();
    let last_id = last.map_or(0, |(id, _)| id);
    match mark {
        Some(mark) if mark.current >= last_id => {
            let end = match mark.stable.segment == mark.current {
                true => mark.stable.offset,
                false => HEADER,
            };
            ChainLink {
                previous: mark.current,
                previous_end: end,
                previous_calls: mark.calls_at_most(),
                previous_failed: mark.failed,
                calls_before: mark.calls_before + mark.calls_at_most(),
            }
        }
        _ => {
            let before = last.map_or(0, |(_, link)| link.calls_before);
            let run = state.run.map_or(0, |run| run.calls);
            ChainLink {
                previous: last_id,
                previous_end: HEADER,
                calls_before: before.max(run),
                ..ChainLink::default()
            }
        }
    }
}

fn linked(present: &[ReadableSegment]) -> impl Iterator<Item = (u64, ChainLink)> {
    present.iter().filter_map(|segment| match segment.usage {
        Usage::Linked(link) => Some((segment.id, link)),
        Usage::Spare | Usage::Unchained => None,
    })
}

const fn alone(segment: u64, calls: Option<u64>) -> SegmentCalls {
    SegmentCalls {
        first: segment,
        last: segment,
        calls,
    }
}

/// Returns the number of calls in the segments until `last`, from the nearest one whose preceding
/// count is known; `end` is the count after `last`.
fn between(state: &JournalState, present: &[ReadableSegment], last: u64, end: u64) -> SegmentCalls {
    let before = linked(present).take_while(|(id, _)| *id < last).last();
    let before = before.map(|(id, link)| (id, link.calls_before));
    let run = state.run.map(|run| (run.segment, run.calls));
    let run = run.filter(|(first, _)| *first <= last);
    match before.or(run) {
        Some((first, calls)) => SegmentCalls {
            first,
            last,
            calls: Some(end.saturating_sub(calls)),
        },
        None => alone(last, None),
    }
}

#[cfg(test)]
mod tests {
    use gantry_store::{JournalPosition, JournalRun};

    use super::super::journal::Position;
    use super::super::mark::{MARK_EVERY, SegmentsLeft};
    use super::*;

    const IDENTITY: u32 = 5;

    /// Ten calls in each segment of a run that began with segment 1.
    fn segment(id: u64) -> ReadableSegment {
        let link = ChainLink {
            previous: id - 1,
            previous_end: 500,
            previous_calls: 10,
            previous_failed: 0,
            calls_before: 10 * (id - 1),
        };
        ReadableSegment {
            id,
            usage: Usage::Linked(link),
        }
    }

    fn state(segment: u64, offset: u64) -> JournalState {
        JournalState {
            position: Some(JournalPosition { segment, offset }),
            identity: Some(IDENTITY),
            run: Some(JournalRun {
                segment: 1,
                calls: 0,
            }),
        }
    }

    fn mark(current: u64) -> Mark {
        Mark {
            journal: IDENTITY,
            stable: Position {
                segment: current,
                offset: 400,
            },
            current,
            calls: 8,
            calls_before: 10 * (current - 1),
            failed: 0,
            left: SegmentsLeft::InUse,
        }
    }

    fn found(
        state: &JournalState,
        mark: Option<Mark>,
        present: &[u64],
    ) -> Vec<(DamageKind, u64, Option<u64>)> {
        let present: Vec<_> = present.iter().map(|id| segment(*id)).collect();
        let found = missing(state, mark.as_ref(), &present, &BTreeSet::new());
        found
            .iter()
            .map(|finding| (finding.kind, finding.segment, finding.held.calls))
            .collect()
    }

    #[test]
    fn a_whole_journal_misses_nothing() {
        assert_eq!(found(&state(2, 96), Some(mark(4)), &[2, 3, 4]), []);
        assert_eq!(found(&state(4, 96), Some(mark(4)), &[4]), []);
        // The mark of the newest segment could not be written.
        assert_eq!(found(&state(2, 96), Some(mark(3)), &[2, 3, 4]), []);
        // After a clean stop nothing is left, and nothing is missing.
        let mut stopped = state(5, HEADER);
        stopped.run = None;
        assert_eq!(found(&stopped, Some(mark(4)), &[]), []);
        assert_eq!(found(&stopped, None, &[]), []);
    }

    #[test]
    fn a_database_that_does_not_know_the_journal_is_a_new_one() {
        let new = JournalState::default();
        let lost = (DamageKind::NewDatabase, 4, Some(38 + MARK_EVERY));
        assert_eq!(found(&new, Some(mark(4)), &[3, 4]), [lost]);
        let mut stopped = mark(4);
        stopped.left = SegmentsLeft::None;
        let lost = (DamageKind::NewDatabase, 4, Some(38));
        assert_eq!(found(&new, Some(stopped), &[]), [lost]);
        // A gateway that was killed before its first call.
        let mut first = mark(1);
        first.calls = 0;
        assert_eq!(found(&new, Some(first), &[1]), []);
    }

    #[test]
    fn whichever_segment_is_missing_is_named_with_what_it_held() {
        let missing = DamageKind::Missing;
        let slack = MARK_EVERY;
        // The first, counted from the beginning of the run; rows that are there are taken off later.
        let first = found(&state(2, 96), Some(mark(4)), &[3, 4]);
        assert_eq!(first, [(missing, 2, Some(20))]);
        let middle = found(&state(2, 96), Some(mark(4)), &[2, 4]);
        assert_eq!(middle, [(missing, 3, Some(20))]);
        let last = found(&state(2, 96), Some(mark(4)), &[2, 3]);
        assert_eq!(last, [(missing, 4, Some(18 + slack))]);
        let two = found(&state(2, 96), Some(mark(5)), &[2, 5]);
        assert_eq!(two, [(missing, 4, Some(30))]);
        let all = found(&state(4, 96), Some(mark(4)), &[]);
        assert_eq!(all, [(missing, 4, Some(38 + slack))]);
        let even_the_mark = found(&state(4, HEADER), None, &[]);
        assert_eq!(even_the_mark, [(DamageKind::NoMark, 4, None)]);
        let unchained = JournalState {
            identity: None,
            run: None,
            ..state(4, 96)
        };
        assert_eq!(found(&unchained, None, &[]), [(missing, 4, None)]);
    }

    #[test]
    fn records_must_be_whole_until_the_mark_and_no_further() {
        let present = [segment(2), segment(3)];
        let limits = limits(Some(&mark(3)), &present);
        let ends: Vec<_> = limits.iter().map(|(id, limit)| (*id, limit.end)).collect();
        assert_eq!(ends, [(1, 500), (2, 500), (3, 400)]);
        assert_eq!(
            held(&state(2, 96), Some(&mark(3)), &present, 2).calls,
            Some(10)
        );
        assert_eq!(
            held(&state(2, 96), Some(&mark(3)), &present, 3).calls,
            Some(8 + MARK_EVERY)
        );
        assert_eq!(
            held(&state(2, 96), Some(&mark(3)), &present, 4).calls,
            Some(0)
        );
    }

    #[test]
    fn the_chain_goes_on_over_a_restart() {
        let present = [segment(2), segment(3)];
        let link = continued(&state(2, 96), Some(&mark(3)), &present);
        assert_eq!((link.previous, link.previous_end), (3, 400));
        assert_eq!(link.calls_before, 28 + MARK_EVERY);
        let link = continued(&state(2, 96), None, &present);
        assert_eq!((link.previous, link.calls_before), (3, 20));
        let link = continued(&JournalState::default(), None, &[]);
        assert_eq!((link.previous, link.calls_before), (0, 0));
    }
}
