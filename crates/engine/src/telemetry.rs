//! Figures about calls, servers and wrong keys, as Prometheus text. Counting a call is a few atomic
//! additions, and one that is dropped on its way is counted too. Entry points: [`Figures::begin`]
//! and [`Figures::render`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_store::CallStatus;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

type Label = [(&'static str, String); 1];

/// The figures of one engine.
pub(crate) struct Figures {
    registry: Registry,
    by_status: [Counter<u64, AtomicU64>; STATUSES.len()],
    seconds: Histogram,
    servers: Family<Label, Gauge>,
    /// One rendering at a time, since the servers are counted anew for each.
    rendering: Mutex<()>,
    wrong_keys: Counter<u64, AtomicU64>,
    panics: Counter<u64, AtomicU64>,
    /// What was dropped, and what of it is among the figures.
    dropped: Arc<AtomicU64>,
    dropped_lines: Counter<u64, AtomicU64>,
}

/// A call on its way; dropped before its end, it counts as cancelled, or as failed by a panic.
pub(crate) struct Begun<'a> {
    figures: &'a Figures,
    at: Instant,
    open: bool,
}

impl Begun<'_> {
    /// Counts the call as ended; returns how long it took.
    pub(crate) fn end(mut self, status: CallStatus) -> Duration {
        self.open = false;
        let duration = self.at.elapsed();
        self.figures.call(status, duration);
        duration
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.open {
            let status = match std::thread::panicking() {
                true => {
                    self.figures.panicked();
                    CallStatus::Error
                }
                false => CallStatus::Cancelled,
            };
            self.figures.call(status, self.at.elapsed());
        }
    }
}

const STATUSES: [CallStatus; 6] = [
    CallStatus::Ok,
    CallStatus::Error,
    CallStatus::Timeout,
    CallStatus::Cancelled,
    CallStatus::Refused,
    CallStatus::Unknown,
];

const BUCKETS: [f64; 12] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 600.0,
];

impl Figures {
    /// Makes the figures; `dropped` is counted by whoever writes log lines.
    pub(crate) fn new(dropped: Arc<AtomicU64>) -> Self {
        let mut registry = Registry::with_prefix("gantry");
        let calls = Family::<Label, Counter<u64, AtomicU64>>::default();
        registry.register("calls", "Calls by how they ended", calls.clone());
        let by_status = STATUSES.map(|status| {
            calls
                .get_or_create(&[("status", status.as_str().to_owned())])
                .clone()
        });
        let seconds = Histogram::new(BUCKETS);
        registry.register(
            "call_duration_seconds",
            "How long calls took",
            seconds.clone(),
        );
        let servers = Family::<Label, Gauge>::default();
        registry.register("servers", "Servers by state", servers.clone());
        let wrong_keys = Counter::default();
        registry.register(
            "auth_failures",
            "Requests with a wrong key",
            wrong_keys.clone(),
        );
        let panics = Counter::default();
        registry.register("panics", "Calls that a panic ended", panics.clone());
        let dropped_lines = Counter::default();
        registry.register(
            "log_lines_dropped",
            "Log lines that were not read in time, and dropped",
            dropped_lines.clone(),
        );
        Self {
            registry,
            by_status,
            seconds,
            servers,
            rendering: Mutex::default(),
            wrong_keys,
            panics,
            dropped,
            dropped_lines,
        }
    }

    /// Counts a call from its beginning, however it ends.
    pub(crate) fn begin(&self, at: Instant) -> Begun<'_> {
        Begun {
            figures: self,
            at,
            open: true,
        }
    }

    /// Counts a request with a wrong key.
    pub(crate) fn wrong_key(&self) {
        self.wrong_keys.inc();
    }

    /// Counts a call that a panic ended, of ours or of a native tool's. fault P12
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a call that ended.
    fn call(&self, status: CallStatus, duration: Duration) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.by_status[index].inc();
        }
        self.seconds.observe(duration.as_secs_f64());
    }

    /// Renders everything, with the servers as they are now.
    pub(crate) fn render(&self, states: impl Iterator<Item = &'static str>) -> String {
        let _one = self
            .rendering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.servers.clear();
        for state in states {
            self.servers
                .get_or_create(&[("state", state.to_owned())])
                .inc();
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        self.dropped_lines
            .inc_by(dropped.saturating_sub(self.dropped_lines.get()));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_is_dropped_is_counted() {
        let dropped = Arc::new(AtomicU64::new(3));
        let figures = Figures::new(Arc::clone(&dropped));
        figures.begin(Instant::now()).end(CallStatus::Ok);
        drop(figures.begin(Instant::now()));
        figures.wrong_key();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _begun = figures.begin(Instant::now());
            panic!("boom");
        }));
        assert!(panicked.is_err());
        let text = figures.render(["ready", "ready"].into_iter());
        for line in [
            "gantry_calls_total{status=\"ok\"} 1",
            "gantry_calls_total{status=\"cancelled\"} 1",
            "gantry_calls_total{status=\"error\"} 1",
            "gantry_servers{state=\"ready\"} 2",
            "gantry_auth_failures_total 1",
            "gantry_panics_total 1",
            "gantry_log_lines_dropped_total 3",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
