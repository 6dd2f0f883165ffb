//! Legal holds: calls that are neither deleted by age nor erased. Independent of SQL.

use crate::call::CallRow;

/// One hold. It covers the calls that match all of its fields; `None` matches any call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRow {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// Only calls of this agent.
    pub agent: Option<String>,
    /// Only calls on behalf of this user.
    pub user: Option<String>,
    /// Only calls to this server.
    pub server: Option<String>,
    /// Only calls that were received at this time or later.
    pub since_ms: Option<u64>,
    /// Only calls that were received before this time.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: String,
    /// When it was placed.
    pub created_ms: u64,
    /// By whom.
    pub created_by: String,
    /// When it was released; absent while it is active.
    pub released_ms: Option<u64>,
    /// By whom.
    pub released_by: Option<String>,
}

impl HoldRow {
    /// Returns whether the hold covers a call.
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
