//! Calls over REST: `/api/v1/mcp/servers/{server}/call` for any method, and tools by exposed name
//! for `/api/v1/tools/call`, whose other formats are in `tools`.
//!
//! The caller's grants apply, as on `/mcp`. With `Prefer: respond-async` the response is 202 with
//! the call's id and the URL of its outcome. Disconnecting cancels the call.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::future::join_all;
use gantry_engine::{
    Announced, ClientIdentity, Engine, Lists, Project, Reply, Request, Scope, Surface,
};
use gantry_model::caller::{Caller, Context};
use gantry_model::id::{CallId, ServerName};
use gantry_model::jsonrpc::{Raw, RawBuf};
use http::header::{HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::body::{JsonBody, document, json};
use super::jobs::settled;
use super::servers::unknown_among;
use super::{Api, In, Named, Who};
use crate::http::context;
use crate::http::error::Problem;
use crate::http::limits::BodyPermit;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/mcp/servers/{server}/call", post(call_server))
}

/// A request of any method except the handshake.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"method": "tools/list"}))]
pub(super) struct MethodCall<'a> {
    /// The method, such as `tools/list` or `resources/read`.
    method: String,
    /// Its params, forwarded unchanged.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    params: Option<&'a RawValue>,
    /// Timeout; the server's own timeout applies as well.
    #[schema(minimum = 0, format = "uint64")]
    timeout_ms: Option<u64>,
}

/// A call of a tool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "files__read", "arguments": {"path": "/srv/notes.md"}}))]
pub(super) struct ToolCall<'a> {
    /// Its exposed name, or `server:tool`.
    name: String,
    /// Its arguments, checked against its schema.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    arguments: Option<&'a RawValue>,
    /// User, session, run, step and trace, as an alternative to headers.
    #[serde(borrow, rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<&'a RawValue>,
    /// Timeout; the server's own timeout applies as well.
    #[schema(minimum = 0, format = "uint64")]
    timeout_ms: Option<u64>,
}

/// The response to a call.
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "for the description; the answer is written around the raw result"
    )
)]
#[derive(Serialize, ToSchema)]
pub(super) struct Answered {
    /// The call's id in the audit log; absent if it was answered from memory.
    #[schema(nullable = false)]
    call: Option<String>,
    /// Whether the tool reported a failure.
    is_error: bool,
    /// The server's result, unchanged.
    #[schema(value_type = Object)]
    result: Box<RawValue>,
}

/// An asynchronous call.
#[derive(Serialize, ToSchema)]
pub(super) struct Accepted {
    /// The call's id: ask at `/api/v1/calls/{id}`. The response is kept for ten minutes after its
    /// end, unless the gateway stops; the audit row stays.
    #[schema(example = "call_0123456789abcdef0123456789abcdef")]
    id: String,
    /// `running`.
    #[schema(example = "running")]
    status: &'static str,
    /// The ids of all calls of a list, in order; the outcome of all is at the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    calls: Vec<String>,
}

impl Accepted {
    /// Shows a call that runs.
    pub(super) fn running(id: CallId) -> Self {
        Self {
            id: id.to_string(),
            status: "running",
            calls: Vec::new(),
        }
    }
}

/// An owned call that may outlive its request.
struct Wanted {
    caller: Caller,
    scope: Scope,
    method: String,
    params: Option<RawBuf>,
    context: Context,
    timeout: Option<Duration>,
    #[expect(dead_code, reason = "held for its drop")]
    room: BodyPermit,
}

