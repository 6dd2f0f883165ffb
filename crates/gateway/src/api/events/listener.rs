//! One listener of the event feed: reads at its own pace and renders the events of its topics.
//!
//! Holds at most one batch of each kind. While its client does not read, nothing is collected; what
//! the feed has dropped by then becomes a `gap` event. Entry point: [`EventStream::next`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, pending, select_all};
use gantry_engine::{
    Batch, CallTotals, Change, FeedPosition, Listener, LogFollower, LogLine, Project,
};
use gantry_model::id::ServerName;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::topics::Topics;
use crate::api::history::stream::StreamEnd;
use crate::api::views::{CallView, EventView, LogLineView, ServerSummary, UsageEvent, now_ms};
use crate::http::limits::StreamPermit;

/// Entries of one kind read at once.
const BATCH: usize = 64;
/// The least time between two `server` events of one server.
const APART: Duration = Duration::from_millis(250);
/// Calls reported per second; the rest is counted.
const CALLS: u32 = 50;
/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// The first event of a stream.
const HELLO: &str = "hello";

/// An open stream.
pub(super) struct EventStream {
    project: Arc<Project>,
    topics: Topics,
    feed: Listener,
    logs: Vec<LogFollower>,
    catalog: watch::Receiver<u64>,
    access: watch::Receiver<u64>,
    /// Servers that changed since they were last reported.
    dirty: BTreeSet<ServerName>,
    told_servers: Instant,
    calls_told: u32,
    calls_skipped: u64,
    totals: CallTotals,
    loads: BTreeMap<ServerName, (usize, usize)>,
    /// The interval of `tick` and `usage`.
    second: Interval,
    waiting: VecDeque<String>,
    /// The position before the events that are waiting to be sent.
    behind: String,
    /// The number of the first change not yet reported for a server in `dirty`.
    untold: Option<u64>,
    spoke: Instant,
    end: StreamEnd,
    _slot: StreamPermit,
}

impl EventStream {
    /// Opens a stream at the current position.
    pub(super) fn open(
        project: &Arc<Project>,
        topics: Topics,
        feed: Listener,
        end: StreamEnd,
        slot: StreamPermit,
    ) -> Self {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        second.reset();
        let logs = topics.logs.iter();
        let logs = logs.filter_map(|server| project.follow_log(server.as_str()));
        let mut stream = Self {
            logs: logs.collect(),
            catalog: project.changes(),
            access: project.key_changes(),
            dirty: BTreeSet::new(),
            told_servers: Instant::now() - APART,
            calls_told: 0,
            calls_skipped: 0,
            totals: project.call_totals(),
            loads: BTreeMap::new(),
            second,
            waiting: VecDeque::new(),
            behind: String::new(),
            untold: None,
            spoke: Instant::now(),
            end,
            project: Arc::clone(project),
            topics,
            feed,
            _slot: slot,
        };
        stream.catalog.mark_unchanged();
        stream.access.mark_unchanged();
        stream
    }

    /// Sends `hello`, so that a client notices a new version or a restart.
    pub(super) fn greet(&mut self, version: &str) {
        let boot = format!("{:08x}", self.feed.position().boot);
        let hello = json!({
            "version": version, "build": version, "boot": boot, "now_ms": now_ms(),
            "project": self.feed.project().as_str(),
        });
        // A client whose stream is cut reconnects soon.
        self.waiting.push_back("retry: 2000\n\n".to_owned());
        self.tell(HELLO, &hello);
    }

    /// Continues after the client's last event; sends a gap if that is not possible.
    pub(super) fn resume(&mut self, last: &str) {
        let resumed = self.read_id(last).and_then(|(position, logs)| {
            self.feed.resume(position).ok()?;
            for (log, at) in self.logs.iter_mut().zip(logs) {
                log.resume(at);
            }
            Some(())
        });
        if resumed.is_none() {
            self.tell("gap", &json!({"skipped": null}));
        }
        // Queue lengths are not in the feed, so every server is reported again.
        if self.topics.servers {
            let loads = self.project.loads().into_iter();
            self.dirty.extend(loads.map(|load| load.server));
        }
        // Whether these changed is unknown: the client must look again.
        self.catalog.mark_changed();
        self.access.mark_changed();
    }

