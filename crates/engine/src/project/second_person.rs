//! Decides who counts as a second person: not the requester, and not a key that the requester
//! created.
//!
//! Approvers are created by administrators of the installation, never by admins (`Role::may_give`).
//! An admin counts only if the requester created neither their key nor the key that created it,
//! according to the log of acts. Administrators of the installation need no second person. Entry
//! point: `Project::is_second_person`.

use gantry_model::caller::Role;
use gantry_store::{ActFilter, ActOutcome, ActRow};

use super::Project;
use crate::acts::Actor;
use crate::error::EngineError;

/// How many creators of keys are followed.
const DEEPEST: usize = 32;

/// The requester of a change.
pub(super) struct Asker<'a> {
    pub(super) key: &'a str,
    pub(super) name: &'a str,
    /// Unknown if an earlier release stored the change.
    pub(super) role: Option<Role>,
}

impl Asker<'_> {
    fn is(&self, key: &str, name: &str) -> bool {
        self.key == key || self.name == name
    }
}

impl Project {
    /// Returns whether an actor is a second person besides the requester.
    pub(super) async fn is_second_person(
        &self,
        by: &Actor,
        asker: &Asker<'_>,
    ) -> Result<bool, EngineError> {
        // Another key of the same person does not count.
        if asker.is(&by.key(), by.name()) {
            return Ok(false);
        }
        match by.role() {
            None | Some(Role::Installation | Role::Approver) => Ok(true),
            Some(_) if asker.role == Some(Role::Installation) => Ok(true),
            Some(_) => Ok(!self.may_have_made(asker, by.key()).await?),
        }
    }

    /// Returns whether the requester may have created a key, directly or through other keys. A key
    /// without a recorded creator may be the requester's; a creator without a record does not
    /// belong to this project.
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
