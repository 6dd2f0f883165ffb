//! HTTP for the test servers: a small server of our own, on plain threads, which can also misbehave
//! on the level of bytes; and MCP on top of it, as streamable HTTP of both eras and as HTTP+SSE.
//! What is served is behind `Service`; the far side of a test holds a [`Served`]. Entry point:
//! `serve`.

mod connection;
mod request;
mod served;
mod session;
mod spoil;
mod sse;
mod stream;
mod streamable;

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use serde_json::Value;

pub(crate) use connection::Connection;
pub(crate) use request::Request;
pub use served::Served;
pub(crate) use session::Sessions;
pub(crate) use spoil::Spoil;
pub(crate) use stream::Stream;

use crate::peer::Era;

/// Which of the two ways over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// One endpoint, `/mcp`, that messages are posted to.
    #[default]
    Streamable,
    /// A stream at `/sse` that says where messages are posted to.
    Sse,
}

impl Kind {
    /// Returns the kind as `--kind` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Streamable => "streamable",
            Self::Sse => "sse",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        [Self::Streamable, Self::Sse]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("no kind `{text}`: streamable or sse"))
    }

    fn path(self) -> &'static str {
        match self {
            Self::Streamable => "/mcp",
            Self::Sse => "/sse",
        }
    }
}

/// Where and how to serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 for any free one.
    pub(crate) port: u16,
    pub(crate) kind: Kind,
    /// End when stdin does, so that nothing outlives the test that started it.
    pub(crate) until_eof: bool,
}

/// An MCP server, without the way its messages travel.
pub(crate) trait Service: Send + Sync {
    fn era(&self) -> Era;

    /// Begins to talk to a client: one per session, and one for all that have none. What it says by
    /// itself goes to the stream.
    fn meet(&self, own: Arc<Stream>) -> Arc<dyn Talk>;

    /// Returns the headers that must repeat arguments of a tool: argument and header.
    fn repeated(&self, _tool: &str) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns whether the stream of this call is cut after its first event, to be taken up again.
    fn is_polled(&self, _message: &Value) -> bool {
        false
    }

    /// Returns the headers that name a new session.
    fn names(&self, session: &str) -> Vec<(&'static str, String)> {
        vec![("Mcp-Session-Id", session.to_owned())]
    }

    /// Returns the headers that name a session in answers to other requests.
    fn renames(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns where the messages of an HTTP+SSE session are posted to.
    fn endpoint(&self, session: &str) -> String {
        format!("/messages?session={session}")
    }

    /// Says how to spoil what comes next: for a connection `None`, else for a request.
    fn spoil(&self, _request: Option<(&Request, &Value)>) -> Option<Spoil> {
        None
    }
}

/// One side of a conversation.
pub(crate) trait Talk: Send + Sync {
    /// Takes a message; what it leads to is said on the stream, its answer last.
    fn receive(&self, request: &Request, line: &[u8], stream: &Arc<Stream>);

    /// Hears that the client no longer waits for the answer to this request.
    fn gone(&self, id: &Value);
}

/// Serves until the process ends; the URL is the first line on stdout.
pub(crate) fn serve(place: Place, service: Arc<dyn Service>) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", place.port))?;
    let address = listener.local_addr()?;
    let mut out = io::stdout().lock();
    writeln!(out, "http://{address}{}", place.kind.path())?;
    out.flush()?;
    drop(out);
    let sessions = Arc::new(Sessions::new(Arc::clone(&service)));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            let (sessions, service) = (Arc::clone(&sessions), Arc::clone(&service));
            // A connection that fails is its client's to see.
            thread::spawn(move || {
                let connection = Connection::new(stream)?;
                attend(connection, place.kind, &sessions, &*service)
            });
        }
    };
    if !place.until_eof {
        accept();
        return Ok(());
    }
    thread::spawn(accept);
    io::stdin().lock().read_to_end(&mut Vec::new()).map(drop)
}

/// Answers one request of a connection after the other.
fn attend(
    mut connection: Connection,
    kind: Kind,
    sessions: &Sessions,
    service: &dyn Service,
) -> io::Result<()> {
    if let Some(spoil) = service.spoil(None) {
        return spoil.on(&mut connection);
    }
    while let Some(request) = connection.read()? {
        match kind {
            Kind::Streamable => streamable::answer(&mut connection, &request, sessions, service)?,
            Kind::Sse => sse::answer(&mut connection, &request, sessions, service)?,
        }
    }
    Ok(())
}
