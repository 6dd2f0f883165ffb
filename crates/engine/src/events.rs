//! The event feed of one project. Changes are broadcast to listeners, and lifecycle events are
//! written to the store in batches.
//!
//! Nothing waits for a listener or for the store: a slow listener learns how many entries it missed
//! (`ring`), and events that do not fit the queue are logged and not stored. Entry points:
//! [`Events::report`], [`Events::listen`].

mod calls;
mod ring;

use std::sync::Arc;

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::naming::is_unprintable;
use gantry_store::{CallRow, Store};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::calls::CallFeed;
pub use self::calls::CallTotals;
pub use self::ring::Batch;
pub(crate) use self::ring::Ring;
use crate::clock::unix_ms;

const QUEUE: usize = 1024;
const BATCH: usize = 256;
/// Changes that are kept for listeners.
const KEPT: usize = 4096;

/// A change in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An event of a server; also written to the store.
    Lifecycle(Arc<ServerEvent>),
    /// The status of a server has changed.
    Server(ServerName),
}

/// Receives the events of runners and passes them to listeners. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    feed: Arc<Feed>,
    queue: mpsc::Sender<ServerEvent>,
    /// The prefix of every detail.
    note: Arc<str>,
}

/// The feed of one project.
struct Feed {
    project: ProjectName,
    /// Identifies this process: entry numbers start again with each one.
    boot: u32,
    changes: Ring<Change>,
    calls: CallFeed,
    /// Changes whenever events were written to the store.
    written: watch::Sender<u64>,
}

impl Events {
    pub(crate) fn new(project: ProjectName) -> (Self, mpsc::Receiver<ServerEvent>) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let mut boot = [0; 4];
        getrandom::fill(&mut boot).expect("the operating system gives random bytes");
        let feed = Feed {
            project,
            boot: u32::from_le_bytes(boot),
            changes: Ring::new(KEPT),
            calls: CallFeed::new(),
            written: watch::Sender::new(0),
        };
        let events = Self {
            feed: Arc::new(feed),
            queue,
            note: Arc::from(""),
        };
        (events, receiver)
    }

    /// Returns the same feed with a prefix for every detail.
    pub(crate) fn noted(&self, note: &str) -> Self {
        Self {
            note: Arc::from(note),
            ..self.clone()
        }
    }

    /// Returns a counter that changes whenever events were written to the store.
    pub(crate) fn written(&self) -> watch::Receiver<u64> {
        self.feed.written.subscribe()
    }

    /// Starts listening from now on.
    pub(crate) fn listen(&self) -> Listener {
        let feed = Arc::clone(&self.feed);
        let mut listener = Listener {
            changes: feed.changes.subscribe(),
            calls: feed.calls.ring.subscribe(),
            at: FeedPosition::default(),
            wants_calls: true,
            feed,
        };
        listener.at = listener.newest();
        listener
    }

    /// Returns how many calls ended since the start.
    pub(crate) fn call_totals(&self) -> CallTotals {
        self.feed.calls.totals()
    }

    /// Adds calls whose rows were stored; ignores those of other projects.
    pub(crate) fn calls_stored(&self, rows: &[CallRow<&str>]) {
        let project = self.feed.project.as_str();
        let own: Vec<_> = rows.iter().filter(|row| row.project == project).collect();
        if !own.is_empty() {
            self.feed.calls.stored(&own);
        }
    }

    /// Notifies listeners whenever the status of a server changes, until its runner has ended.
    pub(crate) async fn watch_status<T>(self, server: ServerName, mut status: watch::Receiver<T>) {
        loop {
            let changed = status.changed().await;
            self.feed.changes.push([Change::Server(server.clone())]);
            if changed.is_err() {
                return;
            }
        }
    }

    /// Reports one event.
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
            | EventKind::SecretsUsed
            | EventKind::Ready
            | EventKind::SignedIn
            | EventKind::SignedOut
            | EventKind::Recovered
            | EventKind::CatalogChanged
            | EventKind::ToolsUnapproved
            | EventKind::ToolDecided
            | EventKind::SuspiciousText
            | EventKind::ApprovalAsked
            | EventKind::ApprovalDecided
            | EventKind::ImageChanged
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
        let change = Change::Lifecycle(Arc::new(event.clone()));
        self.feed.changes.push([change]);
        if self.queue.try_send(event).is_err() {
            warn!(server = %server, "too many lifecycle events, one is not stored");
        }
    }

    /// Writes reported events until the engine stops and the queue is empty.
    pub(crate) async fn write(
        self,
        mut queue: mpsc::Receiver<ServerEvent>,
        store: Store,
        stop: CancellationToken,
    ) {
        // Only the feed is held: the queue ends when the last reporter is dropped.
        let feed = Arc::clone(&self.feed);
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
                .map(|event| (feed.project.clone(), event))
                .collect();
            match store.put_events(&rows).await {
                Ok(()) => feed
                    .written
                    .send_modify(|count| *count = count.wrapping_add(1)),
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "lifecycle events were not stored"
                ),
            }
        }
    }
}

