//! The chain of the audit, holds and erasure, `/api/v1/audit`, for administrators. The calls themselves are
//! in `calls`.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use gantry_engine::{AuditFinding, HoldRow, NewHold, Verification};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::calls::time;
use super::keys::label;
use super::query::Page;
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/audit/verify", get(verify))
        .route("/api/v1/audit/key", get(key))
        .route("/api/v1/audit/holds", get(holds).post(hold))
        .route("/api/v1/audit/holds/{hold}", delete(release))
        .route("/api/v1/audit/erase", post(erase))
}

/// What checking the audit found.
#[derive(Serialize, ToSchema)]
pub(crate) struct VerificationView {
    /// Whether nothing is wrong.
    sound: bool,
    /// How many calls were checked.
    rows: u64,
    /// How many administrative acts were checked.
    acts: u64,
    /// How many blocks of the chain were checked.
    blocks: u64,
    /// How many calls are of releases before the chain, and not covered.
    not_covered: u64,
    /// How many acts are of releases whose chain had calls only, and not covered.
    acts_not_covered: u64,
    /// How many things are wrong.
    findings_total: u64,
    /// What is wrong; of other projects than the gateway's own only what concerns their calls and acts.
    findings: Vec<AuditFindingView>,
    /// The end of each chain.
    heads: Vec<HeadView>,
    /// Keys that only the database contains: a person who can change it can change these, too.
    keys_from_store: Vec<String>,
}

/// One thing that is wrong.
#[derive(Serialize, ToSchema)]
struct AuditFindingView {
    /// `changed`, `missing`, `inserted`, `block_changed`, `block_missing`, `bad_signature`, `cut_off`,
    /// `head_changed`, `key_changed` or `table_damaged`.
    kind: &'static str,
    /// The call, if it is one.
    call: Option<String>,
    /// The administrative act, by its number, if it is one.
    act: Option<i64>,
    /// The project of the call or act, if it is known.
    project: Option<String>,
    /// The gateway whose chain it is, by its number in the store.
    gateway: i64,
    /// The block of the chain, if it is known.
    block: Option<u64>,
    /// The same in words.
    text: String,
}

/// The end of a chain.
#[derive(Serialize, ToSchema)]
struct HeadView {
    /// The gateway whose chain it is, by its number in the store.
    gateway: i64,
    /// The number of its last block.
    number: u64,
    /// The hash of its last block.
    hash: String,
}

impl AuditFindingView {
    fn of(finding: &AuditFinding) -> Self {
        Self {
            kind: finding.kind.as_str(),
            call: finding.call.clone(),
            act: finding.act,
            project: finding.project.clone(),
            gateway: finding.gateway,
            block: finding.block,
            text: finding.text(),
        }
    }
}

impl From<&Verification> for VerificationView {
    fn from(report: &Verification) -> Self {
        let heads = report.heads.iter();
        let heads = heads.map(|(gateway, number, hash)| HeadView {
            gateway: *gateway,
            number: *number,
            hash: hash.clone(),
        });
        Self {
            sound: report.is_sound(),
            rows: report.rows,
            acts: report.acts,
            blocks: report.blocks,
            not_covered: report.not_covered,
            acts_not_covered: report.acts_not_covered,
            findings_total: report.count,
            findings: report.findings.iter().map(AuditFindingView::of).collect(),
            heads: heads.collect(),
            keys_from_store: report.keys_from_store.clone(),
        }
    }
}

/// Checks calls and administrative acts against the hash chain: finds what was changed, inserted or removed.
/// Takes about a minute for a few million rows.
#[utoipa::path(get, path = "/api/v1/audit/verify", tag = "audit", responses(
    (status = 200, description = "What was found.", body = VerificationView),
))]
pub(super) async fn verify(In(project): In) -> Result<Response, Problem> {
    let report = project.verify_audit().await?;
    Ok(json(StatusCode::OK, &VerificationView::from(&report)))
}

/// The key that the chain is signed with.
#[derive(Serialize, ToSchema)]
struct AuditKeyView {
    /// Its id, which blocks name.
    id: String,
    /// Always `ed25519`.
    algorithm: &'static str,
    /// Its 32 bytes in hexadecimal digits.
    public_key: String,
}

/// Shows the public key that this gateway signs the chain of the audit with.
#[utoipa::path(get, path = "/api/v1/audit/key", tag = "audit", responses(
    (status = 200, description = "The key.", body = AuditKeyView),
))]
pub(super) async fn key(In(project): In) -> Response {
    let key = project.audit_key().await;
    let view = AuditKeyView {
        id: key.id().to_owned(),
        algorithm: "ed25519",
        public_key: key.to_hex(),
    };
    json(StatusCode::OK, &view)
}

