//! Products, `/api/v1/products`: sets of servers, described by a manifest in JSON or YAML. A
//! manifest is shown in full, with all additions, changes and removals, before it is installed; the
//! request to install it contains the hash of what was shown.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::{Actor, NewProduct, ProductPlan, ProductRow, Project};
use gantry_model::id::ServerName;
use gantry_model::settings::Sensitive;
use gantry_model::spec::ServerSpec;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::query::{Asked, Page, Paging};
use super::registrations::{RegistrationView, Wanted, hold};
use super::views::{SpecView, rfc3339};
use super::{Api, By, In, Named};
use crate::config::product::Manifest;
use crate::http::error::{FieldIssue, Problem};

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/products", get(list).post(install))
        .route("/api/v1/products/preview", post(preview))
        .route("/api/v1/products/{product}", get(one).delete(uninstall))
}

/// An installed product.
#[derive(Serialize, ToSchema)]
pub(super) struct ProductView {
    /// Its name.
    #[schema(example = "search-suite")]
    name: String,
    /// Its version.
    #[schema(example = "1.2.0")]
    version: String,
    /// The SHA-256 of its manifest.
    sha256: String,
    /// Its servers.
    servers: Vec<String>,
    /// When it was installed.
    installed: String,
    /// When it was last upgraded.
    updated: String,
    /// Its manifest without the values of variables and headers; only in the answer about one product.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    manifest: Option<Value>,
}

impl ProductView {
    fn of(product: ProductRow, servers: &[ServerName], is_whole: bool) -> Self {
        Self {
            name: product.name,
            version: product.version,
            sha256: product.hash,
            servers: servers.iter().map(ToString::to_string).collect(),
            installed: rfc3339(product.created_ms),
            updated: rfc3339(product.updated_ms),
            manifest: match is_whole {
                true => serde_json::from_str(&product.manifest).ok(),
                false => None,
            },
        }
    }
}

/// A manifest.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestBody {
    /// Its text, JSON or YAML.
    #[schema(
        max_length = 1048576,
        example = "name: suite\nversion: 1\nmcp:\n  servers:\n    docs: {url: 'https://docs.example.com/mcp'}\n"
    )]
    manifest: String,
}

/// A manifest that is to be installed as it was shown.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InstallBody {
    /// Its text, JSON or YAML.
    #[schema(max_length = 1048576)]
    manifest: String,
    /// `sha256` of the plan that was shown.
    sha256: String,
    /// `installed_sha256` of the plan that was shown; absent if nothing was installed.
    installed_sha256: Option<String>,
}

/// What installing a manifest would do, or did.
#[derive(Serialize, ToSchema)]
pub(super) struct PlanView {
    /// The product's name.
    name: String,
    /// Its version.
    version: String,
    /// What it is for.
    description: String,
    /// The SHA-256 of the manifest.
    sha256: String,
    /// The version that is installed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    installed_version: Option<String>,
    /// The SHA-256 of the manifest that is installed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    installed_sha256: Option<String>,
    /// The servers that are new, in full.
    added: Vec<PlannedServer>,
    /// The servers that change, in full, before and after.
    changed: Vec<ChangedServer>,
    /// The servers that go.
    removed: Vec<String>,
    /// The servers that stay as they are.
    unchanged: Vec<String>,
    /// Why a second person must approve it; empty if nobody must.
    needs_approval: Vec<&'static str>,
}

/// A server of a plan.
#[derive(Serialize, ToSchema)]
pub(super) struct PlannedServer {
    /// Its name.
    name: String,
    /// All its options.
    #[schema(value_type = Object)]
    spec: SpecView,
}

/// A server that changes.
#[derive(Serialize, ToSchema)]
pub(super) struct ChangedServer {
    /// Its name.
    name: String,
    /// All its options before the change.
    #[schema(value_type = Object)]
    before: SpecView,
    /// All its options after the change.
    #[schema(value_type = Object)]
    after: SpecView,
}

impl PlanView {
    fn of(manifest: &Manifest, plan: &ProductPlan) -> Self {
        let planned = |spec: &ServerSpec| PlannedServer {
            name: spec.name.to_string(),
            spec: SpecView::of(spec),
        };
        let changed = |(before, after): &(ServerSpec, ServerSpec)| ChangedServer {
            name: after.name.to_string(),
            before: SpecView::of(before),
            after: SpecView::of(after),
        };
        let installed = plan.installed.as_ref();
        Self {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            description: manifest.description.clone(),
            sha256: manifest.hash.clone(),
            installed_version: installed.map(|known| known.version.clone()),
            installed_sha256: installed.map(|known| known.hash.clone()),
            added: plan.added.iter().map(planned).collect(),
            changed: plan.changed.iter().map(changed).collect(),
            removed: plan
                .removed
                .iter()
                .map(|spec| spec.name.to_string())
                .collect(),
            unchanged: plan.unchanged.iter().map(ToString::to_string).collect(),
            needs_approval: plan
                .reasons
                .iter()
                .map(|reason| Sensitive::as_str(*reason))
                .collect(),
        }
    }
}

/// Parses a manifest; all errors are reported at once (422).
fn read(text: &str) -> Result<Manifest, Problem> {
    Manifest::read(text).map_err(|mistakes| {
        let told: Vec<&str> = mistakes
            .iter()
            .map(|found| found.message.as_str())
            .collect();
        let problem = Problem::new("product.manifest").with_detail(told.join("; "));
        let issues = mistakes.into_iter().map(|found| FieldIssue {
            path: found.path,
            message: found.message,
        });
        problem.with_issues(issues.collect())
    })
}

