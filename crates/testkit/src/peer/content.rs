//! Resources, prompts and completion: a few fixed ones, always well-behaved.

use serde_json::{Value, json};

use super::message::{Answer, RpcError};

const WORDS: &[&str] = &["alpha", "alphabet", "beta", "gamma"];
/// A PNG of one pixel's first bytes: enough to be binary.
const BLOB: &str = "iVBORw0KGgo=";

pub(crate) fn resources() -> Answer {
    Answer::Result(json!({"resources": [
        {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
    ]}))
}

pub(crate) fn templates() -> Answer {
    Answer::Result(json!({"resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "mimeType": "application/json",
    }]}))
}

pub(crate) fn read(params: &Value, modern: bool) -> Answer {
    let uri = params["uri"].as_str().unwrap_or_default();
    let id = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        ("test://static-text", _) => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "the static text"})
        }
        ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": BLOB}),
        (_, Some(id)) => {
            let text = json!({"id": id}).to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
        _ => {
            let code = if modern { -32602 } else { -32002 };
            let error = RpcError::new(code, "resource not found");
            return error.with_data(json!({"uri": uri})).into();
        }
    };
    Answer::Result(json!({"contents": [contents]}))
}

pub(crate) fn prompts() -> Answer {
    Answer::Result(json!({"prompts": [
        {"name": "simple", "description": "A prompt without arguments"},
        {
            "name": "with_arguments",
            "description": "A prompt with one argument",
            "arguments": [{"name": "a", "required": true}],
        },
    ]}))
}

pub(crate) fn prompt(params: &Value) -> Answer {
    let text = match (params["name"].as_str(), params["arguments"]["a"].as_str()) {
        (Some("simple"), _) => "Say hello.".to_owned(),
        (Some("with_arguments"), Some(a)) => format!("Say {a}."),
        (Some("with_arguments"), None) => {
            return RpcError::bad_params("missing argument `a`").into();
        }
        (name, _) => {
            return RpcError::bad_params(format!("unknown prompt: {}", name.unwrap_or(""))).into();
        }
    };
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Answer::Result(json!({"messages": [message]}))
}

pub(crate) fn complete(params: &Value) -> Answer {
    let prefix = params["argument"]["value"].as_str().unwrap_or_default();
    let values: Vec<&str> = WORDS
        .iter()
        .copied()
        .filter(|word| word.starts_with(prefix))
        .collect();
    let total = values.len();
    Answer::Result(json!({"completion": {"values": values, "total": total, "hasMore": false}}))
}
