//! What was enforced for a tree, what was not, and why: one promise per protection, never silence.

use std::fmt;

use serde::Serialize;

/// Every protection of one tree and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// One entry per protection, in a fixed order.
    pub promises: Vec<Promise>,
}

/// One protection: whether it holds and how, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// The protection's name: `tree`, `memory`, `cpu`, `pids`, `filesystem`, `data_folder`, `syscalls`,
    /// `network`, `user`, `environment`, `descriptors` or `privileges`.
    pub name: &'static str,
    /// Whether it holds.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// Whether a protection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PromiseState {
    /// The kernel holds it.
    Enforced,
    /// It was asked for, and the host does not give it.
    NotEnforced,
    /// The profile or the limits do not ask for it.
    NotAsked,
}

impl Report {
    /// Returns the promise of that name.
    pub fn promise(&self, name: &str) -> Option<&Promise> {
        self.promises.iter().find(|promise| promise.name == name)
    }

    /// Whether the protection of that name holds.
    pub fn enforced(&self, name: &str) -> bool {
        self.promise(name)
            .is_some_and(|promise| promise.state == PromiseState::Enforced)
    }

    /// Returns one line: what is enforced, what is not and why.
    pub fn summary(&self) -> String {
        let of_state = |state| {
            self.promises
                .iter()
                .filter(move |promise| promise.state == state)
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

    pub(crate) fn add(
        &mut self,
        name: &'static str,
        state: PromiseState,
        detail: impl Into<String>,
    ) {
        self.promises.push(Promise {
            name,
            state,
            detail: detail.into(),
        });
    }
}

impl fmt::Display for Report {
    /// Writes one line per protection.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for promise in &self.promises {
            let state = match promise.state {
                PromiseState::Enforced => "enforced",
                PromiseState::NotEnforced => "not enforced",
                PromiseState::NotAsked => "not asked",
            };
            writeln!(f, "{:<12} {state:<13} {}", promise.name, promise.detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_what_is_missing_and_why() {
        let mut report = Report::default();
        report.add("tree", PromiseState::Enforced, "PID namespace");
        report.add("memory", PromiseState::NotEnforced, "no writable cgroup");
        report.add("network", PromiseState::NotAsked, "allowed");
        assert!(report.enforced("tree"));
        assert!(!report.enforced("memory") && !report.enforced("network"));
        assert_eq!(
            report.summary(),
            "enforced: tree; not enforced: memory (no writable cgroup)"
        );
    }
}
