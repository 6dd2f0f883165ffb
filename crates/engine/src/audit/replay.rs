//! Opens the journal's folder, finds out where the previous gateway stopped, and whether anything it
//! wrote is missing.
//!
//! Imported segments are deleted; the others are imported before anything of this process. Nothing is
//! repaired in place, and nothing damaged is removed. Entry point: `open`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gantry_store::{DamageKind, JournalState, Store};
use parking_lot::Mutex;

use super::chain::{self, Finding, ReadableSegment, SegmentCalls, WholeUpTo};
use super::damage::DamageLog;
use super::error::AuditError;
use super::evidence::ChainWriter;
use super::ids::random_bits;
use super::importer::{JournalImporter, LostOutcomes, PriorState, RowPolicy};
use super::journal::{Beginning, Journal, Position};
use super::mark::{self, Mark};
use super::places::Places;
use super::policy::AuditPolicy;
use super::refusals::Refusals;
use super::segment::{Directory, Opened, Segment, Usage};
use super::{Audit, AuditState};

/// Opens the audit; see `Audit::open`.
pub(super) async fn open(
    path: &Path,
    store: Store,
    policy: AuditPolicy,
) -> Result<Audit, AuditError> {
    let failed = |source| AuditError::Open {
        path: path.to_owned(),
        source,
    };
    let state = store.journal_state().await.map_err(AuditError::Store)?;
    let known = store.journal_damage().await.map_err(AuditError::Store)?;
    let position = state
        .position
        .map_or(Position::start_of(0), |position| Position {
            segment: position.segment,
            offset: position.offset,
        });
    let directory = Directory::open(path).map_err(failed)?;
    let mark = mark::read(&mark::path_of(path)).map_err(failed)?;
    let survey = FolderScan::of(&directory, &state, mark).map_err(failed)?;
    let damage = DamageLog::new(known);
    survey
        .findings
        .into_iter()
        .for_each(|finding| damage.add(finding));
    let places = Places::of(path, store.file()).map_err(failed)?;
    let shares_disk = store
        .file()
        .map_or(Ok(false), |file| shares_disk(&directory, file))
        .map_err(failed)?;
    let own = survey.newest.max(position.segment) + 1;
    let beginning = Beginning {
        first: own,
        left: survey.left,
        identity: survey.identity,
        link: survey.link,
        shares_disk,
    };
    let journal = Arc::new(Journal::start(directory, &policy, beginning)?);
    let lost = LostOutcomes::default();
    let former = PriorState {
        position,
        own,
        segments: survey.segments,
    };
    let chain = Arc::new(tokio::sync::Mutex::new(ChainWriter::open(
        path.parent().unwrap_or(path),
        store.clone(),
    )?));
    let importer = JournalImporter::new(
        (store.clone(), Arc::clone(&chain)),
        Arc::clone(&journal),
        policy.durability,
        former,
        Arc::clone(&lost),
        damage.clone(),
    );
    let shared = AuditState {
        store,
        journal,
        policy,
        importer: tokio::sync::Mutex::new(importer),
        chain,
        refusals: Mutex::new(Refusals::default()),
        rounds: super::rounds::Rounds::new(),
        lost,
        damage,
        places,
        import_error: Mutex::new(None),
        store_error: Mutex::new(None),
        cutting_off: AtomicBool::new(false),
        retention: Mutex::default(),
        body_limits: Default::default(),
    };
    let audit = Audit {
        shared: Arc::new(shared),
    };
    if let Err(error) = audit.import(RowPolicy::Ended).await {
        let error = super::chain(&error);
        tracing::warn!(error, "the audit journal waits for its database");
    }
    Ok(audit)
}

/// No journal gets this far: a file with a higher number is none of its segments.
const LAST_ID: u64 = 1 << 62;

