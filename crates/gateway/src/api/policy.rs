//! `/api/v1/policy/test`, for administrators: tries a change of grants on the recorded calls and
//! returns which decisions would differ. Nothing is changed.

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use gantry_engine::{AdminError, EngineError, PolicyChange, PolicyReport, TestedCall};
use gantry_model::id::GrantId;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::grants::GrantBody;
use super::views::{now_ms, rfc3339};
use super::{Api, In};
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// The maximum number of calls per test.
const MOST_CALLS: u32 = 20_000;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/policy/test", post(test))
}

/// A change of grants, and the calls to try it on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyTestBody {
    /// Grants that come in.
    #[serde(default)]
    add: Vec<GrantBody>,
    /// The ids of grants that go.
    #[serde(default)]
    remove: Vec<String>,
    /// These in place of all grants that there are.
    grants: Option<Vec<GrantBody>>,
    /// How many of the newest calls are tried.
    #[serde(default = "last")]
    #[schema(minimum = 1, maximum = 20000, default = 1000)]
    last: u32,
    /// Only calls of so many last days.
    #[schema(minimum = 0, format = "uint32")]
    since_days: Option<u32>,
}

fn last() -> u32 {
    1000
}

/// What the changed policy makes of the calls.
#[derive(Serialize, ToSchema)]
pub(super) struct PolicyTestView {
    /// How many calls were tried.
    calls: u64,
    /// How many would be decided as they were.
    same: u64,
    /// How many would be decided otherwise.
    differ: u64,
    /// How many cannot be decided, since conditions need arguments that are not on record.
    undecided: u64,
    /// How many were for nothing that grants are about, such as tools that there were not.
    not_judged: u64,
    /// Those that differ or are undecided, newest first; at most 1000.
    items: Vec<TestedCallView>,
}

/// A call that would be decided otherwise, or cannot be decided.
#[derive(Serialize, ToSchema)]
pub(super) struct TestedCallView {
    /// The id of the call.
    call: String,
    /// When it came in.
    started: String,
    /// The same, in milliseconds since 1970.
    started_ms: u64,
    /// Who made it.
    agent: String,
    /// For which server.
    server: String,
    /// For which tool, prompt or resource.
    item: String,
    /// What was decided: `allow`, `ask` or `deny`.
    recorded: &'static str,
    /// What would be decided: `allow`, `ask`, `deny` or `undecided`.
    decision: &'static str,
    /// The grant that would decide, or why that is unknown.
    why: String,
}

impl PolicyTestView {
    fn of(report: PolicyReport) -> Self {
        Self {
            calls: report.calls,
            same: report.same,
            differ: report.differ,
            undecided: report.undecided,
            not_judged: report.not_judged,
            items: report.items.into_iter().map(TestedCallView::of).collect(),
        }
    }
}

impl TestedCallView {
    fn of(tested: TestedCall) -> Self {
        Self {
            call: tested.call.to_string(),
            started: rfc3339(tested.started_ms),
            started_ms: tested.started_ms,
            agent: tested.agent,
            server: tested.server,
            item: tested.item,
            recorded: tested.recorded,
            decision: tested.decision,
            why: tested.why,
        }
    }
}

/// Tries a change of grants on recorded calls. Calls whose arguments were cut, hashed or not kept are
/// undecided where a condition needs them.
#[utoipa::path(post, path = "/api/v1/policy/test", tag = "grants", request_body = PolicyTestBody, responses(
    (status = 200, description = "Which decisions would differ.", body = PolicyTestView),
    (status = 404, description = "`agent.unknown`, `key.unknown`, `grant.unknown` or `group.unknown`."),
    (status = 422, description = "A grant is not valid, or `request.body`."),
))]
pub(super) async fn test(In(project): In, body: JsonBody) -> Result<Response, Problem> {
    let body: PolicyTestBody = body.read()?;
    if !(1..=MOST_CALLS).contains(&body.last) {
        let message = format!("between 1 and {MOST_CALLS} calls can be tried");
        return Err(Problem::new("request.body")
            .with_detail(message.clone())
            .with_issues(vec![FieldIssue {
                path: "/last".to_owned(),
                message,
            }]));
    }
    let known = project.grants().await?;
    let mut change = PolicyChange {
        replace: body.grants.is_some(),
        ..PolicyChange::default()
    };
    for grant in body.grants.into_iter().flatten().chain(body.add) {
        change.add.push(grant.read()?);
    }
    for text in body.remove {
        let id: Option<GrantId> = text.parse().ok();
        match id.filter(|id| known.iter().any(|grant| grant.id == *id)) {
            Some(id) => change.remove.push(id),
            None => {
                let unknown = AdminError::UnknownGrant { id: shown(&text) };
                return Err(EngineError::from(unknown).into());
            }
        }
    }
    let since_ms = body
        .since_days
        .map(|days| now_ms().saturating_sub(u64::from(days) * DAY_MS));
    let report = project.test_policy(change, since_ms, body.last).await?;
    Ok(json(StatusCode::OK, &PolicyTestView::of(report)))
}
