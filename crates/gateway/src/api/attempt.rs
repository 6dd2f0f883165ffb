//! Records administrative requests that were refused before they reached the engine: an agent's key
//! on an administrator's route, an unreadable body, an unknown name. The engine bounds the records
//! and counts repetitions. Entry points: [`Attempt::of`] and [`Attempt::refuse`].

use std::sync::Arc;

use axum::extract::MatchedPath;
use axum::response::Response;
use gantry_engine::{Actor, Project};
use http::Method;
use http::request::Parts;

use crate::http::error::ProblemCode;

/// What a request would do.
pub(super) struct Attempt {
    act: &'static str,
    target: String,
    is_change: bool,
}

impl Attempt {
    /// Derives the attempted act from the route.
    pub(super) fn of(parts: &Parts) -> Self {
        let path = parts.uri.path();
        let route = parts.extensions.get::<MatchedPath>();
        let route = route.map_or(path, MatchedPath::as_str);
        let named = named(route, path);
        Self {
            act: act(&parts.method, route, named),
            target: named.unwrap_or(path).to_owned(),
            is_change: !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS),
        }
    }

    /// Records a refused attempt.
    pub(super) async fn refuse(self, project: &Arc<Project>, by: &Actor, code: &'static str) {
        project.refuse_act(by, self.act, &self.target, code).await;
    }

    /// Returns why an administrator's change was refused before it reached the engine.
    pub(super) fn refusal(&self, by: &Actor, response: &Response) -> Option<&'static str> {
        if !self.is_change || by.is_recorded() || response.status().is_success() {
            return None;
        }
        let code = response.extensions().get::<ProblemCode>();
        Some(code.map_or("unknown", |ProblemCode(code)| code))
    }
}

/// Returns the path segment at the parameter of the route.
fn named<'p>(route: &str, path: &'p str) -> Option<&'p str> {
    let mut parts = route.split('/').zip(path.split('/'));
    parts
        .find(|(part, _)| part.starts_with('{'))
        .map(|(_, name)| name)
}

