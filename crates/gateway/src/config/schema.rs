//! JSON Schemas of a server's options and of the configuration file, for editors and the OpenAPI
//! document; generated from the definitions of the options. Entry points: [`file()`], [`body`],
//! [`view`].

use gantry_model::spec::OutputCheck;
use gantry_model::spec::options::{Drivers, Kind, ServerOption, options};
use serde_json::{Value as Json, json};

use super::settings::{SETTINGS, Setting};

/// Returns the schema of `gantry.toml`, and of files with `mcpServers`.
pub fn file() -> Json {
    let mut gateway = object();
    for Setting {
        name,
        kind,
        default,
        doc,
    } in SETTINGS
    {
        let doc = format!("{doc} Default: {default}.");
        insert(&mut gateway, name, described(written(*kind), &doc));
    }
    let mut server = object();
    for option in options() {
        let schema = described(written(option.kind), &about(option));
        for name in option.spellings {
            insert(&mut server, name, schema.clone());
        }
        for name in option.old_names {
            let mut schema = described(
                written(option.kind),
                &format!("Now called `{}`.", option.name),
            );
            schema["deprecated"] = true.into();
            insert(&mut server, name, schema);
        }
        insert(&mut server, option.name, schema);
    }
    for name in ["disabled", "enabled"] {
        insert(
            &mut server,
            name,
            described(written(Kind::Flag), "Whether the entry is used."),
        );
    }
    for name in ["inputs", "$schema"] {
        insert(&mut server, name, json!({}));
    }
    // Kept by imports for the export.
    server["patternProperties"] = json!({"^x[-_]": {}});
    let servers = json!({
        "description": "The servers, by name.", "type": "object",
        "additionalProperties": {"$ref": "#/$defs/server"},
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Gantry",
        "type": "object",
        "properties": {
            "version": {"description": "The version of the format.", "const": 1},
            "gateway": described(gateway, "The gateway itself; read in `gantry.toml` only."),
            "servers": servers,
            "mcpServers": servers,
        },
        "$defs": {"server": server},
    })
}

/// Returns the schema of the body of a registration.
pub fn body() -> Json {
    let mut body = object();
    let name = json!({
        "description": "Its name: letters, digits, `.`, `_` and `-`, at most 64, without `__`.",
        "type": "string", "pattern": "^[A-Za-z0-9](_?[A-Za-z0-9.-]){0,31}$", "examples": ["files"],
    });
    insert(&mut body, "name", name);
    for option in options() {
        let schema = described(written(option.kind), &about(option));
        // The names of the hosting API.
        let hosting =
            |name: &&&str| **name == "environment" || name.starts_with("resource_limits.");
        for name in option.spellings.iter().filter(hosting) {
            insert(&mut body, name, schema.clone());
        }
        insert(&mut body, option.name, schema);
    }
    body["description"] =
        "What an administrator sends to register a server: a `command`, an `image` or a `url`, and \
        the options of a configuration file under the same names."
            .into();
    body["required"] = json!(["name"]);
    body["properties"]["profile"]["default"] = "hosted".into();
    body["examples"] = json!([{"name": "files", "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"], "limits": {"memory": "512M"}},
        {"name": "langfuse-mcp", "image": "emergent/mcp-langfuse:latest", "stdio_bridge": true,
        "restart_policy": "always", "environment": {"API_KEY": "…"}, "volumes": ["/data"],
        "resource_limits": {"cpu": "1", "memory": "1G"}}]);
    body
}

/// Returns the schema of a server's options in responses.
pub fn view() -> Json {
    let mut view = object();
    for option in options() {
        let (name, shown) = match option.kind {
            Kind::Secret => ("auth.has_secret", "boolean"),
            Kind::Pairs | Kind::Texts | Kind::Templates | Kind::Periods => (option.name, "array"),
            Kind::Tools => (option.name, "object"),
            Kind::Flag => (option.name, "boolean"),
            Kind::Whole(..) | Kind::Size(..) => (option.name, "integer"),
            Kind::Cores(..) => (option.name, "number"),
            Kind::Text
            | Kind::Template
            | Kind::Choice(_)
            | Kind::WordOrTexts(_)
            | Kind::Period(_) => (option.name, "string"),
        };
        let mut schema = json!({"type": [shown, "null"], "description": option.doc});
        if matches!(option.kind, Kind::WordOrTexts(_)) {
            schema["type"] = json!(["string", "array", "null"]);
            schema["items"] = json!({"type": "string"});
        }
        if shown == "array" {
            schema["items"] = json!({"type": "string"});
        }
        insert(&mut view, name, schema);
    }
    view["description"] =
        "What is wanted of a server, defaults included; `null` where an option does not \
        apply. Of its environment and its headers only the names, of its arguments no secrets."
            .into();
    // Clients also read responses of later gateways; a table that does not apply is `null`.
    let tables = view["properties"].as_object_mut().into_iter();
    for table in tables.flat_map(|members| members.values_mut()) {
        if let Some(table) = table.as_object_mut()
            && table.remove("additionalProperties").is_some()
        {
            table.insert("type".to_owned(), json!(["object", "null"]));
        }
    }
    if let Some(view) = view.as_object_mut() {
        view.remove("additionalProperties");
    }
    view
}

/// Returns an option's description, its drivers and its default.
fn about(option: &ServerOption) -> String {
    let only = match option.drivers() {
        Drivers::All => "",
        Drivers::Process => " For a server with a `command`.",
        Drivers::Image => " For a server with an `image`.",
        Drivers::Here => " For a server with a `command` or an `image`.",
        Drivers::Remote => " For a server with a `url`.",
    };
    format!("{}{only} Default: {}.", option.doc, option.default_shown())
}

