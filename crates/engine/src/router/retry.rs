//! Whether a call that was cut off is made once more: only for tools that an administrator declared
//! idempotent, and only within the server's budget. row 3.4, fault H13

use crate::error::CallError;
use crate::server::handle::ServerHandle;

/// Tells whether a call that ended like this is retried.
pub(super) fn is_retried(server: &ServerHandle, tool: &str, error: &CallError) -> bool {
    let settings = server.spec.tools.settings.get(tool);
    settings.is_some_and(|settings| settings.idempotent)
        && was_cut_off(error)
        && server.retries.spend()
}

/// Tells whether nothing is known of what became of a call, or the server failed before it.
fn was_cut_off(error: &CallError) -> bool {
    if let CallError::Remote { error, .. } = error {
        return error.is_worth_a_retry();
    }
    matches!(error, CallError::Exited { .. })
}
