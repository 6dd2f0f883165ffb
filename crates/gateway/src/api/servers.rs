//! Servers: `/api/v1/mcp/servers` and below, for administrators.
//!
//! A server is named by its id or its name. Registering starts a program on this machine, so no
//! other kind of key ever comes here, nor to the routes that only look at a spec or try it
//! (fault G8). What servers did is in `history`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::{Actor, EngineError, Project, Volumes};
use gantry_model::id::ServerName;
use gantry_model::spec::ServerSpec;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::query::{Asked, Page, Paging};
use super::register::Register;
use super::views::{
    LogLineView, ServerStatusView, ServerSummary, SpecView, command, image, now_ms, profile, start,
    url,
};
use super::{Api, By, In, Named};
use crate::config::diagnostic::meant;
use crate::http::error::{Problem, ProblemDocument};
use crate::http::wrong_method;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/mcp/servers", get(list).post(register))
        .route(
            "/api/v1/mcp/servers/{server}",
            get(status)
                .put(replace)
                .patch(change)
                .delete(remove)
                .post(check),
        )
        .route("/api/v1/mcp/servers/{server}/restart", post(restart))
}

/// Says that there is no such server, and which one may be meant: for administrators.
pub(super) fn unknown(project: &Arc<Project>, server: &str) -> Problem {
    let servers = project.servers();
    let names = servers.iter().map(|known| known.spec.name.as_str());
    unknown_among(server, names)
}

/// Says that there is no such server, and which of those that somebody may know of may be meant.
pub(super) fn unknown_among<'n>(server: &str, names: impl IntoIterator<Item = &'n str>) -> Problem {
    let shown: String = server
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect();
    let problem = Problem::new("server.unknown").with_detail(format!("no server `{shown}`"));
    match meant(server, names) {
        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}

/// Takes what came of something that was done to a server; of one that is not there it is said which
/// one may be meant.
pub(super) fn done<T>(
    project: &Arc<Project>,
    server: &str,
    done: Result<T, EngineError>,
) -> Result<T, Problem> {
    match done {
        Err(EngineError::UnknownServer { .. }) => Err(unknown(project, server)),
        done => Ok(done?),
    }
}

/// A spec that could be registered.
#[derive(Serialize, ToSchema)]
pub(super) struct Preview {
    /// Its name.
    name: String,
    /// Whether a server of that name is there already, so that registering would be refused.
    exists: bool,
    /// The program that would be started.
    command: Option<String>,
    /// The image that would be run.
    image: Option<String>,
    /// Where it would be connected to, without what may be secret.
    url: Option<String>,
    /// How strictly it would be held: `local` or `hosted`, or `remote`.
    profile: &'static str,
    /// When it would start: `eager` or `lazy`.
    start: &'static str,
    /// What would be in force, defaults included; of its environment only the names.
    spec: SpecView,
}

/// What came of starting a server once.
#[derive(Serialize, ToSchema)]
pub(super) struct Trial {
    /// Whether it came up, shook hands and listed what it offers.
    ok: bool,
    /// The server at that moment.
    status: ServerStatusView,
    /// The last lines that it wrote.
    log: Vec<LogLineView>,
}

/// Lists all servers, in the order of their configuration.
#[utoipa::path(get, path = "/api/v1/mcp/servers", tag = "servers", params(Paging), responses(
    (status = 200, description = "The servers.", body = Page<ServerSummary>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let now = now_ms();
    let page = Page::of(project.servers(), &asked, |server| server.id.to_string())?;
    let shown = page.items.iter();
    let items = shown.map(|server| ServerSummary::of(server, now)).collect();
    let next_cursor = page.next_cursor;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

// row 1.1
/// Registers a server and starts it, or leaves it asleep if it is lazy.
#[utoipa::path(post, path = "/api/v1/mcp/servers", tag = "servers", request_body = Register, responses(
    (status = 201, description = "It is registered and on its way up.", body = ServerStatusView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 409, description = "`server.exists`: there is one of that name.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn register(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let (spec, warnings) = Register::read(&body)?.into_parts();
    api.guard(&spec)?;
    let server = project.register(&actor, spec).await?;
    let mut response = json(
        StatusCode::CREATED,
        &ServerStatusView::of(&server, now_ms()),
    );
    let place = format!("/api/v1/mcp/servers/{}", server.id);
    let place = HeaderValue::try_from(place).expect("an id is safe in a header");
    response.headers_mut().insert(LOCATION, place);
    Register::warn(&warnings, &mut response);
    Ok(response)
}

// row 1.13
/// Shows everything that is known of a server: what is wanted, what is observed, what it uses
/// beside what it may, and which isolation it was given.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")), responses(
    (status = 200, description = "The server.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn status(In(project): In, Named(server): Named) -> Result<Response, Problem> {
    let view = project
        .server(&server)
        .ok_or_else(|| unknown(&project, &server))?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}

/// Gives a server another spec as a whole; its name stays. It is started anew if anything changed.
#[utoipa::path(put, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")), request_body = Register, responses(
    (status = 200, description = "The server as it is now.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
    (status = 409, description = "`server.of_file`: it comes from a configuration file; change that.",
        body = ProblemDocument<'static>, content_type = "application/problem+json"),
))]
pub(super) async fn replace(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(server): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let known = project
        .server(&server)
        .ok_or_else(|| unknown(&project, &server))?;
    let asked = Register::read(&body)?;
    put(&api, &project, &actor, asked, &known.spec.name).await
}

/// Changes parts of a server's spec, as a JSON merge patch (RFC 7396) over the body it could be
/// registered with: what is left out stays, `null` goes back to the default.
#[utoipa::path(patch, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")),
    request_body(content = Object, description = "Members of the registration's body.",
        example = json!({"timeout": "2m", "limits": {"memory": "1G"}})), responses(
    (status = 200, description = "The server as it is now.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
    (status = 409, description = "`server.of_file`: it comes from a configuration file; change that.",
        body = ProblemDocument<'static>, content_type = "application/problem+json"),
))]
pub(super) async fn change(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(server): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let known = project
        .server(&server)
        .ok_or_else(|| unknown(&project, &server))?;
    let patch: serde_json::Map<String, Value> = body.read()?;
    let asked = Register::patched(&known.spec, patch)?;
    put(&api, &project, &actor, asked, &known.spec.name).await
}

/// Puts another spec in the place of a server's own.
async fn put(
    api: &Api,
    project: &Arc<Project>,
    actor: &Actor,
    asked: Register,
    name: &ServerName,
) -> Result<Response, Problem> {
    let (spec, warnings) = asked.into_parts();
    same_name(&spec, name)?;
    api.guard(&spec)?;
    let view = project.replace(actor, spec).await?;
    let mut response = json(StatusCode::OK, &ServerStatusView::of(&view, now_ms()));
    Register::warn(&warnings, &mut response);
    Ok(response)
}

fn same_name(asked: &ServerSpec, name: &ServerName) -> Result<(), Problem> {
    if asked.name == *name {
        return Ok(());
    }
    Err(Problem::new("request.body")
        .with_detail(format!("`name` must stay `{name}`"))
        .with_hint("a server gets another name by being removed and registered anew"))
}

/// Takes the two words that are no servers: `preview` and `test`. A server of such a name keeps
/// every other method.
async fn check(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(word): Named,
    body: Result<JsonBody, Problem>,
) -> Result<Response, Problem> {
    match word.as_str() {
        "preview" => preview(&api, &project, &actor, &body?).await,
        "test" => test(&api, &project, &actor, &body?).await,
        _ => Err(wrong_method().await),
    }
}

/// Checks a spec and shows what would be in force. Starts nothing and keeps nothing; that somebody
/// looked is an event and an administrator's act on record.
#[utoipa::path(post, path = "/api/v1/mcp/servers/preview", tag = "servers", request_body = Register,
    responses(
    (status = 200, description = "It could be registered.", body = Preview),
))]
pub(super) async fn preview(
    api: &Api,
    project: &Arc<Project>,
    actor: &Actor,
    body: &JsonBody,
) -> Result<Response, Problem> {
    let spec = Register::read(body)?.spec;
    api.guard(&spec)?;
    project.preview(actor, &spec).await?;
    let preview = Preview {
        name: spec.name.to_string(),
        exists: project.server(spec.name.as_str()).is_some(),
        command: command(&spec),
        image: image(&spec),
        url: url(&spec),
        profile: profile(&spec),
        start: start(&spec),
        spec: SpecView::of(&spec),
    };
    Ok(json(StatusCode::OK, &preview))
}

