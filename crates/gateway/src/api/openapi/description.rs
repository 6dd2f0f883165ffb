//! Generates the OpenAPI document from the descriptions next to the handlers.
//!
//! Entry point: [`generated`]. Built in tests only; `docs/openapi.json` must be equal.

use std::collections::BTreeMap;

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, Ref, RefOr, Response as Described, ResponseBuilder, SecurityRequirement,
};
use utoipa::{Modify, OpenApi};

use super::super::{
    acts, agents, approvals, audit, auth, call, calls, errors, events, grants, groups, health,
    history, hooks, images, keys, policy, products, projects, registrations, secrets, servers,
    session, settings, suspensions, tools, volumes, welcome,
};

/// Returns the generated document.
pub(super) fn generated() -> String {
    let text = Document::openapi().to_pretty_json();
    text.expect("a description is always JSON") + "\n"
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gantry",
        description = "Runs, connects and guards MCP servers for AI agents.\n\nEvery route but the \
            public ones takes a key as `Authorization: Bearer KEY`, or, from a page of the gateway, a session \
            cookie and `X-Gantry-Session`. Refusals and failures are problem \
            documents (RFC 9457) with a stable `code`; `type` links to the page about it. Lists come \
            in pages: `next_cursor` of one page is `cursor` of the next."
    ),
    paths(
        servers::list, servers::register, servers::status, servers::replace, servers::change,
        servers::remove, servers::restart, servers::preview, servers::test,
        images::list, images::pull, images::remove, images::prune, images::tags::check,
        images::logins::list, images::logins::log_in, images::logins::log_out,
        volumes::list, volumes::back_up, volumes::remove, volumes::prune,
        secrets::list, secrets::one, secrets::set, secrets::remove, secrets::bind, secrets::unbind,
        auth::begin, auth::show, auth::end, auth::callback,
        history::logs, history::events, history::all_events, events::stream,
        session::sign_in, session::show, session::sign_out, session::new_code,
        acts::list, acts::confirm_clock,
        audit::verify, audit::key, audit::holds, audit::hold, audit::release, audit::erase,
        tools::list, tools::call::call, tools::why::why, tools::changes::changes,
        tools::changes::versions, tools::changes::approve, tools::changes::refuse, call::call_server,
        calls::list, calls::export::export, calls::one, calls::take_back,
        agents::list, agents::create, agents::one, agents::change, agents::remove,
        grants::list, grants::add, grants::one, grants::remove,
        groups::list, groups::create, groups::one, groups::change, groups::remove,
        policy::test,
        keys::list, keys::create, keys::one, keys::change, keys::rotate, keys::revoke,
        settings::list, settings::change, hooks::list, hooks::set, hooks::remove,
        approvals::list, approvals::one, approvals::allow, approvals::refuse,
        projects::list, projects::create, projects::one, projects::change, projects::remove,
        products::list, products::install, products::preview, products::one, products::uninstall,
        suspensions::list, suspensions::suspend, suspensions::resume,
        registrations::list, registrations::one, registrations::approve, registrations::refuse,
        health::alive, health::health, health::acknowledge, health::metrics,
        super::openapi, super::docs, errors::list, errors::one, welcome::welcome,
    ),
    components(schemas(call::ToolCall<'static>, crate::http::error::ProblemDocument<'static>)),
    modifiers(&Common),
    tags(
        (name = "servers", description = "The servers that the gateway runs. Admin keys only."),
        (name = "images", description = "The images that hosted servers run. Admin keys of the gateway's own project only."),
        (name = "secrets", description = "Secrets of the project, by name: never their values. Admin keys only."),
        (name = "volumes", description = "Volumes of hosted servers. Admin keys only."),
        (name = "tools", description = "Tools, calls, and explanations of grants. Any key; `why` takes admin keys only."),
        (name = "calls", description = "The record of every call. An agent sees its own."),
        (name = "audit", description = "The chain of the record, holds on it, and erasure. Admin keys only."),
        (name = "agents", description = "Agents, their grants and filters. Admin keys only."),
        (name = "grants", description = "Grants for agents, keys and all agents, and groups of servers. Admin keys only."),
        (name = "groups", description = "Named sets of servers that grants may name. Admin keys only."),
        (name = "keys", description = "Keys of agents and administrators. Admin keys only."),
        (name = "projects", description = "Projects. Making, unloading and deleting them needs the role `installation`."),
        (name = "products", description = "Servers that come together by a manifest. Admin keys only."),
        (name = "suspensions", description = "Emergency stops of projects, agents, servers and tools; grants are kept. Admin keys only."),
        (name = "registrations", description = "Changes that wait for a second person's approval. Admin keys only."),
        (name = "approvals", description = "Calls that wait for an approver. Keys of the roles `approver` and above."),
        (name = "hooks", description = "Commands and endpoints that look at requests and results. Admin keys only."),
        (name = "settings", description = "The settings of the project. Admin keys only."),
        (name = "session", description = "Browser sessions: a sign-in code or a key becomes a cookie and a token."),
        (name = "acts", description = "Administrative acts, and refused attempts. Admin keys only."),
        (name = "health", description = "Health and metrics of the gateway."),
        (name = "about", description = "About this API itself. Public."),
    )
)]
struct Document;

