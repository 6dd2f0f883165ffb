//! Runs the project's hooks on a request before it is sent, and on a result before it is returned.
//! Replacements are checked like the originals. Entry points: [`Router::hooked_request`],
//! [`Router::hooked_result`] and [`Router::hooked_error`].

use std::borrow::Cow;

use bytes::Bytes;
use gantry_model::era::shape;
use gantry_model::hook::{HookInput, HookPoint};
use gantry_model::jsonrpc::{Edit, Raw, RawBuf};
use gantry_model::mcp::Method;

use super::answer::hide;
use super::target::Target;
use super::{Call, Router};
use crate::answers::AnswerPermit;
use crate::error::CallError;
use crate::request::Reply;
use crate::server::handshake::readable;

/// The methods that hooks see: those that use an item of a server.
const SEEN: [Method; 4] = [
    Method::ToolsCall,
    Method::PromptsGet,
    Method::ResourcesRead,
    Method::CompletionComplete,
];

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
        match self.ask_hooks(target, &input).await? {
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
        match self.ask_hooks(target, &input).await? {
            None => Ok(reply),
            Some(new) => {
                let reply = reply.replaced(&new).check(target, call.measured).await?;
                Ok(reply.clean(target).redact(target))
            }
        }
    }

    /// Returns the failure of a call: unchanged, or as replaced by a hook. Hooks see the error of a
    /// server like a result that reports one: it is another way to pass on the same.
    pub(super) async fn hooked_error(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        error: CallError,
    ) -> CallError {
        let mut error = hide(error, &target.redactor());
        let CallError::Rpc {
            code,
            message,
            data,
            ..
        } = &mut error
        else {
            return error;
        };
        if !is_seen(call) {
            return error;
        }
        let id = call.id.to_string();
        let shown = error_result(*code, message, data.as_deref());
        let mut input = input(call, target, &id, HookPoint::Result);
        input.result = Some(shown.as_raw());
        match self.ask_hooks(target, &input).await {
            Ok(None) => {}
            Ok(Some(new)) => (*message, *data) = (first_text(new.as_raw()), None),
            Err(refused) => return refused,
        }
        error
    }

    async fn ask_hooks(
        &self,
        target: &Target<'_>,
        input: &HookInput<'_>,
    ) -> Result<Option<RawBuf>, CallError> {
        self.unless_suspended(target, self.hooks.ask(input)).await
    }
}

/// Returns the error of a server as a result.
fn error_result(code: i64, message: &str, data: Option<&str>) -> RawBuf {
    let mut error = Edit::new(Raw::EMPTY_OBJECT);
    error.set_buf("code", RawBuf::integer(code));
    error.set_buf("message", RawBuf::string(message));
    if let Some(data) = data {
        error.set("data", Raw::known(data));
    }
    let block = format!(
        "[{{\"type\":\"text\",\"text\":{}}}]",
        RawBuf::string(message).text()
    );
    let mut result = Edit::new(Raw::EMPTY_OBJECT);
    result.set_buf("content", RawBuf::trusted(block));
    result.set("isError", Raw::TRUE);
    result.set_buf("error", error.to_buf());
    result.to_buf()
}

/// Returns the first text of a result, which stands for the message of an error.
fn first_text(result: Raw<'_>) -> String {
    let mut blocks = result.get("content").into_iter().flat_map(Raw::items);
    let text = blocks.find_map(|block| block.get("text")?.string());
    text.map_or_else(|| "replaced by a hook".to_owned(), Cow::into_owned)
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
        arguments: target.arguments(),
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
