//! `tools/list`: pages and cursors, and the faults of a list (S19).

use serde_json::{Value, json};

use super::faults::Fault;
use super::message::{Answer, RpcError};
use super::state::Peer;
use super::tools;

const CURSOR: &str = "from-";
const LOOP: &str = "round-and-round";

pub(crate) fn tools(peer: &Peer, params: &Value) -> Answer {
    let faults = peer.faults();
    if faults.has(Fault::ListError) {
        return RpcError::new(-32603, "the tool list is on strike").into();
    }
    let all = tools::all(peer);
    if faults.is(Fault::ListLoop, "new") {
        return endless(all, params);
    }
    if faults.has(Fault::ListLoop) {
        return Answer::Result(json!({"tools": all, "nextCursor": LOOP}));
    }
    let start = match params.get("cursor").filter(|cursor| !cursor.is_null()) {
        None => Some(0),
        Some(cursor) => cursor
            .as_str()
            .and_then(|cursor| cursor.strip_prefix(CURSOR))
            .and_then(|number| number.parse().ok()),
    };
    let Some(start) = start.filter(|start: &usize| *start <= all.len()) else {
        return RpcError::bad_params("invalid cursor").into();
    };
    let size = peer.options.page.unwrap_or(usize::MAX);
    let total = all.len();
    let page: Vec<Value> = all.into_iter().skip(start).take(size).collect();
    let end = start + page.len();
    let mut result = json!({"tools": page});
    if end < total {
        result["nextCursor"] = json!(format!("{CURSOR}{end}"));
    }
    Answer::Result(result)
}

/// Returns the next page of a list without end: all tools first, then one new tool a page.
fn endless(all: Vec<Value>, params: &Value) -> Answer {
    let cursor = params["cursor"].as_str();
    let number = cursor.and_then(|cursor| cursor.strip_prefix(CURSOR)?.parse().ok());
    let page: u64 = number.unwrap_or(1);
    let tools = match page {
        1 => all,
        _ => vec![json!({"name": format!("page_{page}"), "inputSchema": {"type": "object"}})],
    };
    let next = format!("{CURSOR}{}", page + 1);
    Answer::Result(json!({"tools": tools, "nextCursor": next}))
}
