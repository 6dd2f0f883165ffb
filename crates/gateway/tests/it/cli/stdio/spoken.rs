//! What `gantry stdio` answers, word for word, and how it ends.

use insta::assert_snapshot;
use serde_json::json;

use super::Client;
use crate::cli::settings;
use crate::harness::Gantry;

#[test]
fn stdio_speaks_and_ends_with_its_client() {
    let gantry = Gantry::start(&["a"]);
    let mut client = Client::start(&gantry.data(), &["--server", "a"]);
    let mut said = vec![client.initialize("2025-11-25")];
    let add = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    said.push(client.ask(json!(1), "tools/call", add));
    let wrong = json!({"name": "add", "arguments": {"a": 1}});
    said.push(client.ask(json!(2), "tools/call", wrong));
    said.push(client.ask(json!(3), "tools/call", json!({"name": "fly"})));
    said.push(client.ask(json!("four"), "ping", json!({})));
    let mut told: Vec<String> = said.iter().map(ToString::to_string).collect();
    told.push(format!("--- exit {}", client.close().code().unwrap()));
    settings().bind(|| {
        assert_snapshot!(told.join("\n"), @r#"
        {"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{}},"serverInfo":{"name":"gantry","version":"[version]"},"instructions":"A scripted server for tests. Its tools do what their names say."}}
        {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"sum\":3}"}],"structuredContent":{"sum":3}}}
        {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"arguments of `add` do not fit its schema\n- /b: required field `b` is missing"}],"isError":true}}
        {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"Unknown tool: fly","data":{"code":"tool.unknown","call":"[call]","hint":"`tools/list` shows what there is"}}}
        {"jsonrpc":"2.0","id":"four","result":{}}
        --- exit 0
        "#);
    });
}
