//! Tools that are new or changed, `/api/v1/tools/changes`: shown with what differs, approved or refused by
//! an approver. A decision is on one version of one tool; the project's `tools.*` settings say what an
//! undecided one means.

use std::sync::Arc;

use axum::response::Response;
use gantry_engine::model::id::ServerName;
use gantry_engine::model::pin::{Difference, Finding, PINNED_KINDS, PinState, differences};
use gantry_engine::{PinnedItem, Project, ToolChangeRow, ToolVersionRow};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::body::{JsonBody, json};
use super::super::query::{Asked, Page, Paging, bad};
use super::super::servers::unknown;
use super::super::views::rfc3339;
use super::super::{By, In};
use crate::http::error::Problem;
use crate::http::shown;

/// A version of a tool, prompt or template.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ToolVersionView {
    /// `server:name`.
    #[schema(example = "files:read_file")]
    id: String,
    /// Whose it is.
    server: String,
    /// `tool`, `prompt` or `template`.
    kind: String,
    /// The server's own name for it.
    name: String,
    /// Counts up each time the definition changes.
    version: u32,
    /// The SHA-256 of the definition in canonical form.
    hash: String,
    /// How it differed from what was approved: `first`, `added`, `text`, `compatible`, `breaking` or `same`.
    #[schema(example = "text")]
    change: &'static str,
    /// `approved`, `unapproved` or `refused`.
    #[schema(example = "unapproved")]
    state: &'static str,
    /// Which tool that has gone it most likely was; a guess, from which nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    renamed_from: Option<String>,
    /// What in its texts a person should look at.
    findings: Vec<FindingView>,
    /// When it was first listed.
    seen_at: String,
    /// Who approved or refused it; `policy` if the project's settings did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decided_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decided_at: Option<String>,
}

/// Something in a text that a person should look at.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct FindingView {
    /// Which rule found it.
    #[schema(example = "override")]
    rule: String,
    /// Where, as a JSON pointer into the definition.
    #[schema(example = "/description")]
    path: String,
    /// The text around it.
    text: String,
}

impl FindingView {
    pub(in crate::api) fn of(finding: &Finding) -> Self {
        Self {
            rule: finding.rule.clone(),
            path: finding.path.clone(),
            text: finding.text.clone(),
        }
    }
}

impl ToolVersionView {
    fn of(server: &ServerName, row: ToolVersionRow) -> Self {
        Self {
            id: format!("{server}:{}", row.name),
            server: server.to_string(),
            kind: row.kind,
            name: row.name,
            version: row.version,
            hash: row.hash,
            change: row.change.as_str(),
            state: row.state.as_str(),
            renamed_from: row.renamed_from,
            findings: row.findings.iter().map(FindingView::of).collect(),
            seen_at: rfc3339(row.seen_ms),
            decided_by: row.decided_by,
            decided_at: row.decided_ms.map(rfc3339),
        }
    }
}

/// A version that a server lists now and that is not approved.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ToolChangeView {
    #[serde(flatten)]
    now: ToolVersionView,
    /// Whether it is held back: not listed, and refused when it is called.
    quarantined: bool,
    /// The version that is approved, if one ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    approved_version: Option<u32>,
    /// What differs from that; all of it if none was approved.
    diff: Vec<DifferenceView>,
}

/// One place in which two definitions differ.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct DifferenceView {
    /// Where, as a JSON pointer.
    #[schema(example = "/description")]
    path: String,
    /// What was there, as JSON text; absent if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    before: Option<String>,
    /// What is there now, as JSON text; absent if it has gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    after: Option<String>,
}

impl ToolChangeView {
    fn of((server, quarantined, row): (ServerName, bool, ToolChangeRow)) -> Self {
        let approved = row.approved.as_ref();
        let before = approved.map(|(_, definition)| definition.as_str());
        let diff = differences(before, &row.now.definition).into_iter();
        let shown = |one: Difference| DifferenceView {
            path: one.path,
            before: one.before,
            after: one.after,
        };
        Self {
            quarantined,
            approved_version: approved.map(|(version, _)| *version),
            diff: diff.map(shown).collect(),
            now: ToolVersionView::of(&server, row.now),
        }
    }
}

/// The filter of changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct ChangesAsked {
    /// Only what this server lists, by name.
    server: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists what servers offer now and nobody approved, with what differs from what is approved.
#[utoipa::path(get, path = "/api/v1/tools/changes", tag = "tools", params(ChangesAsked), responses(
    (status = 200, description = "What is new or changed.", body = Page<ToolChangeView>),
    (status = 404, description = "`server.unknown`"),
))]
pub(in crate::api) async fn changes(
    In(project): In,
    Asked(asked): Asked<ChangesAsked>,
) -> Result<Response, Problem> {
    let mut rows = project.tool_changes().await?;
    if let Some(server) = &asked.server {
        let known = known(&project, server)?;
        rows.retain(|(name, _, _)| *name == known);
    }
    let paging = Paging {
        limit: asked.limit,
        cursor: asked.cursor,
    };
    let key = |(server, _, row): &(ServerName, bool, ToolChangeRow)| {
        format!("{} {server}:{}", row.now.kind, row.now.name)
    };
    let page = Page::of(rows, &paging, key)?;
    Ok(page.respond(ToolChangeView::of))
}

/// The tool, prompt or template whose versions are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct VersionsAsked {
    /// `server:name`.
    #[param(example = "files:read_file")]
    tool: String,
    /// `tool`, `prompt` or `template`.
    #[param(default = "tool")]
    kind: Option<String>,
}

