//! The report of a tree, which lists every protection and whether it is enforced, and the report of
//! what the host supports.

/// The protections of one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry per protection, in a fixed order.
    pub promises: Vec<Promise>,
}

/// One protection: whether it is enforced and how, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The protection's name: `tree`, `memory`, `cpu`, `pids`, `disk`, `root`, `filesystem`, `data_folder`,
    /// `syscalls`, `network`, `ipc`, `user`, `environment`, `descriptors` or `privileges`.
    pub name: &'static str,
    /// Whether it is enforced.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// Whether a protection is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseState {
    /// The kernel enforces it.
    Enforced,
    /// It was requested, but the host does not support it.
    NotEnforced,
    /// The profile or the limits do not request it.
    NotAsked,
}

impl Report {
    /// Returns the promise with this name.
    pub fn promise(&self, name: &str) -> Option<&Promise> {
        self.promises.iter().find(|promise| promise.name == name)
    }

    /// Returns whether the protection with this name is enforced.
    pub fn enforced(&self, name: &str) -> bool {
        self.promise(name)
            .is_some_and(|promise| promise.state == PromiseState::Enforced)
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

/// What the host supports, one fact per feature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// The facts in a fixed order.
    pub facts: Vec<HostFact>,
}

/// One isolation feature and whether this host supports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFact {
    /// The name of the feature.
    pub name: &'static str,
    /// Whether it works here.
    pub available: bool,
    /// How it is available, or why it is not.
    pub detail: String,
}

impl HostReport {
    /// Returns the fact with this name.
    pub fn fact(&self, name: &str) -> Option<&HostFact> {
        self.facts.iter().find(|fact| fact.name == name)
    }

    pub(crate) fn add(&mut self, name: &'static str, outcome: Result<impl Into<String>, String>) {
        let (available, detail) = match outcome {
            Ok(how) => (true, how.into()),
            Err(why) => (false, why),
        };
        self.facts.push(HostFact {
            name,
            available,
            detail,
        });
    }
}
