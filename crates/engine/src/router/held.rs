//! Holds a call that its caller may make only with an approval, until an approver has allowed it.
//! The approval is for the version of the tool and the arguments that were shown, once, and only
//! while the caller's grants let it call at all. If the project wants it, the person at the
//! caller's client is asked as well. Entry point: [`Router::approved`].

use std::pin::pin;
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::grant::Decision;
use gantry_model::hidden;
use gantry_model::jsonrpc::{Raw, RawBuf, minify};
use gantry_model::mcp::Method;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::target::{NameLocation, Target};
use super::{Call, Router};
use crate::approvals::{ApproverDecision, HeldCall, arguments_hash, until_ms};
use crate::clock::unix_ms;
use crate::error::CallError;
use crate::guard;
use crate::request::{
    CallEvent, Client, ClientResponse, RequestLifetime, RequestOutcome, ServerRequest,
    ServerRequests,
};

/// How much of the arguments an approver is shown.
const LONGEST_SHOWN: usize = 16 << 10;
/// How much of the arguments a client's person is shown.
const LONGEST_ASKED: usize = 2 << 10;
/// Ends arguments that are cut.
const CUT: &str = " …";
/// The name of the question to a client, and of its answer.
const ALLOW: &str = "allow";

impl Router {
    /// Waits for an approver, since a grant asks for one. The call is on record by now, its grant,
    /// size and schema are checked, and nothing was sent. The time it waits does not count for it.
    pub(super) async fn approved(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        decision: &Decision<'_>,
    ) -> Result<(), CallError> {
        let begun = Instant::now();
        let within = self.approvals.policy().timeout.0;
        let held = held_call(call, target, decision, within);
        let holding = self.approvals.hold(held.clone(), within, || {
            self.report(&held, EventKind::ApprovalAsked, "waits for an approver");
            if let Some(client) = call.client.as_deref() {
                tell(client);
            }
        });
        let deciding = async {
            let (mut holding, asking) =
                (pin!(holding), pin!(self.asked_client(call, &held, within)));
            tokio::select! {
                biased; // Nobody can decide any more, an approver has decided, its client has.
                () = self.draining.cancelled() => Err(CallError::Stopping),
                decided = &mut holding => decided,
                said = asking => {
                    self.decide_by_client(&held, said);
                    holding.await
                }
            }
        };
        self.unless_suspended(target, deciding).await?;
        // It is held once.
        call.held.set(begun.elapsed()).ok();
        self.check_current(call, target)
    }

    /// Refuses a call that waited, for a server or an approver, if what it was checked against is
    /// another by now.
    pub(super) fn check_current(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
    ) -> Result<(), CallError> {
        if let NameLocation::Server(server) = &target.place {
            target.check_listed(&self.pins, server)?;
        }
        match call.held.get() {
            Some(_) => self.check_approval(call, target),
            None => Ok(()),
        }
    }

    /// Refuses an approved call whose caller may not make it any more, or whose tool is another by
    /// now.
    fn check_approval(&self, call: &Call<'_>, target: &Target<'_>) -> Result<(), CallError> {
        self.suspended.check(&target.server_name(), &target.item)?;
        let caller = self.access.regranted(call.caller);
        let decision = target.decide(&caller);
        guard::permit(&caller, &decision, &target.server_name(), &target.item)?;
        let Some(tool) = target.tool() else {
            return Ok(());
        };
        let now = self.target(&caller, call.request, call.method)?;
        match now.tool().is_some_and(|now| now.hash == tool.hash) {
            true => Ok(()),
            false => Err(CallError::ApprovalStale {
                server: target.server_name(),
                item: target.item.to_string(),
            }),
        }
    }

