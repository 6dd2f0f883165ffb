//! Decides whether a call may be made and whether its result may be passed on.
//!
//! The order is fixed: the grant ([`decide`], [`permit`]), then the arguments against the tool's schema
//! ([`judge`]). A call that a grant asks an approver for passes both and is stopped by [`asks`]. Sizes are
//! bounded before a message is parsed, and there is no rate limit unless one is set. It refuses and never
//! records: an answer and an audit row are the router's business.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::grant::{
    AccessRequest, Arguments, Decision, MethodClass, ReadOnlyHint, Refusal, Verdict,
};
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::Raw;
use gantry_model::mcp::{CallResult, ResultType};
use gantry_store::Check;

use crate::audit::{Measured, Phase};
use crate::error::{CallError, Forbidden, Full, Issue};
use crate::schema::{Permits, SchemaMismatch};
use crate::tool::Tool;

/// Decides by the caller's grants. `item` is the server's own name for what is used; an empty one asks for
/// the whole class, as a list does. A tool that is not known yet is decided on again once it is.
pub(crate) fn decide<'c>(
    caller: &'c Caller,
    class: MethodClass,
    server: &ServerName,
    item: &str,
    tool: Option<&Tool>,
    arguments: Option<Raw<'_>>,
) -> Decision<'c> {
    caller.grants.decide(&AccessRequest {
        class,
        server,
        item: Some(item).filter(|item| !item.is_empty()),
        arguments: Arguments::Given(arguments),
        hint: tool.map_or(ReadOnlyHint::NotKnown, Tool::hint),
    })
}

/// Refuses what the grants do not allow; what they ask an approver for passes.
pub(crate) fn permit(
    caller: &Caller,
    decision: &Decision<'_>,
    server: &ServerName,
    item: &str,
) -> Result<(), CallError> {
    let why = match decision.verdict {
        Verdict::Allow | Verdict::Ask => return Ok(()),
        Verdict::Deny(Refusal::Unbound | Refusal::Hidden) | Verdict::Undecided => {
            return Err(CallError::NotGranted {
                agent: caller.agent.to_string(),
                server: server.clone(),
                item: item.to_owned(),
            });
        }
        Verdict::Deny(Refusal::Denied) => Forbidden::Denied,
        Verdict::Deny(Refusal::Condition) => Forbidden::Arguments,
    };
    Err(forbidden(caller, decision, server, item, why))
}

/// Refuses a call that a grant asks an approver for.
pub(crate) fn asks(
    caller: &Caller,
    decision: &Decision<'_>,
    server: &ServerName,
    item: &str,
) -> Result<(), CallError> {
    match decision.verdict {
        Verdict::Ask => Err(forbidden(
            caller,
            decision,
            server,
            item,
            Forbidden::Approval,
        )),
        Verdict::Allow | Verdict::Deny(_) | Verdict::Undecided => Ok(()),
    }
}

fn forbidden(
    caller: &Caller,
    decision: &Decision<'_>,
    server: &ServerName,
    item: &str,
    why: Forbidden,
) -> CallError {
    CallError::Forbidden {
        agent: caller.agent.to_string(),
        server: server.clone(),
        item: item.to_owned(),
        why,
        grant: decision.grant_id(),
    }
}

/// Judges a call before anything is sent, by what was decided and by the schema of its tool, which comes
/// with its server's permits for heavy checks.
pub(crate) async fn judge(
    caller: &Caller,
    decision: &Decision<'_>,
    server: &ServerName,
    item: &str,
    tool: Option<(&Arc<Tool>, &Permits)>,
    arguments: Option<Raw<'_>>,
    measured: &Measured,
) -> Result<(), CallError> {
    let mut timing = measured.during(Phase::Grant);
    permit(caller, decision, server, item)?;
    let Some((tool, permits)) = tool else {
        measured.input_checked(Check::Skipped);
        return Ok(());
    };
    timing.turn_to(Phase::Schema);
    match tool.check_arguments(arguments, permits).await {
        Ok(()) => {
            measured.input_checked(Check::Passed);
            Ok(())
        }
        Err(SchemaMismatch::Issues(issues)) => {
            measured.input_checked(Check::Failed);
            Err(CallError::Arguments {
                tool: item.to_owned(),
                issues,
            })
        }
        Err(SchemaMismatch::Busy) => Err(CallError::Busy {
            server: server.clone(),
            full: Full::Checks(Permits::AT_ONCE),
            retry_after: Duration::from_secs(1),
        }),
    }
}

/// Checks a result against the tool's output schema; a failure is not checked.
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
            // The call was made, so the caller must not be told to retry.
            Err(SchemaMismatch::Busy) => Err(whole("it could not be checked in time".into())),
        },
        None => Err(whole(
            "`structuredContent` is missing, which the output schema demands".into(),
        )),
    }
}

#[cfg(test)]
mod tests;
