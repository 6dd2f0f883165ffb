//! Converts the sandbox's reports for display: the isolation and limits of a hosted instance, and
//! what the host supports.

use gantry_model::spec::{EgressRule, NetworkGrant};
use gantry_sandbox::{Command, Network, Report, Sandbox};

use super::HostedStart;
use crate::driver::{
    HostFact, HostReport, IsolationReport, LimitReport, LimitValue, Promise, PromiseState,
};

/// Returns the isolation for display: the sandbox's promises, the disk, and allowed network access.
pub(super) fn isolation(
    report: &Report,
    start: &HostedStart<'_>,
    command: &Command,
    published: Option<&str>,
) -> IsolationReport {
    let mut isolation = IsolationReport {
        provider: start.provider,
        reason: start.reason.clone(),
        promises: promises(report),
    };
    let (is_bounded, how) = start.place.enforced();
    let limit = start.place.limit() >> 20;
    isolation.set(Promise {
        name: "disk",
        state: match is_bounded {
            true => PromiseState::Enforced,
            false => PromiseState::NotEnforced,
        },
        detail: match is_bounded {
            true => how.to_owned(),
            false => format!("{how}; over {limit} MiB the server is stopped"),
        },
    });
    if let Some(bytes) = start.limits.memory_bytes {
        isolation.watch_memory(bytes);
    }
    if command.network == Network::Inside
        && let NetworkGrant::Egress(rules) = start.hosting.network_in_force()
    {
        let to: Vec<String> = rules.iter().map(EgressRule::to_string).collect();
        isolation.set(Promise {
            name: "egress",
            state: PromiseState::Enforced,
            detail: format!("dialled by the gateway, to {} only", to.join(", ")),
        });
    }
    if let Some(address) = published {
        isolation.set(Promise {
            name: "published_port",
            state: PromiseState::NotEnforced,
            detail: format!(
                "{address} is forwarded to the server; grants and audit do not apply to it"
            ),
        });
    }
    isolation
}

impl IsolationReport {
    /// Replaces the promise of the same name, or appends it.
    fn set(&mut self, promise: Promise) {
        let mut known = self.promises.iter_mut();
        match known.find(|known| known.name == promise.name) {
            Some(known) => *known = promise,
            None => self.promises.push(promise),
        }
    }

    /// Adds to a memory limit that the host does not enforce that the use is watched.
    fn watch_memory(&mut self, bytes: u64) {
        let mut known = self.promises.iter_mut();
        let memory = known.find(|known| known.name == "memory");
        if let Some(memory) = memory.filter(|known| known.state == PromiseState::NotEnforced) {
            let watched = format!("; measured: over {} MiB the server is stopped", bytes >> 20);
            memory.detail.push_str(&watched);
        }
    }
}

/// Returns each limit, and whether it is enforced according to the isolation report.
pub(super) fn limit_reports(
    isolation: &IsolationReport,
    start: &HostedStart<'_>,
) -> Vec<LimitReport> {
    let limits = [
        ("cpu", start.limits.cpu.map(LimitValue::Cores)),
        ("memory", start.limits.memory_bytes.map(LimitValue::Bytes)),
        ("pids", start.limits.pids.map(LimitValue::Count)),
        ("disk", Some(LimitValue::Bytes(start.place.limit()))),
    ];
    let reports = limits.into_iter().filter_map(|(name, value)| {
        let promise = isolation.promises.iter().find(|known| known.name == name);
        Some(LimitReport {
            name,
            value: value?,
            state: promise.map_or(PromiseState::NotEnforced, |promise| promise.state),
            detail: promise.map_or_else(
                || "not known on this host".to_owned(),
                |promise| promise.detail.clone(),
            ),
        })
    });
    reports.collect()
}

/// Returns the memory limit if the host does not enforce it.
pub(super) fn watched_memory(isolation: &IsolationReport, start: &HostedStart<'_>) -> Option<u64> {
    let mut promises = isolation.promises.iter();
    let memory = promises.find(|known| known.name == "memory")?;
    let is_open = memory.state == PromiseState::NotEnforced;
    start.limits.memory_bytes.filter(|_| is_open)
}

/// Converts the sandbox's promises.
pub(in crate::driver) fn promises(report: &Report) -> Vec<Promise> {
    let promises = report.promises.iter().map(|promise| Promise {
        name: promise.name,
        state: match promise.state {
            gantry_sandbox::PromiseState::Enforced => PromiseState::Enforced,
            gantry_sandbox::PromiseState::NotEnforced => PromiseState::NotEnforced,
            gantry_sandbox::PromiseState::NotAsked => PromiseState::NotAsked,
        },
        detail: promise.detail.clone(),
    });
    promises.collect()
}

/// Converts the sandbox's host report.
pub(in crate::driver) fn host_report(sandbox: &Sandbox) -> HostReport {
    let facts = sandbox.host().facts.iter().map(|fact| HostFact {
        name: fact.name,
        available: fact.available,
        detail: fact.detail.clone(),
    });
    HostReport {
        facts: facts.collect(),
    }
}