/// Routes that need no key.
pub(super) const PUBLIC: [&str; 7] = [
    "/",
    "/healthz",
    "/api/v1/openapi.json",
    "/api/v1/docs",
    "/errors",
    "/errors/{code}",
    "/oauth/callback",
];

/// Routes that accept any key; all others that are not public need an admin key.
const ANY_KEY: [&str; 8] = [
    "/api/v1/session",
    "/api/v1/session/codes",
    "/api/v1/tools",
    "/api/v1/tools/call",
    "/api/v1/mcp/servers/{server}/call",
    "/api/v1/calls",
    "/api/v1/calls/export",
    "/api/v1/calls/{call}",
];

/// Routes that call a server.
const CALLING: [&str; 2] = ["/api/v1/tools/call", "/api/v1/mcp/servers/{server}/call"];

/// How calls fail, besides the refusals of any request.
const CALL_FAILURES: [(&str, &str); 5] = [
    (
        "404",
        "`server.unknown`, `tool.unknown`, `item.unknown` or `method.unknown`.",
    ),
    ("499", "`call.cancelled`: it was cancelled."),
    (
        "502",
        "The server failed: `server.exited`, `server.protocol`, `schema.output` and others.",
    ),
    (
        "503",
        "`server.down`: it is not running; the detail says why and when it is retried.",
    ),
    ("504", "`call.timeout`: no response in time."),
];

/// Adds the common parts of every operation: keys, and refusals before the handler.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An admin's or an agent's key."))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
        for (path, item) in &mut document.paths.paths {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.patch,
                &mut item.delete,
            ];
            for operation in operations.into_iter().flatten() {
                complete(path, operation);
            }
        }
    }
}

fn complete(path: &str, operation: &mut Operation) {
    let mut refusals = BTreeMap::from([
        (
            "400",
            "The request cannot be understood: `http.host`, `request.query`, `wire.*`.",
        ),
        (
            "403",
            "`http.origin`, `http.host`: it comes from another web page, or names another host.",
        ),
        ("default", "Any other refusal or failure."),
    ]);
    // Handlers of different nouns may share a name; operation ids may not.
    let noun = operation.tags.iter().flatten().next();
    if let (Some(noun), Some(name)) = (noun, &operation.operation_id) {
        operation.operation_id = Some(format!("{noun}_{name}"));
    }
    if !PUBLIC.contains(&path) {
        let none: [&str; 0] = [];
        operation.security = Some(vec![SecurityRequirement::new("key", none)]);
        refusals.insert(
            "401",
            "`auth.no_key`, `auth.wrong_key`, `auth.session` and others: no valid key or session.",
        );
        refusals.insert(
            "429",
            "`auth.attempts`, `server.busy`, `call.too_many_async`: retry later.",
        );
        let not_theirs = match ANY_KEY.contains(&path) {
            true => {
                "`http.origin`: it comes from another web page; `grant.unbound`: the agent has no grant."
            }
            false => {
                "`http.origin`: it comes from another web page; `auth.agent_key`: an admin key is needed."
            }
        };
        refusals.insert("403", not_theirs);
    }
    if operation.request_body.is_some() {
        refusals.insert("408", "`http.slow_body`: the body did not arrive in time.");
        refusals.insert("413", "`http.body_too_large`: the body is over 4 MiB.");
        refusals.insert(
            "415",
            "`http.content_type`: only `application/json` is accepted.",
        );
        refusals.insert(
            "422",
            "The body is JSON, but not what is expected; `issues` names the field.",
        );
    }
    if CALLING.contains(&path) {
        refusals.extend(CALL_FAILURES);
    }
    let known = &mut operation.responses.responses;
    for (status, response) in known.iter_mut() {
        let is_failure = status.starts_with(['4', '5']);
        if let (true, RefOr::T(response)) = (is_failure, response)
            && response.content.is_empty()
        {
            *response = problem(&response.description);
        }
    }
    for (status, what) in refusals {
        known
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(problem(what)));
    }
}

/// Describes a refusal or failure, which is a problem document.
fn problem(what: &str) -> Described {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    let response = ResponseBuilder::new()
        .description(what)
        .content("application/problem+json", content.build());
    response.build()
}
