//! Servers, `/api/v1/mcp/servers`, for administrators.
//!
//! A server is addressed by id or name. Registering starts a program on this machine, so only admin
//! keys are accepted, also on the preview and test routes (fault G8). Logs and events are in
//! `history`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::{Actor, EngineError, Project, ServerView, Volumes};
use gantry_model::caller::Permission;
use gantry_model::id::ServerName;
use gantry_model::spec::{SecretPlace, ServerSpec};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::body::{JsonBody, OptionalBody, created, json};
use super::history::stream::is_wanted;
use super::images::stream::{self, Progress};
use super::query::{Asked, Page, Paging};
use super::register::Register;
use super::registrations::{RegistrationView, hold, server_wanted};
use super::views::{
    LogLineView, ServerStatusView, ServerSummary, SpecView, command, image, now_ms, profile, start,
    url,
};
use super::{Api, By, In, Named, Who};
use crate::config::diagnostic::meant;
use crate::http::auth::permit;
use crate::http::error::Problem;
use crate::http::{shown, wrong_method};

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

/// Returns a server by name or id, for administrators.
pub(super) fn known(project: &Arc<Project>, server: &str) -> Result<ServerView, Problem> {
    let view = project.server(server);
    view.ok_or_else(|| unknown(project, server))
}

/// The error for an unknown server, with a suggestion: for administrators.
pub(super) fn unknown(project: &Arc<Project>, server: &str) -> Problem {
    let servers = project.servers();
    let names = servers.iter().map(|known| known.spec.name.as_str());
    unknown_among(server, names)
}

/// The error for an unknown server, with a suggestion among these names.
pub(super) fn unknown_among<'n>(server: &str, names: impl IntoIterator<Item = &'n str>) -> Problem {
    let detail = format!("no server `{}`", shown(server));
    let problem = Problem::new("server.unknown").with_detail(detail);
    match meant(server, names) {
        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}

/// Adds a suggestion to the error for an unknown server.
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

/// A spec that can be registered.
#[derive(Serialize, ToSchema)]
pub(super) struct Preview {
    /// Its name.
    name: String,
    /// Whether a server of that name exists, so that registering would be refused.
    exists: bool,
    /// The command that would be run.
    command: Option<String>,
    /// The image that would be run.
    image: Option<String>,
    /// The URL that would be connected to, without secrets.
    url: Option<String>,
    /// Its isolation profile: `local` or `hosted`, or `remote`.
    profile: &'static str,
    /// When it would start: `eager` or `lazy`.
    start: &'static str,
    /// Why a second person would have to approve it; empty if nobody must.
    needs_approval: Vec<&'static str>,
    /// The effective options, defaults included; of its environment only the names.
    spec: SpecView,
}

/// The result of a test run.
#[derive(Serialize, ToSchema)]
pub(super) struct Trial {
    /// Whether it started, completed the handshake and listed its tools.
    ok: bool,
    /// The server at that moment.
    status: ServerStatusView,
    /// Its last log lines.
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
    Ok(page.respond(|server| ServerSummary::of(&server, now)))
}

// row 1.1
/// Registers a server and starts it, unless it is lazy.
#[utoipa::path(post, path = "/api/v1/mcp/servers", tag = "servers", request_body = Register, responses(
    (status = 201, description = "It is registered and starting.", body = ServerStatusView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 202, description = "It waits for a second person's approval.", body = RegistrationView),
    (status = 403, description = "`registration.refused`: the project does not allow it."),
    (status = 409, description = "`server.exists`: the name is taken."),
))]
pub(super) async fn register(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let (spec, warnings) = Register::read(&body)?.into_parts();
    api.guard(&spec)?;
    let server = match project.register(&actor, spec.clone()).await {
        Ok(server) => server,
        Err(refused) => {
            let wanted = server_wanted("server.register", &spec, &SpecView::of(&spec));
            return hold(&project, &actor, refused, wanted).await;
        }
    };
    let place = format!("/api/v1/mcp/servers/{}", server.id);
    let mut response = created(&place, &ServerStatusView::of(&server, now_ms()));
    Register::warn(&warnings, &mut response);
    Ok(response)
}