    /// Asks the person at the caller's client, if the project lets them decide and the client can
    /// show a form; ends with a decision only.
    async fn asked_client(
        &self,
        call: &Call<'_>,
        held: &HeldCall,
        within: Duration,
    ) -> ApproverDecision {
        let client = call.client.as_deref();
        let client = client.filter(|client| client.capabilities.elicit_form);
        let said = match client.filter(|_| self.approvals.policy().ask_client) {
            Some(client) => ask(client, held, within).await,
            None => None,
        };
        match said {
            Some(allowed) => ApproverDecision {
                allowed,
                by: format!("the client of agent `{}`", held.agent),
                reason: String::new(),
            },
            // It is left to the approvers.
            None => std::future::pending().await,
        }
    }

    /// Takes over what a client has said, unless an approver was faster.
    fn decide_by_client(&self, held: &HeldCall, said: ApproverDecision) {
        let what = match said.allowed {
            true => "was allowed by its client",
            false => "was refused by its client",
        };
        if self.approvals.decide(held.call, said).is_ok() {
            self.report(held, EventKind::ApprovalDecided, what);
        }
    }

    fn report(&self, held: &HeldCall, kind: EventKind, what: &str) {
        let HeldCall {
            call, agent, item, ..
        } = held;
        let what = format!("call {call} of agent `{agent}` to `{item}` {what}");
        self.events.report(&held.server, kind, what);
    }
}

/// Describes a call for who decides on it.
fn held_call(
    call: &Call<'_>,
    target: &Target<'_>,
    decision: &Decision<'_>,
    within: Duration,
) -> HeldCall {
    let arguments = target.arguments().map_or("{}", Raw::text);
    let shown = target.redactor().redact_json(arguments).into_owned();
    let shown = hidden::escape_json(&minify(&shown));
    HeldCall {
        call: call.id,
        agent: call.caller.agent.clone(),
        key: call.caller.key,
        user: call.request.context.user.as_deref().map(str::to_owned),
        server: target.server_name(),
        item: target.item.to_string(),
        method: call.request.method.to_owned(),
        tool_version: target.schema_version().map(str::to_owned),
        arguments: beginning(&shown, LONGEST_SHOWN),
        arguments_bytes: arguments.len(),
        arguments_hash: arguments_hash(arguments),
        grant: decision.grant_id().map(|grant| grant.to_string()),
        since_ms: unix_ms(),
        until_ms: until_ms(within),
    }
}

/// Returns the beginning of a text, which says if that is not all of it. How long the arguments are
/// does not tell: escapes make what is shown of them longer.
fn beginning(text: &str, longest: usize) -> String {
    match text.len() <= longest {
        true => text.to_owned(),
        false => format!(
            "{}{CUT}",
            &text[..text.floor_char_boundary(longest - CUT.len())]
        ),
    }
}

/// Asks a client; nothing if it does not say.
async fn ask(client: &Client, held: &HeldCall, within: Duration) -> Option<bool> {
    let HeldCall {
        agent,
        server,
        item,
        arguments,
        ..
    } = held;
    let message = format!(
        "Agent `{agent}` asks to use `{server}:{}` with {}",
        hidden::shown(item),
        beginning(arguments, LONGEST_ASKED)
    );
    let params = json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {ALLOW: {"type": "boolean", "title": "Allow this call, once"}},
            "required": [ALLOW],
        },
    });
    let (answer, answered) = oneshot::channel();
    let event = CallEvent::Requests(ServerRequests {
        requests: vec![ServerRequest {
            key: "approval".into(),
            method: Method::ElicitationCreate,
            params: RawBuf::serialize(&params).ok(),
        }],
        until: Instant::now() + within,
        answer,
        lifetime: RequestLifetime::Call,
    });
    client.events.send(event).await.ok()?;
    match answered.await.ok()? {
        RequestOutcome::Answered(responses) => said(responses.first()?),
        RequestOutcome::TooMany { .. } | RequestOutcome::TooMuch(_) => None,
    }
}

/// Reads whether a client allows a call. One that dismisses the question or fails says nothing.
fn said(response: &ClientResponse) -> Option<bool> {
    let result = response.outcome.as_ref().ok()?.as_raw();
    match result.get("action")?.string()?.as_ref() {
        "accept" => result.get("content")?.get(ALLOW)?.boolean(),
        "decline" => Some(false),
        _ => None,
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
