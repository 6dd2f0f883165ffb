//! The document against its committed copy and against the routes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn parsed() -> Value {
    serde_json::from_str(text()).unwrap()
}

#[test]
fn the_committed_document_is_the_generated_one() {
    let generated = description::generated();
    if text() != generated {
        fs::write(root().join("target/openapi.json"), generated).unwrap();
        panic!(
            "the API changed: `cp target/openapi.json docs/openapi.json`, and look at the difference"
        );
    }
}

/// Returns every `METHOD path` of the routes, as the sources say them.
fn routed() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut found = BTreeSet::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for route in text.split(".route(").skip(1) {
                // Up to the next route or the end of the list of routes.
                let route = route.split("\n}").next().unwrap_or_default();
                let Some(path) = route.split('"').nth(1) else {
                    continue;
                };
                for method in ["get", "put", "post", "patch", "delete"] {
                    let named = [format!(" {method}("), format!(".{method}(")];
                    if named.iter().any(|named| route.contains(named.as_str())) {
                        found.insert(format!("{method} {path}"));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let document = parsed();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            described.insert(format!("{method} {path}"));
        }
    }
    let mut routed = routed();
    // One handler takes both words, so that servers of these names keep their routes.
    assert!(routed.remove("post /api/v1/mcp/servers/{server}"));
    routed.insert("post /api/v1/mcp/servers/preview".to_owned());
    routed.insert("post /api/v1/mcp/servers/test".to_owned());
    assert!(routed.remove("get /api/v1/docs/style.css"));
    assert!(routed.remove("get /sign-in.js"));
    assert_eq!(described, routed);
}

/// Returns the names of the schemas that the sources define, each as often as it is defined.
fn schemas(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(schemas(&path));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for derived in text.split("#[derive(").skip(1) {
            let (traits, rest) = derived.split_once(")]").unwrap_or_default();
            let mut words = rest.split_whitespace();
            if traits.contains("ToSchema") && words.any(|word| ["struct", "enum"].contains(&word)) {
                let name = words.next().unwrap_or_default();
                let name = name.split(['<', '(', ';']).next().unwrap_or_default();
                found.push(name.to_owned());
            }
        }
    }
    found
}

// Of two schemas of one name the document has only one, and describes the other wrongly.
#[test]
fn no_two_schemas_have_the_same_name() {
    let names = schemas(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(names.len() > 50, "{names:?}");
    let mut known = BTreeSet::new();
    let twice: Vec<&String> = names.iter().filter(|name| !known.insert(*name)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_operation_says_what_it_does_takes_and_answers() {
    let document = parsed();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = format!("{method} {path}");
            let says = operation["summary"]
                .as_str()
                .or(operation["description"].as_str());
            assert!(
                says.is_some_and(|text| text.len() > 10),
                "{name} says nothing"
            );
            for part in path.split('{').skip(1) {
                let part = part.split('}').next().unwrap();
                let parameters = operation["parameters"].as_array().expect(&name);
                assert!(
                    parameters.iter().any(|p| p["name"] == part),
                    "{name}: `{part}`"
                );
            }
            let answers = operation["responses"].as_object().unwrap();
            assert!(
                answers.keys().any(|status| status.starts_with('2')),
                "{name}"
            );
            assert!(answers.contains_key("default"), "{name}");
            let is_public = description::PUBLIC.contains(&path.as_str());
            assert_eq!(answers.contains_key("401"), !is_public, "{name}");
            assert_eq!(operation.get("security").is_some(), !is_public, "{name}");
        }
    }
}