// row 1.13
/// Shows a server's spec, status, resource usage, limits and isolation.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")), responses(
    (status = 200, description = "The server.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: no such server."),
))]
pub(super) async fn status(In(project): In, Named(server): Named) -> Result<Response, Problem> {
    let view = known(&project, &server)?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}

/// Replaces a server's spec; its name stays. It is restarted if anything changed.
#[utoipa::path(put, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")), request_body = Register, responses(
    (status = 200, description = "The server after the change.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: no such server."),
    (status = 409, description = "`server.of_file`: it comes from a configuration file; change that."),
))]
pub(super) async fn replace(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(server): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let known = known(&project, &server)?;
    let asked = Register::read(&body)?;
    Box::pin(put(&api, &project, &actor, asked, &known.spec.name)).await
}

/// Changes parts of a server's spec, as a JSON merge patch (RFC 7396) over its registration body:
/// omitted members stay, `null` restores the default.
#[utoipa::path(patch, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")),
    request_body(content = Object, description = "Members of the registration's body.",
        example = json!({"timeout": "2m", "limits": {"memory": "1G"}})), responses(
    (status = 200, description = "The server after the change.", body = ServerStatusView),
    (status = 404, description = "`server.unknown`: no such server."),
    (status = 409, description = "`server.of_file`: it comes from a configuration file; change that. \
        `secret.asked_again`: the change would send stored values to another destination; give them again."),
))]
pub(super) async fn change(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(server): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let known = known(&project, &server)?;
    let patch: serde_json::Map<String, Value> = body.read()?;
    let asked = Register::patched(&known.spec, patch.clone())?;
    if !actor.may_bind_secrets() {
        asked_again(&known.spec, &asked.spec, &patch)?;
    }
    Box::pin(put(&api, &project, &actor, asked, &known.spec.name)).await
}

/// Refuses a patch that would send existing secret values to another program or URL, unless the
/// patch contains these values: otherwise an editor of the server could read them. fault K4
fn asked_again(
    known: &ServerSpec,
    asked: &ServerSpec,
    patch: &serde_json::Map<String, Value>,
) -> Result<(), Problem> {
    let whole = Value::Object(patch.clone());
    let is_given = |place: &SecretPlace| {
        let (tables, name) = match place {
            SecretPlace::Variable(name) => (&["env", "environment"][..], name),
            SecretPlace::Header(name) => (&["headers"][..], name),
            SecretPlace::Option(name) => {
                let mut path = name.split('.');
                let given = path.try_fold(&whole, |table, member| table.get(member));
                return given.is_some_and(|value| !value.is_null());
            }
        };
        let mut tables = tables.iter().filter_map(|table| patch.get(*table));
        tables.any(|table| table.get(name).is_some_and(Value::is_string))
    };
    let carried = known.carried_secrets(asked, is_given);
    if carried.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = carried.iter().map(|place| format!("`{place}`")).collect();
    Err(Problem::new("secret.asked_again").with_detail(format!(
        "the change would send the values of {} to another destination: give them again in the same request",
        names.join(", ")
    )))
}

/// Replaces a server's spec.
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
    let view = match Box::pin(project.replace(actor, spec.clone())).await {
        Ok(view) => view,
        Err(refused) => {
            let wanted = server_wanted("server.replace", &spec, &SpecView::of(&spec));
            return hold(project, actor, refused, wanted).await;
        }
    };
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
        .with_hint("to rename a server, remove it and register it again"))
}

/// Handles `preview` and `test`, which are not servers. A server of that name keeps all other
/// methods.
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

