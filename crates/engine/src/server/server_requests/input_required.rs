//! Results of stateless servers that require input from the client first, and the call that is sent
//! with the responses. Entry points: [`input_required`], [`resume`],
//! `CallForwarder::input_responses`.

use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::jsonrpc::{Edit, Raw, RawBuf};
use gantry_model::mcp::{Params, asking_method};
use tokio::time::sleep;

use super::{CallForwarder, MOST_AT_ONCE, broken, readable_params};
use crate::error::CallError;
use crate::request::ServerRequest;
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;

const INPUT_RESPONSES: &str = "inputResponses";
const REQUEST_STATE: &str = "requestState";

/// The pause before a call is repeated without input, times the round.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The input that a stateless server requires.
pub(crate) struct InputRequired {
    requests: Vec<ServerRequest>,
    state: Option<RawBuf>,
}

/// The responses that are sent with the repeated call.
pub(crate) struct InputResponses {
    responses: RawBuf,
    state: Option<RawBuf>,
}

/// Reads the input that a result requires; `None` if it is another kind of result.
pub(crate) fn input_required(
    result: &Bytes,
    server: &ServerHandle,
) -> Result<Option<InputRequired>, CallError> {
    let result = trusted(result);
    let is_needed = |kind: Raw<'_>| kind.is_string("input_required");
    if !result.get("resultType").is_some_and(is_needed) {
        return Ok(None);
    }
    let (mut requests, mut state) = (Vec::new(), None);
    for member in result.members() {
        if member.is("inputRequests") {
            for request in member.value.members().take(MOST_AT_ONCE + 1) {
                let key = request.key.string().unwrap_or_default();
                let read = read_request(&key, request.value, server);
                let wrong = || broken(server, "it needs something that no client can do");
                requests.push(read.ok_or_else(wrong)?);
            }
        } else if member.is(REQUEST_STATE) {
            state = Some(member.value.to_buf());
        }
    }
    if requests.len() > MOST_AT_ONCE {
        return Err(broken(server, "it needs too much of the client at once"));
    }
    if requests.is_empty() && state.is_none() {
        return Err(broken(server, "it needs something and does not say what"));
    }
    Ok(Some(InputRequired { requests, state }))
}

fn read_request(key: &str, request: Raw<'_>, server: &ServerHandle) -> Option<ServerRequest> {
    let method = request.get("method").and_then(Raw::string)?;
    Some(ServerRequest {
        key: key.into(),
        method: asking_method(&method)?,
        params: request
            .get("params")
            .map(|params| readable_params(params, server)),
    })
}

/// Adds the client's responses to the params, or removes state that the server did not issue.
pub(crate) fn resume<'a>(
    params: &mut Edit<'a>,
    era: Era,
    original: &Params<'a>,
    responses: Option<&'a InputResponses>,
) {
    if let Some(InputResponses { responses, state }) = responses {
        params.set(INPUT_RESPONSES, responses.as_raw());
        match state {
            Some(state) => params.set(REQUEST_STATE, state.as_raw()),
            None => params.remove(REQUEST_STATE),
        };
        return;
    }
    if era == Era::Stateless {
        return;
    }
    if original.input_responses.is_some() {
        params.remove(INPUT_RESPONSES);
    }
    if original.request_state.is_some() {
        params.remove(REQUEST_STATE);
    }
}

impl CallForwarder<'_> {
    /// Forwards the required requests to the client, and returns the responses for the server.
    pub(crate) async fn input_responses(
        &self,
        needed: InputRequired,
        round: u32,
    ) -> Result<InputResponses, CallError> {
        let InputRequired { requests, state } = needed;
        let capabilities = |request: &ServerRequest| {
            let params = request.params.as_ref().map(RawBuf::as_raw);
            self.client
                .capabilities
                .may_be_asked(request.method, params)
        };
        // Fault S15: a client never gets a request that it did not declare to support.
        if !requests.iter().all(capabilities) {
            let undeclared = "it needs something that the client cannot do";
            return Err(broken(self.server, undeclared));
        }
        let answered = match requests.is_empty() {
            true => {
                sleep(RETRY_AFTER * (round + 1)).await;
                Vec::new()
            }
            false => self.forward(requests).await?,
        };
        let mut responses = Edit::new(Raw::EMPTY_OBJECT);
        for response in &answered {
            match &response.outcome {
                Ok(result) => responses.set(&response.key, result.as_raw()),
                // The stateless era has no way to pass on an error.
                Err(error) => return Err(self.declined(error)),
            };
        }
        Ok(InputResponses {
            responses: responses.to_buf(),
            state,
        })
    }
}
