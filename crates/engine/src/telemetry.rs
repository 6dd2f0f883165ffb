//! Figures about calls and servers, as Prometheus text. Counting a call is a few atomic additions.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gantry_store::CallStatus;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type Label = [(&'static str, String); 1];

/// The figures of one engine.
pub(crate) struct Figures {
    registry: Registry,
    by_status: [Counter<u64, AtomicU64>; STATUSES.len()],
    seconds: Histogram,
    servers: Family<Label, Gauge>,
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
    pub(crate) fn new() -> Self {
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
        Self {
            registry,
            by_status,
            seconds,
            servers,
        }
    }

    /// Counts a call that ended.
    pub(crate) fn call(&self, status: CallStatus, duration: Duration) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.by_status[index].inc();
        }
        self.seconds.observe(duration.as_secs_f64());
    }

    /// Renders everything, with the servers as they are now.
    pub(crate) fn render(&self, states: impl Iterator<Item = &'static str>) -> String {
        self.servers.clear();
        for state in states {
            self.servers
                .get_or_create(&[("state", state.to_owned())])
                .inc();
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}
