//! The view of a server's spec: every option, under its name in files and request bodies.

use gantry_model::spec::ServerSpec;
use gantry_model::spec::options::{Kind, options, put};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::config::schema;

/// A server's options; of its environment and headers only the names, no secrets in arguments.
#[derive(Serialize)]
#[serde(transparent)]
pub(in crate::api) struct SpecView(Map<String, Json>);

impl SpecView {
    /// Shows the effective options, defaults included; options that do not apply are `null` or
    /// empty.
    pub(in crate::api) fn of(spec: &ServerSpec) -> Self {
        let mut shown = spec.shown();
        let mut view = Map::new();
        for option in options() {
            let is_list = matches!(option.kind, Kind::Pairs | Kind::Texts | Kind::Templates);
            match (option.kind, option.get(&mut shown)) {
                (Kind::Secret, Some(secret)) => {
                    put(&mut view, "auth.has_secret", json!(!secret.is_null()));
                }
                (_, Some(Json::Object(pairs))) if option.kind == Kind::Pairs => {
                    put(&mut view, option.name, pairs.keys().cloned().collect());
                }
                (_, Some(value)) => put(&mut view, option.name, value),
                (_, None) if is_list && !option.name.contains('.') => {
                    put(&mut view, option.name, json!([]));
                }
                (_, None) => {
                    let table = option.name.split('.').next().unwrap_or(option.name);
                    view.entry(table).or_insert(Json::Null);
                }
            }
        }
        Self(view)
    }
}

impl PartialSchema for SpecView {
    fn schema() -> RefOr<Schema> {
        RefOr::T(serde_json::from_value(schema::view()).expect("the schema of a view"))
    }
}

impl ToSchema for SpecView {}
