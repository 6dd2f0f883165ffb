//! The least that a bridge from HTTP to stdio can do: `floor PORT COMMAND [ARGUMENT…]`.
//!
//! hyper in front of one child. Each request gets an id of its own on the pipe and its caller's back
//! in the answer. No keys, no sessions, no grants, no schemas, no record, no limits.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// How much goes to the child in one write, and is read from it at once.
const BATCH_BYTES: usize = 256 << 10;

/// A message whose members stay as they were written, but for the id.
#[derive(Serialize, Deserialize)]
struct Message<'a> {
    jsonrpc: &'a str,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

/// The one member of an answer that tells whose it is.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

struct Bridge {
    last_id: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>,
    lines: mpsc::Sender<Vec<u8>>,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments
        .next()
        .and_then(|p| p.parse().ok())
        .expect("PORT is a number");
    let mut child = Command::new(arguments.next().expect("a COMMAND follows the port"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdin = ChildStdin::from_std(child.stdin.take().expect("stdin is piped"))?;
    let stdout = ChildStdout::from_std(child.stdout.take().expect("stdout is piped"))?;
    let (lines, queue) = mpsc::channel(1024);
    let bridge = Arc::new(Bridge {
        last_id: AtomicU64::new(0),
        waiting: Mutex::default(),
        lines,
    });
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(write(stdin, queue));
    tasks.spawn(accept(listener, Arc::clone(&bridge)));
    tasks.spawn(read(stdout, bridge));
    // None of the three ends before the child does.
    tasks.join_next().await;
    child.wait().map(|_| ())
}

/// Sends all that waits in one write.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut batch) = queue.recv().await {
        while batch.len() < BATCH_BYTES
            && let Ok(more) = queue.try_recv()
        {
            batch.extend_from_slice(&more);
        }
        if stdin.write_all(&batch).await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, bridge: Arc<Bridge>) {
    let mut stdout = BufReader::with_capacity(BATCH_BYTES, stdout);
    let mut line = Vec::new();
    while stdout
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|bytes| bytes > 0)
    {
        let line = std::mem::take(&mut line);
        if let Ok(Numbered { id }) = serde_json::from_slice(&line)
            && let Some(caller) = bridge.waiting.lock().expect("no holder panics").remove(&id)
        {
            // A caller that has gone needs no answer.
            drop(caller.send(line));
        }
    }
}

async fn accept(listener: TcpListener, bridge: Arc<Bridge>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&bridge)));
    }
}

async fn serve(stream: TcpStream, bridge: Arc<Bridge>) -> Result<(), hyper::Error> {
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| handle(request, &bridge));
    http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn handle(
    request: Request<Incoming>,
    bridge: &Bridge,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match request.into_body().collect().await {
        Ok(body) => bridge.forward(&body.to_bytes()).await,
        Err(_) => (StatusCode::BAD_REQUEST, Vec::new()),
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("mcp-session-id", "floor")
        .body(Full::new(Bytes::from(body)));
    Ok(response.expect("the headers are constant"))
}

impl Bridge {
    async fn forward(&self, body: &[u8]) -> (StatusCode, Vec<u8>) {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(body) else {
            return (StatusCode::BAD_REQUEST, Vec::new());
        };
        let Some(caller_id) = message.id else {
            let sent = self.lines.send([body, b"\n"].concat()).await;
            return (
                sent.map_or(StatusCode::BAD_GATEWAY, |()| StatusCode::ACCEPTED),
                Vec::new(),
            );
        };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (tx, rx) = oneshot::channel();
        self.waiting
            .lock()
            .expect("no holder panics")
            .insert(id, tx);
        let own_id = RawValue::from_string(id.to_string()).expect("a number is JSON");
        let mut line = renumbered(message, &own_id);
        line.push(b'\n');
        if self.lines.send(line).await.is_ok()
            && let Ok(line) = rx.await
            && let Ok(answer) = serde_json::from_slice::<Message<'_>>(&line)
        {
            return (StatusCode::OK, renumbered(answer, caller_id));
        }
        (StatusCode::BAD_GATEWAY, Vec::new())
    }
}

fn renumbered<'a>(message: Message<'a>, id: &'a RawValue) -> Vec<u8> {
    serde_json::to_vec(&Message {
        id: Some(id),
        ..message
    })
    .expect("raw members are JSON")
}
