//! Which list changes a server announced, and which of them the catalog includes. A burst of
//! changes costs one refresh. Entry points: [`ListChanges::heard`], [`ListChanges::listed`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

#[derive(Debug)]
pub(crate) struct ListChanges {
    /// How many changes the server announced.
    heard: AtomicU64,
    /// How many of these the catalog includes.
    listed: watch::Sender<u64>,
    /// Whether the lists must be fetched.
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

    /// Records an announced change.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        self.refresh();
    }

    /// Requests a refresh of the lists.
    pub(crate) fn refresh(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            self.due.notify_one();
        }
    }

    /// Waits until the lists must be fetched.
    pub(crate) async fn due(&self) {
        while !self.is_due.load(Ordering::Acquire) {
            self.due.notified().await;
        }
    }

    /// Records that a refresh starts, and returns the last change that it will include.
    pub(crate) fn begin(&self) -> u64 {
        self.is_due.store(false, Ordering::Release);
        self.heard.load(Ordering::Acquire)
    }

    /// Records that the catalog includes everything up to a change, as far as available.
    pub(crate) fn end(&self, change: u64) {
        self.listed.send_replace(change);
    }

    /// Returns the last change, if the catalog does not include it yet.
    pub(crate) fn unlisted(&self) -> Option<u64> {
        let heard = self.heard.load(Ordering::Acquire);
        (heard > *self.listed.borrow()).then_some(heard)
    }

    /// Waits until the catalog includes a change.
    pub(crate) async fn listed(&self, change: u64) {
        let mut listed = self.listed.subscribe();
        // This struct owns the sender, so it cannot be closed.
        drop(listed.wait_for(|listed| *listed >= change).await);
    }
}