/// Returns the product of a manifest. The stored manifest has no values of variables and headers:
/// those are stored encrypted in the rows of the servers.
fn new_product(manifest: &Manifest) -> NewProduct {
    let servers = manifest.servers.iter().map(|spec| {
        let shown = serde_json::to_value(SpecView::of(spec)).unwrap_or_default();
        (spec.name.to_string(), shown)
    });
    let servers: serde_json::Map<String, Value> = servers.collect();
    let kept = value!({
        "name": manifest.name, "version": manifest.version, "description": manifest.description,
        "mcp": {"servers": servers},
    });
    NewProduct {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        manifest: kept.to_string(),
        hash: manifest.hash.clone(),
        servers: manifest.servers.clone(),
    }
}

/// Lists the installed products, by name.
#[utoipa::path(get, path = "/api/v1/products", tag = "products", params(Paging), responses(
    (status = 200, description = "The products.", body = Page<ProductView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let products = project.products().await?;
    let page = Page::of(products, &asked, |(product, _)| product.name.clone())?;
    Ok(page.respond(|(product, servers)| ProductView::of(product, &servers, false)))
}

/// Shows a product with its manifest.
#[utoipa::path(get, path = "/api/v1/products/{product}", tag = "products",
    params(("product" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The product.", body = ProductView),
    (status = 404, description = "`product.unknown`: it is not installed."),
))]
pub(super) async fn one(In(project): In, Named(name): Named) -> Result<Response, Problem> {
    let (product, servers) = project.product(&name).await?;
    Ok(json(
        StatusCode::OK,
        &ProductView::of(product, &servers, true),
    ))
}

/// Shows in full what installing a manifest would add, change and remove. Nothing is installed.
#[utoipa::path(post, path = "/api/v1/products/preview", tag = "products", request_body = ManifestBody,
    responses(
    (status = 200, description = "The plan.", body = PlanView),
    (status = 403, description = "`registration.refused`: the project does not allow one of its servers."),
    (status = 409, description = "`server.exists`: a server that is not the product's has one of the names."),
    (status = 422, description = "`product.manifest`: the manifest has mistakes; `issues` names each."),
))]
pub(super) async fn preview(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: ManifestBody = body.read()?;
    let manifest = read(&asked.manifest)?;
    guard(&api, &manifest)?;
    let plan = project.preview_product(&actor, new_product(&manifest));
    Ok(json(StatusCode::OK, &PlanView::of(&manifest, &plan.await?)))
}

fn guard(api: &Api, manifest: &Manifest) -> Result<(), Problem> {
    manifest.servers.iter().try_for_each(|spec| api.guard(spec))
}

// row 0.2
/// Installs a product, or upgrades it, as it was shown: all of it or nothing.
#[utoipa::path(post, path = "/api/v1/products", tag = "products", request_body = InstallBody, responses(
    (status = 200, description = "What was done.", body = PlanView),
    (status = 202, description = "It waits for a second person's approval.", body = RegistrationView),
    (status = 403, description = "`registration.refused`: the project does not allow one of its servers."),
    (status = 409, description = "`product.changed`: the manifest or what is installed is not what was \
        shown; `server.exists`: a server that is not the product's has one of the names."),
    (status = 422, description = "`product.manifest`: the manifest has mistakes; `issues` names each."),
))]
pub(super) async fn install(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: InstallBody = body.read()?;
    let manifest = read(&asked.manifest)?;
    guard(&api, &manifest)?;
    if !manifest.hash.eq_ignore_ascii_case(&asked.sha256) {
        return Err(Problem::new("product.changed")
            .with_detail("this is not the manifest that was shown")
            .with_hint("show it again, and install it with its `sha256`"));
    }
    let new = new_product(&manifest);
    let from = asked.installed_sha256.clone();
    let plan = project.plan_product(&new).await;
    match project.install_product(&actor, new, from).await {
        Ok(plan) => Ok(json(StatusCode::OK, &PlanView::of(&manifest, &plan))),
        Err(refused) => {
            let shown = plan.map(|plan| PlanView::of(&manifest, &plan)).ok();
            let wanted = Wanted {
                act: "product.install",
                target: &manifest.name,
                request: value!({
                    "manifest": asked.manifest, "installed_sha256": asked.installed_sha256,
                }),
                shown: serde_json::to_value(shown).unwrap_or_default(),
            };
            hold(&project, &actor, refused, wanted).await
        }
    }
}

/// Installs a product that a second person has approved.
pub(super) async fn install_from(
    api: &Api,
    project: &Arc<Project>,
    by: &Actor,
    request: &Value,
) -> Result<(), Problem> {
    let text = request["manifest"].as_str().unwrap_or_default();
    let manifest = read(text)?;
    guard(api, &manifest)?;
    let from = request["installed_sha256"].as_str().map(str::to_owned);
    project
        .install_product(by, new_product(&manifest), from)
        .await?;
    Ok(())
}

/// Uninstalls a product with its servers; their volumes stay.
#[utoipa::path(delete, path = "/api/v1/products/{product}", tag = "products",
    params(("product" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "The product was uninstalled."),
    (status = 404, description = "`product.unknown`: it is not installed."),
))]
pub(super) async fn uninstall(
    In(project): In,
    By(actor): By,
    Named(name): Named,
) -> Result<Response, Problem> {
    project.uninstall_product(&actor, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
