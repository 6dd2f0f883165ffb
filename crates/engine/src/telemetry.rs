//! Metrics as Prometheus text: of each project's calls and servers, labelled with the project
//! ([`Metrics`]), and of the gateway itself ([`GatewayMetrics`]). Counting a call is a few atomic
//! additions; a dropped call is counted too. The number of label values is bounded. Entry points:
//! [`Metrics::begin`] and [`Metrics::render`]; [docs/metrics.md](../../../docs/metrics.md) lists them.

mod servers;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::id::ProjectName;
use gantry_model::limits::LimitOwner;
use gantry_store::{CallRow, CallStatus};
use parking_lot::Mutex;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use tokio::time::Instant;

pub(crate) use self::servers::ServerFigures;
use self::servers::ServerMetrics;
pub(crate) use self::trouble::ExportTrouble;

type Label = [(&'static str, String); 1];
type ExportLabels = [(&'static str, String); 2];

/// How an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportHealth {
    /// What is exported, such as `traces`.
    pub what: &'static str,
    /// Where to, without credentials.
    pub target: String,
    /// How much was taken by the endpoint since the start.
    pub sent: u64,
    /// How much was dropped since the start.
    pub dropped: u64,
    /// How much waits.
    pub waiting: u64,
    /// Why the last attempt failed; nothing if it did not.
    pub error: Option<String>,
}

impl ExportHealth {
    /// Returns what an administrator should look at.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self {
            what,
            target,
            dropped,
            error,
            ..
        } = self;
        let what = match *what {
            "audit" => "audit records",
            what => what,
        };
        match error {
            Some(error) => Some(format!("{what} cannot be exported to `{target}`: {error}")),
            None if *dropped > 0 => Some(format!(
                "{dropped} {what} were dropped since the start, because `{target}` did not take them"
            )),
            None => None,
        }
    }
}

/// Returns a metric that the registry shows.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// The metrics of one project.
pub(crate) struct Metrics {
    registry: Registry,
    by_status: [Counter<u64, AtomicU64>; STATUSES.len()],
    seconds: Histogram,
    servers: ServerMetrics,
    /// Held while rendering, since the servers are counted each time.
    rendering: Mutex<()>,
    panics: Counter<u64, AtomicU64>,
    limited: [Counter<u64, AtomicU64>; LimitOwner::ALL.len()],
}

/// The metrics of the gateway itself.
pub(crate) struct GatewayMetrics {
    registry: Registry,
    wrong_keys: Counter<u64, AtomicU64>,
    /// The number of dropped log lines, and the part already counted.
    dropped: Arc<AtomicU64>,
    dropped_lines: Counter<u64, AtomicU64>,
    exported: Family<ExportLabels, Counter<u64, AtomicU64>>,
    not_exported: Family<ExportLabels, Counter<u64, AtomicU64>>,
    to_export: Family<ExportLabels, Gauge>,
    audit_writable: Gauge,
    audit_waiting: Gauge,
    journal_bytes: Gauge,
}

/// The state of the gateway when its metrics are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GatewayFigures {
    /// Calls can be recorded, and hence are accepted.
    pub(crate) audit_writable: bool,
    /// Records of the journal that are not in the database yet.
    pub(crate) audit_waiting: u64,
    /// What the journal takes on the disk.
    pub(crate) journal_bytes: u64,
    pub(crate) exports: Vec<ExportHealth>,
}

/// A running call; if dropped before its end, it counts as cancelled, or as failed by a panic.
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
        let calls: Family<Label, Counter<u64, AtomicU64>> =
            registered(&mut registry, "calls", "Calls by how they ended");
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
        let servers = ServerMetrics::default();
        servers.register(&mut registry);
        let panics = registered(&mut registry, "panics", "Calls that a panic ended");
        let limited: Family<Label, Counter<u64, AtomicU64>> = registered(
            &mut registry,
            "calls_limited",
            "Calls refused because a key, an agent or the project is limited",
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

    /// Starts counting a call, however it ends.
    pub(crate) fn begin(&self, at: Instant) -> CallTimer<'_> {
        CallTimer {
            metrics: self,
            at,
            open: true,
        }
    }

    /// Counts a call that ended by a panic of the gateway or of a native tool. fault P12
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

    /// Counts a call that was refused, by the code of its error.
    pub(crate) fn refused(&self, code: &str) {
        self.servers.refused(code);
    }

    /// Counts calls of the project whose rows were stored.
    pub(crate) fn stored(&self, project: &str, rows: &[CallRow<&str>]) {
        self.servers.stored(project, rows);
    }

    /// Counts a call that ended.
    fn call(&self, status: CallStatus, duration: Duration) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.by_status[index].inc();
        }
        self.seconds.observe(duration.as_secs_f64());
    }

    /// Renders the project's metrics with the current state of its servers, and those of the
    /// gateway if shown here.
    pub(crate) fn render(
        &self,
        servers: impl Iterator<Item = ServerFigures>,
        gateway: Option<(&GatewayMetrics, &GatewayFigures)>,
    ) -> String {
        let _one = self.rendering.lock();
        self.servers.set(servers);
        let mut text = String::new();
        let gateway = gateway.map(|(gateway, figures)| gateway.current(figures));
        let mut registries = [Some(&self.registry), gateway].into_iter().flatten();
        registries
            .try_for_each(|registry| encode_registry(&mut text, registry))
            .and_then(|()| encode_eof(&mut text))
            .expect("writing to a String cannot fail");
        text
    }
}

