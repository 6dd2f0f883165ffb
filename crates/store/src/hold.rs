//! Legal holds: what of the audit is kept whatever its age, and not erased. Nothing here knows SQL.

use crate::call::CallRow;

/// One hold. What is `None` does not matter; all that is said must hold of a call for it to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRow {
    /// Its id.
    pub id: String,
    /// Whose calls.
    pub project: String,
    /// Only calls of this agent.
    pub agent: Option<String>,
    /// Only calls on behalf of this user.
    pub user: Option<String>,
    /// Only calls to this server.
    pub server: Option<String>,
    /// Only calls that came in at this time or later.
    pub since_ms: Option<u64>,
    /// Only calls that came in before this time.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: String,
    /// When it was placed.
    pub created_ms: u64,
    /// By whom.
    pub created_by: String,
    /// When it was released; none while it holds.
    pub released_ms: Option<u64>,
    /// By whom.
    pub released_by: Option<String>,
}

impl HoldRow {
    /// Tells whether the hold keeps a call.
    pub fn keeps(&self, call: &CallRow) -> bool {
        let agrees = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.released_ms.is_none()
            && self.project == call.project
            && agrees(&self.agent, Some(&call.agent))
            && agrees(&self.user, call.user.as_deref())
            && agrees(&self.server, Some(&call.server))
            && self.since_ms.is_none_or(|since| call.started_ms >= since)
            && self.until_ms.is_none_or(|until| call.started_ms < until)
    }
}
