//! The same server over HTTP: `remote PORT http|sse [TOOLS]`.
//!
//! Streamable HTTP of 2025-06-18 at `/mcp`, answered with JSON, or HTTP+SSE at `/sse`. As little as
//! it can: no session is checked, nothing is bounded but by who calls.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

const HELLO: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"remote","version":"1"}}"#;
const UNKNOWN: &str = r#""error":{"code":-32601,"message":"method not found"}"#;

/// What comes out of a stream, one event after the other.
struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

type Answer = Response<Either<Full<Bytes>, Events>>;

struct Server {
    list: String,
    sessions: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    next: AtomicU64,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let port = words.next().and_then(|port| port.parse::<u16>().ok());
    let tools: usize = words.nth(1).map_or(1, |n| n.parse().expect("a number"));
    let listener = TcpListener::bind(("127.0.0.1", port.expect("PORT is a number"))).await?;
    let server = Arc::new(Server {
        list: list(tools),
        sessions: Mutex::default(),
        next: AtomicU64::new(1),
    });
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&server)));
    }
}

async fn serve(stream: TcpStream, server: Arc<Server>) {
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| server.handle(request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(connection.await);
}

impl Server {
    async fn handle(&self, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let is_sse = request.uri().path().starts_with("/sse");
        if request.method() == Method::GET {
            return Ok(match is_sse {
                true => self.open(),
                false => plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
            });
        }
        let session = request.uri().query().and_then(|query| query.parse().ok());
        let Ok(body) = request.into_body().collect().await else {
            return Ok(plain(StatusCode::BAD_REQUEST, Bytes::new()));
        };
        let answer = self.answer(&body.to_bytes());
        let Some(answer) = answer else {
            return Ok(plain(StatusCode::ACCEPTED, Bytes::new()));
        };
        if !is_sse {
            return Ok(plain(StatusCode::OK, answer.into()));
        }
        let sender = session.and_then(|session: u64| {
            let sessions = self.sessions.lock().expect("no holder panics");
            sessions.get(&session).cloned()
        });
        let event = Bytes::from(format!("event: message\ndata: {answer}\n\n"));
        Ok(match sender {
            Some(sender) if sender.send(event).await.is_ok() => {
                plain(StatusCode::ACCEPTED, Bytes::new())
            }
            _ => plain(StatusCode::NOT_FOUND, Bytes::new()),
        })
    }

    /// Opens a stream and says where to post.
    fn open(&self) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(1024);
        let endpoint = format!("event: endpoint\ndata: /sse/messages?{id}\n\n");
        drop(sender.try_send(endpoint.into()));
        let mut sessions = self.sessions.lock().expect("no holder panics");
        sessions.retain(|_, sender| !sender.is_closed());
        sessions.insert(id, sender);
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Either::Right(Events(receiver)))
            .expect("the header is constant")
    }

    fn answer(&self, body: &[u8]) -> Option<String> {
        let asked: Asked<'_> = serde_json::from_slice(body).ok()?;
        let id = asked.id?.get();
        let text = || asked.params.as_ref()?.arguments.as_ref()?.text;
        let member = match asked.method {
            "tools/call" => {
                let text = text().map_or("\"\"", RawValue::get);
                format!(r#""result":{{"content":[{{"type":"text","text":{text}}}]}}"#)
            }
            "tools/list" => self.list.clone(),
            "initialize" => HELLO.to_owned(),
            "ping" => r#""result":{}"#.to_owned(),
            _ => UNKNOWN.to_owned(),
        };
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#))
    }
}

fn plain(status: StatusCode, body: Bytes) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Either::Left(Full::new(body)))
        .expect("the header is constant")
}

fn list(tools: usize) -> String {
    let names = (0..tools).map(|n| match n {
        0 => "echo".to_owned(),
        n => format!("filler_{n}"),
    });
    let tools = names.map(|name| {
        format!(
            r#"{{"name":"{name}","description":"Gives back the text that it was given.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}},"required":["text"]}}}}"#
        )
    });
    let tools: Vec<String> = tools.collect();
    format!(r#""result":{{"tools":[{}]}}"#, tools.join(","))
}
