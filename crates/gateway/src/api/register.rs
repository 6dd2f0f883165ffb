//! The body of a registration, and the spec it becomes.
//!
//! The options are those of a configuration file, under the same names, read by the same code
//! (`config/entry`); an unknown one is an error. Never reads a file or the environment. Entry
//! points: [`Register::read`], and [`Register::patched`] for a change.

use std::path::Path;

use axum::response::Response;
use gantry_model::diagnose::Diagnose as _;
use gantry_model::spec::ServerSpec;
use gantry_model::spec::options::{document, options, put};
use http::HeaderValue;
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::body::JsonBody;
use crate::config::diagnostic::Diagnostic;
use crate::config::document::{Document, Syntax};
use crate::config::entry::{Entry, Fill, Owner, read};
use crate::config::schema;
use crate::http::error::{FieldIssue, Problem};

/// The header that lists deprecated names in a body.
const WARNING: &str = "x-gantry-warning";

/// The body of a server's registration.
#[derive(Debug)]
pub(super) struct Register {
    /// The requested spec.
    pub(super) spec: ServerSpec,
    warnings: Vec<String>,
}

impl Register {
    /// Reads a whole body; all errors are reported at once (422).
    pub(super) fn read(body: &JsonBody) -> Result<Self, Problem> {
        Self::parse(body.raw().text())
    }

    /// Applies a JSON merge patch (RFC 7396) to a server's registration body.
    pub(super) fn patched(
        known: &ServerSpec,
        mut patch: Map<String, Value>,
    ) -> Result<Self, Problem> {
        let mut warnings = Vec::new();
        for option in options() {
            for name in option.names().skip(1) {
                if let Some(value) = take(&mut patch, name) {
                    if option.old_names.contains(&name) {
                        warnings.push(format!("`{name}` is now called `{}`", option.name));
                    }
                    put(&mut patch, option.name, value);
                }
            }
        }
        let mut whole = document(known);
        put(&mut whole, "name", known.name.as_str().into());
        let whole = merged(whole.into(), patch.into());
        let read = Self::parse(&whole.to_string())?;
        Ok(Self { warnings, ..read })
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let document = Document::parse(Path::new("body"), text.as_bytes(), Syntax::Json);
        let document = document.map_err(|error| refused(vec![issue("", error.message())], None))?;
        let name = document
            .root
            .find("name")
            .ok_or_else(|| refused(vec![issue("/name", "a server needs a name")], None))?;
        let entry = Entry {
            name: name.as_text().unwrap_or_default().to_owned(),
            name_span: name.span.clone(),
            node: document.root.clone(),
        };
        let folder = Path::new("/");
        let reading = read(&document, &entry, Owner::Api, Fill::AsWritten { folder });
        match reading.spec {
            Some(spec) => Ok(Self {
                spec,
                warnings: reading.warnings,
            }),
            None => {
                let issues = reading.mistakes.iter().map(|diagnostic| {
                    let path = document.pointer(diagnostic.span());
                    issue(&path.unwrap_or_default(), diagnostic.message())
                });
                let hint = reading.mistakes.first().and_then(Diagnostic::hint);
                Err(refused(issues.collect(), hint))
            }
        }
    }

    /// Lists deprecated names in a response header.
    pub(super) fn warn(warnings: &[String], response: &mut Response) {
        let values = warnings.iter();
        for value in values.filter_map(|warning| HeaderValue::from_str(warning).ok()) {
            response.headers_mut().append(WARNING, value);
        }
    }

    /// Returns the spec and the warnings about deprecated names.
    pub(super) fn into_parts(self) -> (ServerSpec, Vec<String>) {
        (self.spec, self.warnings)
    }
}

impl PartialSchema for Register {
    fn schema() -> RefOr<Schema> {
        RefOr::T(serde_json::from_value(schema::body()).expect("the schema of a body"))
    }
}

impl ToSchema for Register {}