/// The position of a listener, in the form of `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedPosition {
    /// The process that assigned the numbers.
    pub boot: u32,
    /// The number of the next change.
    pub changes: u64,
    /// The number of the next call.
    pub calls: u64,
}

/// A listener of one project's feed.
pub struct Listener {
    feed: Arc<Feed>,
    changes: watch::Receiver<u64>,
    calls: watch::Receiver<u64>,
    at: FeedPosition,
    /// Whether calls are kept for a while after it left, in case that it comes back.
    wants_calls: bool,
}

impl Listener {
    /// Returns the project.
    pub fn project(&self) -> &ProjectName {
        &self.feed.project
    }

    /// Returns the position.
    pub fn position(&self) -> FeedPosition {
        self.at
    }

    /// Continues from an earlier position. A position of another process cannot be resumed; then
    /// nothing changes.
    pub fn resume(&mut self, from: FeedPosition) -> Result<(), UnknownPosition> {
        let newest = self.newest();
        let is_known = from.boot == newest.boot
            && from.changes <= newest.changes
            && from.calls <= newest.calls;
        if !is_known {
            return Err(UnknownPosition);
        }
        self.at = from;
        Ok(())
    }

    fn newest(&self) -> FeedPosition {
        FeedPosition {
            boot: self.feed.boot,
            changes: self.feed.changes.end(),
            calls: self.feed.calls.ring.end(),
        }
    }

    /// Waits until there are new changes or calls. Cancel safe.
    pub async fn changed(&mut self) {
        let at = self.at;
        // Both senders live as long as the feed, which this listener holds.
        tokio::select! {
            _ = self.changes.wait_for(|end| *end > at.changes) => {}
            _ = self.calls.wait_for(|end| *end > at.calls) => {}
        }
    }

    /// Returns the next changes, at most `most`.
    pub fn read_changes(&mut self, most: usize) -> Batch<Change> {
        self.feed.changes.read(&mut self.at.changes, most)
    }

    /// Returns the next calls, at most `most`, without their bodies.
    pub fn read_calls(&mut self, most: usize) -> Batch<Arc<CallRow>> {
        self.feed.calls.ring.read(&mut self.at.calls, most)
    }

    /// Skips everything up to now, for a listener that only needs notifications.
    pub fn skip(&mut self) {
        self.at = self.newest();
        self.wants_calls = false;
    }

    /// Skips the calls up to now, for a listener that does not need them.
    pub fn skip_calls(&mut self) {
        self.at.calls = self.feed.calls.ring.end();
        self.wants_calls = false;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.wants_calls {
            self.feed.calls.leave();
        }
    }
}

/// The position belongs to another process, or is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPosition;

