//! Which permission an administrator needs for a route. A route that is not listed needs `manage`,
//! so that a forgotten route is closed to the smaller roles.
//!
//! The tenant matrix (`tests/it/tenants`) tries every route with every role. Entry point:
//! [`needed`].

use axum::extract::MatchedPath;
use gantry_model::caller::Permission;
use http::request::Parts;

use Permission::{Approve, Audit, Install, Operate, Read};

/// Method, route and permission of every administrative route that does not need `manage`, and of
/// the routes for any key when an administrator uses them.
const ROUTES: &[(&str, &str, Permission)] = &[
    ("GET", "/api/v1/mcp/servers", Read),
    ("GET", "/api/v1/mcp/servers/{server}", Read),
    ("GET", "/api/v1/mcp/servers/{server}/auth", Read),
    ("GET", "/api/v1/mcp/servers/{server}/events", Read),
    ("GET", "/api/v1/events", Read),
    ("GET", "/api/v1/events/stream", Read),
    ("GET", "/api/v1/tools", Read),
    ("GET", "/api/v1/tools/why", Read),
    ("GET", "/api/v1/tools/changes", Read),
    ("GET", "/api/v1/tools/versions", Read),
    ("POST", "/api/v1/tools/approve", Approve),
    ("GET", "/api/v1/approvals", Approve),
    ("GET", "/api/v1/approvals/{call}", Approve),
    ("POST", "/api/v1/approvals/{call}/allow", Approve),
    ("POST", "/api/v1/approvals/{call}/refuse", Approve),
    ("POST", "/api/v1/tools/refuse", Approve),
    ("GET", "/api/v1/agents", Read),
    ("GET", "/api/v1/agents/{agent}", Read),
    ("GET", "/api/v1/grants", Read),
    ("GET", "/api/v1/grants/{grant}", Read),
    ("GET", "/api/v1/groups", Read),
    ("GET", "/api/v1/groups/{group}", Read),
    ("GET", "/api/v1/keys", Read),
    ("GET", "/api/v1/keys/{key}", Read),
    ("GET", "/api/v1/settings", Read),
    ("GET", "/api/v1/hooks", Read),
    ("GET", "/api/v1/products", Read),
    ("GET", "/api/v1/products/{product}", Read),
    ("GET", "/api/v1/projects", Read),
    ("GET", "/api/v1/projects/{project}", Read),
    ("GET", "/api/v1/suspensions", Read),
    ("GET", "/api/v1/registrations", Read),
    ("GET", "/api/v1/registrations/{registration}", Read),
    ("GET", "/api/v1/volumes", Read),
    ("GET", "/api/v1/secrets", Read),
    ("GET", "/api/v1/secrets/{secret}", Read),
    // The engine refuses administrators who may also edit servers: they could read every secret.
    ("PUT", "/api/v1/secrets/{secret}/bindings/{server}", Approve),
    ("GET", "/api/v1/health", Read),
    ("GET", "/metrics", Read),
    ("GET", "/api/v1/session", Read),
    ("DELETE", "/api/v1/session", Read),
    ("POST", "/api/v1/session/codes", Read),
    ("GET", "/api/v1/mcp/servers/{server}/logs", Operate),
    ("POST", "/api/v1/mcp/servers/{server}/restart", Operate),
    ("DELETE", "/api/v1/calls/{call}", Operate),
    // Suspending agents or the project needs `manage`, which the handler checks.
    ("POST", "/api/v1/suspensions", Operate),
    ("DELETE", "/api/v1/suspensions", Operate),
    (
        "POST",
        "/api/v1/registrations/{registration}/approve",
        Approve,
    ),
    (
        "POST",
        "/api/v1/registrations/{registration}/refuse",
        Approve,
    ),
    ("GET", "/api/v1/acts", Audit),
    ("GET", "/api/v1/audit/verify", Audit),
    ("GET", "/api/v1/audit/key", Audit),
    ("GET", "/api/v1/audit/holds", Audit),
    ("GET", "/api/v1/calls", Audit),
    ("GET", "/api/v1/calls/export", Audit),
    ("GET", "/api/v1/calls/{call}", Audit),
    ("POST", "/api/v1/projects", Install),
    ("PATCH", "/api/v1/projects/{project}", Install),
    ("DELETE", "/api/v1/projects/{project}", Install),
    ("POST", "/api/v1/audit/confirm-clock", Install),
    ("POST", "/api/v1/health/acknowledge", Install),
    ("GET", "/api/v1/images/logins", Read),
    ("POST", "/api/v1/images/check", Operate),
    ("GET", "/api/v1/images", Install),
    ("POST", "/api/v1/images", Install),
    ("DELETE", "/api/v1/images", Install),
    ("POST", "/api/v1/images/prune", Install),
];

/// Returns the permission that an administrator needs for a request.
pub(super) fn needed(parts: &Parts) -> Permission {
    let route = parts.extensions.get::<MatchedPath>();
    of(parts.method.as_str(), route.map_or("", MatchedPath::as_str))
}

/// Returns the permission that an administrator needs for a route.
fn of(method: &str, route: &str) -> Permission {
    let method = if method == "HEAD" { "GET" } else { method };
    let listed = ROUTES
        .iter()
        .find(|(known, path, _)| *known == method && *path == route);
    listed.map_or(Permission::Manage, |(_, _, needed)| *needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault U3
    #[test]
    fn what_is_not_listed_needs_manage_and_reading_changes_nothing() {
        assert_eq!(of("POST", "/api/v1/not/there"), Permission::Manage);
        assert_eq!(of("PUT", "/api/v1/keys"), Permission::Manage);
        assert_eq!(of("HEAD", "/api/v1/keys"), Read);
        let own_session = |path: &str| path.starts_with("/api/v1/session");
        for (method, path, needed) in ROUTES {
            let reads = matches!(needed, Read | Audit) && !own_session(path);
            assert!(!reads || *method == "GET", "{method} {path}");
        }
    }
}
