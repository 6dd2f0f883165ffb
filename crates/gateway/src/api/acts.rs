//! Administrative acts, `/api/v1/acts`, for administrators: who did what, from where, the state
//! before and after, and the outcome, including refused attempts. Read only, except for confirming
//! the clock (`/api/v1/audit/confirm-clock`).

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::{ActFilter, ActOutcome, ActRow};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::body::json;
use super::calls::time;
use super::query::{Asked, Page, bad_cursor, limit};
use super::views::rfc3339;
use super::{Api, By, In};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/acts", get(list))
        .route("/api/v1/audit/confirm-clock", post(confirm_clock))
}

/// The filter of acts.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ActsAsked {
    /// Only acts of this name, such as `agent.change`; `agent.*` for a prefix.
    act: Option<String>,
    /// Only acts on this: a server, an agent, a key's id, a file.
    target: Option<String>,
    /// Only acts of this key, by its id.
    // `key` is not allowed in any query.
    key_id: Option<String>,
    /// Only acts of this actor: an agent's name, `gateway`, `configuration files`.
    actor: Option<String>,
    /// Only acts from this address.
    address: Option<String>,
    /// Only acts over this interface.
    #[param(inline)]
    via: Option<Via>,
    /// Only acts with this outcome.
    #[param(inline)]
    outcome: Option<Outcome>,
    /// Only acts that started at or after this time: RFC 3339, or milliseconds since 1970.
    #[serde(alias = "since_ms")]
    since: Option<String>,
    /// Only acts that started before this time: RFC 3339, or milliseconds since 1970.
    #[serde(alias = "until_ms")]
    until: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// The interface of an act.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Via {
    /// The REST API, which the command line uses too.
    Rest,
    /// A configuration file, or an approval of one.
    File,
    /// The gateway itself.
    Gateway,
    /// A program that embeds the engine.
    Library,
}

impl Via {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::File => "file",
            Self::Gateway => "gateway",
            Self::Library => "library",
        }
    }
}

/// The outcome of an act.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// It is in progress, or was interrupted.
    Unfinished,
    /// It was done.
    Done,
    /// It was refused; `code` says why.
    Refused,
    /// It failed; `code` says why.
    Failed,
}

impl From<Outcome> for ActOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Unfinished => Self::Unfinished,
            Outcome::Done => Self::Done,
            Outcome::Refused => Self::Refused,
            Outcome::Failed => Self::Failed,
        }
    }
}

impl From<ActOutcome> for Outcome {
    fn from(outcome: ActOutcome) -> Self {
        match outcome {
            ActOutcome::Unfinished => Self::Unfinished,
            ActOutcome::Done => Self::Done,
            ActOutcome::Refused => Self::Refused,
            ActOutcome::Failed => Self::Failed,
        }
    }
}

/// An administrative act.
#[derive(Serialize, ToSchema)]
pub(super) struct ActView {
    /// Its number; later acts have higher ones.
    id: u64,
    /// When it began.
    at: String,
    /// The same, in milliseconds since 1970.
    at_ms: u64,
    /// When it ended; absent while unfinished.
    ended_ms: Option<u64>,
    /// What was done.
    #[schema(example = "agent.change")]
    act: String,
    /// To what.
    #[schema(example = "reviewer")]
    target: String,
    outcome: Outcome,
    /// Why it was refused or failed.
    code: Option<String>,
    /// The id of the key; absent if none was used.
    key: Option<String>,
    /// Who did it: the key's agent, `gateway`, or `configuration files`.
    actor: String,
    /// The address it came from, possibly a proxy's.
    address: Option<String>,
    /// The interface: `rest`, `file`, `gateway` or `library`.
    via: String,
    /// Details; may be empty.
    detail: String,
    /// The state before; secrets are fingerprints.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// The state after, or the requested one; secrets are fingerprints.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
    /// How many repetitions this row counts: refused attempts of one key within a minute.
    repeats: u64,
}

impl ActView {
    fn of(row: ActRow) -> Self {
        let value = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        Self {
            id: row.id,
            at: rfc3339(row.at_ms),
            at_ms: row.at_ms,
            ended_ms: row.ended_ms,
            act: row.act,
            target: row.target,
            outcome: row.outcome.into(),
            code: row.code,
            key: Some(row.key).filter(|key| !key.is_empty()),
            actor: row.actor,
            address: row.address,
            via: row.via,
            detail: row.detail,
            before: value(row.before),
            after: value(row.after),
            repeats: row.repeats,
        }
    }
}

/// Lists administrative acts and refused attempts, newest first.
#[utoipa::path(get, path = "/api/v1/acts", tag = "acts", params(ActsAsked), responses(
    (status = 200, description = "The acts.", body = Page<ActView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<ActsAsked>,
) -> Result<Response, Problem> {
    let before = asked.cursor.as_deref();
    let before = before.map(|text| text.parse().map_err(|_| bad_cursor(text)));
    let filter = ActFilter {
        project: None,
        act: asked.act,
        target: asked.target,
        key: asked.key_id,
        actor: asked.actor,
        address: asked.address,
        via: asked.via.map(|via| via.as_str().to_owned()),
        outcome: asked.outcome.map(Into::into),
        gateway: None,
        since_ms: asked.since.map(|text| time("since", &text)).transpose()?,
        until_ms: asked.until.map(|text| time("until", &text)).transpose()?,
        before: before.transpose()?,
        limit: limit(asked.limit, 100)?,
    };
    let rows = project.acts(&filter).await?;
    let is_full = rows.len() >= filter.limit as usize;
    let last = rows.last().filter(|_| is_full);
    let next_cursor = last.map(|row| row.id.to_string());
    let items = rows.into_iter().map(ActView::of).collect();
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Confirms that the clock is right although it is far ahead of the last record: calls older than
/// the retention period are deleted again.
#[utoipa::path(post, path = "/api/v1/audit/confirm-clock", tag = "acts", responses(
    (status = 204, description = "The clock is confirmed."),
))]
pub(super) async fn confirm_clock(
    State(api): State<Api>,
    By(actor): By,
) -> Result<Response, Problem> {
    api.engine().confirm_clock(&actor).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
