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
        Self::open(address, place, |_| None)
    }

    /// Starts a server that answers what the test wants otherwise: what is JSON, on the stream.
    pub(super) fn with(otherwise: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::open(held_port(), "/message", otherwise)
    }

    /// Starts a server with a certificate.
    pub(super) fn encrypted(certificate: &str) -> Self {
        let streams = Streams::default();
        let open = Arc::clone(&streams);
        let peer = Peer::encrypted(certificate, move |seen| {
            handle(seen, &open, "/message", None)
        });
        Self { peer, streams }
    }

    fn open(
        address: SocketAddr,
        place: &str,
        otherwise: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let streams = Streams::default();
        let (open, place) = (Arc::clone(&streams), place.to_owned());
        let peer = Peer::again(address, move |seen| {
            handle(seen, &open, &place, otherwise(seen))
        });
        Self { peer, streams }
    }

    /// Says that it is still there, and no more.
    pub(super) fn comment(&self) {
        if let Some(stream) = self.streams.lock().unwrap().last() {
            drop(stream.send(Some(": still here\n\n".to_owned())));
        }
    }

    /// Ends every stream in the proper way.
    pub(super) fn end_streams(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            drop(stream.send(None));
        }
    }
}

fn handle(seen: &Seen, streams: &Streams, place: &str, otherwise: Option<Reply>) -> Reply {
    if seen.verb == "GET" {
        return otherwise.unwrap_or_else(|| stream(streams, place));
    }
    // Who stands for a proxy is asked for whole URLs.
    let path = seen.path.trim_start_matches("http://far.example");
    let answer = match otherwise {
        Some(Reply::Json(answer)) => Some(answer.to_string()),
        Some(reply) => return reply,
        None if !path.starts_with("/message") => return Reply::status(404),
        None => match legacy(seen) {
            Reply::Json(answer) => Some(answer.to_string()),
            Reply::Status(200, _, answer) => Some(answer),
            Reply::Status(..) | Reply::Events(_) | Reply::Raw(_) | Reply::Hang | Reply::Cut => None,
        },
    };
    if let Some(answer) = answer {
        tell(streams, &answer);
    }
    Reply::Status(202, Vec::new(), "Accepted".to_owned())
}

/// Opens a stream that names the place to post to.
fn stream(streams: &Streams, place: &str) -> Reply {
    let (sender, events) = channel();
    streams.lock().unwrap().push(sender);
    let first = format!("event: endpoint\ndata: {place}\n\n");
    Reply::Events(Box::new(move |to: &mut dyn Write| {
        event(to, &first)?;
        event(to, ": keep alive\n\n")?;
        while let Ok(Some(next)) = events.recv() {
            event(to, &next)?;
        }
        finish(to)
    }))
}

/// Sends a message on the newest stream.
fn tell(streams: &Streams, message: &str) {
    if let Some(stream) = streams.lock().unwrap().last() {
        drop(stream.send(Some(format!("event: message\ndata: {message}\n\n"))));
    }
}
