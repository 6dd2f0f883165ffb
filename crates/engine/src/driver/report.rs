//! The reports of drivers: host features, isolation and usage of an instance, its exit status.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What a host supports, one fact per isolation feature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostReport {
    /// The facts in a fixed order.
    pub facts: Vec<HostFact>,
}

/// One isolation feature and whether this host supports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFact {
    /// The name of the feature.
    pub name: &'static str,
    /// Whether it works here.
    pub available: bool,
    /// How it works, or why it does not.
    pub detail: String,
}

/// The isolation of one instance: its provider, and the state of every protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationReport {
    /// What isolates the instance, such as `process`.
    pub provider: &'static str,
    /// Why this provider was chosen.
    pub reason: String,
    /// One entry per protection, in a fixed order.
    pub promises: Vec<Promise>,
}

/// One protection: whether it is enforced and how, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The protection's name, such as `memory` or `network`.
    pub name: &'static str,
    /// Whether it is enforced.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// Whether a protection is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseState {
    /// It is enforced.
    Enforced,
    /// It was requested, but the host does not support it.
    NotEnforced,
    /// The profile or the limits do not request it.
    NotAsked,
}

impl PromiseState {
    /// Returns the state as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::NotEnforced => "not_enforced",
            Self::NotAsked => "not_asked",
        }
    }
}

impl IsolationReport {
    /// Returns one line: which protections are enforced, which are not, and why.
    pub fn summary(&self) -> String {
        let of_state = |state| {
            let promises = self.promises.iter();
            promises.filter(move |promise| promise.state == state)
        };
        let enforced: Vec<&str> = of_state(PromiseState::Enforced)
            .map(|promise| promise.name)
            .collect();
        let mut summary = format!("enforced: {}", enforced.join(", "));
        let missing: Vec<String> = of_state(PromiseState::NotEnforced)
            .map(|promise| format!("{} ({})", promise.name, promise.detail))
            .collect();
        if !missing.is_empty() {
            summary.push_str("; not enforced: ");
            summary.push_str(&missing.join(", "));
        }
        summary
    }
}

/// The resource usage of an instance at a moment, all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the start.
    pub cpu: Duration,
    /// Memory in bytes, without reclaimable file cache.
    pub memory_bytes: u64,
    /// Processes, and threads where the host counts them.
    pub pids: u64,
    /// Whether it reached its process limit recently.
    pub pids_limit_hit: bool,
    /// The size of its files on disk, if known.
    pub disk_bytes: Option<u64>,
}

/// How an instance ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExitStatus {
    /// Its exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Whether it was killed for exceeding its memory limit.
    pub(crate) oom_killed: bool,
    /// Whether it reached its process limit at some time.
    pub(crate) pids_limit_hit: bool,
    /// Why the gateway stopped it, such as a full disk.
    pub(crate) stopped: Option<String>,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.stopped {
            return f.write_str(why);
        }
        if self.oom_killed {
            return f.write_str("killed: out of memory");
        }
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}")?,
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal} ({name})")?,
                None => write!(f, "signal {signal}")?,
            },
            (None, None) => f.write_str("ended")?,
        }
        if self.pids_limit_hit {
            f.write_str(", process limit reached")?;
        }
        Ok(())
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_reads_as_a_reason() {
        let code = |code| ExitStatus {
            code: Some(code),
            ..ExitStatus::default()
        };
        let signal = |signal| ExitStatus {
            signal: Some(signal),
            ..ExitStatus::default()
        };
        assert_eq!(code(1).to_string(), "exit code 1");
        assert_eq!(signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(signal(40).to_string(), "signal 40");
        let oom = ExitStatus {
            oom_killed: true,
            ..signal(9)
        };
        assert_eq!(oom.to_string(), "killed: out of memory");
        let full = ExitStatus {
            pids_limit_hit: true,
            ..code(2)
        };
        assert_eq!(full.to_string(), "exit code 2, process limit reached");
    }

    #[test]
    fn a_summary_names_what_is_missing_and_why() {
        let promise = |name, state, detail: &str| Promise {
            name,
            state,
            detail: detail.to_owned(),
        };
        let report = IsolationReport {
            provider: "process",
            reason: String::new(),
            promises: vec![
                promise("tree", PromiseState::Enforced, "PID namespace"),
                promise("memory", PromiseState::NotEnforced, "no writable cgroup"),
                promise("network", PromiseState::NotAsked, "allowed"),
            ],
        };
        assert_eq!(
            report.summary(),
            "enforced: tree; not enforced: memory (no writable cgroup)"
        );
    }
}