fn act(method: &Method, route: &str, named: Option<&str>) -> &'static str {
    const SERVERS: &str = "/api/v1/mcp/servers";
    let below = route.strip_prefix(SERVERS);
    match (method.as_str(), below, route) {
        ("GET" | "HEAD" | "OPTIONS", ..) => "admin.read",
        ("POST", Some(""), _) => "server.register",
        ("PUT" | "PATCH", Some("/{server}"), _) => "server.replace",
        ("DELETE", Some("/{server}"), _) => "server.remove",
        ("POST", Some("/{server}"), _) => match named {
            Some("preview") => "server.preview",
            Some("test") => "server.test",
            Some(_) | None => "admin.request",
        },
        ("POST", Some("/{server}/restart"), _) => "server.restart",
        ("POST", Some("/{server}/auth"), _) => "server.sign_in",
        ("DELETE", Some("/{server}/auth"), _) => "server.sign_out",
        ("POST", _, "/api/v1/agents") => "agent.create",
        ("PATCH", _, "/api/v1/agents/{agent}") => "agent.change",
        ("DELETE", _, "/api/v1/agents/{agent}") => "agent.remove",
        ("POST", _, "/api/v1/keys") => "key.create",
        ("DELETE", _, "/api/v1/keys/{key}") => "key.revoke",
        ("PUT", _, "/api/v1/secrets/{secret}") => "secret.set",
        ("DELETE", _, "/api/v1/secrets/{secret}") => "secret.remove",
        ("PUT", _, "/api/v1/secrets/{secret}/bindings/{server}") => "secret.bind",
        ("DELETE", _, "/api/v1/secrets/{secret}/bindings/{server}") => "secret.unbind",
        ("PATCH", _, "/api/v1/settings") => "settings.change",
        ("PUT", _, "/api/v1/hooks/{hook}") | ("DELETE", _, "/api/v1/hooks/{hook}") => {
            "settings.change"
        }
        ("POST", _, "/api/v1/grants") => "grant.add",
        ("DELETE", _, "/api/v1/grants/{grant}") => "grant.remove",
        ("POST", _, "/api/v1/groups") => "group.create",
        ("PATCH", _, "/api/v1/groups/{group}") => "group.change",
        ("DELETE", _, "/api/v1/groups/{group}") => "group.remove",
        ("POST", _, "/api/v1/approvals/{call}/allow") => "call.allow",
        ("POST", _, "/api/v1/approvals/{call}/refuse") => "call.refuse",
        ("POST", _, "/api/v1/tools/approve") => "tool.approve",
        ("POST", _, "/api/v1/tools/refuse") => "tool.refuse",
        ("POST", _, "/api/v1/audit/holds") => "audit.hold",
        ("DELETE", _, "/api/v1/audit/holds/{hold}") => "audit.release",
        ("POST", _, "/api/v1/audit/erase") => "audit.erase",
        ("PATCH", _, "/api/v1/keys/{key}") => "key.change",
        ("POST", _, "/api/v1/keys/{key}/rotate") => "key.rotate",
        ("POST", _, "/api/v1/products/preview") => "product.preview",
        ("POST", _, "/api/v1/products") => "product.install",
        ("DELETE", _, "/api/v1/products/{product}") => "product.uninstall",
        ("POST", _, "/api/v1/projects") => "project.create",
        ("PATCH", _, "/api/v1/projects/{project}") => "project.change",
        ("DELETE", _, "/api/v1/projects/{project}") => "project.delete",
        ("POST", _, "/api/v1/suspensions") => "suspend",
        ("DELETE", _, "/api/v1/suspensions") => "resume",
        ("POST", _, "/api/v1/registrations/{registration}/approve") => "registration.approve",
        ("POST", _, "/api/v1/registrations/{registration}/refuse") => "registration.refuse",
        ("POST", _, "/api/v1/audit/confirm-clock") => "clock.confirm",
        ("POST", _, "/api/v1/health/acknowledge") => "journal.acknowledge",
        _ => "admin.request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault U4: what is refused is on record as what it would have been
    #[test]
    fn every_change_has_a_name() {
        for (method, route) in [
            ("POST", "/api/v1/grants"),
            ("DELETE", "/api/v1/groups/{group}"),
            ("PUT", "/api/v1/hooks/{hook}"),
            ("POST", "/api/v1/approvals/{call}/allow"),
            ("POST", "/api/v1/tools/approve"),
            ("DELETE", "/api/v1/audit/holds/{hold}"),
            ("POST", "/api/v1/keys/{key}/rotate"),
        ] {
            let act = act(&method.parse().unwrap(), route, None);
            assert_ne!(act, "admin.request", "{method} {route}");
        }
    }

    #[test]
    fn a_route_tells_what_would_be_done_to_what() {
        let of = |method: &str, route: &str, path| {
            let named = named(route, path);
            (act(&method.parse().unwrap(), route, named), named)
        };
        let server = "/api/v1/mcp/servers/{server}";
        assert_eq!(
            of("DELETE", server, "/api/v1/mcp/servers/files"),
            ("server.remove", Some("files"))
        );
        assert_eq!(
            of("POST", server, "/api/v1/mcp/servers/test").0,
            "server.test"
        );
        let restart = "/api/v1/mcp/servers/{server}/restart";
        assert_eq!(
            of("POST", restart, "/api/v1/mcp/servers/a/restart"),
            ("server.restart", Some("a"))
        );
        assert_eq!(
            of("GET", "/api/v1/keys", "/api/v1/keys"),
            ("admin.read", None)
        );
        assert_eq!(of("POST", "/api/v1/keys", "/api/v1/keys").0, "key.create");
        assert_eq!(of("PUT", "/metrics", "/metrics").0, "admin.request");
    }
}
