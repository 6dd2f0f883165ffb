//! The unapproved tools of a project, in memory, and the consequences: quarantined tools are not
//! listed, and calls to them are refused.
//!
//! The store decides when a catalog is saved and when an approver decides; this is reloaded after
//! both, and when another gateway has changed it. Under quarantine, a version that the store does
//! not know yet is withheld: an unchecked version is never offered (fault L8). Entry points:
//! [`Pins::reload`], [`Pins::reason`] and [`Pins::check`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use gantry_model::id::{ProjectName, ServerId, ServerName};
use gantry_model::mcp::ListKind;
use gantry_model::pin::{ChangeClass, OnChange, OnFirstList, PinPolicy, PinState};
use gantry_store::{Store, StoreError, UnapprovedRow};
use tokio::sync::Mutex;

use crate::error::CallError;

/// The unapproved items of a project.
pub(crate) struct Pins {
    store: Store,
    project: ProjectName,
    now: ArcSwap<PinTable>,
    /// The last read revision.
    revision: AtomicU64,
    /// Held while reading.
    reading: Mutex<()>,
}

/// The unapproved items, and the project's policy.
#[derive(Default)]
struct PinTable {
    policy: PinPolicy,
    /// By server, then by kind and name.
    unapproved: HashMap<ServerId, HashMap<(PinKind, Box<str>), Unapproved>>,
}

/// The kind of a pinned item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PinKind {
    Tool,
    Prompt,
    Template,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unapproved {
    state: PinState,
    change: ChangeClass,
}

impl PinKind {
    /// Returns the kind of a list's items; resources are not pinned.
    pub(crate) fn of(list: ListKind) -> Option<Self> {
        match list {
            ListKind::Tools => Some(Self::Tool),
            ListKind::Prompts => Some(Self::Prompt),
            ListKind::ResourceTemplates => Some(Self::Template),
            ListKind::Resources => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "tool" => Some(Self::Tool),
            "prompt" => Some(Self::Prompt),
            "template" => Some(Self::Template),
            _ => None,
        }
    }
}

impl PinTable {
    fn new(policy: PinPolicy, rows: Vec<UnapprovedRow>) -> Self {
        let mut table = Self {
            policy,
            unapproved: HashMap::new(),
        };
        for row in rows {
            let Some(kind) = PinKind::parse(&row.kind) else {
                continue;
            };
            let of_server = table.unapproved.entry(row.server).or_default();
            let unapproved = Unapproved {
                state: row.state,
                change: row.change,
            };
            of_server.insert((kind, row.name.into()), unapproved);
        }
        table
    }

    /// Returns whether nothing can be withheld, as for most projects.
    fn is_open(&self) -> bool {
        self.unapproved.is_empty() && !self.is_strict()
    }

    /// Returns whether items may need an approval before they are offered.
    fn is_strict(&self) -> bool {
        self.policy.changes == OnChange::Quarantine
            || self.policy.new_servers == OnFirstList::Quarantine
    }

    /// Returns why an item is withheld, if it is.
    fn reason(
        &self,
        server: ServerId,
        kind: PinKind,
        name: &str,
        version: u32,
    ) -> Option<&'static str> {
        if version == 0 && self.is_strict() {
            return Some("it could not be compared with what is approved");
        }
        let of_server = self.unapproved.get(&server)?;
        let unapproved = of_server.get(&(kind, Box::from(name)))?;
        let is_withheld = self.policy.withholds(unapproved.state, unapproved.change);
        is_withheld.then(|| unapproved.reason())
    }
}

impl Unapproved {
    fn reason(self) -> &'static str {
        match (self.state, self.change) {
            (PinState::Refused, _) => "an approver refused it",
            (_, ChangeClass::First) => "its server is new and nobody approved it",
            (_, ChangeClass::Added) => "its server added it and nobody approved it",
            (_, ChangeClass::Text) => "its text changed and nobody approved it",
            (_, ChangeClass::Same | ChangeClass::Compatible | ChangeClass::Breaking) => {
                "it changed and nobody approved it"
            }
        }
    }
}

impl Pins {
    /// Reads the unapproved items of a project.
    pub(crate) async fn load(
        store: Store,
        project: ProjectName,
        policy: PinPolicy,
    ) -> Result<Self, StoreError> {
        let table = PinTable {
            policy,
            ..PinTable::default()
        };
        let pins = Self {
            store,
            project,
            now: ArcSwap::from_pointee(table),
            revision: AtomicU64::new(0),
            reading: Mutex::default(),
        };
        pins.reload().await?;
        Ok(pins)
    }

