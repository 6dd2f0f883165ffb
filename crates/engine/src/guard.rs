//! Decides whether a call may be made and whether its result may be passed on.
//!
//! The order is fixed: the grant, then the arguments against the tool's schema. Sizes are bounded
//! before a message is parsed, and there is no rate limit unless one is set. It refuses and never
//! records: an answer and an audit row are the router's business.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::grant::{MethodClass, Verdict};
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::Raw;
use gantry_model::mcp::{CallResult, ResultType};

use crate::error::{CallError, Full, Issue};
use crate::schema::{Permits, SchemaMismatch};
use crate::tool::Tool;

/// Judges a call before anything is sent. `item` is the server's own name for what is used; an
/// empty one asks for the whole class, as a list does. A tool comes with its server's permits for
/// heavy checks.
pub(crate) async fn judge(
    caller: &Caller,
    class: MethodClass,
    server: &ServerName,
    item: &str,
    tool: Option<(&Arc<Tool>, &Permits)>,
    arguments: Option<Raw<'_>>,
) -> Result<(), CallError> {
    let asked = Some(item).filter(|item| !item.is_empty());
    if caller.grants.check(class, server, asked) == Verdict::Unbound {
        return Err(CallError::Unbound {
            agent: caller.agent.to_string(),
            server: server.clone(),
            item: item.to_owned(),
        });
    }
    match tool {
        Some((tool, permits)) => match tool.check_arguments(arguments, permits).await {
            Ok(()) => Ok(()),
            Err(SchemaMismatch::Issues(issues)) => Err(CallError::Arguments {
                tool: item.to_owned(),
                issues,
            }),
            Err(SchemaMismatch::Busy) => Err(CallError::Busy {
                server: server.clone(),
                full: Full::Checks(Permits::AT_ONCE),
                retry_after: Duration::from_secs(1),
            }),
        },
        None => Ok(()),
    }
}

/// Checks a result against what the tool promises; a tool that reports a failure promises nothing.
pub(crate) async fn check_output(
    (tool, permits): (&Arc<Tool>, &Permits),
    result: Raw<'_>,
    is_error: bool,
) -> Result<(), Vec<Issue>> {
    if is_error || !tool.has_output() {
        return Ok(());
    }
    let whole = |message: String| {
        vec![Issue {
            path: String::new(),
            message,
        }]
    };
    let view = CallResult::read(result).map_err(|error| whole(error.to_string()))?;
    match view.structured_content {
        _ if view.result_type != ResultType::Complete => Ok(()),
        Some(content) => match tool.check_result(content, permits).await {
            Ok(()) => Ok(()),
            Err(SchemaMismatch::Issues(issues)) => Err(issues),
            // The call was made, so that nobody may be told to try again.
            Err(SchemaMismatch::Busy) => Err(whole("it could not be checked in time".into())),
        },
        None => Err(whole(
            "`structuredContent` is missing, which the output schema demands".into(),
        )),
    }
}

#[cfg(test)]
mod tests;