/// Starts a server in its sandbox, shakes hands, lists what it offers, and stops it again. It is
/// not registered; the trial is an event and an administrator's act on record.
#[utoipa::path(post, path = "/api/v1/mcp/servers/test", tag = "servers", request_body = Register,
    responses(
    (status = 200, description = "What came of it; `ok` says whether it came up.", body = Trial),
    (status = 409, description = "`server.exists`: there is one of that name.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn test(
    api: &Api,
    project: &Arc<Project>,
    actor: &Actor,
    body: &JsonBody,
) -> Result<Response, Problem> {
    let spec = Register::read(body)?.spec;
    api.guard(&spec)?;
    let (view, log) = project.try_out(actor, spec).await?;
    let trial = Trial {
        ok: view.status.uptime().is_some(),
        status: ServerStatusView::of(&view, now_ms()),
        log: log.iter().map(LogLineView::of).collect(),
    };
    Ok(json(StatusCode::OK, &trial))
}

/// What goes with a server that is removed.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovedWith {
    /// Whether its volumes go, too, with everything in them.
    #[serde(default)]
    volumes: bool,
}

/// Removes a server that was registered, and waits until its process is gone. One that is not there is
/// as good as removed; one of a configuration file is removed there.
#[utoipa::path(delete, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), RemovedWith), responses(
    (status = 204, description = "There is no such server now."),
    (status = 409, description = "`server.of_file`: it comes from a configuration file, which the message \
        names; change that. `server.builtin`: it is Gantry's own example.",
        body = ProblemDocument<'static>, content_type = "application/problem+json"),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(server): Named,
    Asked(asked): Asked<RemovedWith>,
) -> Result<Response, Problem> {
    let volumes = match asked.volumes {
        true => Volumes::Remove,
        false => Volumes::Keep,
    };
    project.remove_with(&actor, &server, volumes).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

// row 1.12
/// Ends a server's process and starts it anew, its counters reset.
#[utoipa::path(post, path = "/api/v1/mcp/servers/{server}/restart", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")), responses(
    (status = 200, description = "The server, on its way up.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn restart(
    In(project): In,
    By(actor): By,
    Named(server): Named,
) -> Result<Response, Problem> {
    let restarted = project.restart(&actor, &server).await;
    let view = done(&project, &server, restarted)?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}