fn issue(path: &str, message: &str) -> FieldIssue {
    FieldIssue {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

fn refused(issues: Vec<FieldIssue>, hint: Option<String>) -> Problem {
    let told = issues.iter().map(|issue| match issue.path.as_str() {
        "" => issue.message.clone(),
        path => format!("`{path}`: {}", issue.message),
    });
    let detail = format!(
        "the body cannot be used: {}",
        told.collect::<Vec<_>>().join("; ")
    );
    let problem = Problem::new("request.body")
        .with_detail(detail)
        .with_issues(issues);
    match hint {
        Some(hint) => problem.with_hint(hint),
        None => problem,
    }
}

/// Removes and returns the value at a dotted path.
fn take(document: &mut Map<String, Value>, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => document.shift_remove(path),
        Some((table, rest)) => take(document.get_mut(table)?.as_object_mut()?, rest),
    }
}

/// Applies a merge patch (RFC 7396).
fn merged(whole: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch;
    };
    let mut members = if let Value::Object(members) = whole {
        members
    } else {
        Map::new()
    };
    for (key, value) in patch {
        if value.is_null() {
            members.shift_remove(&key);
        } else {
            let old = members.get(&key).cloned().unwrap_or(Value::Null);
            members.insert(key, merged(old, value));
        }
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_model::spec::{
        CallPolicy, LifecyclePolicy, Profile, Source, Start, WhenUnresponsive,
    };

    use super::*;

    fn spec(body: serde_json::Value) -> Result<ServerSpec, String> {
        let body = Register::parse(&body.to_string());
        body.map(|body| body.spec)
            .map_err(|problem| problem.detail().to_owned())
    }

    fn again(spec: &ServerSpec) -> ServerSpec {
        Register::patched(spec, Map::new()).unwrap().spec
    }

    // row 1.1, row 1.8
    #[test]
    fn a_short_body_gets_the_defaults_of_a_hosted_server() {
        let spec = spec(serde_json::json!({ "name": "a", "command": "npx" })).unwrap();
        assert_eq!(spec.start, Start::Eager);
        assert_eq!(spec.profile(), Some(Profile::Hosted));
        assert_eq!(
            (spec.calls, spec.lifecycle),
            (CallPolicy::default(), LifecyclePolicy::default())
        );
        assert_eq!(spec.source, Source::Api);
    }

    // row 0.10
    #[test]
    fn a_local_one_is_lazy_unless_it_says_otherwise() {
        let of = |start: Option<&str>| {
            let mut body = serde_json::json!({ "name": "a", "command": "x", "profile": "local" });
            if let Some(start) = start {
                body["start"] = start.into();
            }
            spec(body).unwrap().start
        };
        assert_eq!((of(None), of(Some("eager"))), (Start::Lazy, Start::Eager));
    }

    #[test]
    fn everything_that_can_be_said_arrives() {
        let body = serde_json::json!({
            "name": "a", "command": "x", "args": ["-v"], "env": { "A": "1" }, "cwd": "/tmp",
            "concurrency": 4, "queue": 9, "timeout": "2s", "timeout_max": 5000, "late_grace": "1s", "ask_timeout": "1m",
            "handshake_timeout": "9s", "health_every": "1m", "health_timeout": "3s",
            "when_unresponsive": "reconnect", "stop_grace": "4s",
            "restart": { "at_once": 2, "window": "6s", "backoff": ["1s", 1500], "reset_after": "1m" },
            "limits": { "cpu": 0.25, "memory": "64M", "pids": 32 },
        });
        let spec = spec(body).unwrap();
        let process = spec.launch.process().unwrap();
        assert_eq!(
            (process.limits.memory_bytes, process.limits.pids),
            (Some(64 << 20), Some(32))
        );
        assert_eq!(spec.calls.timeout_max, Duration::from_secs(5));
        assert_eq!(
            spec.lifecycle.restart.backoff[1],
            Duration::from_millis(1500)
        );
        assert_eq!(
            spec.lifecycle.when_unresponsive,
            Some(WhenUnresponsive::Reconnect)
        );
    }

    // The body from which a patch starts is equivalent to its spec.
    #[test]
    fn a_spec_survives_its_body() {
        let body = serde_json::json!({
            "name": "a", "command": "x", "args": ["-v"], "env": { "A": "1" }, "cwd": "/tmp",
            "profile": "local", "start": "eager", "concurrency": 4, "timeout": "2s",
            "when_unresponsive": "reconnect", "restart": { "at_once": 2, "backoff": ["1s", 1500] },
            "limits": { "cpu": 0.25, "memory": "64M" }, "pass_context": false,
        });
        let first = spec(body).unwrap();
        assert_eq!(again(&first), first);
    }

    // rows 0.6, 0.10, 3.1, 3.4
    #[test]
    fn a_remote_server_survives_its_body() {
        let body = serde_json::json!({
            "name": "far", "url": "https://example.com/sse", "transport": "sse",
            "headers": { "Authorization": "Bearer x" }, "proxy": "http://proxy:3128",
            "allow_private": true, "ca_file": "/etc/ca.pem", "timeout": "9s",
            "reconnect": { "first": "10ms", "away": "2s", "failures": 2 },
            "tools": { "settings": { "search": { "timeout": "5s", "idempotent": true } } },
        });
        let first = spec(body).unwrap();
        assert_eq!(first.start, Start::Lazy);
        assert!(first.tools.settings["search"].idempotent);
        assert_eq!(again(&first), first);
        let both = serde_json::json!({ "name": "a", "command": "x", "url": "https://x" });
        assert!(spec(both).unwrap_err().contains("exclude each other"));
    }

    #[test]
    fn old_names_are_understood_with_a_warning() {
        let body = serde_json::json!({
            "name": "a", "command": "x", "life": { "handshake": "9s" }, "restart": { "ladder": ["1s"] },
        });
        let read = Register::parse(&body.to_string()).unwrap();
        assert_eq!(read.spec.lifecycle.handshake, Duration::from_secs(9));
        assert_eq!(read.warnings.len(), 2, "{:?}", read.warnings);
        let patch = serde_json::json!({ "restart": { "ladder": ["2s"] }, "calls": { "queue": 3 } });
        let changed = Register::patched(&read.spec, patch.as_object().unwrap().clone()).unwrap();
        assert_eq!(
            changed.spec.lifecycle.restart.backoff,
            [Duration::from_secs(2)]
        );
        assert_eq!(changed.spec.calls.queue, 3);
        assert_eq!(changed.warnings.len(), 2, "{:?}", changed.warnings);
    }

    #[test]
    fn a_mistake_is_named() {
        let unknown = spec(serde_json::json!({ "name": "a", "command": "x", "privileged": true }));
        assert!(
            unknown
                .unwrap_err()
                .contains("`/privileged`: `privileged` is not known")
        );
        let size =
            serde_json::json!({ "name": "a", "command": "x", "limits": { "memory": "1 lot" } });
        assert!(
            spec(size)
                .unwrap_err()
                .contains("`/limits/memory`: `limits.memory` must be a size")
        );
        assert!(spec(serde_json::json!({ "name": "a__b", "command": "x" })).is_err());
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        let whole = serde_json::json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 1});
        let patch = serde_json::json!({"a": {"b": null, "x": 3}, "d": [3], "e": null});
        assert_eq!(
            merged(whole, patch),
            serde_json::json!({"a": {"c": 2, "x": 3}, "d": [3]})
        );
    }
}