impl GatewayMetrics {
    /// Creates the metrics; the log writer counts `dropped`.
    pub(crate) fn new(dropped: Arc<AtomicU64>) -> Self {
        let mut all = Registry::with_prefix("gantry");
        let registry = &mut all;
        let build: Family<Label, Gauge> = registered(registry, "build", "The version that runs");
        let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
        build.get_or_create(&[version]).set(1);
        Self {
            wrong_keys: registered(registry, "auth_failures", "Requests with a wrong key"),
            dropped,
            dropped_lines: registered(
                registry,
                "log_lines_dropped",
                "Log lines that were not read in time, and dropped",
            ),
            exported: registered(
                registry,
                "exported",
                "Spans and audit records that an endpoint took, by export",
            ),
            not_exported: registered(
                registry,
                "export_dropped",
                "Spans that were dropped because their endpoint did not take them in time",
            ),
            to_export: registered(
                registry,
                "export_waiting",
                "Spans and audit records that wait for their endpoint",
            ),
            audit_writable: registered(
                registry,
                "audit_writable",
                "Whether calls can be recorded, and hence are accepted",
            ),
            audit_waiting: registered(
                registry,
                "audit_waiting",
                "Records of the journal that are not in the database yet",
            ),
            journal_bytes: registered(
                registry,
                "journal_bytes",
                "What the audit journal takes on the disk",
            ),
            registry: all,
        }
    }

    /// Counts a request with a wrong key.
    pub(crate) fn wrong_key(&self) {
        self.wrong_keys.inc();
    }

    /// Returns the current values.
    fn current(&self, figures: &GatewayFigures) -> &Registry {
        let wide = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        raise(&self.dropped_lines, self.dropped.load(Ordering::Relaxed));
        self.audit_writable.set(i64::from(figures.audit_writable));
        self.audit_waiting.set(wide(figures.audit_waiting));
        self.journal_bytes.set(wide(figures.journal_bytes));
        for export in &figures.exports {
            let labels = [
                ("export", export.what.to_owned()),
                ("target", export.target.clone()),
            ];
            raise(&self.exported.get_or_create(&labels), export.sent);
            raise(&self.not_exported.get_or_create(&labels), export.dropped);
            let waiting = self.to_export.get_or_create(&labels);
            waiting.set(wide(export.waiting));
        }
        &self.registry
    }
}

/// Brings a counter up to what somebody else has counted.
fn raise(counter: &Counter<u64, AtomicU64>, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
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
        let server = |name: &str| ServerFigures {
            name: name.to_owned(),
            state: "ready",
            in_flight: 2,
            waiting: 1,
            restarts: 3,
        };
        metrics.refused("grant.unbound");
        let servers = ["a", "b"].map(server);
        let text = metrics.render(
            servers.into_iter(),
            Some((&gateway, &GatewayFigures::default())),
        );
        for line in [
            "gantry_calls_total{project=\"local\",status=\"ok\"} 1",
            "gantry_calls_total{project=\"local\",status=\"cancelled\"} 1",
            "gantry_calls_total{project=\"local\",status=\"error\"} 1",
            "gantry_servers{project=\"local\",state=\"ready\"} 2",
            "gantry_server_ready{project=\"local\",server=\"a\"} 1",
            "gantry_server_calls_in_flight{project=\"local\",server=\"b\"} 2",
            "gantry_server_calls_waiting{project=\"local\",server=\"b\"} 1",
            "gantry_server_restarts{project=\"local\",server=\"b\"} 3",
            "gantry_refusals_total{project=\"local\",code=\"grant.unbound\"} 1",
            "gantry_auth_failures_total 1",
            "gantry_panics_total{project=\"local\"} 1",
            "gantry_log_lines_dropped_total 3",
            "gantry_audit_writable 0",
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