/// Checks a spec and shows its effective options. Starts and stores nothing; recorded as an event
/// and an administrative act.
#[utoipa::path(post, path = "/api/v1/mcp/servers/preview", tag = "servers", request_body = Register,
    responses(
    (status = 200, description = "The server is valid; nothing was registered.", body = Preview),
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
        needs_approval: project
            .approval_reasons(&spec)
            .into_iter()
            .map(gantry_model::settings::Sensitive::as_str)
            .collect(),
        spec: SpecView::of(&spec),
    };
    Ok(json(StatusCode::OK, &preview))
}

/// Starts a server in its sandbox, lists its tools, and stops it again. It is not registered;
/// recorded as an event and an administrative act.
#[utoipa::path(post, path = "/api/v1/mcp/servers/test", tag = "servers", request_body = Register,
    responses(
    (status = 200, description = "The result; `ok` says whether it started.", body = Trial),
    (status = 409, description = "`server.exists`: the name is taken."),
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

/// What is removed with a server.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovedWith {
    /// Whether its volumes are removed, too, with everything in them.
    #[serde(default)]
    volumes: bool,
}

/// Removes a registered server and waits until its process has ended. Succeeds for an unknown
/// server; a server from a configuration file is removed there.
#[utoipa::path(delete, path = "/api/v1/mcp/servers/{server}", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), RemovedWith), responses(
    (status = 204, description = "The server was removed."),
    (status = 409, description = "`server.of_file`: it comes from a configuration file, which the message \
        names; change that. `server.builtin`: it is Gantry's own example."),
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

/// How a server is restarted.
#[derive(Default, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Restart {
    /// Whether its image is pulled first, so that one that changed under its tag is taken.
    pull: bool,
}

// row 1.12
/// Restarts a server and resets its counters. With `pull` its image is pulled first, while the server goes
/// on, and the restart takes what the tag is now; a pull that fails leaves the server as it is. With
/// `Accept: text/event-stream` events named `progress` tell how far the pull is, and the last is `done` or
/// `failed`.
#[utoipa::path(post, path = "/api/v1/mcp/servers/{server}/restart", tag = "servers",
    params(("server" = String, Path, description = "Its name or id.")),
    request_body(content = Option<Restart>, description = "May be left out."), responses(
    (status = 200, description = "The server, starting.", content(
        (ServerStatusView = "application/json"), (Progress = "text/event-stream"))),
    (status = 403, description = "`auth.role`: `pull` needs the permission to manage the project."),
    (status = 404, description = "`server.unknown`: no such server."),
    (status = 409, description = "`server.no_image`: the server runs no image."),
    (status = 502, description = "`image.…`: the image cannot be pulled."),
))]
pub(super) async fn restart(
    In(project): In,
    By(actor): By,
    Who(caller): Who,
    Named(server): Named,
    headers: HeaderMap,
    body: OptionalBody,
) -> Result<Response, Problem> {
    let asked: Restart = body.read()?;
    if asked.pull {
        // Another image is another program, which needs more than the permission to restart.
        permit(&caller, Permission::Manage)?;
        return restart_with_newest(&project, actor, &server, &headers).await;
    }
    let restarted = project.restart(&actor, &server).await;
    let view = done(&project, &server, restarted)?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}

// fault C6
async fn restart_with_newest(
    project: &Arc<Project>,
    actor: Actor,
    server: &str,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    known(project, server)?;
    let stop = CancellationToken::new();
    let (tell, told) = stream::channel();
    let pulling = parking_lot::Mutex::new(stream::Pulling::default());
    let progress = move |step| tell.progress(pulling.lock().take(step));
    let working = {
        let (project, server, stop) = (Arc::clone(project), server.to_owned(), stop.clone());
        async move {
            let view = project.restart_with_newest(actor, &server, progress, stop);
            Ok(ServerStatusView::of(&view.await?, now_ms()))
        }
    };
    if is_wanted(headers) {
        return Ok(stream::answer(working, told, stop));
    }
    let _ends_with_its_caller = stop.drop_guard();
    let view = working.await?;
    Ok(json(StatusCode::OK, &view))
}
