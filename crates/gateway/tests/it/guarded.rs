//! What a server may cost, what an agent may reach and what nobody is shown: checks of schemas, grants
//! of URIs and completions, redaction.

mod canaries;
mod costly;
mod lists;
mod named_secrets;
mod reached;
mod redacted;
mod withheld;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A small MCP server of the handshake era whose answers are files, and that notes what it is sent.
struct Scripted {
    folder: TempDir,
}

impl Scripted {
    /// Makes one that offers all there is, and has nothing of it yet.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"#!/bin/sh
here=$(dirname "$0")
if [ -f "$here/stderr" ]; then cat "$here/stderr" >&2; fi
if [ -n "${TOKEN+x}" ]; then printf '%s' "$TOKEN" > "$here/token"; fi
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$here/seen"
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([^"]*\)".*/\1/p' | tr / _)
  if [ -f "$here/before_$method" ]; then cat "$here/before_$method"; fi
  if [ -z "$id" ]; then continue
  elif [ -f "$here/error_$method" ]; then what=error
  elif [ -f "$here/result_$method" ]; then what=result
  else
    printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"
    continue
  fi
  printf '{"jsonrpc":"2.0","id":%s,"%s":' "$id" "$what"
  cat "$here/${what}_$method"
  printf '}\n'
done
"#;
        let program = folder.path().join("server");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let scripted = Self { folder };
        scripted.greets(&json!({}));
        scripted.answers("ping", &json!({}));
        scripted
    }

    /// Greets with these members besides what is needed.
    fn greets(&self, members: &Value) {
        let mut greeting = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {"subscribe": true}, "completions": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        });
        for (name, value) in members.as_object().unwrap() {
            greeting[name] = value.clone();
        }
        self.answers("initialize", &greeting);
    }

    fn answers(&self, method: &str, result: &Value) {
        self.write(
            &format!("result_{}", method.replace('/', "_")),
            &result.to_string(),
        );
    }

    fn fails(&self, method: &str, error: &Value) {
        self.write(
            &format!("error_{}", method.replace('/', "_")),
            &error.to_string(),
        );
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path().join(file), text).unwrap();
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the entry of a file.
    fn entry(&self) -> Value {
        json!({"command": self.path().join("server").to_str().unwrap()})
    }

    /// Returns the body that registers it over REST.
    fn body(&self, name: &str, env: &Value) -> Value {
        let mut body = self.entry();
        body["name"] = name.into();
        body["profile"] = "local".into();
        body["start"] = "eager".into();
        body["env"] = env.clone();
        body
    }

    /// Returns what it was given as `TOKEN` at its last start.
    fn token(&self) -> Option<String> {
        fs::read_to_string(self.path().join("token")).ok()
    }

    /// Returns the params of all requests of a method that it was sent.
    fn sent(&self, method: &str) -> Vec<Value> {
        let seen = fs::read_to_string(self.path().join("seen")).unwrap_or_default();
        let messages = seen.lines().map(|line| serde_json::from_str(line).unwrap());
        let of_method = messages.filter(|message: &Value| message["method"] == method);
        of_method.map(|message| message["params"].clone()).collect()
    }
}
