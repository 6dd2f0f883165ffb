//! The test servers over HTTP: both kinds, both eras, and what goes wrong on purpose.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use gantry_testkit::{Era, Evilpeer, Kind, Served, fixture};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(10);
const MODERN: &str = "2026-07-28";

/// An answer, whole: status, head, body.
struct Reply(u16, String, Vec<u8>);

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.2).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.2).into_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.1.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Returns the messages of a stream.
    fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: {"));
        data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap())
            .collect()
    }
}

fn open(
    server: &Served,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.authority()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: here\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(text.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn line(stream: &mut impl std::io::BufRead) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).ok()?;
    (read > 0).then_some(line)
}

fn read(mut stream: BufReader<TcpStream>) -> Option<Reply> {
    let mut head = String::new();
    loop {
        let next = line(&mut stream)?;
        if next == "\r\n" {
            break;
        }
        head.push_str(&next);
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut reply = Reply(status, head.replace('\r', ""), Vec::new());
    match reply.header("content-length").and_then(|n| n.parse().ok()) {
        Some(length) => {
            reply.2 = vec![0; length];
            stream.read_exact(&mut reply.2).ok()?;
        }
        None if status == 204 => {}
        None => loop {
            let size = usize::from_str_radix(line(&mut stream)?.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            reply.2.extend_from_slice(&chunk[..size]);
        },
    }
    Some(reply)
}

fn post(server: &Served, headers: &[(&str, &str)], message: &Value) -> Option<Reply> {
    read(open(server, "POST", "/mcp", headers, &message.to_string()))
}

fn request(id: u32, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn call(id: u32, tool: &str, arguments: Value) -> Value {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

fn hello() -> Value {
    let info = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    request(1, "initialize", params)
}

/// Opens a session and returns its id.
fn session(server: &Served) -> String {
    let reply = post(server, &[], &hello()).unwrap();
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25");
    reply.header("mcp-session-id").unwrap().to_owned()
}

fn modern(server: &Served, mut message: Value, headers: &[(&str, &str)]) -> Option<Reply> {
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let method = message["method"].as_str().unwrap().to_owned();
    let mut all = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", &method)];
    all.extend_from_slice(headers);
    post(server, &all, &message)
}

#[test]
fn sessions_are_opened_used_and_ended() {
    let server = fixture::serve(Era::Legacy, Kind::Streamable);
    let listing = request(2, "tools/list", json!({}));
    assert_eq!(post(&server, &[], &listing).unwrap().0, 400);
    let id = session(&server);
    let named = [("Mcp-Session-Id", id.as_str())];
    let tools = post(&server, &named, &listing).unwrap().json();
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 20);
    let unknown = post(&server, &[("Mcp-Session-Id", "x")], &listing).unwrap();
    assert_eq!(unknown.0, 404);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&server, &named, &initialized).unwrap().0, 202);
    let mut message = call(3, "test_tool_with_progress", json!({}));
    message["params"]["_meta"]["progressToken"] = json!("t");
    let told = post(&server, &named, &message).unwrap().events();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[0]["params"]["progressToken"], "t");
    assert_eq!(told[3]["id"], 3);
    assert_eq!(
        read(open(&server, "DELETE", "/mcp", &named, "")).unwrap().0,
        200
    );
    assert_eq!(post(&server, &named, &listing).unwrap().0, 404);
}

#[test]
fn an_answer_is_fetched_where_it_was_left() {
    let server = fixture::serve(Era::Dual, Kind::Streamable);
    let id = session(&server);
    let named = [("Mcp-Session-Id", id.as_str())];
    let first = post(&server, &named, &call(4, "test_reconnection", json!({}))).unwrap();
    assert!(first.text().contains("retry: "), "{}", first.text());
    let event = first
        .text()
        .lines()
        .find_map(|line| Some(line.strip_prefix("id: ")?.to_owned()));
    let event = event.unwrap();
    let again = [named[0], ("Last-Event-ID", event.as_str())];
    let rest = read(open(&server, "GET", "/mcp", &again, ""))
        .unwrap()
        .events();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], 4);
}

