//! From a line to a response: parses a message, determines its era, and passes it to the module for
//! its method. Entry point: [`receive`].

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::faults::Fault;
use super::message::{Answer, Incoming, RpcError, Ticket, notification};
use super::state::{Listener, Peer};
use super::{calls, content, era, handshake, listing};
use crate::journal::Entry;

/// Handles one line and returns whether it was a tool call to which faults apply.
pub(crate) fn receive(peer: &Arc<Peer>, line: &[u8]) -> bool {
    let line = line.trim_ascii();
    if line.is_empty() {
        return false;
    }
    let message = serde_json::from_slice::<Incoming<'_>>(line);
    let Ok(Incoming { id, method, params }) = message else {
        let shown: String = String::from_utf8_lossy(line).chars().take(200).collect();
        peer.record(&Entry::Garbled { line: shown });
        let error = json!({"code": -32700, "message": "parse error"});
        let reply = json!({"jsonrpc": "2.0", "id": null, "error": error});
        peer.output.send(reply.to_string().into_bytes());
        return false;
    };
    match (method, id) {
        (Some(method), Some(id)) => request(peer, id.get(), &method, params),
        (Some(method), None) => {
            notified(peer, &method, &parse(params));
            false
        }
        (None, id) => {
            let request = id
                .and_then(|id| serde_json::from_str::<String>(id.get()).ok())
                .and_then(|id| Some(id.strip_prefix("evil-")?.split('-').next()?.to_owned()));
            let message = String::from_utf8_lossy(line).into_owned();
            let request = request.unwrap_or_else(|| "unknown".into());
            peer.record(&Entry::Answer { request, message });
            false
        }
    }
}

fn request(peer: &Arc<Peer>, id: &str, method: &str, raw: Option<&RawValue>) -> bool {
    let faults = peer.faults();
    let bites = peer.gate.bites_now();
    let silent = (faults.is(Fault::Hang, method) && method != "tools/call" && bites)
        || (faults.has(Fault::UnresponsivePing) && method == "ping" && bites);
    if silent {
        return false;
    }
    let mut ticket = Ticket {
        id: id.into(),
        method: method.into(),
        modern: false,
        faulty: peer.options.everywhere && bites,
        nonce: None,
    };
    if let Some(answer) = handshake::spoiled(peer, id, method) {
        peer.answer(&ticket, answer);
        return false;
    }
    let params = parse(raw);
    let initialized = handshake::is_initialized(peer);
    match era::is_modern(peer.options.era, initialized, method, &params) {
        Ok(modern) => ticket.modern = modern,
        Err(error) => {
            peer.answer(&ticket, error.into());
            return false;
        }
    }
    if method == "tools/call" {
        return calls::call(peer, ticket, &params, raw);
    }
    let answer = plain(peer, &ticket, &params);
    let discovered = ticket.modern && matches!(answer, Answer::Result(_));
    peer.answer(&ticket, answer);
    if discovered {
        peer.gate.set_handshaken();
    }
    false
}

/// Answers everything but `tools/call`.
fn plain(peer: &Arc<Peer>, ticket: &Ticket, params: &Value) -> Answer {
    match (ticket.method.as_str(), ticket.modern) {
        ("initialize", false) => handshake::initialize(peer, params),
        ("server/discover", _) => handshake::discover(peer, ticket),
        ("ping" | "logging/setLevel", false) => Answer::Result(json!({})),
        ("tools/list", _) => listing::tools(peer, params),
        ("resources/list", _) => content::resources(),
        ("resources/templates/list", _) => content::templates(),
        ("resources/read", modern) => content::read(params, modern),
        ("resources/subscribe", false) => watch(peer, params, true),
        ("resources/unsubscribe", false) => watch(peer, params, false),
        ("prompts/list", _) => content::prompts(),
        ("prompts/get", _) => content::prompt(params),
        ("completion/complete", _) => content::complete(params),
        ("subscriptions/listen", true) => listen(peer, ticket, params),
        (method, _) => RpcError::no_method(method).into(),
    }
}

fn notified(peer: &Peer, method: &str, params: &Value) {
    match method {
        "notifications/initialized" => peer.gate.set_handshaken(),
        "notifications/cancelled" => {
            let id = &params["requestId"];
            let mut session = peer.session.lock().expect("nothing panics under this lock");
            session.listeners.retain(|listener| listener.id != *id);
            drop(session);
            if let Some(flight) = peer.flights.cancel(id) {
                peer.record(&Entry::Cancelled {
                    nonce: flight.nonce,
                });
            }
        }
        _ => {}
    }
}

fn watch(peer: &Peer, params: &Value, watched: bool) -> Answer {
    let Some(uri) = params["uri"].as_str() else {
        return RpcError::bad_params("missing `uri`").into();
    };
    let mut session = peer.session.lock().expect("nothing panics under this lock");
    session.watched.retain(|each| each != uri);
    if watched {
        session.watched.push(uri.into());
    }
    Answer::Result(json!({}))
}

/// Opens a subscription: acknowledged at once, ended only by cancellation.
fn listen(peer: &Peer, ticket: &Ticket, params: &Value) -> Answer {
    let id: Value = serde_json::from_str(&ticket.id).unwrap_or_default();
    let asked = &params["notifications"];
    let mut filter = json!({});
    for kind in ["toolsListChanged", "resourceSubscriptions"] {
        if !asked[kind].is_null() {
            filter[kind] = asked[kind].clone();
        }
    }
    let agreed = json!({"notifications": filter, "_meta": {era::SUBSCRIPTION_ID: id}});
    let mut session = peer.session.lock().expect("nothing panics under this lock");
    peer.output.send(notification(
        "notifications/subscriptions/acknowledged",
        agreed,
    ));
    session.listeners.push(Listener { id, filter });
    Answer::Later
}

fn parse(params: Option<&RawValue>) -> Value {
    params
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}
