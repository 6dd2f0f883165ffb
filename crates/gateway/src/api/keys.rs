//! Keys: `/api/v1/keys`. A key's text is shown once, when it is made.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use gantry_engine::EngineError;
use gantry_model::caller::KeyKind;
use gantry_model::id::{AgentName, KeyId};
use http::StatusCode;
use serde::Deserialize;

use super::body::{JsonBody, json};
use super::views::{KeyMade, KeyView, Page};
use super::{Api, Named, Who};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/keys", get(list).post(create))
        .route("/api/v1/keys/{key}", delete(revoke))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    kind: Kind,
    agent: Option<String>,
    #[serde(default)]
    label: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Admin,
    Agent,
}

async fn list(State(api): State<Api>) -> Result<Response, Problem> {
    let items: Vec<KeyView> = api.engine().keys().await?.iter().map(KeyView::of).collect();
    Ok(json(StatusCode::OK, &Page { items }))
}

async fn create(
    State(api): State<Api>,
    Who(caller): Who,
    body: JsonBody,
) -> Result<Response, Problem> {
    let new: NewKey = body.read()?;
    let kind = match new.kind {
        Kind::Admin => KeyKind::Admin,
        Kind::Agent => KeyKind::Agent,
    };
    let agent = match (new.agent, kind) {
        (Some(agent), _) => agent.parse::<AgentName>().map_err(EngineError::from)?,
        (None, KeyKind::Admin) => "admin".parse().expect("`admin` is a name"),
        (None, KeyKind::Agent) => "default".parse().expect("`default` is a name"),
    };
    let label: String = new
        .label
        .chars()
        .filter(|c| !c.is_control())
        .take(128)
        .collect();
    let (id, key) = api
        .engine()
        .create_key(&caller, kind, &agent, &label)
        .await?;
    let made = KeyMade {
        id: id.to_string(),
        key,
        agent: agent.to_string(),
    };
    Ok(json(StatusCode::CREATED, &made))
}

async fn revoke(
    State(api): State<Api>,
    Who(caller): Who,
    Named(key): Named,
) -> Result<Response, Problem> {
    // A key that is not there is as good as revoked.
    if let Ok(key) = key.parse::<KeyId>() {
        api.engine().revoke_key(&caller, key).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
