//! The registration policy of the project, applied wherever a server is registered, edited, tested
//! or read from a file (fault G8), and the changes that need a second person because of it.
//!
//! A change that needs a second person is not made: it is stored ([`Project::hold_registration`]);
//! another person approves it ([`Project::take_registration`]), which makes it in their name, or
//! refuses it. The stored request is encrypted, bound to its id, and deleted with the decision.

use std::sync::Arc;

use gantry_model::caller::Role;
use gantry_model::grant::{Effect, Grant, GroupName, ServerGroup};
use gantry_model::settings::Sensitive;
use gantry_model::spec::{InactiveReason, ServerSpec};
use gantry_store::{RegistrationRow, RegistrationState};
use serde_json::{Value, json};

use super::Project;
use super::second_person::Asker;
use crate::acts::{Actor, Draft};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::random::random;

/// How many registrations are listed.
const LISTED: u32 = 1000;
/// How many may be pending, so that they cannot fill the store.
const MOST_PENDING: usize = 200;
/// The member of the stored request with the requester's role.
const ASKED_ROLE: &str = "asked_role";

/// A change that needs a second person.
#[derive(Debug, Clone)]
pub struct HeldChange {
    /// The act, such as `server.register`.
    pub act: &'static str,
    /// Its target.
    pub target: String,
    /// The request to execute once it is approved, including secrets.
    pub request: Value,
    /// The same without its secrets.
    pub shown: Value,
    /// Why a second person is required.
    pub reasons: Vec<Sensitive>,
}

/// A registration that another person has approved.
#[derive(Debug, Clone)]
pub struct TakenRegistration {
    /// The act.
    pub act: String,
    /// Its target.
    pub target: String,
    /// The request.
    pub request: Value,
    /// The approving actor.
    pub by: Actor,
    row: RegistrationRow,
}

impl Project {
    /// Applies the policy to a server: refuses it, or raises its required isolation.
    pub(super) fn policed(
        &self,
        by: &Actor,
        mut spec: ServerSpec,
    ) -> Result<ServerSpec, EngineError> {
        let settings = self.settings();
        let policy = &settings.registration;
        policy.check(&spec).map_err(AdminError::from)?;
        let before = self.supervisor.find(spec.name.as_str());
        let before = before.as_ref().map(|handle| &*handle.spec);
        let reasons = policy.reasons(&spec, before);
        by.second_person(reasons)?;
        policy.raise(&mut spec);
        Ok(spec)
    }

    /// Refuses a server that the policy forbids.
    pub(super) fn allowed(&self, spec: &ServerSpec) -> Result<(), EngineError> {
        let settings = self.settings();
        Ok(settings
            .registration
            .check(spec)
            .map_err(AdminError::from)?)
    }

    /// Returns why a second person must approve a server.
    pub fn approval_reasons(&self, spec: &ServerSpec) -> Vec<Sensitive> {
        let before = self.supervisor.find(spec.name.as_str());
        let before = before.as_ref().map(|handle| &*handle.spec);
        self.settings().registration.reasons(spec, before)
    }

    /// Holds the servers of files that the policy forbids: they are shown, with the reason.
    pub(super) fn police_files(&self, specs: &mut [ServerSpec]) {
        let settings = self.settings();
        let policy = &settings.registration;
        for spec in specs.iter_mut().filter(|spec| spec.inactive.is_none()) {
            match policy.check(spec) {
                Ok(()) => policy.raise(spec),
                Err(refused) => {
                    spec.inactive = Some(InactiveReason::Misconfigured(refused.to_string()));
                }
            }
        }
    }

    /// Refuses a grant of everything if it needs a second person, also by way of a group of all
    /// servers.
    pub(super) async fn policed_grants(
        &self,
        by: &Actor,
        grants: &[Grant],
    ) -> Result<(), EngineError> {
        let mut is_all = grants.iter().any(is_everything);
        if !is_all && grants.iter().any(|grant| grant.group().is_some()) {
            let wide = self.access.groups().await?;
            let wide: Vec<_> = wide
                .into_iter()
                .filter(|group| group.servers.iter().any(|member| is_any(member)))
                .collect();
            is_all = grants.iter().any(|grant| {
                let group = grant.group().map(GroupName::as_str);
                is_all_items(grant) && wide.iter().any(|known| Some(&*known.name) == group)
            });
        }
        self.policed_all(by, is_all)
    }

    /// Refuses a group of all servers that needs a second person: a grant on it would be on everything.
    /// It is not held for approval: an administrator of the installation makes it.
    pub(super) fn policed_group(&self, by: &Actor, group: &ServerGroup) -> Result<(), EngineError> {
        let is_free = by.role() == Some(Role::Installation);
        self.policed_all(by, !is_free && group.members().any(is_any))
    }

    fn policed_all(&self, by: &Actor, is_all: bool) -> Result<(), EngineError> {
        let settings = self.settings();
        let approve = &settings.registration.approve;
        match is_all && approve.contains(&Sensitive::AllGrants) {
            true => by.second_person(vec![Sensitive::AllGrants]),
            false => Ok(()),
        }
    }

