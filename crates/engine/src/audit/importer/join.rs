//! Joins the records of one chunk: which intent each outcome belongs to, and which calls are open.
//!
//! Reads ids only; the records are decoded when their rows are created, without copying. Entry
//! point `Joined::of`.

use std::collections::{HashMap, HashSet};

use gantry_model::id::CallId;
use gantry_store::CallRow;

use super::OpenCall;
use crate::audit::record::{Entry, Kind};
use crate::audit::scan::{Chunk, Mark};

/// The location of an ended call's intent.
#[derive(Debug, Clone, Copy)]
pub(super) enum IntentLocation {
    /// In the same chunk.
    Here(Mark),
    /// In an earlier chunk: the call was open.
    Open,
    /// Unknown: the database may have its row.
    Before,
}

/// The calls of a chunk.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// Those that ended, with their outcomes.
    pub(super) ended: Vec<(IntentLocation, Mark)>,
    /// The ended ones that began in an earlier chunk.
    pub(super) closed: HashSet<CallId>,
    /// Those that begin here and have not ended.
    pub(super) begun: HashMap<CallId, Mark>,
    /// Those that are complete in one record.
    pub(super) whole: Vec<Mark>,
}

impl Joined {
    /// Joins the records of a chunk; `open` are the open calls of earlier ones.
    pub(super) fn of(chunk: &Chunk, open: &HashMap<CallId, OpenCall>) -> Self {
        let mut joined = Self {
            ended: Vec::with_capacity(chunk.marks.len() / 2),
            ..Self::default()
        };
        for mark in &chunk.marks {
            match mark.kind {
                Kind::Intent => {
                    joined.begun.insert(mark.id, *mark);
                }
                Kind::Outcome => {
                    let begun = match joined.begun.remove(&mark.id) {
                        Some(intent) => IntentLocation::Here(intent),
                        None if open.contains_key(&mark.id) => {
                            joined.closed.insert(mark.id);
                            IntentLocation::Open
                        }
                        None => IntentLocation::Before,
                    };
                    joined.ended.push((begun, *mark));
                }
                Kind::Whole => joined.whole.push(*mark),
            }
        }
        joined
    }

    /// Returns the calls whose intents are unknown.
    pub(super) fn orphans(&self) -> impl Iterator<Item = CallId> {
        let is_orphan =
            |(begun, _): &&(IntentLocation, Mark)| matches!(begun, IntentLocation::Before);
        self.ended
            .iter()
            .filter(is_orphan)
            .map(|(_, outcome)| outcome.id)
    }
}

impl Chunk {
    /// Returns the running row of an intent.
    pub(super) fn intent(&self, mark: Mark) -> Option<CallRow<&str>> {
        match self.entry(mark) {
            Entry::Intent(row) => Some(self.placed(mark, row)),
            Entry::Outcome(_) | Entry::Whole(_) => None,
        }
    }

    /// Returns a row that is complete in one record.
    pub(super) fn whole(&self, mark: Mark) -> Option<CallRow<&str>> {
        match self.entry(mark) {
            Entry::Whole(row) => Some(self.placed(mark, row)),
            Entry::Intent(_) | Entry::Outcome(_) => None,
        }
    }

    /// Completes a row with its outcome.
    pub(super) fn ended<'a>(
        &'a self,
        mark: Mark,
        mut row: CallRow<&'a str>,
    ) -> Option<CallRow<&'a str>> {
        match self.entry(mark) {
            Entry::Outcome(ending) => {
                ending.complete(&mut row);
                Some(row)
            }
            Entry::Intent(_) | Entry::Whole(_) => None,
        }
    }

    fn placed<'a>(&self, mark: Mark, mut row: CallRow<&'a str>) -> CallRow<&'a str> {
        row.seq = self.position(mark).sequence();
        row
    }
}