#[test]
fn stateless_headers_must_repeat_the_body() {
    let server = fixture::serve(Era::Modern, Kind::Streamable);
    let tool = [("Mcp-Name", "test_simple_text")];
    let message = call(5, "test_simple_text", json!({}));
    let answered = modern(&server, message.clone(), &tool).unwrap();
    assert_eq!(
        (answered.0, &answered.json()["result"]["resultType"]),
        (200, &json!("complete"))
    );
    let missing = modern(&server, message, &[]).unwrap();
    assert_eq!(
        (missing.0, &missing.json()["error"]["code"]),
        (400, &json!(-32020))
    );
    let region = call(6, "test_header_parameter", json!({"region": "süd"}));
    let name = ("Mcp-Name", "test_header_parameter");
    let coded = [name, ("Mcp-Param-Region", "=?base64?c8O8ZA==?=")];
    assert_eq!(modern(&server, region.clone(), &coded).unwrap().0, 200);
    assert_eq!(modern(&server, region, &[name]).unwrap().0, 400);
    assert_eq!(post(&server, &[], &hello()).unwrap().0, 404);
    assert_eq!(read(open(&server, "GET", "/mcp", &[], "")).unwrap().0, 405);
}

#[test]
fn http_and_sse_answers_on_the_stream() {
    let server = fixture::serve(Era::Legacy, Kind::Sse);
    let mut stream = open(&server, "GET", "/sse", &[], "");
    let mut data = || loop {
        let line = line(&mut stream).unwrap();
        if let Some(data) = line.trim_end().strip_prefix("data: ") {
            return data.to_owned();
        }
    };
    let endpoint = data();
    let posted = read(open(&server, "POST", &endpoint, &[], &hello().to_string())).unwrap();
    assert_eq!(posted.0, 202);
    let answer: Value = serde_json::from_str(&data()).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "fixture");
    let lost = read(open(&server, "POST", "/messages?session=x", &[], "{}")).unwrap();
    assert_eq!(lost.0, 404);
}

/// Calls a tool of a peer with a fault that bites once, and then again.
fn twice(fault: &str) -> (Option<Reply>, Reply) {
    let server = Evilpeer::new().fault(fault).fault_calls(1);
    let server = server.serve(Kind::Streamable);
    let id = session(&server);
    let named = [("Mcp-Session-Id", id.as_str())];
    let first = post(&server, &named, &call(7, "echo", json!({"text": "hi"})));
    let second = post(&server, &named, &call(8, "echo", json!({"text": "hi"})));
    (first, second.unwrap())
}

#[test]
fn faults_bite_on_calls_and_end() {
    for (fault, status) in [
        ("hangup", None),
        ("cut", None),
        ("redirect=308:http://127.0.0.1:1/x", Some(308)),
        ("wrong-answer=204", Some(204)),
        ("wrong-answer=html", Some(200)),
        ("status=429", Some(429)),
    ] {
        let (spoiled, well) = twice(fault);
        assert_eq!(spoiled.map(|reply| reply.0), status, "{fault}");
        assert_eq!(well.json()["result"]["content"][0]["text"], "hi", "{fault}");
    }
    let (bomb, _) = twice("endless=gzip");
    let bomb = bomb.unwrap();
    assert_eq!(bomb.header("content-encoding"), Some("gzip"));
    assert!(bomb.2.len() < 8 << 20);
}

#[test]
fn sessions_expire_and_headers_are_shown() {
    let server = Evilpeer::new().fault("expire=2").serve(Kind::Streamable);
    let id = session(&server);
    let named = [("Mcp-Session-Id", id.as_str()), ("X-Mine", "yes")];
    let shown = post(&server, &named, &call(1, "headers", json!({}))).unwrap();
    let text = shown.json()["result"]["content"][0]["text"].clone();
    let headers: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(headers["x-mine"], "yes");
    let expired = post(&server, &named, &call(2, "headers", json!({}))).unwrap();
    assert_eq!(expired.0, 404);
}
