//! Which list changes a server announced, and which of them the catalog has. A burst of them costs
//! one refresh. Entry points: [`ListChanges::heard`], [`ListChanges::listed`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

#[derive(Debug)]
pub(crate) struct ListChanges {
    /// How often the server said that a list changed.
    heard: AtomicU64,
    /// How many of these the catalog has.
    listed: watch::Sender<u64>,
    /// The lists are to be asked for.
    is_due: AtomicBool,
    due: Notify,
}

impl ListChanges {
    pub(super) fn new() -> Self {
        Self {
            heard: AtomicU64::new(0),
            listed: watch::Sender::new(0),
            is_due: AtomicBool::new(false),
            due: Notify::new(),
        }
    }

    /// Notes that the server says that a list changed.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        self.refresh();
    }

    /// Has the lists asked for again.
    pub(crate) fn refresh(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            self.due.notify_one();
        }
    }

    /// Waits until the lists are to be asked for.
    pub(crate) async fn due(&self) {
        while !self.is_due.load(Ordering::Acquire) {
            self.due.notified().await;
        }
    }

    /// Notes that the lists are asked for, and returns up to which change they will have them.
    pub(crate) fn begin(&self) -> u64 {
        self.is_due.store(false, Ordering::Release);
        self.heard.load(Ordering::Acquire)
    }

    /// Notes that the catalog has everything up to a change, as far as it could be had.
    pub(crate) fn end(&self, change: u64) {
        self.listed.send_replace(change);
    }

    /// Returns the last change, if the catalog does not have it yet.
    pub(crate) fn unlisted(&self) -> Option<u64> {
        let heard = self.heard.load(Ordering::Acquire);
        (heard > *self.listed.borrow()).then_some(heard)
    }

    /// Waits until the catalog has a change.
    pub(crate) async fn listed(&self, change: u64) {
        let mut listed = self.listed.subscribe();
        // The sender is ours, so that it cannot be gone.
        drop(listed.wait_for(|listed| *listed >= change).await);
    }
}
