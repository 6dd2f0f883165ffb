//! `GET /`: the welcome page of the gateway.
//!
//! Public, so it names no server, no key and nothing of this machine. Its script signs in with the
//! code of a sign-in link and then shows the servers. Entry point: [`routes`].

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::json;
use super::{Api, html};

/// Returns the route, which needs no key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/", get(welcome))
        .route("/sign-in.js", get(script))
}

const SCRIPT: &str = include_str!("welcome/sign_in.js");

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'";

/// Returns the script of the page.
async fn script() -> Response {
    let kind = HeaderValue::from_static("text/javascript; charset=utf-8");
    ([(CONTENT_TYPE, kind)], SCRIPT).into_response()
}

const WHAT: &str = "Gantry runs, connects and guards MCP servers for AI agents.";

/// Links.
const PLACES: [(&str, &str); 5] = [
    ("/mcp", "the MCP endpoint, for clients with an agent's key"),
    ("/healthz", "status: whether calls are accepted"),
    (
        "/api/v1/docs",
        "docs: the REST API, for programs and administrators",
    ),
    ("/api/v1/openapi.json", "the same as OpenAPI 3.1"),
    ("/errors", "what every error code means, and what to do"),
];

const NEXT: &str = "On the command line, in the folder of this gateway: `gantry status` shows its servers, \
                    `gantry open` signs this browser in, `gantry connect CLIENT` connects a client, \
                    `gantry --help` has the rest.";

/// What Gantry is, and links.
#[derive(Serialize, ToSchema)]
pub(super) struct Welcome {
    /// `gantry`.
    name: &'static str,
    /// What it does.
    description: &'static str,
    /// Its state in a word.
    #[schema(example = "ok")]
    status: &'static str,
    /// The MCP endpoint.
    mcp: &'static str,
    /// Whether calls are accepted.
    health: &'static str,
    /// The REST API for people.
    docs: &'static str,
    /// The REST API for programs.
    openapi: &'static str,
    /// What the error codes mean.
    errors: &'static str,
}

/// Returns what this is, with links to docs and status: as HTML, JSON or text. Needs no key and
/// names no server.
#[utoipa::path(get, path = "/", tag = "about", responses(
    (status = 200, description = "What this is.", content(
        (String = "text/html"), (Welcome = "application/json"), (String = "text/plain"))),
))]
pub(super) async fn welcome(State(api): State<Api>, headers: HeaderMap) -> Response {
    let status = api.engine().health_status().as_str();
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let accepts = |kind: &str| accepted.iter().any(|value| value.contains(kind));
    let mut response = if accepts("text/html") {
        let mut page = html::page(StatusCode::OK, "Gantry", &page(status));
        let headers = page.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        page
    } else if accepts("application/json") {
        let welcome = Welcome {
            name: "gantry",
            description: WHAT,
            status,
            mcp: "/mcp",
            health: "/healthz",
            docs: "/api/v1/docs",
            openapi: "/api/v1/openapi.json",
            errors: "/errors",
        };
        json(StatusCode::OK, &welcome)
    } else {
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        ([(CONTENT_TYPE, kind)], text(status)).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn page(status: &str) -> String {
    let rows: String = PLACES
        .iter()
        .map(|(path, what)| {
            format!("<tr><td><a href=\"{path}\"><code>{path}</code></a></td><td>{what}</td></tr>\n")
        })
        .collect();
    format!(
        "<h1>Gantry</h1>\n<p>{WHAT} This gateway is running; its status is <strong>{}</strong>.</p>\n\
         <div id=\"session\"></div>\n<table>{rows}</table>\n<p>{}</p>\n\
         <script src=\"/sign-in.js\"></script>",
        html::escaped(status),
        html::prose(NEXT)
    )
}

fn text(status: &str) -> String {
    let places: String = PLACES
        .iter()
        .map(|(path, what)| format!("  {path:<22}{what}\n"))
        .collect();
    format!("{WHAT}\nThis gateway is running; its status is {status}.\n\n{places}\n{NEXT}\n")
}
