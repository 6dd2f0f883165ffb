//! Metrics by server: calls from the stored rows, and the state of the servers at the time of the
//! query.
//!
//! The number of label values is bounded: further servers are counted together. Agents, users,
//! tools and other values chosen by callers are never labels.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

use gantry_store::{CallRow, CallStatus};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Label;

/// How many servers of a project have their own label.
const MOST_SERVERS: usize = 500;
/// How many refusal codes have their own label; there are fewer.
const MOST_CODES: usize = 200;
/// The label of all others.
const OTHERS: &str = "(others)";

type ServerStatus = [(&'static str, String); 2];

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerFigures {
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) in_flight: usize,
    pub(crate) waiting: usize,
    pub(crate) restarts: u32,
}

/// A bounded set of label values.
#[derive(Default)]
struct LabelSet(Mutex<HashSet<String>>);

impl LabelSet {
    /// Returns the value as a label, or the common label beyond the bound.
    fn label(&self, value: &str, most: usize) -> String {
        let mut known = self.0.lock();
        if !known.contains(value) {
            if known.len() >= most {
                return OTHERS.to_owned();
            }
            known.insert(value.to_owned());
        }
        value.to_owned()
    }
}

/// The metrics of a project's servers.
#[derive(Default)]
pub(super) struct ServerMetrics {
    names: LabelSet,
    codes: LabelSet,
    calls: Family<ServerStatus, Counter<u64, AtomicU64>>,
    seconds: Family<Label, Counter<f64, AtomicU64>>,
    refusals: Family<Label, Counter<u64, AtomicU64>>,
    states: Family<Label, Gauge>,
    ready: Family<Label, Gauge>,
    in_flight: Family<Label, Gauge>,
    waiting: Family<Label, Gauge>,
    restarts: Family<Label, Gauge>,
}

impl ServerMetrics {
    /// Registers the metrics with the project's registry.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("servers", "Servers by state", self.states.clone());
        registry.register(
            "server_calls",
            "Calls that reached a server, by how they ended",
            self.calls.clone(),
        );
        registry.register(
            "server_call_seconds",
            "How long the calls of a server took together",
            self.seconds.clone(),
        );
        registry.register(
            "refusals",
            "Calls that were refused, by code",
            self.refusals.clone(),
        );
        registry.register(
            "server_ready",
            "Whether a server is ready for calls",
            self.ready.clone(),
        );
        registry.register(
            "server_calls_in_flight",
            "Calls that a server has not answered yet",
            self.in_flight.clone(),
        );
        registry.register(
            "server_calls_waiting",
            "Calls that wait in the queue of a server",
            self.waiting.clone(),
        );
        registry.register(
            "server_restarts",
            "Restarts of a server since it was registered or restarted by hand",
            self.restarts.clone(),
        );
    }

    /// Counts calls of the project whose rows were stored, apart from those that were refused.
    pub(super) fn stored(&self, project: &str, rows: &[CallRow<&str>]) {
        for row in rows.iter().filter(|row| row.project == project) {
            if matches!(row.status, CallStatus::Running | CallStatus::Refused) {
                continue;
            }
            let server = self.names.label(row.server, MOST_SERVERS);
            let labels = [
                ("server", server.clone()),
                ("status", row.status.as_str().to_owned()),
            ];
            self.calls.get_or_create(&labels).inc();
            if let Some(duration_us) = row.duration_us {
                let seconds = self.seconds.get_or_create(&[("server", server)]);
                seconds.inc_by(duration_us as f64 / 1e6);
            }
        }
    }

    /// Counts a call that was refused.
    pub(super) fn refused(&self, code: &str) {
        let code = self.codes.label(code, MOST_CODES);
        self.refusals.get_or_create(&[("code", code)]).inc();
    }

    /// Sets the current state of the servers.
    pub(super) fn set(&self, servers: impl Iterator<Item = ServerFigures>) {
        let gauges = [&self.ready, &self.in_flight, &self.waiting, &self.restarts];
        self.states.clear();
        gauges.iter().for_each(|gauge| gauge.clear());
        for server in servers {
            let state = [("state", server.state.to_owned())];
            self.states.get_or_create(&state).inc();
            let label = [("server", self.names.label(&server.name, MOST_SERVERS))];
            let wide = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
            let figures = [
                i64::from(server.state == "ready"),
                wide(server.in_flight),
                wide(server.waiting),
                i64::from(server.restarts),
            ];
            for (gauge, figure) in gauges.iter().zip(figures) {
                gauge.get_or_create(&label).inc_by(figure);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_labels_is_bounded() {
        let labels = LabelSet::default();
        for number in 0..1000 {
            let name = format!("server-{number}");
            let label = labels.label(&name, 500);
            assert_eq!(label == name, number < 500, "{label}");
        }
        assert_eq!(labels.label("server-7", 500), "server-7");
        assert_eq!(labels.label("server-999", 500), OTHERS);
    }
}