// row 1.4
/// Sends any method except the handshake to one server, under its own names. The caller's grants
/// apply, and the call is recorded.
#[utoipa::path(post, path = "/api/v1/mcp/servers/{server}/call", tag = "tools", request_body = MethodCall<'static>,
    params(("server" = String, Path, description = "Its name or id."),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer 202 at once.")), responses(
    (status = 200, description = "The answer.", body = Answered),
    (status = 202, description = "With `Prefer: respond-async`: accepted; `Location` is the URL of its outcome.",
        body = Accepted, headers(("Location" = String, description = "The URL of its outcome."),
            ("Preference-Applied" = String, description = "`respond-async`."))),
))]
pub(super) async fn call_server(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    Named(server): Named,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: MethodCall<'_> = body.read()?;
    let is_handshake = matches!(asked.method.as_str(), "initialize" | "server/discover");
    if is_handshake || asked.method.starts_with("notifications/") {
        return Err(Problem::new("request.handshake")
            .with_detail("`initialize` is handled by the gateway")
            .with_hint("call any other method, such as `tools/list` or `tools/call`"));
    }
    let params = object("params", asked.params)?;
    let meta = params.and_then(|params| params.get("_meta"));
    let wanted = Wanted {
        scope: Scope::Server(name_of(&project, &server)?),
        context: context::read(&headers, meta)?,
        caller,
        method: asked.method,
        params: params.map(Raw::to_buf),
        timeout: asked.timeout_ms.map(Duration::from_millis),
        room: body.room(),
    };
    respond(&api, &headers, wanted).await
}

/// Calls a tool by exposed name, in MCP format.
pub(super) async fn call_tool(
    api: &Api,
    caller: Caller,
    headers: &HeaderMap,
    body: &JsonBody,
) -> Result<Response, Problem> {
    let asked: ToolCall<'_> = body.read()?;
    let (arguments, meta) = (
        object("arguments", asked.arguments)?,
        object("_meta", asked.meta)?,
    );
    let mut params = format!("{{\"name\":{}", RawBuf::string(&asked.name).text());
    for (key, value) in [("arguments", arguments), ("_meta", meta)] {
        if let Some(value) = value {
            params.push_str(&format!(",\"{key}\":{}", value.text()));
        }
    }
    params.push('}');
    let wanted = Wanted {
        scope: Scope::All,
        context: context::read(headers, meta)?,
        caller,
        method: "tools/call".to_owned(),
        params: Some(Raw::trusted(&params).to_buf()),
        timeout: asked.timeout_ms.map(Duration::from_millis),
        room: body.room(),
    };
    respond(api, headers, wanted).await
}

fn object<'a>(field: &str, value: Option<&'a RawValue>) -> Result<Option<Raw<'a>>, Problem> {
    let value = value
        .map(|value| Raw::trusted(value.get()))
        .filter(|value| !value.is_null());
    match value {
        Some(value) if !value.is_object() => {
            Err(Problem::new("request.body").with_detail(format!("`{field}` must be an object")))
        }
        value => Ok(value),
    }
}

/// Returns the server's name for a name or id; the engine checks the grants.
fn name_of(project: &Project, server: &str) -> Result<ServerName, Problem> {
    if let Some(view) = project.server(server) {
        return Ok(view.spec.name.clone());
    }
    match server {
        ServerName::NATIVE => Ok(ServerName::native()),
        _ => Err(unknown_among(server, [])),
    }
}

// row 2.9
async fn respond(api: &Api, headers: &HeaderMap, wanted: Wanted) -> Result<Response, Problem> {
    let (engine, caller) = (api.engine().clone(), wanted.caller.clone());
    let work = |announced: Vec<Announced>| {
        Box::pin(async move { run(&engine, &wanted, announced.into_iter().next()).await })
    };
    now_or_later(api, headers, (&caller, 1), work).await
}

/// How long to wait for a call's record before its id is returned.
const RECORDED: Duration = Duration::from_secs(5);

