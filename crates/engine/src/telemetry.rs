//! Metrics as Prometheus text: of each project's calls and servers, labelled with the project
//! ([`Metrics`]), and of the gateway itself ([`GatewayMetrics`]). Counting a call is a few atomic
//! additions; a dropped call is counted too. Entry points: [`Metrics::begin`] and
//! [`Metrics::render`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::id::ProjectName;
use gantry_model::limits::LimitOwner;
use gantry_store::CallStatus;
use parking_lot::Mutex;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

type Label = [(&'static str, String); 1];

/// The metrics of one project.
pub(crate) struct Metrics {
    registry: Registry,
    by_status: [Counter<u64, AtomicU64>; STATUSES.len()],
    seconds: Histogram,
    servers: Family<Label, Gauge>,
    /// One rendering at a time, since the servers are counted for each.
    rendering: Mutex<()>,
    panics: Counter<u64, AtomicU64>,
    limited: [Counter<u64, AtomicU64>; LimitOwner::ALL.len()],
}

/// The metrics of the gateway, which are of no project.
pub(crate) struct GatewayMetrics {
    registry: Registry,
    wrong_keys: Counter<u64, AtomicU64>,
    /// What was dropped, and what of it is among the metrics.
    dropped: Arc<AtomicU64>,
    dropped_lines: Counter<u64, AtomicU64>,
}

/// A call on its way; dropped before its end, it counts as cancelled, or as failed by a panic.
pub(crate) struct CallTimer<'a> {
    metrics: &'a Metrics,
    at: Instant,
    open: bool,
}

impl CallTimer<'_> {
    /// Counts the call as ended; returns how long it took.
    pub(crate) fn end(mut self, status: CallStatus) -> Duration {
        self.open = false;
        let duration = self.at.elapsed();
        self.metrics.call(status, duration);
        duration
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        if self.open {
            let status = match std::thread::panicking() {
                true => {
                    self.metrics.panicked();
                    CallStatus::Error
                }
                false => CallStatus::Cancelled,
            };
            self.metrics.call(status, self.at.elapsed());
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

impl Metrics {
    /// Makes the metrics of a project.
    pub(crate) fn new(project: &ProjectName) -> Self {
        let label = ("project".into(), project.to_string().into());
        let mut registry = Registry::with_prefix_and_labels("gantry", [label].into_iter());
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
        let panics = Counter::default();
        registry.register("panics", "Calls that a panic ended", panics.clone());
        let limited = Family::<Label, Counter<u64, AtomicU64>>::default();
        registry.register(
            "calls_limited",
            "Calls refused because a key, an agent or the project is limited",
            limited.clone(),
        );
        let limited = LimitOwner::ALL.map(|owner| {
            limited
                .get_or_create(&[("limit", owner.as_str().to_owned())])
                .clone()
        });
        Self {
            registry,
            by_status,
            seconds,
            servers,
            rendering: Mutex::default(),
            panics,
            limited,
        }
    }

    /// Counts a call from its beginning, however it ends.
    pub(crate) fn begin(&self, at: Instant) -> CallTimer<'_> {
        CallTimer {
            metrics: self,
            at,
            open: true,
        }
    }

    /// Counts a call that a panic ended, of ours or of a native tool's. fault P12
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a call that was refused because somebody is limited.
    pub(crate) fn limited(&self, owner: LimitOwner) {
        let known = LimitOwner::ALL.iter().zip(&self.limited);
        for (_, counter) in known.filter(|(known, _)| **known == owner) {
            counter.inc();
        }
    }

    /// Counts a call that ended.
    fn call(&self, status: CallStatus, duration: Duration) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.by_status[index].inc();
        }
        self.seconds.observe(duration.as_secs_f64());
    }

    /// Renders the project's metrics with its servers as they are now, and those of the gateway if
    /// they are shown with it.
    pub(crate) fn render(
        &self,
        states: impl Iterator<Item = &'static str>,
        gateway: Option<&GatewayMetrics>,
    ) -> String {
        let _one = self.rendering.lock();
        self.servers.clear();
        for state in states {
            self.servers
                .get_or_create(&[("state", state.to_owned())])
                .inc();
        }
        let mut text = String::new();
        let gateway = gateway.map(GatewayMetrics::current);
        let mut registries = [Some(&self.registry), gateway].into_iter().flatten();
        registries
            .try_for_each(|registry| encode_registry(&mut text, registry))
            .and_then(|()| encode_eof(&mut text))
            .expect("writing to a String cannot fail");
        text
    }
}

impl GatewayMetrics {
    /// Makes the metrics; `dropped` is counted by whoever writes log lines.
    pub(crate) fn new(dropped: Arc<AtomicU64>) -> Self {
        let mut registry = Registry::with_prefix("gantry");
        let wrong_keys = Counter::default();
        registry.register(
            "auth_failures",
            "Requests with a wrong key",
            wrong_keys.clone(),
        );
        let dropped_lines = Counter::default();
        registry.register(
            "log_lines_dropped",
            "Log lines that were not read in time, and dropped",
            dropped_lines.clone(),
        );
        Self {
            registry,
            wrong_keys,
            dropped,
            dropped_lines,
        }
    }

    /// Counts a request with a wrong key.
    pub(crate) fn wrong_key(&self) {
        self.wrong_keys.inc();
    }

    /// Returns everything as it is now.
    fn current(&self) -> &Registry {
        let dropped = self.dropped.load(Ordering::Relaxed);
        self.dropped_lines
            .inc_by(dropped.saturating_sub(self.dropped_lines.get()));
        &self.registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_is_dropped_is_counted() {
        let dropped = Arc::new(AtomicU64::new(3));
        let gateway = GatewayMetrics::new(Arc::clone(&dropped));
        let metrics = Metrics::new(&ProjectName::local());
        let other = Metrics::new(&"other".parse().unwrap());
        metrics.begin(Instant::now()).end(CallStatus::Ok);
        drop(metrics.begin(Instant::now()));
        gateway.wrong_key();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _begun = metrics.begin(Instant::now());
            panic!("boom");
        }));
        assert!(panicked.is_err());
        let text = metrics.render(["ready", "ready"].into_iter(), Some(&gateway));
        for line in [
            "gantry_calls_total{project=\"local\",status=\"ok\"} 1",
            "gantry_calls_total{project=\"local\",status=\"cancelled\"} 1",
            "gantry_calls_total{project=\"local\",status=\"error\"} 1",
            "gantry_servers{project=\"local\",state=\"ready\"} 2",
            "gantry_auth_failures_total 1",
            "gantry_panics_total{project=\"local\"} 1",
            "gantry_log_lines_dropped_total 3",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(text.matches("# EOF").count(), 1);
        // What one project counts is not another's. row 3.2
        let text = other.render(std::iter::empty(), None);
        let line = "gantry_calls_total{project=\"other\",status=\"ok\"} 0";
        assert!(text.contains(line) && !text.contains("local"), "{text}");
        assert!(!text.contains("gantry_auth_failures"), "{text}");
    }
}
