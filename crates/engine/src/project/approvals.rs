//! Calls that wait for an approver: shown, allowed or refused. The decision is an administrative act, on record
//! before the call goes on. Entry points: [`Project::held_calls`] and [`Project::decide_on_call`].

use std::sync::Arc;

use gantry_model::event::EventKind;
use gantry_model::id::CallId;
use serde_json::json;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::approvals::{ApproverDecision, HeldCall};
use crate::error::{AdminError, EngineError};

impl Project {
    /// Returns the calls that wait for an approver at this gateway, the oldest first.
    pub fn held_calls(&self) -> Vec<HeldCall> {
        self.router.approvals.all()
    }

    /// Returns one call that waits. The error says if it is another gateway's to decide on.
    pub async fn held_call(&self, call: &str) -> Result<HeldCall, EngineError> {
        let Ok(id) = call.parse::<CallId>() else {
            return Err(unknown(call).into());
        };
        if let Some(held) = self.router.approvals.one(id) {
            return Ok(held);
        }
        // Without the store nothing is known of other gateways.
        let elsewhere = self.machine.store.runs_elsewhere(&self.name, id).await;
        Err(match elsewhere.ok().flatten() {
            Some(gateway) => AdminError::ApprovalElsewhere {
                id: call.to_owned(),
                gateway,
            },
            None => unknown(call),
        }
        .into())
    }

    /// Allows or refuses a call that waits, once. `looked_at` is the hash of the arguments that were shown.
    pub async fn decide_on_call(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        call: &str,
        allowed: bool,
        reason: &str,
        looked_at: Option<&str>,
    ) -> Result<HeldCall, EngineError> {
        let (by, project, call, reason) = (
            by.into(),
            Arc::clone(self),
            call.to_owned(),
            reason.to_owned(),
        );
        let looked_at = looked_at.map(str::to_owned);
        self.complete(async move {
            let held = project.held_call(&call).await?;
            if looked_at.is_some_and(|hash| hash != held.arguments_hash) {
                return Err(AdminError::ApprovalChanged { id: call }.into());
            }
            let verb = if allowed { "call.allow" } else { "call.refuse" };
            let draft = Draft::new(verb, held.call.to_string()).after(json!({
                "agent": held.agent.as_str(), "tool": format!("{}:{}", held.server, held.item),
                "tool_version": held.tool_version, "arguments_hash": held.arguments_hash,
                "reason": reason,
            }));
            let act = project.acts.begin(&by, draft).await?;
            let decision = ApproverDecision {
                allowed,
                by: by.name().to_owned(),
                reason,
            };
            let decided = project.router.approvals.decide(held.call, decision);
            let decided = decided.map_err(EngineError::from);
            act.end(&decided).await;
            let held = decided?;
            let what = if allowed { "allowed" } else { "refused" };
            let detail = format!(
                "call {} of agent `{}` to `{}` {what} by {}",
                held.call,
                held.agent,
                held.item,
                by.name()
            );
            let events = &project.router.events;
            events.report(&held.server, EventKind::ApprovalDecided, detail);
            Ok(held)
        })
        .await
    }
}

fn unknown(call: &str) -> AdminError {
    AdminError::UnknownApproval {
        id: call.chars().take(64).collect(),
    }
}
