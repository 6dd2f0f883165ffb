//! Opens the journal's folder and finds out where a former gateway ended.
//!
//! Segments that are folded go; those that are not are read by the folder before anything of this
//! process. Nothing is repaired in place. Entry point `open`.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use gantry_store::Store;

use super::error::AuditError;
use super::fold::{Folder, Lost, Show};
use super::journal::{Journal, Position};
use super::policy::AuditPolicy;
use super::refusals::Refusals;
use super::segment::{Directory, Segment};
use super::{Audit, Shared};

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
    let position = store.fold_position().await.map_err(AuditError::Store)?;
    let position = position.map_or(Position::start_of(0), |position| Position {
        segment: position.segment,
        offset: position.offset,
    });
    let directory = Directory::open(path).map_err(failed)?;
    let ids = directory.segments().map_err(failed)?;
    let own = ids.last().copied().unwrap_or(0).max(position.segment) + 1;
    let left = left_behind(&directory, &ids, position.segment).map_err(failed)?;
    let journal = Arc::new(Journal::start(directory, &policy, own, left)?);
    let lost = Lost::default();
    let folder = Folder::new(
        store.clone(),
        Arc::clone(&journal),
        policy.durability,
        position,
        own,
        Arc::clone(&lost),
    );
    let shared = Shared {
        store,
        journal,
        policy,
        folder: tokio::sync::Mutex::new(folder),
        refusals: Mutex::new(Refusals::default()),
        lost,
        fold_error: Mutex::new(None),
    };
    let audit = Audit {
        shared: Arc::new(shared),
    };
    if let Err(error) = audit.fold(Show::Ended).await {
        let error = super::chain(&error);
        tracing::warn!(error, "the audit journal waits for its database");
    }
    Ok(audit)
}

/// Opens the segments that are not folded yet and removes the others.
fn left_behind(
    directory: &Directory,
    ids: &[u64],
    folded_before: u64,
) -> io::Result<VecDeque<Arc<Segment>>> {
    let mut left = VecDeque::new();
    for &id in ids {
        if id < folded_before {
            directory.remove(id)?;
        } else if let Some(segment) = Segment::open(directory, id)? {
            left.push_back(Arc::new(segment));
        } else if directory.is_blank(id)? {
            // The former gateway ended while it made the segment.
            directory.remove(id)?;
        } else {
            tracing::error!(segment = id, "a journal segment is damaged and set aside");
            directory.set_aside(id)?;
        }
    }
    Ok(left)
}
