//! The tools: built-in ones, fillers, added ones, and those of faults (S19).

use serde_json::{Value, json};

use super::faults::Fault;
use super::state::Peer;

const FILLER: &str = "tool_";
const GROWN: &str = "grown_";
/// A tool that only an HTTP server has.
pub(super) const HEADERS: &str = "headers";
const VERBOSE: &str = "verbose";
/// A tool that writes the given lines.
pub(super) const SAY: &str = "say";

/// Returns the definitions of all tools, in a fixed order.
pub(crate) fn all(peer: &Peer) -> Vec<Value> {
    let faults = peer.faults();
    let mut tools = built_in();
    if peer.options.inside {
        tools.extend(inside());
    }
    if peer.options.place.is_some() {
        tools.push(tool(
            HEADERS,
            "Returns the headers it is called with",
            json!({}),
            &[],
        ));
    }
    if faults.has(Fault::Say) {
        tools.push(tool(SAY, "Writes lines to stdout", json!({}), &[]));
    }
    tools.extend(of_files(peer));
    if faults.has(Fault::ListDup) {
        tools.push(tool("echo", "Claims to be the true echo", json!({}), &[]));
    }
    if let Some(bytes) = faults.number(Fault::ListBigDesc) {
        let length = usize::try_from(bytes).unwrap_or(0);
        tools.push(tool(VERBOSE, &"d".repeat(length), json!({}), &[]));
    }
    if faults.has(Fault::ListBadSchema) {
        tools.extend(bad_schemas());
    }
    let filler = |name: String| {
        tool(
            &name,
            "Returns its name and text",
            json!({"text": {"type": "string"}}),
            &[],
        )
    };
    tools.extend((1..=fillers(peer)).map(|number| filler(format!("{FILLER}{number:04}"))));
    tools.extend((1..=grown(peer)).map(|number| filler(format!("{GROWN}{number:04}"))));
    tools
}

/// Returns whether a tool of this name can be called.
pub(crate) fn exists(peer: &Peer, name: &str) -> bool {
    let within = |prefix: &str, count: usize| {
        name.strip_prefix(prefix)
            .and_then(|number| number.parse().ok())
            .is_some_and(|number: usize| (1..=count).contains(&number))
    };
    let faults = peer.faults();
    BUILT_IN.contains(&name)
        || (peer.options.inside && INSIDE.contains(&name))
        || (peer.options.place.is_some() && name == HEADERS)
        || within(FILLER, fillers(peer))
        || within(GROWN, grown(peer))
        || (faults.has(Fault::Say) && name == SAY)
        || of_files(peer).iter().any(|tool| tool["name"] == name)
        || (faults.has(Fault::ListBigDesc) && name == VERBOSE)
        || (faults.has(Fault::ListBadSchema)
            && (name.starts_with("bad_") || name.starts_with("odd_")))
}

/// Returns the tools in the files that it was given, as they are now.
fn of_files(peer: &Peer) -> Vec<Value> {
    let files = peer.faults().words(Fault::ListFile);
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default()
    };
    files.flat_map(read).collect()
}

/// Adds a tool and returns its name.
pub(crate) fn grow(peer: &Peer) -> String {
    let mut session = peer.session.lock().expect("nothing panics under this lock");
    session.grown += 1;
    format!("{GROWN}{:04}", session.grown)
}

fn fillers(peer: &Peer) -> usize {
    let huge = peer.faults().number(Fault::ListHuge).unwrap_or(0);
    peer.options.tools.max(usize::try_from(huge).unwrap_or(0))
}

fn grown(peer: &Peer) -> usize {
    peer.session
        .lock()
        .expect("nothing panics under this lock")
        .grown
}

/// Tools of a peer that inspects its environment.
const INSIDE: [&str; 2] = ["shell", "eat"];

fn inside() -> Vec<Value> {
    let (text, integer) = (json!({"type": "string"}), json!({"type": "integer"}));
    vec![
        tool(
            "shell",
            "Runs a script and returns what it prints",
            json!({"script": text}),
            &["script"],
        ),
        tool(
            "eat",
            "Takes that many bytes of memory and keeps them",
            json!({"bytes": integer}),
            &["bytes"],
        ),
    ]
}

const BUILT_IN: &[&str] = &[
    "echo",
    "add",
    "fail",
    "rpc_error",
    "slow",
    "crash",
    "bad_output",
    "env",
    "fds",
    "pid",
    "big",
    "big_line",
    "stderr",
    "whoami",
    "mirror",
    "noise",
    "grow",
    "touch",
    "trigger",
];

