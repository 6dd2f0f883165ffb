//! The REST API under `/api/v1`, one file per noun, and `/healthz` and `/metrics`.
//!
//! A route is in one of four lists, which decides who may use it: public, any key, administrators,
//! and signing in (`session`). `permissions` defines which permission an administrator needs for
//! it; a route that is not listed there needs `manage`. Responses are types of `views`, never the
//! engine's. Each route is described next to its handler; `openapi` collects the descriptions, and
//! a test compares them with the routes. Entry point: `router`.

mod acts;
mod agents;
mod approvals;
mod attempt;
pub(crate) mod audit;
pub(crate) mod auth;
mod body;
mod call;
mod calls;
mod errors;
mod events;
mod form;
mod grants;
mod groups;
mod health;
mod history;
mod hooks;
mod html;
mod images;
mod jobs;
mod keys;
mod limits;
mod openapi;
mod permissions;
mod policy;
mod products;
mod projects;
mod query;
mod reference;
mod register;
mod registrations;
mod scope;
mod secrets;
mod servers;
pub(crate) mod session;
mod settings;
mod suspensions;
mod tools;
mod views;
mod volumes;
mod welcome;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use gantry_engine::{Actor, Engine, Project};
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::spec::{Guarded, ServerSpec};
use http::request::Parts;

use self::attempt::Attempt;
use self::history::stream::PER_KEY;
use self::jobs::Jobs;
pub(crate) use self::scope::within_project;
use crate::config::guarded;
use crate::http::auth::{Authenticated, Gate, actor, permit};
use crate::http::error::{Problem, no_route};
use crate::http::limits::{Bodies, Streams, streams};
use crate::http::wrong_method;

/// The state of all handlers.
#[derive(Clone)]
pub(crate) struct Api {
    gate: Gate,
    jobs: Jobs,
    streams: Streams,
    guarded: Arc<Guarded>,
    version: &'static str,
}

impl Api {
    fn engine(&self) -> &Engine {
        &self.gate.engine
    }

    /// Returns the project of a caller; a removed project has no valid keys.
    fn project(&self, caller: &Caller) -> Result<Arc<Project>, Problem> {
        let project = self.engine().project(&caller.project);
        project.ok_or_else(|| Problem::new("auth.wrong_key"))
    }

    /// Refuses a spec whose hosted server could write to files that would let it escape its
    /// isolation.
    fn guard(&self, spec: &ServerSpec) -> Result<(), Problem> {
        let checked = guarded::check(&self.guarded, spec);
        checked.map_err(|error| gantry_engine::EngineError::from(error).into())
    }

    /// Refuses access to what belongs to the gateway and not to a project, unless the project is
    /// the default one. row 3.2
    fn gateway_only(&self, project: &Project) -> Result<(), Problem> {
        match project.is_default() {
            true => Ok(()),
            false => Err(no_route()),
        }
    }
}

/// Joins the routes.
pub(crate) fn router(gate: Gate, guarded: Arc<Guarded>, version: &'static str) -> Router {
    let api = Api {
        gate,
        jobs: Jobs::default(),
        streams: streams(PER_KEY),
        guarded,
        version,
    };
    let admin = Router::new()
        .merge(servers::routes())
        .merge(auth::routes())
        .merge(history::routes())
        .merge(events::routes())
        .merge(acts::routes())
        .merge(audit::routes())
        .merge(images::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .merge(agents::routes())
        .merge(grants::routes())
        .merge(groups::routes())
        .merge(policy::routes())
        .merge(keys::routes())
        .merge(settings::routes())
        .merge(hooks::routes())
        .merge(approvals::routes())
        .merge(projects::routes())
        .merge(products::routes())
        .merge(suspensions::routes())
        .merge(registrations::routes())
        .merge(tools::admin_routes())
        .merge(health::admin_routes())
        .method_not_allowed_fallback(wrong_method)
        .route_layer(from_fn_with_state(api.clone(), admins_only));
    let any_key = Router::new()
        .merge(call::routes())
        .merge(tools::routes())
        .merge(calls::routes())
        .method_not_allowed_fallback(wrong_method)
        .route_layer(from_fn_with_state(api.clone(), any_key));
    let public = health::public_routes()
        .merge(openapi::routes())
        .merge(errors::routes())
        .merge(welcome::routes())
        .merge(auth::public_routes())
        .method_not_allowed_fallback(wrong_method);
    let session = session::routes(&api);
    public
        .merge(any_key)
        .merge(admin)
        .merge(session)
        .with_state(api)
}

/// Whose keys a list of routes is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admits {
    Administrators,
    AnyKey,
}

