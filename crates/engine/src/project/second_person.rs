//! Decides who counts as a second person: not the requester, and nobody who may hold the
//! requester's keys.
//!
//! Approvers are created by administrators of the installation, never by admins (`Role::may_give`).
//! An admin and all keys that they created, directly or through other keys, are one person, according
//! to the log of acts, whichever of them requests and whichever approves. Administrators of the
//! installation need no second person. Entry point: `Project::is_second_person`.

use gantry_model::caller::Role;
use gantry_store::{ActFilter, ActOutcome, ActRow};
use serde_json::Value;

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

/// A key, or one from which it descends.
struct Holder {
    key: String,
    name: String,
    /// Whether it makes keys for others: it manages the installation.
    is_root: bool,
}

impl Project {
    /// Returns whether an actor is a second person besides the requester.
    pub(super) async fn is_second_person(
        &self,
        by: &Actor,
        asker: &Asker<'_>,
    ) -> Result<bool, EngineError> {
        // Another key of the same person does not count.
        if asker.key == by.key() || asker.name == by.name() {
            return Ok(false);
        }
        match by.role() {
            None | Some(Role::Installation | Role::Approver) => Ok(true),
            Some(_) if asker.role == Some(Role::Installation) => Ok(true),
            Some(_) => Ok(!self.may_be_one_person(asker, by).await?),
        }
    }

    /// Returns whether one admin may hold both keys: one of the two, or one from which both descend.
    /// A key without a recorded creator may be anybody's.
    async fn may_be_one_person(&self, asker: &Asker<'_>, by: &Actor) -> Result<bool, EngineError> {
        let approvers = self.holders(by.key(), by.name()).await?;
        let askers = self.holders(asker.key.to_owned(), asker.name).await?;
        let (Some(approvers), Some(askers)) = (approvers, askers) else {
            return Ok(true);
        };
        let mut askers = askers.iter().filter(|holder| !holder.is_root);
        Ok(askers.any(|asker| {
            let is_same = |holder: &Holder| holder.key == asker.key || holder.name == asker.name;
            approvers.iter().any(is_same)
        }))
    }

    /// Returns a key and those from which it descends, up to a root; `None` if that is not on record.
    async fn holders(&self, key: String, name: &str) -> Result<Option<Vec<Holder>>, EngineError> {
        let (mut key, mut name) = (key, name.to_owned());
        let mut holders = Vec::new();
        while holders.len() < DEEPEST {
            let made = self.making_of(&key).await?;
            let is_root = match &made {
                None if holders.is_empty() => return Ok(None),
                // A creator without a record does not belong to this project, or is its first key.
                None => true,
                Some(act) => is_of_installation(act),
            };
            holders.push(Holder { key, name, is_root });
            match made {
                Some(act) if !is_root => (key, name) = (act.key, act.actor),
                Some(_) | None => return Ok(Some(holders)),
            }
        }
        Ok(None)
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

/// Returns whether an act made a key that manages the installation.
fn is_of_installation(making: &ActRow) -> bool {
    let made: Option<Value> = making
        .after
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    made.is_some_and(|made| made["role"] == Role::Installation.as_str())
}
