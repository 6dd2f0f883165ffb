//! Administrative acts in the chain: each write of one, and each removal, has its block.
//!
//! An act is written when it begins and changed once when it ends; counts of refused attempts
//! change more often. What is written of it is kept here and not read back, so that what somebody
//! else changed meanwhile does not fit the chain. Entry point: [`ActLog`].

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::diagnose::chain as causes;
use gantry_model::id::CallId;
use gantry_store::{
    ActOutcome, ActRow, BlockKind, ChainHead, Entries, Entry, Place, Removed, SignedBlock, Store,
    StoreError, act_digest,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use super::ChainWriter;
use crate::audit::AuditError;

/// The acts that a full disk does not keep anybody from: they end what somebody may do, or free space.
const URGENT: [&str; 11] = [
    "key.revoke",
    "grant.remove",
    "agent.remove",
    "suspend",
    "server.remove",
    "project.unload",
    "project.delete",
    "image.remove",
    "image.prune",
    "volume.remove",
    "volume.prune",
];
/// How many refused attempts of a project are kept, and how many other acts.
const KEPT: (u32, u32) = (10_000, 100_000);
/// After how many acts it is looked for surplus ones.
const PRUNED_EVERY: u64 = 128;
/// How many surplus acts of a kind are dropped at once.
const PRUNED_AT_ONCE: u32 = 256;

/// How long a new act waits for the chain before it asks whether others failed meanwhile: where the
/// database is locked, each of them would wait for it in turn.
const WAIT: Duration = Duration::from_millis(250);
/// How often it waits so: in all long enough for a slow disk.
const MOST_WAITS: usize = 20;
/// After this time a failure says nothing about the next act, which the chain may keep waiting for
/// another reason, such as an import.
const RECENT: Duration = Duration::from_secs(5);

/// Writes administrative acts, each with the block that covers it; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ActLog {
    chain: Arc<Mutex<ChainWriter>>,
    /// Why the last new act that was tried could not be written, and when, if it could not.
    failure: Arc<parking_lot::Mutex<Option<(Instant, Failure)>>>,
}

/// Why an act could not be written.
#[derive(Debug, Clone)]
enum Failure {
    Locked { database: String, holder: String },
    Other,
}

impl Failure {
    fn of(error: &StoreError) -> Self {
        if let StoreError::Locked { database, holder } = error {
            let (database, holder) = (database.clone(), holder.clone());
            return Self::Locked { database, holder };
        }
        Self::Other
    }

    /// Returns the error of an act that waited in vain.
    fn into_error(self) -> StoreError {
        match self {
            Self::Locked { database, holder } => StoreError::Locked { database, holder },
            Self::Other => StoreError::Busy {
                what: "record an administrative act",
            },
        }
    }
}

/// An act as it was written last.
#[derive(Debug, Clone)]
pub(crate) struct RecordedAct {
    pub(crate) row: ActRow,
    block: u64,
}

impl ActLog {
    pub(in crate::audit) fn new(chain: Arc<Mutex<ChainWriter>>) -> Self {
        Self {
            chain,
            failure: Arc::default(),
        }
    }

    /// Opens the log of a data folder whose gateway is stopped.
    pub(crate) fn open(data_folder: &Path, store: Store) -> Result<Self, AuditError> {
        let chain = ChainWriter::open(data_folder, store)?;
        Ok(Self::new(Arc::new(Mutex::new(chain))))
    }

    /// Writes an act, begun or complete.
    pub(crate) async fn put(&self, row: ActRow) -> Result<RecordedAct, StoreError> {
        let mut chain = self.turn().await?;
        let written = chain.put_act(row).await;
        let failure = written.as_ref().err().map(Failure::of);
        *self.failure.lock() = failure.map(|failure| (Instant::now(), failure));
        written
    }

    /// Waits for the chain, which is written one block at a time; only for a moment after a failed
    /// write.
    async fn turn(&self) -> Result<MutexGuard<'_, ChainWriter>, StoreError> {
        let mut chain = pin!(self.chain.lock());
        for _ in 0..MOST_WAITS {
            if let Ok(chain) = timeout(WAIT, chain.as_mut()).await {
                return Ok(chain);
            }
            let failure = self.failure.lock().clone();
            if let Some((_, failure)) = failure.filter(|(at, _)| at.elapsed() < RECENT) {
                return Err(failure.into_error());
            }
        }
        Err(Failure::Other.into_error())
    }

    /// Replaces what is written of an act; a mere `count` need not survive a power loss.
    pub(crate) async fn change(
        &self,
        act: &RecordedAct,
        row: ActRow,
        is_count: bool,
    ) -> Result<RecordedAct, StoreError> {
        let mut chain = self.chain.lock().await;
        chain.change_act(act, row, is_count).await
    }
}