/// Answers when the work is done, or at once with the URL of its outcome, as the client prefers;
/// work that ends without a record, such as a refusal during shutdown, is answered directly. The
/// work consists of `calls` calls and gets their ids if they are announced.
pub(super) async fn now_or_later<F>(
    api: &Api,
    headers: &HeaderMap,
    (caller, calls): (&Caller, usize),
    work: impl FnOnce(Vec<Announced>) -> F,
) -> Result<Response, Problem>
where
    F: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    if !prefers_async(headers) {
        return work(Vec::new()).await;
    }
    let announcing = (0..calls.max(1)).map(|_| api.engine().announce());
    let (announced, recorded): (Vec<_>, Vec<_>) = announcing.unzip();
    let ids: Vec<CallId> = announced.iter().map(Announced::id).collect();
    let id = ids[0];
    let work = work(announced);
    let (ended, end) = oneshot::channel();
    api.jobs.start(caller, id, async move {
        let response = work.await.unwrap_or_else(Problem::into_response);
        let headers = response.headers().clone();
        let (status, body) = settled(response).await;
        // Received only while no id was returned.
        ended.send((status, headers, body.clone())).ok();
        (status, body)
    })?;
    // A returned id is in the audit log, even if this process is killed.
    let recorded = timeout(RECORDED, join_all(recorded)).await;
    if recorded.is_ok_and(|recorded| recorded.iter().all(Result::is_err)) {
        // It has ended or is about to, and its id was never returned.
        let ended = end.await;
        api.jobs.forget(id);
        let (status, headers, body) = ended.map_err(|_| Problem::panic())?;
        let mut response = Response::new(Body::from(body));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        return Ok(response);
    }
    let mut accepted = Accepted::running(id);
    if ids.len() > 1 {
        accepted.calls = ids.iter().map(CallId::to_string).collect();
    }
    let mut response = json(StatusCode::ACCEPTED, &accepted);
    let place = HeaderValue::try_from(format!("/api/v1/calls/{id}")).expect("an id is safe");
    response.headers_mut().insert(LOCATION, place);
    let applied = HeaderValue::from_static("respond-async");
    response
        .headers_mut()
        .insert(HeaderName::from_static("preference-applied"), applied);
    Ok(response)
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let wishes = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok());
    wishes
        .flat_map(|value| value.split([',', ';']))
        .any(|wish| wish.trim().eq_ignore_ascii_case("respond-async"))
}

async fn run(
    engine: &Engine,
    wanted: &Wanted,
    announced: Option<Announced>,
) -> Result<Response, Problem> {
    let request = Request {
        surface: Surface::Rest,
        scope: wanted.scope.clone(),
        method: &wanted.method,
        params: wanted.params.as_ref().map(RawBuf::as_raw).into(),
        context: wanted.context.clone(),
        client: None,
        timeout: wanted.timeout,
        lists: match wanted.scope {
            Scope::All => Lists::FromCatalog,
            Scope::Server(_) => Lists::FromServer,
        },
        identity: ClientIdentity::Anyone,
        reason: None,
    };
    let reply = engine
        .request_announced(&wanted.caller, request, announced)
        .await?;
    let mut response = document(StatusCode::OK, answer(&reply));
    if !reply.permit.is_empty() {
        response.extensions_mut().insert(reply.permit);
    }
    Ok(response)
}

/// Writes `{"call":…,"is_error":…,"result":…}` around the raw result.
fn answer(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::with_capacity(reply.result.len() + 96);
    out.push(b'{');
    if let Some(call) = reply.call {
        out.extend_from_slice(format!("\"call\":\"{call}\",").as_bytes());
    }
    let is_error: &[u8] = if reply.is_error { b"true" } else { b"false" };
    out.extend_from_slice(b"\"is_error\":");
    out.extend_from_slice(is_error);
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(&reply.result);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_wish_for_a_later_answer_is_found_among_others() {
        let prefers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("prefer", value.parse().unwrap());
            }
            prefers_async(&headers)
        };
        assert!(prefers(&["respond-async"]) && prefers(&["wait=5, Respond-Async"]));
        assert!(prefers(&["return=minimal", "respond-async"]));
        assert!(!prefers(&[]) && !prefers(&["wait=5"]) && !prefers(&["respond-asynchronously"]));
    }

    #[test]
    fn a_result_is_wrapped_untouched() {
        let result = Bytes::from_static(br#"{"x":1.0}"#);
        let reply = Reply {
            call: None,
            result,
            upstream: None,
            is_error: false,
            is_odd: false,
            warning: None,
            permit: Default::default(),
        };
        assert_eq!(answer(&reply), br#"{"is_error":false,"result":{"x":1.0}}"#);
    }
}
