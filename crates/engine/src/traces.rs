//! Exports each call as one span over OTLP, once its row is stored.
//!
//! Spans are created from stored audit rows: calls pay nothing for them, every call has one however
//! it ended, and everything in them is redacted. Spans wait for the endpoint in a bounded queue;
//! when it is full the oldest is dropped and counted. No call ever waits. Entry points:
//! [`Traces::take`] and [`Traces::run`].

mod queue;
mod span;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::settings::TraceExport;
use gantry_store::{CallRow, CallStatus};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::queue::{Batch, SpanQueue};
use crate::http_client::Clients;
use crate::otlp::{Attribute, OtlpTarget, SendError, Sender, Signal, Value};
use crate::random::jitter;
use crate::telemetry::{ExportHealth, ExportTrouble};

/// How long spans are collected before they are sent.
const GATHER: Duration = Duration::from_millis(500);
/// The initial and the maximum pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// How many attempts are made for a batch before it is dropped.
const TRIES: u32 = 8;

/// The endpoint of spans, and the attributes of this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracesConfig {
    /// The endpoint.
    pub target: OtlpTarget,
    /// `service.name`.
    pub service: String,
    /// Further attributes of the resource.
    pub resource: Vec<(String, String)>,
}

impl TracesConfig {
    /// Creates the configuration for an endpoint.
    pub fn new(target: OtlpTarget) -> Self {
        Self {
            target,
            service: "gantry".to_owned(),
            resource: Vec::new(),
        }
    }
}

/// Exports spans to one endpoint.
pub(crate) struct Traces {
    sender: Sender,
    resource: Vec<(String, String)>,
    queue: Mutex<SpanQueue>,
    wake: Notify,
    sent: AtomicU64,
    /// Spans that were rejected by the endpoint, or dropped after all attempts.
    lost: AtomicU64,
    trouble: ExportTrouble,
    /// The last known settings of projects: rows may arrive after their project was unloaded.
    levels: Mutex<HashMap<Box<str>, TraceExport>>,
}

/// What became of spans that were sent.
enum Delivery {
    Done,
    TooLarge,
    Refused,
    Stopped,
}

impl Traces {
    /// Prepares the export; `gateway` is the id of this gateway.
    pub(crate) fn new(config: TracesConfig, gateway: String, clients: Arc<Clients>) -> Self {
        let mut resource = vec![
            ("service.name".to_owned(), config.service),
            (
                "service.version".to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
            ("service.instance.id".to_owned(), gateway),
        ];
        let own = |name: &String| resource.iter().any(|(known, _)| known == name);
        let further = config.resource.into_iter().filter(|(name, _)| !own(name));
        let further: Vec<_> = further.collect();
        resource.extend(further);
        Self {
            sender: Sender::new(config.target, clients),
            resource,
            queue: Mutex::default(),
            wake: Notify::new(),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            trouble: ExportTrouble::default(),
            levels: Mutex::default(),
        }
    }

    /// Converts stored rows: each ended call becomes a span. `level` returns the setting of an open
    /// project.
    pub(crate) fn take(&self, rows: &[CallRow<&str>], level: impl Fn(&str) -> Option<TraceExport>) {
        let encoding = self.sender.target.encoding;
        for row in rows {
            if row.status == CallStatus::Running {
                continue;
            }
            let level = self.level(row.project, &level);
            if level == TraceExport::Off || self.queue.lock().is_known(row) {
                continue;
            }
            let span = encoding.span(&span::of_call(row, level == TraceExport::Bodies).span());
            self.queue.lock().push(span);
        }
        self.wake.notify_one();
    }

    fn level(&self, project: &str, level: impl Fn(&str) -> Option<TraceExport>) -> TraceExport {
        let mut levels = self.levels.lock();
        match level(project) {
            Some(level) => {
                levels.insert(project.into(), level);
                level
            }
            None => levels.get(project).copied().unwrap_or_default(),
        }
    }

    /// Sends spans until `stop`; what is left then is sent by [`Self::finish`].
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        while stop
            .run_until_cancelled(self.wake.notified())
            .await
            .is_some()
        {
            let gathering = stop.run_until_cancelled(self.gather());
            if gathering.await.is_none() {
                return;
            }
            while let Some(batch) = self.next() {
                if !self.deliver(batch, &stop).await {
                    return;
                }
            }
        }
    }

