//! What was enforced for a tree, what was not, and why: one promise per protection, never silence.
//! And what the host allows at all.

/// Every protection of one tree and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry per protection, in a fixed order.
    pub promises: Vec<Promise>,
}

/// One protection: whether it holds and how, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The protection's name: `tree`, `memory`, `cpu`, `pids`, `disk`, `root`, `filesystem`, `data_folder`,
    /// `syscalls`, `network`, `ipc`, `user`, `environment`, `descriptors` or `privileges`.
    pub name: &'static str,
    /// Whether it holds.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// Whether a protection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What the host allows, one fact per means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// The facts in a fixed order.
    pub facts: Vec<HostFact>,
}

/// One means of isolation and whether this host gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFact {
    /// The name of the means.
    pub name: &'static str,
    /// Whether it works here.
    pub available: bool,
    /// How it is had, or why it is not.
    pub detail: String,
}

impl HostReport {
    /// Returns the fact of that name.
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
