//! Which recorded calls are meant: the flags that `gantry calls` and `gantry audit export` share,
//! and the query that says the same to the API.

use clap::Args;

use super::client::segment;
use super::format::moment;

/// How a call may have ended.
const STATES: [&str; 7] = [
    "ok",
    "error",
    "timeout",
    "cancelled",
    "refused",
    "unknown",
    "running",
];

/// Whose error may have ended a call.
const ERROR_KINDS: [&str; 7] = [
    "transport",
    "json_rpc",
    "tool",
    "schema",
    "policy",
    "caller",
    "gateway",
];

/// The filter of calls.
#[derive(Debug, Args)]
pub(super) struct CallFilters {
    /// Only calls to this server
    #[arg(long)]
    pub(super) server: Option<String>,
    /// Only calls of this tool
    #[arg(long)]
    pub(super) tool: Option<String>,
    /// Only calls with this status
    #[arg(long, value_parser = STATES)]
    status: Option<String>,
    /// Only calls with this error code, such as `schema.input`
    #[arg(long)]
    code: Option<String>,
    /// Only calls of this agent
    #[arg(long)]
    pub(super) agent: Option<String>,
    /// Only calls of this run
    #[arg(long)]
    run: Option<String>,
    /// Only calls of this session
    #[arg(long)]
    session: Option<String>,
    /// Only calls of this trace
    #[arg(long)]
    trace: Option<String>,
    /// Only calls on behalf of this user
    #[arg(long)]
    user: Option<String>,
    /// Only calls that failed like this
    #[arg(long, value_name = "KIND", value_parser = ERROR_KINDS)]
    error_kind: Option<String>,
    /// Only calls since a time (`2026-01-31T12:00:00Z`) or within a period (`10m`)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since: Option<u64>,
    /// Only calls until a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
}

impl CallFilters {
    /// Returns the filter as further parameters of a query, each after an `&`; `since` takes the
    /// place of the flag.
    pub(super) fn query(&self, since: Option<u64>) -> String {
        let filters = [
            ("server", self.server.clone()),
            ("tool", self.tool.clone()),
            ("status", self.status.clone()),
            ("code", self.code.clone()),
            ("agent", self.agent.clone()),
            ("run", self.run.clone()),
            ("session", self.session.clone()),
            ("trace", self.trace.clone()),
            ("user", self.user.clone()),
            ("error_kind", self.error_kind.clone()),
            ("since", since.map(|ms| ms.to_string())),
            ("until", self.until.map(|ms| ms.to_string())),
        ];
        let given = filters
            .into_iter()
            .filter_map(|(name, value)| Some(format!("&{name}={}", segment(&value?))));
        given.collect()
    }
}
