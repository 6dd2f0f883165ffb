//! The lifecycle events of servers on their way to the store: queued without waiting, written in
//! batches. What a full queue has no room for is logged and not stored; nobody waits for it. Whoever
//! follows them is told when more were written (`written`) and reads them from the store.

use std::sync::Arc;

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::naming::is_unprintable;
use gantry_store::Store;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::unix_ms;

const QUEUE: usize = 1024;
const BATCH: usize = 256;

/// Where runners report what happened.
#[derive(Clone)]
pub(crate) struct Events {
    project: ProjectName,
    queue: mpsc::Sender<ServerEvent>,
    /// Begins every detail.
    note: Arc<str>,
    /// Moves whenever events were written to the store.
    written: watch::Sender<u64>,
}

impl Events {
    pub(crate) fn new(project: ProjectName) -> (Self, mpsc::Receiver<ServerEvent>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let note = Arc::from("");
        let events = Self {
            project,
            queue,
            note,
            written: watch::Sender::new(0),
        };
        (events, receiver)
    }

    /// Returns the same, with something that stands before every detail.
    pub(crate) fn noted(&self, note: &str) -> Self {
        Self {
            note: Arc::from(note),
            ..self.clone()
        }
    }

    /// Returns a counter that moves whenever events were written to the store.
    pub(crate) fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    /// Reports one thing that happened.
    pub(crate) fn report(&self, server: &ServerName, kind: EventKind, detail: impl Into<String>) {
        let mut detail = detail.into();
        detail.insert_str(0, &self.note);
        let detail = printable(detail);
        match kind {
            EventKind::StartFailed
            | EventKind::Exited
            | EventKind::NeedsSignIn
            | EventKind::Disconnected
            | EventKind::BackingOff
            | EventKind::HealthWarning
            | EventKind::Unresponsive
            | EventKind::CallTimeout
            | EventKind::ProtocolError
            | EventKind::WrongKeys
            | EventKind::JournalDamaged => {
                warn!(server = %server, event = kind.as_str(), "{detail}");
            }
            EventKind::Registered
            | EventKind::Starting
            | EventKind::Ready
            | EventKind::SignedIn
            | EventKind::SignedOut
            | EventKind::Recovered
            | EventKind::CatalogChanged
            | EventKind::RestartRequested
            | EventKind::Stopped
            | EventKind::Removed
            | EventKind::Tested
            | EventKind::Previewed => {
                info!(server = %server, event = kind.as_str(), "{detail}");
            }
        }
        let event = ServerEvent {
            at_ms: unix_ms(),
            server: server.clone(),
            kind,
            detail,
        };
        if self.queue.try_send(event).is_err() {
            warn!(server = %server, "too many lifecycle events, one is not stored");
        }
    }

    /// Writes what is reported until the engine stops and the queue is empty.
    pub(crate) async fn write(
        self,
        mut queue: mpsc::Receiver<ServerEvent>,
        store: Store,
        stop: CancellationToken,
    ) {
        let (project, written) = (self.project.clone(), self.written.clone());
        drop(self);
        let mut batch = Vec::new();
        loop {
            let count = tokio::select! {
                count = queue.recv_many(&mut batch, BATCH) => count,
                () = stop.cancelled() => {
                    queue.close();
                    queue.recv_many(&mut batch, BATCH).await
                }
            };
            if count == 0 {
                return;
            }
            let rows: Vec<_> = batch
                .drain(..)
                .map(|event| (project.clone(), event))
                .collect();
            match store.put_events(&rows).await {
                Ok(()) => written.send_modify(|count| *count = count.wrapping_add(1)),
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "lifecycle events were not stored"
                ),
            }
        }
    }
}

/// Escapes what a log or a terminal must not get of what a server said.
fn printable(detail: String) -> String {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t') || !is_unprintable(letter);
    if detail.chars().all(is_kept) {
        return detail;
    }
    let mut shown = String::with_capacity(detail.len());
    for letter in detail.chars() {
        match is_kept(letter) {
            true => shown.push(letter),
            false => shown.extend(letter.escape_unicode()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_steer_the_log() {
        assert_eq!(printable("a\n\tb é".into()), "a\n\tb é");
        let shown = printable("x\u{9b}2J\u{202e}y\x1b".into());
        assert_eq!(shown, "x\\u{9b}2J\\u{202e}y\\u{1b}");
    }
}