fn object() -> Json {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// Inserts the schema of a member at a dotted path.
fn insert(object_: &mut Json, path: &str, schema: Json) {
    let (head, rest) = match path.split_once('.') {
        Some((head, rest)) => (head, Some(rest)),
        None => (path, None),
    };
    let Some(members) = object_["properties"].as_object_mut() else {
        return;
    };
    match rest {
        None => {
            members.insert(head.to_owned(), schema);
        }
        Some(rest) => insert(members.entry(head).or_insert_with(object), rest, schema),
    }
}

fn described(mut schema: Json, doc: &str) -> Json {
    schema["description"] = doc.into();
    schema
}

/// Returns the schema of an option's value.
fn written(kind: Kind) -> Json {
    let text = json!({"type": "string"});
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Text | Kind::Template | Kind::Secret => text,
        Kind::Texts | Kind::Templates => json!({"type": "array", "items": text}),
        Kind::Pairs => json!({"type": "object", "additionalProperties": text}),
        Kind::Choice(names) => {
            let mut names = names.to_vec();
            if names.contains(&"streamable-http") {
                names.extend(["http", "streamableHttp"]);
            }
            json!({"type": "string", "enum": names})
        }
        Kind::WordOrTexts(names) => json!({"oneOf": [
            {"type": "string", "enum": names}, {"type": "array", "items": text},
        ]}),
        Kind::Whole(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Cores(least, most) => json!({"oneOf": [
            {"type": "number", "minimum": least, "maximum": most},
            {"type": "string", "pattern": "^[0-9]{1,4}([.][0-9]{1,6})?$"},
        ], "examples": [0.5]}),
        Kind::Size(least, most) => json!({"oneOf": [
            {"type": "integer", "minimum": least, "maximum": most},
            {"type": "string", "pattern": "^[0-9]{1,6}[KMGTkmgt]?(i?[Bb])?$"},
        ], "examples": ["512M"]}),
        Kind::Period(_) => json!({"oneOf": [
            {"type": "integer", "minimum": 0, "description": "Milliseconds."},
            {"type": "string", "pattern": "^[0-9]{1,12}(ms|s|m|min|h)?$"},
        ], "examples": ["30s"]}),
        Kind::Periods => {
            json!({"type": "array", "items": written(Kind::Period(std::time::Duration::ZERO))})
        }
        Kind::Tools => {
            let mut tool = object();
            insert(
                &mut tool,
                "timeout",
                written(Kind::Period(std::time::Duration::ZERO)),
            );
            insert(&mut tool, "idempotent", written(Kind::Flag));
            let modes = Kind::Choice(OutputCheck::NAMES);
            insert(&mut tool, "output_check", written(modes));
            json!({"type": "object", "additionalProperties": tool})
        }
    }
}

/// Returns the reference of `[gateway]` as a Markdown table.
pub fn settings_reference() -> String {
    let mut table = String::from("| key | value | default | |\n|---|---|---|---|\n");
    for Setting {
        name,
        kind,
        default,
        doc,
    } in SETTINGS
    {
        let allowed = kind.allowed();
        table.push_str(&format!("| `{name}` | {allowed} | {default} | {doc} |\n"));
    }
    table
}

/// Returns the reference of the options as a Markdown table.
pub fn reference() -> String {
    let mut table = String::from("| option | value | default | |\n|---|---|---|---|\n");
    for option in options() {
        let only = match option.drivers() {
            Drivers::All => "",
            Drivers::Process => " *(command)*",
            Drivers::Image => " *(image)*",
            Drivers::Here => " *(command, image)*",
            Drivers::Remote => " *(URL)*",
        };
        let (name, allowed, doc) = (option.name, option.kind.allowed(), option.doc);
        let default = option.default_shown();
        table.push_str(&format!(
            "| `{name}`{only} | {allowed} | {default} | {doc} |\n"
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Map;

    use super::*;

    /// Compares a generated text with the committed one; writes the generated one to `target/` if
    /// they differ.
    fn compare(committed: &str, generated: &str, name: &str) {
        if committed != generated {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            std::fs::write(root.join("target").join(name), generated).unwrap();
            panic!("the options changed: run `just gen`, and look at the difference");
        }
    }

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let generated = format!("{}\n", serde_json::to_string_pretty(&file()).unwrap());
        let committed = include_str!("../../../../docs/gantry.schema.json");
        compare(committed, &generated, "gantry.schema.json");
    }

    #[test]
    fn the_committed_reference_is_the_generated_one() {
        let page = include_str!("../../../../docs/configuration.md");
        let mut generated = page.to_owned();
        for (name, table) in [("options", reference()), ("settings", settings_reference())] {
            let (begin, end) = (
                format!("<!-- {name} -->\n"),
                format!("<!-- end of {name} -->"),
            );
            let (before, rest) = generated.split_once(&begin).unwrap();
            let (_, after) = rest.split_once(&end).unwrap();
            generated = format!("{before}{begin}{table}{end}{after}");
        }
        compare(page, &generated, "configuration.md");
    }

    // Both schemas describe an option in the same way.
    #[test]
    fn files_and_rest_have_the_same_names() {
        let (file, body) = (file(), body());
        let server = &file["$defs"]["server"]["properties"];
        let body: &Map<String, Json> = body["properties"].as_object().unwrap();
        for (name, schema) in body.iter().filter(|(name, _)| *name != "name") {
            // A default may differ, such as that of `profile`.
            let plain = |schema: &Json| {
                let mut schema = schema.as_object().cloned().unwrap_or_default();
                schema.remove("default");
                schema
            };
            if schema["properties"].is_null() {
                assert_eq!(plain(&server[name]), plain(schema), "{name}");
            }
        }
    }
}
