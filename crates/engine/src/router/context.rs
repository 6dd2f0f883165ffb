//! What is passed on to a server about a call: the caller's context and the trace of the call. Entry points:
//! [`pass_context`] and [`pass_trace`].

use gantry_model::caller::{Context, UserTrust};
use gantry_model::era::meta;
use gantry_model::jsonrpc::{Edit, Raw, RawBuf};

use crate::transport::http::TraceHeaders;

/// Adds the caller's context to the params. A user id that is only the agent's claim uses a
/// separate key.
pub(super) fn pass_context(params: &mut Edit<'_>, context: &Context, users: UserTrust) {
    let user_id = match users {
        UserTrust::Asserted => meta::ASSERTED_USER_ID,
        UserTrust::Trusted => meta::USER_ID,
    };
    let parts = [
        (user_id, &context.user),
        (meta::SESSION_ID, &context.session),
        (meta::RUN_ID, &context.run),
        (meta::STEP, &context.step),
    ];
    for (key, value) in parts {
        if let Some(value) = value {
            params.set_meta_buf(key, RawBuf::string(value));
        }
    }
}

/// Passes on the trace that the call belongs to, in place of what the client said of it: the call's own
/// span is above what its server does.
pub(super) fn pass_trace(
    params: &mut Edit<'_>,
    said: Option<Raw<'_>>,
    trace: Option<&TraceHeaders>,
) {
    let parent = trace.map(|trace| RawBuf::string(trace.parent.text().as_str()));
    let state = trace.and_then(|trace| trace.state.as_deref());
    let parts = [
        (meta::TRACE_PARENT, parent),
        (meta::TRACE_STATE, state.map(RawBuf::string)),
    ];
    for (key, value) in parts {
        match value {
            Some(value) => {
                params.set_meta_buf(key, value);
            }
            None if said.is_some_and(|said| said.get(key).is_some()) => {
                params.remove_meta(key);
            }
            None => {}
        }
    }
}
