//! A server over HTTP with SSE under the test's own hand: one stream, and a place to post to.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use super::peer::{Peer, Reply, Seen, event, finish, legacy};
use crate::harness::held_port;

/// What one open stream is told: an event, or its end.
type Streams = Arc<Mutex<Vec<Sender<Option<String>>>>>;

/// A server over HTTP with SSE.
pub(super) struct SsePeer {
    pub(super) peer: Peer,
    streams: Streams,
}

impl SsePeer {
    /// Starts a server whose stream names this place to post to.
    pub(super) fn start(place: &str) -> Self {
        Self::at(held_port(), place)
    }

    /// Starts a server where another was.
    pub(super) fn at(address: SocketAddr, place: &str) -> Self {
        let streams = Streams::default();
        let (open, place) = (Arc::clone(&streams), place.to_owned());
        let peer = Peer::again(address, move |seen| handle(seen, &open, &place));
        Self { peer, streams }
    }

    /// Ends every stream in the proper way.
    pub(super) fn end_streams(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            drop(stream.send(None));
        }
    }
}

fn handle(seen: &Seen, streams: &Streams, place: &str) -> Reply {
    if seen.verb == "GET" {
        let (sender, events) = channel();
        streams.lock().unwrap().push(sender);
        let first = format!("event: endpoint\ndata: {place}\n\n");
        return Reply::Events(Box::new(move |to: &mut dyn Write| {
            event(to, &first)?;
            event(to, ": keep alive\n\n")?;
            while let Ok(Some(next)) = events.recv() {
                event(to, &next)?;
            }
            finish(to)
        }));
    }
    if !seen.path.starts_with("/message") {
        return Reply::status(404);
    }
    let answer = match legacy(seen) {
        Reply::Json(answer) => Some(answer.to_string()),
        Reply::Status(200, _, answer) => Some(answer),
        Reply::Status(..) | Reply::Events(_) | Reply::Raw(_) | Reply::Hang | Reply::Cut => None,
    };
    if let Some(answer) = answer {
        let text = format!("event: message\ndata: {answer}\n\n");
        if let Some(stream) = streams.lock().unwrap().last() {
            drop(stream.send(Some(text)));
        }
    }
    Reply::Status(202, Vec::new(), "Accepted".to_owned())
}
