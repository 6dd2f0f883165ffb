//! Checks a journal folder that no gateway uses, without changing it: missing or truncated
//! segments, and damaged records. Entry point: [`verify_journal`].

use std::io;
use std::path::Path;

use super::chain::{self, ReadableSegment};
use super::mark::{self, SegmentsLeft};
use super::scan::records_in;
use super::segment::{Directory, Opened, Segment, Usage};

/// The result of checking a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalCheck {
    /// How many segments there are.
    pub segments: u64,
    /// How many intact records there are.
    pub records: u64,
    /// Descriptions of the damage.
    pub findings: Vec<String>,
}

/// Checks the journal in a folder.
pub fn verify_journal(path: &Path) -> io::Result<JournalCheck> {
    if !path.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let directory = Directory::open(path)?;
    let mark = mark::read(&mark::path_of(path))?;
    let mut check = JournalCheck::default();
    let mut present = Vec::new();
    let mut readable = Vec::new();
    for id in directory.segments()? {
        check.segments += 1;
        match Segment::open(&directory, id)? {
            Opened::Segment(segment, usage) => {
                let length = segment.file.metadata()?.len();
                if length < segment.size {
                    let text = format!("journal segment {id} was cut off");
                    check.findings.push(text);
                } else if segment.has_damaged_header()? {
                    let text = format!("a copy of the header of journal segment {id} was changed");
                    check.findings.push(text);
                }
                present.push(ReadableSegment { id, usage });
                readable.push(segment);
            }
            Opened::Foreign => check.findings.push(format!(
                "the file of journal segment {id} belongs to another segment or another journal"
            )),
            Opened::Unreadable => check
                .findings
                .push(format!("journal segment {id} cannot be read")),
        }
    }
    let identities = readable.iter().map(|segment| segment.journal);
    let foreign = identities
        .clone()
        .any(|one| Some(one) != identities.clone().next());
    if foreign {
        let text = "segments of several journals lie side by side".to_owned();
        check.findings.push(text);
    }
    let used: Vec<_> = present
        .iter()
        .filter_map(|segment| match segment.usage {
            Usage::Linked(link) => Some((segment.id, link.previous)),
            Usage::Unchained | Usage::Spare => None,
        })
        .collect();
    for pair in used.windows(2) {
        let [(before, _), (id, previous)] = pair else {
            continue;
        };
        if previous != before {
            check.findings.push(format!(
                "journal segments between {before} and {id} are missing"
            ));
        }
    }
    let last = used.last().map_or(0, |(last, _)| *last);
    if let Some(mark) = &mark
        && last < mark.current
        && match mark.left {
            SegmentsLeft::InUse => true,
            SegmentsLeft::None => false,
            // A stopped gateway leaves no segment at all, not even one made ahead.
            SegmentsLeft::Unknown => check.segments > 0,
        }
    {
        let current = mark.current;
        check
            .findings
            .push(format!("journal segment {current} is missing"));
    }
    if mark.is_none() && !used.is_empty() {
        let text = "`journal.mark`, which records how far the journal was written, is missing";
        check.findings.push(text.to_owned());
    }
    let limits = chain::limits(mark.as_ref(), &present);
    for segment in &readable {
        let limit = limits.get(&segment.id).copied().unwrap_or_default();
        let (records, gaps) = records_in(segment)?;
        check.records += records;
        // After the mark, a killed gateway may leave incomplete records.
        let lost: u64 = gaps
            .iter()
            .map(|(from, to)| (*to).min(limit.end).saturating_sub(*from))
            .sum();
        if lost > limit.failed {
            let id = segment.id;
            check.findings.push(format!(
                "journal segment {id} was overwritten: {lost} bytes"
            ));
        }
    }
    Ok(check)
}
