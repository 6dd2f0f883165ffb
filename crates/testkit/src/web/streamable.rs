//! Streamable HTTP: messages are posted to one endpoint, answered as JSON or as a stream of events.
//!
//! The handshake era has sessions, a stream of their own (GET) and streams that can be taken up
//! again; the stateless era has neither, and headers that repeat the body. Entry point: [`answer`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::session::Session;
use super::spoil::Spoil;
use super::stream::{Next, Stream};
use super::{Connection, Request, Service, Sessions};
use crate::peer::Era;
use crate::peer::era::{MODERN_VERSION, PROTOCOL_VERSION};

/// How often a waiting connection is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What a client that polls waits before it asks again.
const RETRY_MS: u64 = 200;

/// Answers one request.
pub(super) fn answer(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    if request.path != "/mcp" {
        return connection.answer(404, &[], b"there is nothing here");
    }
    let stateless = service.era() == Era::Modern
        || request.header("mcp-protocol-version") == Some(MODERN_VERSION);
    match request.method.as_str() {
        "POST" => post(connection, request, sessions, service),
        "GET" if !stateless => get(connection, request, sessions, service),
        "DELETE" if !stateless => {
            let closed = request
                .header("mcp-session-id")
                .is_some_and(|id| sessions.close(id));
            connection.answer(if closed { 200 } else { 404 }, &[], b"")
        }
        _ => connection.answer(405, &[("Allow", "POST")], b""),
    }
}

fn post(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
        return refuse(connection, 400, &Value::Null, -32700, "parse error");
    };
    match service.spoil(Some((request, &message))) {
        Some(Spoil::Forget) => {
            sessions.close(request.header("mcp-session-id").unwrap_or_default());
        }
        Some(spoil) => return spoil.on(connection),
        None => {}
    }
    let id = &message["id"];
    let versioned = !message["params"]["_meta"][PROTOCOL_VERSION].is_null();
    let modern = match service.era() {
        Era::Legacy => false,
        Era::Modern => true,
        Era::Dual => versioned,
    };
    let named = request.header("mcp-session-id");
    let mut headers = service.renames();
    let session = if modern {
        if versioned && let Err(mismatch) = check(request, &message, service) {
            return refuse(connection, 400, id, -32020, &mismatch);
        }
        Arc::clone(sessions.stateless())
    } else if message["method"] == "initialize" {
        let session = sessions.open();
        headers = service.names(&session.id);
        session
    } else {
        match named.map(|id| sessions.find(id)) {
            Some(Some(session)) => session,
            Some(None) => return refuse(connection, 404, id, -32001, "Session not found"),
            None => {
                let why = "Bad Request: Server not initialized";
                return refuse(connection, 400, id, -32000, why);
            }
        }
    };
    if id.is_null() || message["method"].is_null() {
        session.talk.receive(request, &request.body, &session.own);
        return connection.answer(202, &[], b"");
    }
    let stream = session.stream();
    session.talk.receive(request, &request.body, &stream);
    let polled = !modern && service.is_polled(&message);
    let out = Outgoing {
        id,
        modern,
        headers,
    };
    match polled {
        true => out.poll(connection, &stream),
        false => out.write(connection, &stream, &session),
    }
}

/// An answer on its way out.
struct Outgoing<'a> {
    id: &'a Value,
    modern: bool,
    headers: Vec<(&'static str, String)>,
}

