//! A page per error code, `/errors/{code}`: what it means, the responsible party, what to do.
//! Public; `type` of every problem document links here.
//!
//! The pages are the embedded files of `docs/errors`; a tidy test keeps them complete.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;

use super::{Api, Named, html};
use crate::http::error::Problem;

include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// Codes of release 0.1 under their new names, so that old links still work.
const RENAMED: [(&str, &str); 2] = [
    ("client.homeless", "client.no_home"),
    ("stdio.nonsense", "stdio.not_a_gateway"),
];

/// Returns the routes, which need no key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/errors", get(list))
        .route("/errors/{code}", get(one))
}

/// Lists all error codes with their meanings.
#[utoipa::path(get, path = "/errors", tag = "about", operation_id = "errors", responses(
    (status = 200, description = "The page.", body = String, content_type = "text/html"),
))]
pub(super) async fn list(State(_): State<Api>) -> Response {
    let mut body = "<h1>Error codes</h1>\n<table>".to_owned();
    for (code, text) in PAGES {
        let meaning = text.split("\n\n").nth(1).unwrap_or_default();
        let (code, meaning) = (
            html::escaped(code),
            html::prose(&meaning.replace('\n', " ")),
        );
        body.push_str(&format!(
            "<tr><td><a href=\"/errors/{code}\"><code>{code}</code></a></td><td>{meaning}</td></tr>\n"
        ));
    }
    body.push_str("</table>");
    html::page(StatusCode::OK, "Gantry: error codes", &body)
}

/// Shows an error code: its meaning, the responsible party, and what to do.
#[utoipa::path(get, path = "/errors/{code}", tag = "about", operation_id = "error",
    params(("code" = String, Path, description = "The code.", example = "server.unknown")), responses(
    (status = 200, description = "The page.", body = String, content_type = "text/html"),
    (status = 404, description = "`http.route`: there is no such code."),
))]
pub(super) async fn one(Named(code): Named) -> Result<Response, Problem> {
    let renamed = RENAMED.iter().find(|(old, _)| *old == code);
    let code = renamed.map_or(code.as_str(), |(_, new)| new);
    let place = PAGES.binary_search_by(|(known, _)| (*known).cmp(code));
    let (code, text) = place.map(|place| PAGES[place]).map_err(|_| {
        Problem::new("http.route")
            .with_detail("there is no such error code")
            .with_hint("`/errors` lists them")
    })?;
    let body = format!(
        "{}<p class=\"note\"><a href=\"/errors\">all codes</a></p>",
        html::markdown(text)
    );
    Ok(html::page(
        StatusCode::OK,
        &format!("Gantry: {code}"),
        &body,
    ))
}