    /// Returns the next piece of the stream; nothing at its end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.spoke = Instant::now();
                return Some(Bytes::from(self.with_id(event)));
            }
            // Checked even while events keep coming.
            if self.end.comes().now_or_never().is_some() {
                return None;
            }
            self.behind = self.id();
            if self.second.tick().now_or_never().is_some() {
                if !self.end.touch() {
                    return None;
                }
                self.every_second();
            }
            self.collect();
            if !self.waiting.is_empty() {
                continue;
            }
            let due = (!self.dirty.is_empty()).then(|| self.told_servers + APART);
            // The end first, then events, then the timer.
            tokio::select! {
                biased;
                () = self.end.comes() => return None,
                () = self.feed.changed() => {}
                () = more_lines(&mut self.logs) => {}
                Ok(()) = self.catalog.changed() => self.changed_catalog(),
                Ok(()) = self.access.changed() => self.changed_access(),
                () = at(due) => {}
                _ = self.second.tick() => {
                    if !self.end.touch() {
                        return None;
                    }
                    self.every_second();
                }
            }
        }
    }

    /// Renders what happened since the last call.
    fn collect(&mut self) {
        let first = self.feed.position().changes;
        let Batch { items, skipped } = self.feed.read_changes(BATCH);
        if skipped > 0 {
            self.tell("gap", &json!({"topic": "servers", "skipped": skipped}));
        }
        for change in items {
            let server = match &change {
                Change::Lifecycle(event) => {
                    if self.topics.overview || self.topics.wants_server(&event.server) {
                        self.tell("lifecycle", &EventView::of(event));
                    }
                    &event.server
                }
                Change::Server(server) => server,
            };
            let mut logs = self.logs.iter_mut();
            if let Some(log) = logs.find(|log| log.server() == server) {
                log.look_again();
            }
            if self.topics.wants_server(server) {
                self.untold.get_or_insert(first);
                self.dirty.insert(server.clone());
            }
        }
        self.collect_calls();
        self.collect_lines();
        if !self.dirty.is_empty() && self.told_servers.elapsed() >= APART {
            self.told_servers = Instant::now();
            self.untold = None;
            for server in std::mem::take(&mut self.dirty) {
                self.tell_server(&server);
            }
        }
    }

    fn collect_calls(&mut self) {
        if self.topics.calls.is_empty() {
            return self.feed.skip_calls();
        }
        let Batch { items, skipped } = self.feed.read_calls(BATCH);
        if skipped > 0 {
            self.tell("gap", &json!({"topic": "calls", "skipped": skipped}));
        }
        for call in items {
            if !self.topics.wants_call(&call) {
                continue;
            }
            if self.calls_told >= CALLS {
                self.calls_skipped += 1;
                continue;
            }
            self.calls_told += 1;
            self.tell("call", &CallView::of(Arc::unwrap_or_clone(call)));
        }
    }

    fn collect_lines(&mut self) {
        let read = self.logs.iter_mut().map(|log| {
            let Batch { items, skipped } = log.read(BATCH);
            (log.server().to_string(), items, skipped)
        });
        for (server, lines, skipped) in read.collect::<Vec<_>>() {
            if skipped > 0 {
                let topic = format!("log:{server}");
                self.tell("gap", &json!({"topic": topic, "skipped": skipped}));
            }
            for line in &lines {
                self.tell("log", &LogEvent::of(&server, line));
            }
        }
    }

    fn tell_server(&mut self, server: &ServerName) {
        match self.project.server(server.as_str()) {
            Some(view) => self.tell("server", &ServerSummary::of(&view, now_ms())),
            None => self.tell("server", &json!({"name": server.as_str(), "removed": true})),
        }
    }

    fn changed_catalog(&mut self) {
        if self.topics.catalog || self.topics.overview || self.topics.servers {
            let revision = *self.catalog.borrow_and_update();
            self.tell("catalog", &json!({"revision": revision}));
        }
    }

    fn changed_access(&mut self) {
        if self.topics.access || self.topics.overview {
            let revision = *self.access.borrow_and_update();
            self.tell("access", &json!({"revision": revision}));
        }
    }

    /// Sends what is due every second, and a heartbeat.
    fn every_second(&mut self) {
        self.calls_told = 0;
        match std::mem::take(&mut self.calls_skipped) {
            0 => {}
            skipped => self.tell("skipped", &json!({"topic": "calls", "n": skipped})),
        }
        if self.topics.overview {
            self.tell_tick();
        }
        if self.topics.servers {
            self.look_at_loads();
        }
        let servers: Vec<_> = self.topics.server.iter().cloned().collect();
        for server in servers {
            if let Some(view) = self.project.server(server.as_str()) {
                self.tell("usage", &UsageEvent::of(&view));
            }
        }
        if self.waiting.is_empty() && self.spoke.elapsed() >= HEARTBEAT {
            self.waiting.push_back(":\n\n".to_owned());
        }
    }

    fn tell_tick(&mut self) {
        let totals = self.project.call_totals();
        let new = totals.since(&self.totals);
        self.totals = totals;
        let loads = self.project.loads();
        let tick = Tick {
            at_ms: now_ms(),
            calls: new.calls,
            errors: new.errors,
            refused: new.refused,
            p50_us: new.quantile_us(0.5),
            p95_us: new.quantile_us(0.95),
            p99_us: new.quantile_us(0.99),
            in_flight: loads.iter().map(|load| load.in_flight).sum(),
            waiting: loads.iter().map(|load| load.waiting).sum(),
            journal_lag: self.project.journal_lag(),
        };
        self.tell("tick", &tick);
    }

    /// Marks servers whose queue changed within the last second. Queues change with every call, so
    /// they are sampled.
    fn look_at_loads(&mut self) {
        let loads: BTreeMap<_, _> = self
            .project
            .loads()
            .into_iter()
            .map(|load| (load.server, (load.in_flight, load.waiting)))
            .collect();
        for (server, load) in &loads {
            if self.loads.get(server).copied().unwrap_or_default() != *load {
                self.dirty.insert(server.clone());
            }
        }
        self.loads = loads;
    }

    fn tell(&mut self, kind: &str, data: &impl Serialize) {
        let data = serde_json::to_string(data).expect("views are always JSON");
        self.waiting
            .push_back(format!("event: {kind}\ndata: {data}\n\n"));
    }

    /// Adds the id from which a cut client resumes. Only the last event of a batch has the position
    /// after the batch: the others would lose those that follow. `hello` has none, since resumed
    /// events come after it.
    fn with_id(&self, event: String) -> String {
        let kind = event.strip_prefix("event: ");
        let kind = kind.and_then(|rest| rest.split('\n').next());
        match kind {
            None | Some(HELLO) => event,
            Some(_) if self.waiting.is_empty() => format!("id: {}\n{event}", self.id()),
            Some(_) => format!("id: {}\n{event}", self.behind),
        }
    }

    /// Returns the position after everything that was read, for `Last-Event-ID`; before changes of
    /// servers not yet reported.
    fn id(&self) -> String {
        let FeedPosition {
            boot,
            changes,
            calls,
        } = self.feed.position();
        let changes = self.untold.unwrap_or(changes);
        let mut id = format!("{boot:08x}-{changes}-{calls}");
        for log in &self.logs {
            id.push_str(&format!("-{}", log.position()));
        }
        id
    }

    fn read_id(&self, id: &str) -> Option<(FeedPosition, Vec<u64>)> {
        let mut parts = id.trim().split('-');
        let position = FeedPosition {
            boot: u32::from_str_radix(parts.next()?, 16).ok()?,
            changes: parts.next()?.parse().ok()?,
            calls: parts.next()?.parse().ok()?,
        };
        let logs: Vec<u64> = parts.map_while(|part| part.parse().ok()).collect();
        (logs.len() == self.logs.len()).then_some((position, logs))
    }
}

/// Counters of one second.
#[derive(Serialize)]
struct Tick {
    at_ms: u64,
    calls: u64,
    errors: u64,
    refused: u64,
    p50_us: Option<u64>,
    p95_us: Option<u64>,
    p99_us: Option<u64>,
    in_flight: usize,
    waiting: usize,
    journal_lag: u64,
}

/// A line of a server's log.
#[derive(Serialize)]
struct LogEvent<'a> {
    server: &'a str,
    #[serde(flatten)]
    line: LogLineView,
}

impl<'a> LogEvent<'a> {
    fn of(server: &'a str, line: &LogLine) -> Self {
        let line = LogLineView::of(line);
        Self { server, line }
    }
}

/// Waits until one of the logs has more lines.
async fn more_lines(logs: &mut [LogFollower]) {
    match logs.is_empty() {
        true => pending().await,
        false => {
            let waiting = logs.iter_mut().map(|log| Box::pin(log.changed()));
            select_all(waiting).await;
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
