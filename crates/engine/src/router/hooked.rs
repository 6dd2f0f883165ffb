//! Runs the project's hooks on a request before it is sent, and on a result before it is returned.
//! Replacements are checked like the originals. Entry points: [`Router::hooked_request`] and
//! [`Router::hooked_result`].

use bytes::Bytes;
use gantry_model::era::shape;
use gantry_model::hook::{HookInput, HookPoint};
use gantry_model::jsonrpc::RawBuf;
use gantry_model::mcp::Method;

use super::target::Target;
use super::{Call, Router};
use crate::answers::AnswerPermit;
use crate::error::CallError;
use crate::request::Reply;
use crate::server::handshake::readable;

/// The methods that hooks see: those that use an item of a server.
const SEEN: [Method; 3] = [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead];

impl Router {
    /// Returns the replaced arguments, if a hook replaced them.
    pub(super) async fn hooked_request(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
    ) -> Result<Option<RawBuf>, CallError> {
        if !is_seen(call) {
            return Ok(None);
        }
        let id = call.id.to_string();
        let input = input(call, target, &id, HookPoint::Request);
        let replaced = self.hooks.ask(&input).await?;
        match replaced {
            // The params of other requests contain their address, so they cannot be replaced.
            Some(_) if call.method != Some(Method::ToolsCall) => Err(CallError::HookFailed {
                hook: "request".to_owned(),
                point: HookPoint::Request,
                why: "only the arguments of tools can be replaced".to_owned(),
            }),
            replaced => Ok(replaced),
        }
    }

    /// Returns the result: unchanged, or as replaced by a hook.
    pub(super) async fn hooked_result(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        reply: Reply,
    ) -> Result<Reply, CallError> {
        if !is_seen(call) {
            return Ok(reply);
        }
        let id = call.id.to_string();
        let mut input = input(call, target, &id, HookPoint::Result);
        input.result = Some(readable(&reply.result));
        match self.hooks.ask(&input).await? {
            None => Ok(reply),
            Some(new) => {
                let reply = reply.replaced(&new).check(target, call.measured).await?;
                Ok(reply.clean(target).redact(target))
            }
        }
    }
}

fn is_seen(call: &Call<'_>) -> bool {
    call.method.is_some_and(|method| SEEN.contains(&method))
}

fn input<'i>(
    call: &'i Call<'_>,
    target: &'i Target<'_>,
    id: &'i str,
    point: HookPoint,
) -> HookInput<'i> {
    HookInput {
        hook: "",
        point,
        call: id,
        project: call.caller.project.as_str(),
        agent: call.caller.agent.as_str(),
        user: call.request.context.user.as_deref(),
        method: call.request.method,
        server: target.server_str(),
        item: &target.item,
        arguments: target.arguments,
        result: None,
    }
}

impl Reply {
    /// Returns the reply with another result.
    fn replaced(self, result: &RawBuf) -> Self {
        let (mut is_error, mut is_odd) = (false, false);
        for member in result.as_raw().members() {
            if member.is("isError") {
                is_error = member.value.boolean() == Some(true);
            } else if shape::is_odd_structure(&member) {
                is_odd = true;
            }
        }
        Self {
            result: Bytes::from(result.text().to_owned()),
            is_error,
            is_odd,
            // Acquired again for the new length.
            permit: AnswerPermit::default(),
            ..self
        }
    }
}