    /// Reads it again.
    pub(crate) async fn reload(&self) -> Result<(), StoreError> {
        let _one = self.reading.lock().await;
        // Read before the rows: a change in between is read again.
        let revision = self.store.changes(&self.project).await?.pins;
        let rows = self.store.unapproved(&self.project).await?;
        let policy = self.policy();
        self.now.store(Arc::new(PinTable::new(policy, rows)));
        self.revision.store(revision, Ordering::Release);
        Ok(())
    }

    /// Sets the project's policy; returns whether it changed.
    pub(crate) async fn follow(&self, policy: &PinPolicy) -> Result<bool, StoreError> {
        {
            let _one = self.reading.lock().await;
            let now = self.now.load();
            if now.policy == *policy {
                return Ok(false);
            }
            self.now.store(Arc::new(PinTable {
                policy: policy.clone(),
                unapproved: now.unapproved.clone(),
            }));
        }
        self.reload().await?;
        Ok(true)
    }

    /// Returns the last read revision.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the project's policy.
    pub(crate) fn policy(&self) -> PinPolicy {
        self.now.load().policy.clone()
    }

    /// Returns whether nothing can be withheld.
    pub(crate) fn is_open(&self) -> bool {
        self.now.load().is_open()
    }

    /// Returns whether the listed version of an item is not approved.
    pub(crate) fn is_unapproved(&self, server: ServerId, kind: PinKind, name: &str) -> bool {
        let now = self.now.load();
        let of_server = now.unapproved.get(&server);
        of_server.is_some_and(|known| known.contains_key(&(kind, Box::from(name))))
    }

    /// Returns why an item is withheld, if it is.
    pub(crate) fn reason(
        &self,
        server: ServerId,
        kind: PinKind,
        name: &str,
        version: u32,
    ) -> Option<&'static str> {
        self.now.load().reason(server, kind, name, version)
    }

    /// Refuses a call to a withheld item. `version` is that of the definition against which the
    /// call was checked.
    pub(crate) fn check(
        &self,
        (id, server): (ServerId, &ServerName),
        kind: PinKind,
        name: &str,
        version: u32,
    ) -> Result<(), CallError> {
        let now = self.now.load();
        if now.is_open() {
            return Ok(());
        }
        match now.reason(id, kind, name, version) {
            Some(why) => Err(quarantined(server, name, why)),
            None => Ok(()),
        }
    }

    /// Returns the unapproved items of a server, as `name (class)`, sorted.
    pub(crate) fn unapproved_of(&self, server: ServerId) -> Vec<String> {
        let now = self.now.load();
        let of_server = now.unapproved.get(&server);
        let shown = of_server
            .into_iter()
            .flatten()
            .map(|((_, name), unapproved)| {
                let what = match unapproved.state {
                    PinState::Refused => "refused",
                    PinState::Approved | PinState::Unapproved => unapproved.change.as_str(),
                };
                format!("`{}` ({what})", name.escape_debug())
            });
        let mut shown: Vec<String> = shown.collect();
        shown.sort();
        shown
    }

    /// Returns how many items of a server are undecided.
    pub(crate) fn undecided_of(&self, server: ServerId) -> usize {
        let now = self.now.load();
        let of_server = now.unapproved.get(&server).into_iter().flatten();
        let undecided = of_server.filter(|(_, one)| one.state == PinState::Unapproved);
        undecided.count()
    }
}

/// Creates the error for a call to a withheld item.
pub(crate) fn quarantined(server: &ServerName, name: &str, why: &'static str) -> CallError {
    CallError::Quarantined {
        server: server.clone(),
        item: name.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: PinState, change: ChangeClass) -> UnapprovedRow {
        UnapprovedRow {
            server: ServerId::from_random(1),
            kind: "tool".into(),
            name: name.into(),
            state,
            change,
        }
    }

    // fault L3, fault L8
    #[test]
    fn what_is_held_back_follows_from_state_and_policy() {
        let id = ServerId::from_random(1);
        let rows = vec![
            row("changed", PinState::Unapproved, ChangeClass::Text),
            row("refused", PinState::Refused, ChangeClass::Text),
        ];
        let quarantine = PinPolicy {
            changes: OnChange::Quarantine,
            ..PinPolicy::default()
        };
        let strict = PinTable::new(quarantine, rows.clone());
        let reason = |table: &PinTable, name: &str, version| {
            table.reason(id, PinKind::Tool, name, version).is_some()
        };
        assert!(reason(&strict, "changed", 2) && reason(&strict, "refused", 2));
        assert!(!reason(&strict, "other", 2));
        assert!(
            reason(&strict, "other", 0),
            "what was not judged is held back"
        );
        let warned = PinTable::new(PinPolicy::default(), rows);
        assert!(!reason(&warned, "changed", 2) && reason(&warned, "refused", 2));
        assert!(!reason(&warned, "other", 0));
        assert!(!warned.is_open() && !strict.is_open());
        assert!(PinTable::default().is_open());
    }
}
