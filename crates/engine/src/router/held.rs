//! Holds a call that its caller may make only with an approval, until an approver has allowed it. The approval
//! is for the version of the tool and the arguments that were shown, once. Entry point:
//! [`Router::approved`].

use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::grant::Decision;
use gantry_model::jsonrpc::{Raw, RawBuf};
use tokio::time::Instant;

use super::target::Target;
use super::{Call, Router};
use crate::approvals::{HeldCall, arguments_hash, until_ms};
use crate::clock::unix_ms;
use crate::error::CallError;
use crate::request::{CallEvent, Client};

/// How much of the arguments an approver is shown.
const LONGEST_SHOWN: usize = 16 << 10;

impl Router {
    /// Waits for an approver, since a grant asks for one; returns how long that took. The call is on record by
    /// now, its grant, size and schema are checked, and nothing was sent.
    pub(super) async fn approved(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        decision: &Decision<'_>,
    ) -> Result<Duration, CallError> {
        let begun = Instant::now();
        let within = self.approvals.policy().timeout.0;
        let (server, caller) = (target.server_name(), call.caller);
        let arguments = target.arguments.map_or("{}", Raw::text);
        let shown = target.redactor().redact_json(arguments).into_owned();
        let end = shown.floor_char_boundary(LONGEST_SHOWN);
        let held = HeldCall {
            call: call.id,
            agent: caller.agent.clone(),
            key: caller.key,
            user: call.request.context.user.as_deref().map(str::to_owned),
            server: server.clone(),
            item: target.item.to_string(),
            method: call.request.method.to_owned(),
            tool_version: target.schema_version().map(str::to_owned),
            arguments: shown[..end].to_owned(),
            arguments_bytes: arguments.len(),
            arguments_hash: arguments_hash(arguments),
            grant: decision.grant_id().map(|grant| grant.to_string()),
            since_ms: unix_ms(),
            until_ms: until_ms(within),
        };
        let what = format!(
            "call {} of agent `{}` to `{}` waits for an approver",
            call.id, caller.agent, target.item
        );
        let waiting = self.approvals.hold(held, within, || {
            self.events.report(&server, EventKind::ApprovalAsked, what);
            if let Some(client) = call.client.as_deref() {
                tell(client);
            }
        });
        waiting.await?;
        self.is_as_approved(call, target)?;
        Ok(begun.elapsed())
    }

    /// Refuses an approved call whose tool is another by now, or is not there any more.
    fn is_as_approved(&self, call: &Call<'_>, target: &Target<'_>) -> Result<(), CallError> {
        self.suspended.check(&target.server_name(), &target.item)?;
        target.check_approved(&self.pins)?;
        let Some(tool) = target.tool() else {
            return Ok(());
        };
        let now = self.target(call.caller, call.request, call.method)?;
        let is_same = now.tool().is_none_or(|now| now.hash == tool.hash);
        match is_same {
            true => Ok(()),
            false => Err(CallError::ApprovalStale {
                server: target.server_name(),
                item: target.item.to_string(),
            }),
        }
    }
}

/// Tells a client that asked for progress why its call takes long.
fn tell(client: &Client) {
    let Some(token) = &client.progress_token else {
        return;
    };
    let message = RawBuf::string("waiting for an approver");
    let params = format!(
        "{{\"progressToken\":{token},\"progress\":0,\"message\":{}}}",
        message.text()
    );
    // One that does not fit is not missed: the call is held all the same.
    drop(client.events.try_send(CallEvent::Progress(params.into())));
}
