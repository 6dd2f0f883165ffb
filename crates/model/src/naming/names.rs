//! The names of one view, in both directions.
//!
//! Built once per view from its tools in configuration order, then only read. A tool is never
//! renamed because of an unrelated one; lost names are reported in `warnings`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{Expose, Form, OnCollision, ToolId, encode, encode_bare};

/// The naming rules of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The requirements for names.
    pub form: Form,
    /// Whether names include the server.
    pub expose: Expose,
    /// The policy for two tools with the same name.
    pub on_collision: OnCollision,
}

/// The outcome for a tool whose name collides with another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is not exposed, because another had the name first.
    Refused,
    /// It is no longer exposed, because one later in the configuration took the name.
    Shadowed,
    /// Its server listed it twice; only the first is exposed.
    Repeated,
}

/// Two tools with one name, and the outcome for the loser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The name of both.
    pub name: Arc<str>,
    /// The tool that lost the name.
    pub loser: ToolId,
    /// The tool that has the name.
    pub winner: ToolId,
    /// The outcome for the loser.
    pub outcome: Outcome,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            loser,
            winner,
            outcome,
        } = self;
        // A tool's own name may contain anything, and this text goes to logs and terminals.
        let loser = loser.to_string();
        let winner = winner.to_string();
        let (loser, winner) = (loser.escape_debug(), winner.escape_debug());
        match outcome {
            Outcome::Refused => {
                write!(
                    f,
                    "tool `{loser}` is not exposed: `{winner}` already has the name `{name}`"
                )
            }
            Outcome::Shadowed => {
                write!(
                    f,
                    "tool `{loser}` is not exposed: the later `{winner}` took the name `{name}`"
                )
            }
            Outcome::Repeated => write!(f, "tool `{loser}` was listed twice, the first counts"),
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    id: ToolId,
    /// `None` if the name was lost to another tool.
    exposed: Option<Arc<str>>,
    aliased: bool,
}

/// The tools of one view by exposed name, by identity, and in order.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// In the order of the configuration.
    entries: Vec<Entry>,
    /// Exposed names and identities together: no exposed name contains a `:`, every identity does.
    by_text: HashMap<Arc<str>, usize>,
    by_id: HashMap<ToolId, usize>,
    warnings: Vec<Collision>,
}

impl Names {
    /// Names the tools, which come in configuration order.
    pub fn build(rules: Rules, tools: impl IntoIterator<Item = ToolId>) -> Self {
        Self::build_aliased(rules, tools.into_iter().map(|id| (id, None)))
    }

    /// Names the tools, some of which have an alias instead of the usual name.
    ///
    /// An alias was chosen for this view, so it takes precedence over other names. If the target
    /// does not accept it, it is changed like a tool's own name.
    pub fn build_aliased(
        rules: Rules,
        tools: impl IntoIterator<Item = (ToolId, Option<Arc<str>>)>,
    ) -> Self {
        let mut names = Self::default();
        let mut wanted = Vec::new();
        for (id, alias) in tools {
            let name: Arc<str> = match (&alias, rules.expose) {
                (Some(alias), _) => encode_bare(rules.form, alias).into(),
                (None, Expose::Qualified) => encode(rules.form, &id.server, &id.tool).into(),
                (None, Expose::Bare) => encode_bare(rules.form, &id.tool).into(),
            };
            if names.by_id.contains_key(&id) {
                let (loser, winner) = (id.clone(), id);
                names.warnings.push(Collision {
                    name,
                    loser,
                    winner,
                    outcome: Outcome::Repeated,
                });
                continue;
            }
            let index = names.entries.len();
            names.by_text.insert(id.to_string().into(), index);
            names.by_id.insert(id.clone(), index);
            names.entries.push(Entry {
                id,
                exposed: None,
                aliased: alias.is_some(),
            });
            wanted.push(name);
        }
        for aliased in [true, false] {
            for (index, name) in wanted.iter().enumerate() {
                if names.entries[index].aliased == aliased {
                    names.claim(rules.on_collision, index, name);
                }
            }
        }
        names
    }

    /// Returns the tool with this exposed name or identity.
    ///
    /// An identity is never ambiguous, so it also finds a tool that lost its exposed name.
    pub fn resolve(&self, name: &str) -> Option<&ToolId> {
        self.by_text.get(name).map(|index| &self.entries[*index].id)
    }

    /// Returns the name under which a tool is exposed, if it is.
    pub fn exposed(&self, id: &ToolId) -> Option<&str> {
        self.by_id
            .get(id)
            .and_then(|index| self.entries[*index].exposed.as_deref())
    }

    /// Returns the exposed tools with their names, in configuration order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ToolId)> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry.exposed.as_deref()?, &entry.id)))
    }

    /// Returns the collisions.
    pub fn warnings(&self) -> &[Collision] {
        &self.warnings
    }

    fn claim(&mut self, on_collision: OnCollision, index: usize, name: &Arc<str>) {
        if let Some(&holder) = self.by_text.get(name) {
            let replace = match on_collision {
                OnCollision::Refuse => false,
                // An alias yields only to another alias.
                OnCollision::LastWins => {
                    self.entries[holder].aliased == self.entries[index].aliased
                        && self.means_the_same(holder, index)
                }
            };
            let (loser, winner, outcome) = if replace {
                self.entries[holder].exposed = None;
                (holder, index, Outcome::Shadowed)
            } else {
                (index, holder, Outcome::Refused)
            };
            self.warnings.push(Collision {
                name: Arc::clone(name),
                loser: self.entries[loser].id.clone(),
                winner: self.entries[winner].id.clone(),
                outcome,
            });
            if !replace {
                return;
            }
        }
        self.by_text.insert(Arc::clone(name), index);
        self.entries[index].exposed = Some(Arc::clone(name));
    }

    /// Returns whether two tools really have the same name, as opposed to equal hash digits: a
    /// server could search for such a collision, and must not gain from it.
    fn means_the_same(&self, holder: usize, index: usize) -> bool {
        let (holder, entry) = (&self.entries[holder], &self.entries[index]);
        entry.aliased || holder.id.tool == entry.id.tool
    }
}
