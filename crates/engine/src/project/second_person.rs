//! Who is a second person: somebody else than who asked, and nobody whom they have made up.
//!
//! An approver is made by who manages the installation, never by an admin (`Role::may_give`). An admin
//! counts only if no key of who asked made theirs, nor made the key that made it: the log of acts tells.
//! Who manages the installation can do everything alone. Entry point: `Project::is_second_person`.

use gantry_model::caller::Role;
use gantry_store::{ActFilter, ActOutcome, ActRow};

use super::Project;
use crate::acts::Actor;
use crate::error::EngineError;

/// How far back it is looked who made whose key.
const DEEPEST: usize = 32;

/// Who asked for a change.
pub(super) struct Asker<'a> {
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    /// Unknown where an earlier release kept the change.
    pub(super) role: Option<Role>,
}

impl Asker<'_> {
    fn is(&self, key: &str, name: &str) -> bool {
        self.key == key || self.name == name
    }
}

impl Project {
    /// Tells whether an actor is a second person beside who asked.
    pub(super) async fn is_second_person(
        &self,
        by: &Actor,
        asker: &Asker<'_>,
    ) -> Result<bool, EngineError> {
        // Another key of the same person is no second person.
        if asker.is(&by.key(), by.name()) {
            return Ok(false);
        }
        match by.role() {
            None | Some(Role::Installation | Role::Approver) => Ok(true),
            Some(_) if asker.role == Some(Role::Installation) => Ok(true),
            Some(_) => Ok(!self.may_have_made(asker, by.key()).await?),
        }
    }

    /// Tells whether who asked may have made a key, or a key that made it. One of which nobody knows who
    /// made it may be theirs; who has made its maker without a record here is not of this project.
    async fn may_have_made(&self, asker: &Asker<'_>, key: String) -> Result<bool, EngineError> {
        let mut made = key;
        for step in 0..DEEPEST {
            let Some(act) = self.making_of(&made).await? else {
                return Ok(step == 0);
            };
            if asker.is(&act.key, &act.actor) {
                return Ok(true);
            }
            made = act.key;
        }
        Ok(true)
    }

    /// Returns the act that made a key: who rotates one has made the key that replaces it.
    async fn making_of(&self, key: &str) -> Result<Option<ActRow>, EngineError> {
        for act in ["key.create", "key.rotate"] {
            let filter = ActFilter {
                act: Some(act.to_owned()),
                target: Some(key.to_owned()),
                outcome: Some(ActOutcome::Done),
                limit: 1,
                ..ActFilter::default()
            };
            if let Some(act) = self.acts.list(&filter).await?.pop() {
                return Ok(Some(act));
            }
        }
        Ok(None)
    }
}