/// The state of the journal's folder.
struct FolderScan {
    identity: u32,
    /// The newest segment that exists or existed.
    newest: u64,
    left: VecDeque<Arc<Segment>>,
    link: super::segment::ChainLink,
    findings: Vec<Finding>,
    segments: BTreeMap<u64, (WholeUpTo, SegmentCalls)>,
}

impl FolderScan {
    /// Opens the segments that are not imported yet, removes the others, and compares all of them
    /// with the store and the mark.
    fn of(directory: &Directory, state: &JournalState, mark: Option<Mark>) -> io::Result<Self> {
        directory.remove_unfinished()?;
        let ids = directory.segments()?;
        let imported_before = state.position.map_or(0, |position| position.segment);
        let known = state.identity.or(mark.map(|mark| mark.journal));
        let mut identity = known;
        let mut left = VecDeque::new();
        let (mut present, mut damaged) = (Vec::new(), Vec::new());
        for &id in &ids {
            if id < imported_before {
                match directory.remove(id) {
                    // No segment, but a folder in its place.
                    Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                        directory.set_aside(id)?;
                    }
                    removed => removed?,
                }
                continue;
            }
            if id > LAST_ID {
                damaged.push((DamageKind::Foreign, id, Some(directory.set_aside(id)?)));
                continue;
            }
            match Segment::open(directory, id)? {
                Opened::Segment(segment, usage) if is_ours(&segment, usage, state, identity) => {
                    if usage != Usage::Unchained {
                        identity = Some(segment.journal);
                    }
                    if segment.damaged {
                        let file = Some(directory.name_aside(id));
                        damaged.push((DamageKind::Truncated, id, file));
                    }
                    present.push(ReadableSegment { id, usage });
                    left.push_back(Arc::new(segment));
                }
                Opened::Unreadable if known.is_none() && directory.is_blank(id)? => {
                    // A gateway of an earlier release ended while it created the segment.
                    directory.remove(id)?;
                }
                Opened::Unreadable => {
                    damaged.push((DamageKind::Unreadable, id, Some(directory.set_aside(id)?)));
                }
                Opened::Segment(..) | Opened::Foreign => {
                    damaged.push((DamageKind::Foreign, id, Some(directory.set_aside(id)?)));
                }
            }
        }
        let identity = identity.unwrap_or_else(|| random_bits() as u32);
        let mark = mark.filter(|mark| mark.journal == identity);
        let mark = mark.as_ref();
        let set_aside: BTreeSet<u64> = damaged.iter().map(|(_, id, _)| *id).collect();
        let mut findings = chain::missing(state, mark, &present, &set_aside);
        findings.extend(damaged.into_iter().map(|(kind, segment, file)| Finding {
            kind,
            segment,
            file,
            held: chain::held(state, mark, &present, segment),
        }));
        let limits = chain::limits(mark, &present);
        let segments = present.iter().map(|segment| {
            let limit = limits.get(&segment.id).copied().unwrap_or_default();
            (
                segment.id,
                (limit, chain::held(state, mark, &present, segment.id)),
            )
        });
        let newest = ids.iter().copied().filter(|id| *id <= LAST_ID).max();
        let newest = newest.unwrap_or(0);
        Ok(Self {
            identity,
            newest: newest.max(mark.map_or(0, |mark| mark.current)),
            link: chain::continued(state, mark, &present),
            findings,
            segments: segments.collect(),
            left,
        })
    }
}

/// Returns whether a segment belongs to this journal. One of an earlier release does until the
/// database knows a chained one: by then everything before it is imported.
fn is_ours(segment: &Segment, usage: Usage, state: &JournalState, identity: Option<u32>) -> bool {
    match usage {
        Usage::Unchained => state.identity.is_none(),
        Usage::Spare | Usage::Linked(_) => identity.is_none_or(|known| known == segment.journal),
    }
}

/// Returns whether the database is on the file system of the journal.
fn shares_disk(directory: &Directory, database: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (device, _) = directory.identity()?;
    Ok(std::fs::metadata(database)?.dev() == device)
}
