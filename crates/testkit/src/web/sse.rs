//! HTTP+SSE, the way of the first protocol version: a stream at `/sse` that begins with where to
//! post; answers come on the stream. Entry point: [`answer`].

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::spoil::Spoil;
use super::stream::Next;
use super::{Connection, Request, Service, Sessions};

/// How often a waiting connection is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Answers one request.
pub(super) fn answer(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/sse") => stream(connection, request, sessions, service),
        ("POST", "/messages") => post(connection, request, sessions, service),
        (_, "/sse" | "/messages") => connection.answer(405, &[], b""),
        _ => connection.answer(404, &[], b"there is nothing here"),
    }
}

fn stream(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    if let Some(spoil) = service.spoil(Some((request, &Value::Null))) {
        return spoil.on(connection);
    }
    let session = sessions.open();
    connection.begin_events(&[])?;
    let endpoint = service.endpoint(&session.id);
    let written = connection.piece(format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes());
    let mut position = 0;
    let ended = written.and_then(|()| {
        loop {
            match session.own.next(position, LOOK) {
                Next::Message(at, message) => {
                    connection.event(None, &message)?;
                    position = at + 1;
                }
                Next::Nothing if connection.is_gone() => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Next::Nothing => {}
                Next::Closed => return Err(connection.cut()),
            }
        }
    });
    sessions.close(&session.id);
    ended
}

fn post(
    connection: &mut Connection,
    request: &Request,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    let id = request.parameter("session").unwrap_or_default();
    let Some(session) = sessions.find(id) else {
        return connection.answer(404, &[], b"there is no such session");
    };
    let message = serde_json::from_slice(&request.body).unwrap_or_default();
    match service.spoil(Some((request, &message))) {
        Some(Spoil::Cut | Spoil::Forget) => {
            sessions.close(id);
            return connection.answer(202, &[], b"Accepted");
        }
        Some(spoil) => return spoil.on(connection),
        None => {}
    }
    session.talk.receive(request, &request.body, &session.own);
    connection.answer(202, &[], b"Accepted")
}