/// A hold on calls: they are kept whatever their age, and not erased.
#[derive(Serialize, ToSchema)]
struct HoldView {
    id: String,
    agent: Option<String>,
    user: Option<String>,
    server: Option<String>,
    since_ms: Option<u64>,
    until_ms: Option<u64>,
    reason: String,
    created: String,
    created_ms: u64,
    created_by: String,
    /// When it was released; none while it is in force.
    released_ms: Option<u64>,
    released_by: Option<String>,
}

impl From<HoldRow> for HoldView {
    fn from(row: HoldRow) -> Self {
        Self {
            id: row.id,
            agent: row.agent,
            user: row.user,
            server: row.server,
            since_ms: row.since_ms,
            until_ms: row.until_ms,
            reason: row.reason,
            created: rfc3339(row.created_ms),
            created_ms: row.created_ms,
            created_by: row.created_by,
            released_ms: row.released_ms,
            released_by: row.released_by,
        }
    }
}

/// Lists the holds on the project's calls, also those that were released, oldest first.
#[utoipa::path(get, path = "/api/v1/audit/holds", tag = "audit", responses(
    (status = 200, description = "The holds.", body = Page<HoldView>),
))]
pub(super) async fn holds(In(project): In) -> Result<Response, Problem> {
    let items: Vec<HoldView> = project.holds().await?.into_iter().map(Into::into).collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Which calls are to be held; what is not said does not matter, and with nothing said all of the project.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldBody {
    /// Only calls of this agent.
    #[serde(default)]
    agent: Option<String>,
    /// Only calls on behalf of this user.
    #[serde(default)]
    user: Option<String>,
    /// Only calls to this server.
    #[serde(default)]
    server: Option<String>,
    /// Only calls received at or after this time: RFC 3339, or milliseconds since 1970.
    #[serde(default)]
    since: Option<String>,
    /// Only calls received before this time: RFC 3339, or milliseconds since 1970.
    #[serde(default)]
    until: Option<String>,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 128)]
    reason: String,
}

/// Holds calls: they are kept whatever their age, and not erased, until the hold is released.
#[utoipa::path(post, path = "/api/v1/audit/holds", tag = "audit", request_body = HoldBody, responses(
    (status = 201, description = "The hold is in force.", body = HoldView),
    (status = 409, description = "`audit.too_many_holds`: the project has a thousand already."),
))]
pub(super) async fn hold(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: HoldBody = body.read()?;
    let moment = |name: &str, text: Option<String>| text.map(|text| time(name, &text)).transpose();
    let new = NewHold {
        agent: asked.agent,
        user: asked.user,
        server: asked.server,
        since_ms: moment("since", asked.since)?,
        until_ms: moment("until", asked.until)?,
        reason: label(&asked.reason)?,
    };
    let hold = project.hold(&actor, new).await?;
    Ok(json(StatusCode::CREATED, &HoldView::from(hold)))
}

/// Releases a hold: what is older than the retention period is dropped from then on.
#[utoipa::path(delete, path = "/api/v1/audit/holds/{hold}", tag = "audit",
    params(("hold" = String, Path, description = "The id of the hold.")), responses(
    (status = 204, description = "The hold is released."),
    (status = 404, description = "`audit.unknown_hold`: no such hold is in force."),
))]
pub(super) async fn release(
    In(project): In,
    By(actor): By,
    Named(hold): Named,
) -> Result<Response, Problem> {
    project.release_hold(&actor, hold).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Whose data is to be erased.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EraseBody {
    /// The user, as calls name it.
    user: String,
}

/// What erasing did.
#[derive(Serialize, ToSchema)]
struct ErasedView {
    /// How many calls have nothing of the user any more.
    calls: u64,
    /// How many were left as they are because of a hold.
    held: u64,
}

/// Erases a user from the project's calls: who it was, arguments, results, error texts, session, run, step
/// and trace. The rows stay, so that calls can still be counted; what is held stays as it is. Calls under way
/// are not touched.
#[utoipa::path(post, path = "/api/v1/audit/erase", tag = "audit", request_body = EraseBody, responses(
    (status = 200, description = "What was erased.", body = ErasedView),
))]
pub(super) async fn erase(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: EraseBody = body.read()?;
    let erased = project.erase_user(&actor, asked.user).await?;
    let view = ErasedView {
        calls: erased.calls,
        held: erased.held,
    };
    Ok(json(StatusCode::OK, &view))
}