/// Admits administrators whose role permits. fault U3
async fn admins_only(State(api): State<Api>, request: Request, next: Next) -> Response {
    admit(&api, Admits::Administrators, request, next).await
}

/// Admits any valid key or session; an administrator's if its role permits. fault U3
async fn any_key(State(api): State<Api>, request: Request, next: Next) -> Response {
    admit(&api, Admits::AnyKey, request, next).await
}

/// Judges a caller: first whether there is such a project for it, then whether it may do this there.
/// Refused requests are recorded in its own project. faults T1, U4
async fn admit(api: &Api, admits: Admits, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let attempt = Attempt::of(&parts);
    let authenticated = match api.gate.anyone(&parts) {
        Ok(authenticated) => authenticated,
        Err(problem) => return problem.into_response(),
    };
    let own = authenticated.caller.clone();
    let admitted = scope::acting(api.engine(), &parts, own.clone()).and_then(|caller| {
        match (caller.kind, admits) {
            (KeyKind::Agent, Admits::AnyKey) => Ok(caller),
            (KeyKind::Agent | KeyKind::Admin(_), _) => {
                permit(&caller, permissions::needed(&parts)).map(|()| caller)
            }
        }
    });
    let caller = match admitted {
        Ok(caller) => caller,
        Err(problem) => {
            if let Ok(project) = api.project(&own) {
                let by = actor(&own, &parts);
                attempt.refuse(&project, &by, problem.code()).await;
            }
            return problem.into_response();
        }
    };
    let named = scope::named(&parts);
    let by = enter(&mut parts, authenticated.acting_as(caller.clone()));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    scope::relocate(named.as_deref(), &mut response);
    if admits == Admits::Administrators
        && let Some(code) = attempt.refusal(&by, &response)
        && let Ok(project) = api.project(&caller)
    {
        attempt.refuse(&project, &by, code).await;
    }
    response
}

/// Stores the caller for the handlers; returns the actor.
fn enter(parts: &mut Parts, authenticated: Authenticated) -> Actor {
    let by = actor(&authenticated.caller, parts);
    parts.extensions.insert(by.clone());
    parts.extensions.insert(authenticated.caller);
    if let Some(session) = authenticated.session {
        parts.extensions.insert(session);
    }
    by
}

/// The name in the last path segment; one that is not valid UTF-8 is not found.
pub(crate) struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|_| no_route())
    }
}

/// The authenticated administrator, and where the request came from.
pub(crate) struct By(Actor);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let actor = parts.extensions.get::<Actor>().cloned();
        actor.map(Self).ok_or_else(|| Problem::new("auth.no_key"))
    }
}

/// The authenticated caller.
pub(crate) struct Who(Caller);

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(Self).ok_or_else(|| Problem::new("auth.no_key"))
    }
}

impl FromRef<Api> for Bodies {
    fn from_ref(api: &Api) -> Self {
        api.gate.bodies.clone()
    }
}

/// The project of the request, by default that of the key. All names in a request refer to it.
pub(crate) struct In(Arc<Project>);

impl FromRequestParts<Api> for In {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Who(caller) = Who::from_request_parts(parts, api).await?;
        api.project(&caller).map(Self)
    }
}