impl Outgoing<'_> {
    fn headers(&self) -> Vec<(&str, &str)> {
        let headers = self.headers.iter();
        headers
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }

    /// Has the client come back for the answer.
    fn poll(&self, connection: &mut Connection, stream: &Stream) -> io::Result<()> {
        connection.begin_events(&self.headers())?;
        let first = format!("id: {}-0\nretry: {RETRY_MS}\ndata: \n\n", stream.number);
        connection.piece(first.as_bytes())?;
        connection.end()
    }

    /// Writes what is said until the answer was.
    fn write(
        &self,
        connection: &mut Connection,
        stream: &Stream,
        session: &Session,
    ) -> io::Result<()> {
        let mut position = 0;
        let mut begun = false;
        loop {
            match stream.next(position, LOOK) {
                Next::Message(at, message) => {
                    let (is_answer, status) = self.judge(&message);
                    if is_answer && !begun {
                        return connection.json(status, &self.headers(), &message);
                    }
                    if !begun {
                        connection.begin_events(&self.headers())?;
                        begun = true;
                    }
                    position = at + 1;
                    let event = format!("{}-{position}", stream.number);
                    connection.event((!self.modern).then_some(&event), &message)?;
                    if is_answer {
                        return connection.end();
                    }
                }
                Next::Nothing if connection.is_gone() => {
                    // In the handshake era a lost connection takes nothing back.
                    if self.modern {
                        session.talk.gone(self.id);
                    }
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Next::Nothing => {}
                Next::Closed if begun => return connection.end(),
                Next::Closed => return connection.answer(500, &[], b""),
            }
        }
    }

    /// Tells whether a message is the answer, and which status goes with it.
    fn judge(&self, message: &[u8]) -> (bool, u16) {
        let message: Value = serde_json::from_slice(message).unwrap_or_default();
        let is_answer = message.get("method").is_none() && message["id"] == *self.id;
        let status = match message["error"]["code"].as_i64() {
            Some(-32601) if self.modern => 404,
            Some(-32602 | -32020 | -32021 | -32022) if self.modern => 400,
            _ => 200,
        };
        (is_answer, status)
    }
}

/// Opens a session's own stream, or takes up another.
fn get(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    let named = request.header("mcp-session-id");
    let Some(session) = named.and_then(|id| sessions.find(id)) else {
        let status = if named.is_some() { 404 } else { 400 };
        return connection.answer(status, &[], b"");
    };
    if let Some(spoil) = service.spoil(Some((request, &Value::Null))) {
        return spoil.on(connection);
    }
    let resumed = request
        .header("last-event-id")
        .and_then(|event| session.resume(event));
    let fresh = || {
        (
            Arc::clone(&session.own),
            session.heard.load(Ordering::Relaxed),
        )
    };
    let (stream, mut position) = resumed.unwrap_or_else(fresh);
    connection.begin_events(&[])?;
    loop {
        match stream.next(position, LOOK) {
            Next::Message(at, message) => {
                position = at + 1;
                let event = format!("{}-{position}", stream.number);
                connection.event(Some(&event), &message)?;
                let message: Value = serde_json::from_slice(&message).unwrap_or_default();
                if stream.number == 0 {
                    session.heard.store(position, Ordering::Relaxed);
                } else if message.get("method").is_none() {
                    return connection.end();
                }
            }
            Next::Nothing if connection.is_gone() => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Next::Nothing => {}
            Next::Closed => return connection.end(),
        }
    }
}

/// Checks that the headers of a stateless request repeat its body.
fn check(request: &Request, message: &Value, service: &dyn Service) -> Result<(), String> {
    let params = &message["params"];
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other @ (Value::Bool(_) | Value::Number(_)) => Some(other.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    };
    let named = match message["method"].as_str().unwrap_or_default() {
        "tools/call" | "prompts/get" => &params["name"],
        "resources/read" => &params["uri"],
        _ => &Value::Null,
    };
    let mut wanted = vec![
        (
            "mcp-protocol-version".to_owned(),
            text(&params["_meta"][PROTOCOL_VERSION]),
        ),
        ("mcp-method".to_owned(), text(&message["method"])),
        ("mcp-name".to_owned(), text(named)),
    ];
    if message["method"] == "tools/call" {
        for (argument, header) in service.repeated(params["name"].as_str().unwrap_or_default()) {
            let header = format!("mcp-param-{}", header.to_ascii_lowercase());
            wanted.push((header, text(&params["arguments"][argument])));
        }
    }
    for (header, value) in wanted {
        let given = request.plain(&header);
        if given != value {
            return Err(format!(
                "header `{header}` is {given:?}, the body has {value:?}"
            ));
        }
    }
    Ok(())
}

fn refuse(
    connection: &mut Connection,
    status: u16,
    id: &Value,
    code: i64,
    message: &str,
) -> io::Result<()> {
    let error = json!({"code": code, "message": message});
    let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
    connection.json(status, &[], body.to_string().as_bytes())
}
