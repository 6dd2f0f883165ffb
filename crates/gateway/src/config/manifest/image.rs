//! Packages that are OCI images: run by Gantry itself, in gVisor or in namespaces.
//!
//! The manifest's flags for `docker run` are parsed by `docker_run`, which refuses flags that would
//! give the server access to this machine. Entry point: [`plan`].

use gantry_engine::images::ImageReference;
use gantry_model::diagnose::chain;
use serde_json::{Map, Value};

use super::command::{variables, words};
use super::document::{Package, TransportKind};
use super::inputs::Answers;
use super::reader::Wrong;
use crate::config::docker_run;

/// The engines whose flags are supported.
const ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Checks the parts that do not depend on the user's input.
pub(super) fn check(package: &Package, wrong: &mut Vec<Wrong>) {
    if let Err(why) = reference(package) {
        wrong.push(Wrong::new(format!("{}.identifier", package.at), why));
    }
    if package.has_hash {
        let why = "is not the digest of an image; write it into `identifier`";
        wrong.push(Wrong::new(format!("{}.fileSha256", package.at), why));
    }
    if let Some(hint) = package.runtime_hint.as_deref()
        && !ENGINES.contains(&hint)
        && !package.runtime_arguments.is_empty()
    {
        let why = format!("is `{hint}`, whose arguments Gantry does not understand");
        wrong.push(Wrong::new(format!("{}.runtimeHint", package.at), why));
    }
    if let Err(why) = port(package) {
        wrong.push(Wrong::new(format!("{}.transport.url", package.at), why));
    }
}

/// Returns the full name of the image.
pub(super) fn reference(package: &Package) -> Result<String, String> {
    let mut name = package.identifier.clone();
    let parsed = |name: &str| -> Result<ImageReference, String> {
        name.parse()
            .map_err(|error| format!("is not the name of an image: {}", chain(&error)))
    };
    parsed(&name)?;
    let first = name.split('/').next().unwrap_or_default();
    let has_registry = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if let Some(url) = package.base_url.as_deref().filter(|_| !has_registry) {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or_default();
        name = format!("{host}/{name}");
    }
    let has_tag = name
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains([':', '@']));
    match &package.version {
        Some(version) if !has_tag => name = format!("{name}:{version}"),
        Some(_) | None => {}
    }
    parsed(&name).map(|_| name)
}

/// Returns the port and path of an image that serves HTTP; `None` if it uses stdio.
fn port(package: &Package) -> Result<Option<(u16, String)>, String> {
    let transport = &package.transport;
    if transport.kind == TransportKind::Stdio {
        return Ok(None);
    }
    let url = transport.url.as_deref().unwrap_or_default();
    let help = "must be `http://localhost:PORT/path`, where the image itself listens";
    let rest = url.strip_prefix("http://").ok_or(help)?;
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (rest, "/".to_owned()),
    };
    let (host, port) = authority.rsplit_once(':').ok_or(help)?;
    if !matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0") || path.contains(['{', '?', '#']) {
        return Err(help.to_owned());
    }
    let port: u16 = port.parse().map_err(|_| help.to_owned())?;
    match port {
        0 => Err(help.to_owned()),
        port => Ok(Some((port, path))),
    }
}

/// Returns the image of a package, as the members of an entry.
pub(super) fn plan(
    package: &Package,
    answers: &Answers,
    wrong: &mut Vec<Wrong>,
) -> Map<String, Value> {
    let declared = variables(package, answers, None, wrong);
    let runtime = words(&package.runtime_arguments, answers, None, wrong);
    let own = words(&package.package_arguments, answers, None, wrong);
    let image = reference(package).unwrap_or_default();
    let mut line = vec!["run".to_owned()];
    line.extend(runtime);
    line.push(image.clone());
    line.extend(own);
    let at = format!("{}.runtimeArguments", package.at);
    let mut entry = match docker_run::read("docker", &line) {
        Some(Ok(run)) if run.image == image => run.entry(&declared),
        Some(Ok(_)) => {
            wrong.push(Wrong::new(at, "name another image than `identifier`"));
            Map::new()
        }
        Some(Err(error)) => {
            wrong.push(Wrong::new(at, format!("cannot be used: {error}")));
            Map::new()
        }
        None => Map::new(),
    };
    // No network access unless the user grants it, whatever an engine's default is.
    entry.remove("network");
    let mut env = match entry.remove("env") {
        Some(Value::Object(env)) => env,
        _ => Map::new(),
    };
    // `-e NAME` without a value takes that of the declared variable.
    env.retain(|name, value| value.as_str() != Some(&format!("${{{name}}}")));
    env.extend(declared);
    entry.insert("env".to_owned(), env.into());
    if let Ok(Some((port, path))) = port(package) {
        entry.insert("stdio_bridge".to_owned(), false.into());
        entry.insert("port".to_owned(), port.into());
        entry.insert("http_path".to_owned(), path.into());
        let transport = package.transport.kind.as_str();
        entry.insert("transport".to_owned(), transport.into());
    }
    entry
}
