//! The API reference as an HTML page, rendered from the OpenAPI document.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::html::{self, escaped, prose};
use super::openapi;

static BODY: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(openapi::text());
    render(&document.expect("our own description is JSON"))
});

/// Answers with the page.
pub(super) fn page() -> Response {
    html::page(StatusCode::OK, "Gantry: REST reference", &BODY)
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn render(document: &Value) -> String {
    let mut out = String::new();
    let info = &document["info"];
    push(
        &mut out,
        format_args!(
            "<h1>{} <small>{}</small></h1>",
            text(info, "title"),
            text(info, "version")
        ),
    );
    for paragraph in info["description"]
        .as_str()
        .unwrap_or_default()
        .split("\n\n")
    {
        push(&mut out, format_args!("<p>{}</p>", prose(paragraph)));
    }
    out.push_str(
        "<p class=\"note\">For programs: <a href=\"/api/v1/openapi.json\">openapi.json</a>. \
         Every error code: <a href=\"/errors\">/errors</a>.</p>\n",
    );
    contents(&mut out, document);
    for tag in members(document, "tags") {
        let name = text(tag, "name");
        push(&mut out, format_args!("<h2 id=\"{name}\">{name}</h2>"));
        push(
            &mut out,
            format_args!(
                "<p>{}</p>",
                prose(tag["description"].as_str().unwrap_or_default())
            ),
        );
        for (path, method, operation) in operations(document) {
            if members(operation, "tags").any(|one| one == &tag["name"]) {
                render_operation(&mut out, path, method, operation);
            }
        }
    }
    out.push_str("<h2 id=\"schemas\">schemas</h2>\n");
    let schemas = document["components"]["schemas"].as_object();
    for (name, schema) in schemas.into_iter().flatten() {
        push(
            &mut out,
            format_args!("<h3 id=\"schema-{0}\">{0}</h3>", escaped(name)),
        );
        render_schema(&mut out, schema);
    }
    out
}

fn contents(out: &mut String, document: &Value) {
    out.push_str("<nav><ul>");
    for (path, method, _) in operations(document) {
        let anchor = anchor(method, path);
        let path = escaped(path);
        push(
            out,
            format_args!("<li><a href=\"#{anchor}\">{method} {path}</a></li>"),
        );
    }
    out.push_str("<li><a href=\"#schemas\">schemas</a></li></ul></nav>\n");
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &'static str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let known = METHODS.into_iter();
        known.filter_map(|method| Some((path.as_str(), method, item.get(method)?)))
    })
}

fn render_operation(out: &mut String, path: &str, method: &str, operation: &Value) {
    let anchor = anchor(method, path);
    let shown = escaped(path);
    push(
        out,
        format_args!("<h3 id=\"{anchor}\"><span class=\"method\">{method}</span> {shown}</h3>"),
    );
    for part in ["summary", "description"] {
        if let Some(said) = operation[part].as_str() {
            push(
                out,
                format_args!("<p>{}</p>", prose(&said.replace('\n', " "))),
            );
        }
    }
    if operation.get("security").is_none() {
        out.push_str("<p class=\"note\">Needs no key.</p>\n");
    }
    let mut parameters = members(operation, "parameters").peekable();
    if parameters.peek().is_some() {
        out.push_str("<table><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr>");
        for one in parameters {
            let (name, place) = (text(one, "name"), text(one, "in"));
            let (kind, said) = (kind(&one["schema"]), said(one));
            push(
                out,
                format_args!(
                    "<tr><td><code>{name}</code></td><td>{place}</td><td>{kind}</td><td>{said}</td></tr>"
                ),
            );
        }
        out.push_str("</table>\n");
    }
    let body = &operation["requestBody"];
    for (media, content) in body["content"].as_object().into_iter().flatten() {
        push(
            out,
            format_args!(
                "<p>Body, <code>{}</code>: {}</p>",
                escaped(media),
                kind(&content["schema"])
            ),
        );
        render_example(out, content);
    }
    out.push_str("<table><tr><th>status</th><th>answer</th><th></th></tr>");
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        let contents = answer["content"].as_object().into_iter().flatten();
        let kinds: Vec<_> = contents
            .map(|(media, content)| {
                format!(
                    "{} <code>{}</code>",
                    kind(&content["schema"]),
                    escaped(media)
                )
            })
            .collect();
        let (said, kinds) = (said(answer), kinds.join(", "));
        push(
            out,
            format_args!(
                "<tr><td>{}</td><td>{kinds}</td><td>{said}</td></tr>",
                escaped(status)
            ),
        );
    }
    out.push_str("</table>\n");
}

fn render_schema(out: &mut String, schema: &Value) {
    push(out, format_args!("<p>{}</p>", said(schema)));
    let parts = members(schema, "allOf").chain(std::iter::once(schema));
    for part in parts {
        let Some(properties) = part["properties"].as_object() else {
            continue;
        };
        out.push_str("<table><tr><th>member</th><th>type</th><th></th></tr>");
        for (name, property) in properties {
            let is_required = members(part, "required").any(|one| one == name.as_str());
            let mark = if is_required {
                ""
            } else {
                " <span class=\"note\">optional</span>"
            };
            let (kind, said) = (kind(property), said(property));
            push(
                out,
                format_args!(
                    "<tr><td><code>{}</code>{mark}</td><td>{kind}</td><td>{said}</td></tr>",
                    escaped(name)
                ),
            );
        }
        out.push_str("</table>\n");
    }
    if schema.get("properties").is_none() && schema.get("allOf").is_none() {
        push(out, format_args!("<p>{}</p>", kind(schema)));
    }
    render_example(out, schema);
}

fn render_example(out: &mut String, of: &Value) {
    let example = of
        .get("example")
        .filter(|example| example.is_object() || example.is_array());
    if let Some(example) = example {
        let example = serde_json::to_string_pretty(example).expect("a value is always JSON");
        push(out, format_args!("<pre>{}</pre>", escaped(&example)));
    }
}

/// Renders a schema's type, linking named schemas.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|place| place.rsplit('/').next())
    {
        let name = escaped(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if schema.get(choice).is_some() {
            let kinds: Vec<_> = members(schema, choice).map(kind).collect();
            return kinds.join(" or ");
        }
    }
    if schema.get("enum").is_some() {
        let words = members(schema, "enum").map(|word| {
            format!(
                "<code>{}</code>",
                escaped(word.as_str().unwrap_or_default())
            )
        });
        return words.collect::<Vec<_>>().join(", ");
    }
    match &schema["type"] {
        Value::String(word) if word == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(word) => escaped(word),
        Value::Array(words) => {
            let words = words.iter().filter_map(Value::as_str);
            escaped(&words.collect::<Vec<_>>().join(" or "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "any".to_owned(),
    }
}

fn said(of: &Value) -> String {
    prose(
        &of["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " "),
    )
}

fn members<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn text(of: &Value, name: &str) -> String {
    escaped(of[name].as_str().unwrap_or_default())
}

fn anchor(method: &str, path: &str) -> String {
    let path: String = path
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    format!("{method}{path}")
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("a String takes all");
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_on_the_page() {
        let document: Value = serde_json::from_str(openapi::text()).unwrap();
        let mut count = 0;
        for (path, method, _) in operations(&document) {
            assert!(
                BODY.contains(&format!("<h3 id=\"{}\">", anchor(method, path))),
                "{method} {path}"
            );
            count += 1;
        }
        assert!(count > 20);
        // URLs may appear as examples, but are never loaded or linked.
        let elsewhere = ["<script", "src=", "href=\"http", "url("];
        assert!(!elsewhere.iter().any(|word| BODY.contains(word)));
    }
}