/// Lists the versions of a tool, prompt or template that are remembered, the newest first.
#[utoipa::path(get, path = "/api/v1/tools/versions", tag = "tools", params(VersionsAsked), responses(
    (status = 200, description = "The versions.", body = Page<ToolVersionView>),
    (status = 404, description = "`server.unknown`, `tool.version_unknown`: no such server or version."),
))]
pub(in crate::api) async fn versions(
    In(project): In,
    Asked(asked): Asked<VersionsAsked>,
) -> Result<Response, Problem> {
    let item = item(&asked.tool, asked.kind.as_deref())?;
    let (server, rows) = project.tool_versions(&item).await?;
    let page = Page {
        items: rows,
        next_cursor: None,
    };
    Ok(page.respond(|row| ToolVersionView::of(&server, row)))
}

/// What is decided on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct DecisionBody {
    /// `server:name` of one tool, prompt or template.
    #[serde(default)]
    #[schema(example = "files:read_file", nullable = false)]
    tool: Option<String>,
    /// `tool`, `prompt` or `template`.
    #[serde(default)]
    #[schema(example = "tool", nullable = false)]
    kind: Option<String>,
    /// The version that was looked at; without it the one that is listed now.
    #[serde(default)]
    #[schema(nullable = false)]
    version: Option<u32>,
    /// Instead of `tool`: everything of this server that is not approved.
    #[serde(default)]
    #[schema(nullable = false)]
    server: Option<String>,
}

/// What was decided on.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct DecidedView {
    /// The versions.
    items: Vec<DecidedItem>,
}

/// A version that was approved or refused.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct DecidedItem {
    /// `server:name`.
    id: String,
    /// `tool`, `prompt` or `template`.
    kind: String,
    /// The version.
    version: u32,
    /// `approved` or `refused`.
    state: &'static str,
}

/// Approves versions that servers list now: from then on they are offered.
#[utoipa::path(post, path = "/api/v1/tools/approve", tag = "tools", request_body = DecisionBody, responses(
    (status = 200, description = "They are approved.", body = DecidedView),
    (status = 404, description = "`server.unknown`, `tool.version_unknown`: no such server or version."),
    (status = 409, description = "`tool.version_changed`: its server lists another version now."),
))]
pub(in crate::api) async fn approve(
    project: In,
    actor: By,
    body: JsonBody,
) -> Result<Response, Problem> {
    decide(project, actor, body, PinState::Approved).await
}

/// Refuses versions that servers list now: whatever the project's settings, they are not offered.
#[utoipa::path(post, path = "/api/v1/tools/refuse", tag = "tools", request_body = DecisionBody, responses(
    (status = 200, description = "They are refused.", body = DecidedView),
    (status = 404, description = "`server.unknown`, `tool.version_unknown`: no such server or version."),
    (status = 409, description = "`tool.version_changed`: its server lists another version now."),
))]
pub(in crate::api) async fn refuse(
    project: In,
    actor: By,
    body: JsonBody,
) -> Result<Response, Problem> {
    decide(project, actor, body, PinState::Refused).await
}

/// Returns the name of a server that is given by name or id.
fn known(project: &Arc<Project>, server: &str) -> Result<ServerName, Problem> {
    let known = project.server(server).map(|known| known.spec.name.clone());
    known.ok_or_else(|| unknown(project, server))
}

async fn decide(
    In(project): In,
    By(actor): By,
    body: JsonBody,
    state: PinState,
) -> Result<Response, Problem> {
    let asked: DecisionBody = body.read()?;
    let wanted = match (&asked.tool, &asked.server) {
        (Some(tool), None) => {
            let item = item(tool, asked.kind.as_deref())?;
            let version = match asked.version {
                Some(version) => version,
                None => project.tool_versions(&item).await?.1[0].version,
            };
            vec![(item, version)]
        }
        (None, Some(server)) if asked.kind.is_none() && asked.version.is_none() => {
            let known = known(&project, server)?;
            let rows = project.tool_changes().await?.into_iter();
            let own = rows.filter(|(name, _, _)| *name == known);
            let all = own.map(|(server, _, row)| {
                let item = PinnedItem {
                    server: server.to_string(),
                    kind: row.now.kind,
                    name: row.now.name,
                };
                (item, row.now.version)
            });
            all.collect()
        }
        _ => {
            let problem = Problem::new("request.body");
            return Err(problem.with_detail("either `tool` or `server` says what is decided on"));
        }
    };
    let mut items = Vec::with_capacity(wanted.len());
    for (item, version) in wanted {
        project
            .decide_on_tool(&actor, item.clone(), version, state)
            .await?;
        items.push(DecidedItem {
            id: format!("{}:{}", item.server, item.name),
            kind: item.kind,
            version,
            state: state.as_str(),
        });
    }
    Ok(json(StatusCode::OK, &DecidedView { items }))
}

/// Reads `server:name`, or `server__name`.
fn item(tool: &str, kind: Option<&str>) -> Result<PinnedItem, Problem> {
    let kind = kind.unwrap_or("tool");
    if !PINNED_KINDS.contains(&kind) {
        return Err(bad("kind", kind).with_hint("write `tool`, `prompt` or `template`"));
    }
    let parts = tool.split_once(':').or_else(|| tool.split_once("__"));
    match parts.filter(|(server, name)| !server.is_empty() && !name.is_empty()) {
        Some((server, name)) => Ok(PinnedItem {
            server: server.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }),
        None => Err(Problem::new("tool.unknown")
            .with_detail(format!("`{}` names no tool", shown(tool)))
            .with_hint("write `server:tool`")),
    }
}