/// Escapes characters that must not reach a log or a terminal.
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
    use gantry_model::id::CallId;
    use gantry_store::CallStatus;

    use super::*;

    fn started(name: &str) -> Change {
        Change::Server(name.parse().unwrap())
    }

    #[tokio::test]
    async fn a_listener_hears_what_happens_from_then_on_and_resumes_where_it_was() {
        let (events, mut queue) = Events::new(ProjectName::local());
        let server: ServerName = "a".parse().unwrap();
        events.report(&server, EventKind::Starting, "before");
        let mut listener = events.listen();
        events
            .noted("note: ")
            .report(&server, EventKind::Ready, "ready");
        listener.changed().await;
        let before = listener.position();
        let heard = listener.read_changes(9).items;
        let [Change::Lifecycle(event)] = heard.as_slice() else {
            panic!("{heard:?}");
        };
        assert_eq!(
            (event.kind, event.detail.as_str()),
            (EventKind::Ready, "note: ready")
        );
        // The same goes to the store.
        assert_eq!(queue.recv().await.unwrap().detail, "before");
        assert_eq!(queue.recv().await.unwrap(), **event);
        let mut again = events.listen();
        again.resume(before).unwrap();
        assert_eq!(again.read_changes(9).items, heard);
        let boot = before.boot.wrapping_add(1);
        let foreign = FeedPosition { boot, ..before };
        assert_eq!(again.resume(foreign), Err(UnknownPosition));
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_is_told_how_much_it_missed() {
        let (events, _queue) = Events::new(ProjectName::local());
        let mut slow = events.listen();
        let many = (0..KEPT as u64 + 5).map(|n| started(&format!("s{n}")));
        events.feed.changes.push(many);
        let read = slow.read_changes(1);
        assert_eq!((read.skipped, read.items), (5, vec![started("s5")]));
    }

    #[tokio::test]
    async fn a_changed_status_is_told_and_so_is_the_end_of_the_runner() {
        let (events, _queue) = Events::new(ProjectName::local());
        let mut listener = events.listen();
        let (status, watched) = watch::channel(0);
        let watching = events.clone().watch_status("a".parse().unwrap(), watched);
        let changing = async {
            status.send_replace(1);
            listener.changed().await;
            assert_eq!(listener.read_changes(9).items, [started("a")]);
            drop(status);
        };
        tokio::join!(watching, changing);
        assert_eq!(listener.read_changes(9).items, [started("a")]);
    }

    // fault T1
    #[tokio::test]
    async fn a_project_hears_nothing_of_anothers_calls() {
        let (events, _queue) = Events::new(ProjectName::local());
        let mut listener = events.listen();
        let row = |project| CallRow::<&str> {
            project,
            surface: "mcp",
            server: "a",
            method: "tools/call",
            tool: "t",
            ended_ms: Some(2),
            duration_us: Some(1000),
            status: CallStatus::Ok,
            input: Some("kept out"),
            input_bytes: 8,
            ..CallRow::of_id(CallId::new(0, 1))
        };
        events.calls_stored(&[row("other")]);
        events.calls_stored(&[row("local"), row("other")]);
        let heard = listener.read_calls(9).items;
        assert_eq!(heard.len(), 1);
        assert_eq!(
            (heard[0].project.as_str(), &heard[0].input),
            ("local", &None)
        );
        assert_eq!(events.call_totals().calls, 1);
    }

    #[test]
    fn calls_are_kept_for_a_listener_that_left_only_if_it_wanted_any() {
        let (events, _queue) = Events::new(ProjectName::local());
        let kept = || {
            let mut from = events.feed.calls.ring.end();
            let row = CallRow {
                project: "local",
                ..CallRow::of_id(CallId::new(0, 1))
            };
            events.calls_stored(&[row]);
            events.feed.calls.ring.read(&mut from, 9).items.len()
        };
        let mut watcher = events.listen();
        watcher.skip();
        drop(watcher);
        assert_eq!(kept(), 0);
        drop(events.listen());
        assert_eq!(kept(), 1);
    }

    #[test]
    fn a_server_cannot_steer_the_log() {
        assert_eq!(printable("a\n\tb é".into()), "a\n\tb é");
        let shown = printable("x\u{9b}2J\u{202e}y\x1b".into());
        assert_eq!(shown, "x\\u{9b}2J\\u{202e}y\\u{1b}");
    }
}