    /// Stores a change until a second person has decided.
    pub async fn hold_registration(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        held: HeldChange,
    ) -> Result<RegistrationRow, EngineError> {
        let (by, project) = (by.into(), Arc::clone(self));
        self.complete(async move {
            let store = &project.machine.store;
            let known = store.registrations(&project.name, LISTED).await?;
            let pending = known.iter();
            let pending = pending.filter(|row| row.state == RegistrationState::Pending);
            if pending.count() >= MOST_PENDING {
                return Err(AdminError::TooManyPending.into());
            }
            let id = format!("reg_{:032x}", u128::from_le_bytes(random()));
            let mut request = held.request;
            request[ASKED_ROLE] = by.role().map(Role::as_str).into();
            let request = request.to_string();
            let row = RegistrationRow {
                request: project.supervisor.seal_registration(&id, &request)?,
                id,
                project: project.name.clone(),
                act: held.act.to_owned(),
                target: held.target,
                shown: held.shown,
                reasons: held
                    .reasons
                    .iter()
                    .map(|reason| reason.as_str().to_owned())
                    .collect(),
                asked_key: by.key(),
                asked_by: by.name().to_owned(),
                asked_ms: unix_ms(),
                state: RegistrationState::Pending,
                decided_by: None,
                decided_ms: None,
            };
            let draft = Draft::new("registration.ask", row.target.as_str());
            let draft = draft.detail(row.id.clone()).after(json!({
                "id": row.id, "act": row.act, "reasons": row.reasons, "asked": row.shown,
            }));
            let keep = async {
                store.put_registration(&row).await?;
                Ok(())
            };
            project.acts.run(&by, draft, keep).await?;
            Ok(row)
        })
        .await
    }

    /// Returns the changes that need or needed a second person, the newest first.
    pub async fn registrations(&self) -> Result<Vec<RegistrationRow>, EngineError> {
        let store = &self.machine.store;
        Ok(store.registrations(&self.name, LISTED).await?)
    }

    /// Returns one such change.
    pub async fn registration(&self, id: &str) -> Result<RegistrationRow, EngineError> {
        let all = self.registrations().await?;
        let found = all.into_iter().find(|row| row.id == id);
        found.ok_or_else(|| AdminError::UnknownRegistration { id: shown(id) }.into())
    }

    /// Approves another person's change, and returns it for execution, once.
    pub async fn take_registration(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: &str,
    ) -> Result<TakenRegistration, EngineError> {
        let (by, project, id) = (by.into(), Arc::clone(self), id.to_owned());
        self.complete(async move {
            let row = project.registration(&id).await?;
            let draft = Draft::new("registration.approve", row.target.as_str());
            let draft = draft.detail(id.clone()).before(json!({
                "id": row.id, "act": row.act, "asked_by": row.asked_by, "asked": row.shown,
            }));
            project.acts.run(&by, draft, project.take(&by, row)).await
        })
        .await
    }

    async fn take(
        &self,
        by: &Actor,
        row: RegistrationRow,
    ) -> Result<TakenRegistration, EngineError> {
        let request = self.supervisor.unseal_registration(&row.id, &row.request);
        let request: Option<Value> = request.and_then(|text| serde_json::from_str(&text).ok());
        let asked_role = request
            .as_ref()
            .and_then(|asked| asked[ASKED_ROLE].as_str());
        let asker = Asker {
            key: &row.asked_key,
            name: &row.asked_by,
            role: asked_role.and_then(|role| role.parse().ok()),
        };
        if !self.is_second_person(by, &asker).await? {
            return Err(AdminError::OwnRegistration { id: row.id }.into());
        }
        // An unreadable request is not approved: it waits until it is refused, or its key is back.
        let request = match (request, row.state) {
            (None, RegistrationState::Pending) => {
                return Err(AdminError::RegistrationLost { id: row.id }.into());
            }
            (request, _) => request.unwrap_or_default(),
        };
        self.decide(by, &row, RegistrationState::Approved).await?;
        Ok(TakenRegistration {
            act: row.act.clone(),
            target: row.target.clone(),
            request,
            by: by.approving(),
            row,
        })
    }

    /// Makes an approved change pending again, because it failed.
    pub async fn reopen_registration(&self, taken: &TakenRegistration) {
        if let Err(error) = self.machine.store.reopen_registration(&taken.row).await {
            let why = gantry_model::diagnose::chain(&error);
            tracing::warn!(id = taken.row.id, why, "a registration does not wait again");
        }
    }

    /// Refuses a change; the requester can withdraw it this way.
    pub async fn refuse_registration(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        id: &str,
    ) -> Result<(), EngineError> {
        let (by, project, id) = (by.into(), Arc::clone(self), id.to_owned());
        self.complete(async move {
            let row = project.registration(&id).await?;
            let draft = Draft::new("registration.refuse", row.target.as_str());
            let draft = draft.detail(id).before(json!({
                "id": row.id, "act": row.act, "asked_by": row.asked_by, "asked": row.shown,
            }));
            let refuse = project.decide(&by, &row, RegistrationState::Refused);
            project.acts.run(&by, draft, refuse).await
        })
        .await
    }

    async fn decide(
        &self,
        by: &Actor,
        row: &RegistrationRow,
        state: RegistrationState,
    ) -> Result<(), EngineError> {
        let store = &self.machine.store;
        let (name, now) = (&self.name, unix_ms());
        let decided = store.decide_registration(name, &row.id, state, by.name(), now);
        match decided.await? {
            true => Ok(()),
            false => Err(AdminError::RegistrationDecided { id: row.id.clone() }.into()),
        }
    }
}

/// Returns whether a grant opens every tool of every server, however it is spelled.
fn is_everything(grant: &Grant) -> bool {
    is_any(grant.server()) && is_all_items(grant)
}

/// Returns whether a grant opens every tool of the servers that it is for.
fn is_all_items(grant: &Grant) -> bool {
    let item = grant.item();
    grant.effect() != Effect::Deny && is_any(item.strip_prefix("tool:").unwrap_or(item))
}

/// Returns whether a pattern stands for every name.
fn is_any(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|letter| letter == b'*')
}

fn shown(id: &str) -> String {
    id.chars().take(48).flat_map(char::escape_debug).collect()
}