impl ChainWriter {
    async fn put_act(&mut self, row: ActRow) -> Result<RecordedAct, StoreError> {
        let is_urgent = URGENT.contains(&&*row.act);
        let written = match self.write_act(row.clone()).await {
            Err(StoreError::Full { .. }) if is_urgent && self.reserve.give_up() => {
                self.write_act(row).await?
            }
            written => written?,
        };
        if let Err(error) = self.put_loss(&written.row).await {
            let error = causes(&error);
            tracing::warn!(
                error,
                "that the audit's chain was cut off could not be recorded"
            );
        }
        Ok(written)
    }

    /// Puts on record that the chain had been cut off when the gateway started.
    async fn put_loss(&mut self, before: &ActRow) -> Result<(), StoreError> {
        let Some((first, last)) = self.lost else {
            return Ok(());
        };
        let row = ActRow {
            project: before.project.clone(),
            at_ms: before.at_ms,
            ended_ms: Some(before.at_ms),
            actor: "gateway".to_owned(),
            via: "gateway".to_owned(),
            act: "audit.cut_off".to_owned(),
            target: format!("blocks {first} to {last}"),
            detail: "the database was set back, or lost its end".to_owned(),
            outcome: ActOutcome::Done,
            ..ActRow::default()
        };
        self.write_act(row).await?;
        self.lost = None;
        Ok(())
    }

    async fn write_act(&mut self, mut row: ActRow) -> Result<RecordedAct, StoreError> {
        self.ensure().await?;
        row.repeats = row.repeats.max(1);
        let number = self.head.0 + 1;
        let store = self.store.clone();
        let open = store.begin_act(&row, number).await?;
        row.id = open.id();
        let (block, head) = self.seal_act(&row, Removed::default());
        self.unsure = true;
        open.cover(&block, &head).await?;
        self.appended(&head);
        if row.id.is_multiple_of(PRUNED_EVERY)
            && let Err(error) = self.prune_acts(&row.project, KEPT).await
        {
            let error = causes(&error);
            tracing::warn!(error, "old administrative acts could not be dropped");
        }
        Ok(RecordedAct { row, block: number })
    }

    async fn change_act(
        &mut self,
        act: &RecordedAct,
        row: ActRow,
        is_count: bool,
    ) -> Result<RecordedAct, StoreError> {
        self.ensure().await?;
        // A block of an act has one entry.
        let removed = Removed::from_iter([Place {
            gateway: self.origin.gateway,
            block: act.block,
            entry: 0,
        }]);
        let (block, head) = self.seal_act(&row, removed);
        self.unsure = true;
        self.store
            .change_act(&row, act.block, (&block, &head), is_count)
            .await?;
        self.appended(&head);
        Ok(RecordedAct {
            row,
            block: head.number,
        })
    }

    /// Drops acts of a project that are too many.
    pub(in crate::audit) async fn prune_acts(
        &mut self,
        project: &str,
        kept: (u32, u32),
    ) -> Result<(), StoreError> {
        self.ensure().await?;
        let surplus = self.store.surplus_acts(project, kept, PRUNED_AT_ONCE);
        let surplus = surplus.await?;
        if surplus.is_empty() {
            return Ok(());
        }
        let covered = surplus
            .iter()
            .filter_map(|(id, gateway, block)| Some(((*gateway, (*block)?), entry_id(*id))));
        let removed = self.places_in(covered).await?.into_values().collect();
        let (block, head) = self.seal(
            BlockKind::Retention,
            String::new(),
            (Entries::default(), removed),
        );
        self.unsure = true;
        self.store.drop_acts(&surplus, &block, &head).await?;
        self.appended(&head);
        Ok(())
    }

    fn seal_act(&mut self, row: &ActRow, removed: Removed) -> (SignedBlock, ChainHead) {
        let salt = self.salts.next();
        let gateway = self.origin.gateway;
        let mut entries = Entries::default();
        entries.push(&Entry {
            id: entry_id(row.id),
            digest: act_digest(&mut self.buffer, gateway, &salt, row),
            salt,
        });
        self.seal(BlockKind::Act, String::new(), (entries, removed))
    }
}

/// Returns the id of an act in an entry.
fn entry_id(act: u64) -> CallId {
    CallId::from_bits(u128::from(act))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A failure of long ago does not refuse what only waits for an import, and a refusal is none.
    #[tokio::test]
    async fn a_former_failure_refuses_nothing_once_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        let log = ActLog::open(folder.path(), store.clone()).unwrap();
        let fail = |before: Duration| {
            let at = Instant::now().checked_sub(before).unwrap();
            *log.failure.lock() = Some((at, Failure::Other));
            at
        };
        let importing = log.chain.lock().await;
        let at = fail(Duration::ZERO);
        let refused = log.put(ActRow::default()).await;
        assert!(matches!(refused, Err(StoreError::Busy { .. })));
        assert_eq!(log.failure.lock().as_ref().map(|(at, _)| *at), Some(at));
        fail(RECENT);
        let mut put = pin!(log.put(ActRow::default()));
        assert!(timeout(2 * WAIT, put.as_mut()).await.is_err());
        drop(importing);
        put.await.unwrap();
        store.close().await.unwrap();
    }
}