    /// Waits for more spans, unless there are already many.
    async fn gather(&self) {
        let until = Instant::now() + GATHER;
        while !self.queue.lock().fills_batch() {
            if timeout_at(until, self.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Batch> {
        self.queue.lock().batch()
    }

    /// Sends a batch, in halves if it is too large for the endpoint; returns whether to continue.
    async fn deliver(&self, batch: Batch, stop: &CancellationToken) -> bool {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            match self.deliver_part(&part, stop).await {
                Delivery::Done => {}
                Delivery::TooLarge if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Delivery::TooLarge | Delivery::Refused => {
                    self.lost.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
                Delivery::Stopped => {
                    parts.push(part);
                    let mut queue = self.queue.lock();
                    parts.into_iter().for_each(|part| queue.put_back(part));
                    return false;
                }
            }
        }
        true
    }

    /// Sends a part of a batch, with retries.
    async fn deliver_part(&self, batch: &Batch, stop: &CancellationToken) -> Delivery {
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=TRIES {
            let sending = stop.run_until_cancelled(self.send(batch));
            let asked = match sending.await {
                None => return Delivery::Stopped,
                Some(Ok(())) => return Delivery::Done,
                Some(Err(SendError::TooLarge { .. })) => return Delivery::TooLarge,
                Some(Err(SendError::Never { .. } | SendError::Setup { .. })) => break,
                Some(Err(SendError::Later { pause, .. })) => pause,
            };
            if attempt < TRIES {
                let wait = asked.unwrap_or_else(|| pause.mul_f64(0.5 + jitter() / 2.0));
                pause = (2 * pause).min(LAST_PAUSE);
                if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                    return Delivery::Stopped;
                }
            }
        }
        Delivery::Refused
    }

    async fn send(&self, batch: &Batch) -> Result<(), SendError> {
        let resource: Vec<Attribute<'_>> = self
            .resource
            .iter()
            .map(|(name, value)| (name.as_str(), Value::Text(value)))
            .collect();
        let encoding = self.sender.target.encoding;
        let body = encoding.request(Signal::Traces, &resource, batch);
        match self.sender.send(body).await {
            Ok(rejected) => {
                let rejected = rejected.min(batch.len() as u64);
                self.sent
                    .fetch_add(batch.len() as u64 - rejected, Ordering::Relaxed);
                self.lost.fetch_add(rejected, Ordering::Relaxed);
                match rejected {
                    0 => self.recovered(),
                    _ => self.failed(&format!("it rejected {rejected} spans")),
                }
                Ok(())
            }
            Err(error) => {
                self.failed(&error.to_string());
                Err(error)
            }
        }
    }

    fn failed(&self, error: &str) {
        if self.trouble.failed(error) {
            let (endpoint, dropped) = (self.sender.target.shown(), self.dropped());
            warn!(
                endpoint,
                error, dropped, "traces cannot be exported; calls continue"
            );
        }
    }

    fn recovered(&self) {
        if self.trouble.recovered() {
            let (endpoint, dropped) = (self.sender.target.shown(), self.dropped());
            info!(endpoint, dropped, "traces are exported again");
        }
    }

    /// Sends the remaining batches, each once, within a time limit.
    pub(crate) async fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        while let Some(batch) = self.next() {
            let sent = timeout_at(until, self.send(&batch)).await;
            if !matches!(sent, Ok(Ok(()))) {
                let left = batch.len() as u64 + self.queue.lock().len() as u64;
                self.lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
                warn!(spans = left, "the last spans were not exported");
                return;
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.lost.load(Ordering::Relaxed) + self.queue.lock().dropped
    }

    /// Returns the state of the export.
    pub(crate) fn health(&self) -> ExportHealth {
        ExportHealth {
            what: "traces",
            target: self.sender.target.shown(),
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped(),
            waiting: self.queue.lock().len() as u64,
            error: self.trouble.error(),
        }
    }
}
