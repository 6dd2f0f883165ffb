//! The project of a request: the one in its path, or else that of its key.
//!
//! `/api/v1/projects/NAME/REST` is rewritten to `/api/v1/REST` of the project `NAME` before
//! routing, so that every noun has one route, to which its permissions apply (fault U8). Only the
//! project's own keys and administrators of the installation may name a project; all other callers
//! get 404, whether it exists or not (fault T1). Entry points: [`within_project`] and [`acting`].

use axum::extract::Request;
use axum::response::Response;
use gantry_engine::Engine;
use gantry_model::caller::{Caller, Permission};
use gantry_model::id::ProjectName;
use http::header::LOCATION;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use crate::http::error::Problem;
use crate::http::shown;

const API: &str = "/api/v1/";
const PROJECTS: &str = "/api/v1/projects/";

/// Nouns that belong to no project.
const OUTSIDE: [&str; 4] = ["projects", "session", "openapi.json", "docs"];

/// The project that a request names in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named(ProjectName);

/// Reads the path of a request that names a project.
pub(crate) fn within_project(mut request: Request) -> Request {
    if let Some((project, uri)) = split(request.uri()) {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(Named(project));
    }
    request
}

fn split(uri: &Uri) -> Option<(ProjectName, Uri)> {
    let (project, rest) = uri.path().strip_prefix(PROJECTS)?.split_once('/')?;
    let noun = rest.split('/').next().unwrap_or_default();
    if noun.is_empty() || OUTSIDE.contains(&noun) {
        return None;
    }
    let project = project.parse().ok()?;
    let path = match uri.query() {
        Some(query) => format!("{API}{rest}?{query}"),
        None => format!("{API}{rest}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Some((project, Uri::from_parts(parts).ok()?))
}

/// Returns the caller as it acts: in the project that the request names, or in its own.
pub(super) fn acting(engine: &Engine, parts: &Parts, caller: Caller) -> Result<Caller, Problem> {
    let Some(Named(named)) = parts.extensions.get::<Named>() else {
        return itself(parts, caller);
    };
    if *named == caller.project {
        return Ok(caller);
    }
    match (caller.kind.may(Permission::Install), engine.project(named)) {
        (true, Some(_)) => Ok(Caller {
            project: named.clone(),
            ..caller
        }),
        (true, None) => Err(Problem::new("project.unknown")
            .with_detail(format!("no project `{named}` is loaded"))
            .with_hint(format!(
                "`gantry project ls` lists all; `gantry project load {named}` starts one again"
            ))),
        (false, _) => Err(unknown(named.as_str())),
    }
}

/// Returns the caller of a request about a project itself, as any other: who may not know of the project
/// is told that it is not there, before its role is judged.
fn itself(parts: &Parts, caller: Caller) -> Result<Caller, Problem> {
    match parts.uri.path().strip_prefix(PROJECTS) {
        Some(named) if *named != *caller.project.as_str() => {
            match caller.kind.may(Permission::Install) {
                true => Ok(caller),
                false => Err(unknown(named)),
            }
        }
        Some(_) | None => Ok(caller),
    }
}

/// The error for a project that is not there, or not for this caller.
pub(super) fn unknown(project: &str) -> Problem {
    Problem::new("project.unknown").with_detail(format!("no project `{}`", shown(project)))
}

/// Has the response of a request that named a project lead to where it belongs.
pub(super) fn relocate(named: Option<&str>, response: &mut Response) {
    let place = response.headers().get(LOCATION);
    let rest = place.and_then(|place| place.to_str().ok()?.strip_prefix(API));
    if let (Some(project), Some(rest)) = (named, rest)
        && let Ok(place) = HeaderValue::try_from(format!("{PROJECTS}{project}/{rest}"))
    {
        response.headers_mut().insert(LOCATION, place);
    }
}

/// Returns the project that a request names.
pub(super) fn named(parts: &Parts) -> Option<String> {
    let named = parts.extensions.get::<Named>();
    named.map(|Named(project)| project.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<(String, String)> {
        let (project, uri) = split(&path.parse().unwrap())?;
        Some((project.to_string(), uri.to_string()))
    }

    // fault U8
    #[test]
    fn a_path_names_its_project_or_is_left_as_it_is() {
        let is = |path: &str, project: &str, rest: &str| {
            assert_eq!(read(path), Some((project.to_owned(), rest.to_owned())));
        };
        is("/api/v1/projects/acme/keys", "acme", "/api/v1/keys");
        is(
            "/api/v1/projects/acme/keys?limit=1",
            "acme",
            "/api/v1/keys?limit=1",
        );
        is(
            "/api/v1/projects/acme/mcp/servers/a%2Fb/logs",
            "acme",
            "/api/v1/mcp/servers/a%2Fb/logs",
        );
        // What follows is matched as it stands: nothing is resolved.
        is("/api/v1/projects/acme/../keys", "acme", "/api/v1/../keys");
        for other in [
            "/api/v1/projects/acme",
            "/api/v1/projects/acme/",
            "/api/v1/projects/acme//keys",
            "/api/v1/projects//keys",
            "/api/v1/projects/a%63me/keys",
            "/api/v1/projects/acme/projects/other/keys",
            "/api/v1/projects/acme/session",
            "/API/v1/projects/acme/keys",
            "//api/v1/projects/acme/keys",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