fn built_in() -> Vec<Value> {
    let (text, number, integer) = (
        json!({"type": "string"}),
        json!({"type": "number"}),
        json!({"type": "integer"}),
    );
    let sum = json!({
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
    });
    let mut add = tool(
        "add",
        "Adds two numbers",
        json!({"a": number, "b": number}),
        &["a", "b"],
    );
    let mut bad = tool(
        "bad_output",
        "Returns what its schema forbids",
        json!({}),
        &[],
    );
    add["outputSchema"] = sum.clone();
    bad["outputSchema"] = sum;
    vec![
        tool(
            "echo",
            "Returns its text, after a delay if one is given",
            json!({"text": text, "delay_ms": integer, "nonce": text}),
            &["text"],
        ),
        add,
        tool(
            "fail",
            "Fails with a message",
            json!({"message": text}),
            &["message"],
        ),
        tool(
            "rpc_error",
            "Answers with a JSON-RPC error",
            json!({"code": integer, "message": text}),
            &["code", "message"],
        ),
        tool(
            "slow",
            "Takes its time, reports progress, obeys cancellation",
            json!({"ms": integer, "progress": integer, "nonce": text}),
            &["ms"],
        ),
        tool(
            "crash",
            "Ends the server in mid-call",
            json!({"code": integer}),
            &[],
        ),
        bad,
        tool(
            "env",
            "Returns the server's environment as JSON",
            json!({}),
            &[],
        ),
        tool(
            "fds",
            "Returns the open file descriptors as JSON",
            json!({}),
            &[],
        ),
        tool(
            "pid",
            "Returns the process id and its namespace as JSON",
            json!({}),
            &[],
        ),
        tool(
            "big",
            "Returns that many bytes of text",
            json!({"bytes": integer}),
            &["bytes"],
        ),
        tool(
            "big_line",
            "Answers with a line of exactly that many bytes, newline included",
            json!({"bytes": integer}),
            &["bytes"],
        ),
        tool(
            "stderr",
            "Writes to stderr",
            json!({"text": text}),
            &["text"],
        ),
        tool(
            "whoami",
            "Returns the `_meta` it received as JSON",
            json!({}),
            &[],
        ),
        tool(
            "mirror",
            "Returns its params byte for byte, as text",
            json!({}),
            &[],
        ),
        tool(
            "noise",
            "Writes noise to stdout before it answers",
            json!({"lines": integer}),
            &[],
        ),
        tool(
            "grow",
            "Adds a tool and announces the changed list",
            json!({}),
            &[],
        ),
        tool(
            "touch",
            "Announces a changed resource",
            json!({"uri": text}),
            &["uri"],
        ),
        tool(
            "trigger",
            "Sets off `flood-noline` if that fault was asked for",
            json!({}),
            &[],
        ),
    ]
}

fn tool(name: &str, description: &str, mut properties: Value, required: &[&str]) -> Value {
    if properties["nonce"].is_null() {
        properties["nonce"] = json!({"type": "string"});
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({"name": name, "description": description, "inputSchema": schema})
}

/// Returns tools that are unusable or have a part that cannot be checked (`bad_…`, and one without
/// a name), and tools whose schemas are valid but costly to check (`odd_…`).
fn bad_schemas() -> Vec<Value> {
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    let header = |name: Value| property(json!({"type": "string", "x-mcp-header": name}));
    let two_headers = json!({"type": "object", "properties": {
        "x": {"type": "string", "x-mcp-header": "Same"},
        "y": {"type": "string", "x-mcp-header": "same"},
    }});
    let mut deep = json!({"type": "string"});
    for _ in 0..20 {
        deep = property(deep);
    }
    let schemas = [
        ("bad_type", json!({"type": "banana"})),
        ("bad_string", json!("not a schema")),
        ("bad_null", json!(null)),
        (
            "bad_pattern",
            property(json!({"type": "string", "pattern": "(unclosed"})),
        ),
        (
            "odd_slow_pattern",
            property(json!({"type": "string", "pattern": "^(a+)+$"})),
        ),
        (
            "bad_remote_ref",
            property(json!({"$ref": "http://127.0.0.1:9/schema.json"})),
        ),
        (
            "bad_file_ref",
            property(json!({"$ref": "file:///etc/passwd"})),
        ),
        (
            "bad_dangling_ref",
            property(json!({"$ref": "#/$defs/missing"})),
        ),
        ("bad_endless_ref", json!({"$ref": "#"})),
        ("odd_recursive", property(json!({"$ref": "#"}))),
        ("odd_deep", deep),
        ("bad_header_name", header(json!("Bad Name\r\n"))),
        ("bad_header_kind", header(json!(7))),
        ("bad_header_twice", two_headers),
    ];
    let mut tools: Vec<Value> = schemas
        .into_iter()
        .map(|(name, schema)| json!({"name": name, "description": "Bad", "inputSchema": schema}))
        .collect();
    tools.push(json!({"name": "bad_missing", "description": "Has no schema at all"}));
    tools.push(json!({"description": "Has no name", "inputSchema": {"type": "object"}}));
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_tool_is_listed_and_callable() {
        let names: Vec<Value> = built_in()
            .into_iter()
            .map(|tool| tool["name"].clone())
            .collect();
        assert_eq!(
            names,
            BUILT_IN.iter().map(|name| json!(name)).collect::<Vec<_>>()
        );
    }
}
