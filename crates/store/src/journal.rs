//! The state of the journal in the store: its current run, and its damage.

use std::fmt;
use std::str::FromStr;

use crate::call::JournalPosition;

/// The known state of the journal before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalState {
    /// How far it is imported; `None` if it never was.
    pub position: Option<JournalPosition>,
    /// The random number in the header of its segments; `None` before the first chained one.
    pub identity: Option<u32>,
    /// The run that has not ended cleanly, if any.
    pub run: Option<JournalRun>,
}

/// The part of the journal written by one gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRun {
    /// Its first segment.
    pub segment: u64,
    /// How many calls were recorded before it.
    pub calls: u64,
}

/// A damage of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalDamage {
    /// When it was found.
    pub at_ms: u64,
    /// The segment; the last one if there are several.
    pub segment: u64,
    /// The kind of damage.
    pub kind: DamageKind,
    /// The most recorded calls that have no row because of it; `None` if unknown.
    pub calls: Option<u64>,
    /// The file that was kept, in the journal's folder.
    pub file: Option<String>,
}

/// The kinds of damage of a journal segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DamageKind {
    /// Its file is missing.
    Missing,
    /// Its file is truncated.
    Truncated,
    /// Its file is empty, or its header cannot be read.
    Unreadable,
    /// Its file belongs to another place in the journal, or to another journal.
    Foreign,
    /// Written records are missing.
    Overwritten,
    /// The file that records how far the journal was written is missing.
    NoMark,
    /// The database is a new one, which does not know the journal.
    NewDatabase,
}

impl DamageKind {
    const ALL: [Self; 7] = [
        Self::Missing,
        Self::Truncated,
        Self::Unreadable,
        Self::Foreign,
        Self::Overwritten,
        Self::NoMark,
        Self::NewDatabase,
    ];

    /// Returns the kind as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Truncated => "truncated",
            Self::Unreadable => "unreadable",
            Self::Foreign => "foreign",
            Self::Overwritten => "overwritten",
            Self::NoMark => "no_mark",
            Self::NewDatabase => "new_database",
        }
    }
}

impl fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.segment;
        match self.kind {
            DamageKind::Missing => write!(f, "journal segment {segment} is missing"),
            DamageKind::Truncated => write!(f, "journal segment {segment} was cut off"),
            DamageKind::Unreadable => write!(f, "journal segment {segment} cannot be read"),
            DamageKind::Foreign => write!(
                f,
                "the file of journal segment {segment} belongs to another segment or another journal"
            ),
            DamageKind::Overwritten => write!(f, "journal segment {segment} was overwritten"),
            DamageKind::NoMark => f.write_str(
                "`journal.mark`, which records how far the journal was written, is missing",
            ),
            DamageKind::NewDatabase => f.write_str(
                "the database is a new one: the one that had the earlier calls was removed or replaced",
            ),
        }?;
        match self.calls {
            Some(0) => f.write_str(": no recorded call is lost"),
            Some(1) => f.write_str(": up to 1 recorded call is lost"),
            Some(calls) => write!(f, ": up to {calls} recorded calls are lost"),
            None => f.write_str(": an unknown number of recorded calls may be lost"),
        }?;
        match &self.file {
            Some(file) => write!(f, "; the file is kept as `{file}`"),
            None => Ok(()),
        }
    }
}

/// The error of an unknown kind of damage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of damage")]
pub struct DamageKindError(String);

impl FromStr for DamageKind {
    type Err = DamageKindError;

    fn from_str(text: &str) -> Result<Self, DamageKindError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| DamageKindError(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damage_says_what_is_lost_and_what_is_kept() {
        let damage = |kind, calls, file: Option<&str>| {
            let file = file.map(str::to_owned);
            let (at_ms, segment) = (1, 7);
            JournalDamage {
                at_ms,
                segment,
                kind,
                calls,
                file,
            }
            .to_string()
        };
        assert_eq!(
            damage(DamageKind::Missing, Some(250), None),
            "journal segment 7 is missing: up to 250 recorded calls are lost"
        );
        assert_eq!(
            damage(DamageKind::Truncated, Some(1), Some("x.damaged")),
            "journal segment 7 was cut off: up to 1 recorded call is lost; the file is kept as \
             `x.damaged`"
        );
        assert_eq!(
            damage(DamageKind::NoMark, None, None),
            "`journal.mark`, which records how far the journal was written, is missing: an unknown \
             number of recorded calls may be lost"
        );
        assert_eq!(
            damage(DamageKind::Foreign, Some(0), None),
            "the file of journal segment 7 belongs to another segment or another journal: no \
             recorded call is lost"
        );
        for kind in DamageKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
    }
}
