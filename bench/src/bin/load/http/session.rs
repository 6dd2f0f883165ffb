//! One connection and the session on it. It never connects again: a server that closes a connection
//! which is in use makes an error. Entry points: [`Session::open`], [`get`].

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::Failure;
use crate::workload::{Answer, INITIALIZE, INITIALIZED, PROTOCOL, Workload, cut};

const PATH: &str = "/mcp";
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A kept-alive connection with headers that every request on it has.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    /// The task that moves the connection's bytes; ends with this.
    _driver: JoinSet<hyper::Result<()>>,
}

/// An open session.
pub(super) struct Session {
    connection: Connection,
    number: usize,
    last_id: u64,
}

/// Gets `path` on a new connection and returns how long that took.
pub(super) async fn get(port: u16, path: &str, key: String) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let mut connection = Connection::open(port, Some(key)).await?;
    connection.send(Method::GET, path, Bytes::new()).await?;
    Ok(begun.elapsed())
}

impl Session {
    /// Connects and shakes hands.
    pub(super) async fn open(
        port: u16,
        number: usize,
        key: Option<String>,
    ) -> Result<Self, Failure> {
        let mut connection = Connection::open(port, key).await?;
        let (head, body) = connection
            .send(Method::POST, PATH, INITIALIZE.into())
            .await?;
        let hello = message(&head, &body);
        if serde_json::from_slice::<Answer<'_>>(&hello)?
            .result
            .is_none()
        {
            return Err(format!("initialize: {}", cut(&hello)).into());
        }
        if let Some(id) = head.get(SESSION_ID) {
            connection.headers.insert(SESSION_ID, id.clone());
        }
        let version = HeaderValue::from_static(PROTOCOL);
        connection.headers.insert(PROTOCOL_VERSION, version);
        connection
            .send(Method::POST, PATH, INITIALIZED.into())
            .await?;
        Ok(Self {
            connection,
            number,
            last_id: 0,
        })
    }

    /// Makes the next call and returns how long it took; the check of the answer is not timed.
    pub(super) async fn call(&mut self, workload: &Workload) -> Result<Duration, Failure> {
        // All sessions count from 1: who trusts their ids mixes them up.
        self.last_id += 1;
        let request = workload.request(self.number, self.last_id);
        let begun = Instant::now();
        let (head, body) = self
            .connection
            .send(Method::POST, PATH, request.into())
            .await?;
        let latency = begun.elapsed();
        workload.check(self.number, self.last_id, &message(&head, &body))?;
        Ok(latency)
    }

    /// Ends the session; a server may refuse that.
    pub(super) async fn close(mut self) {
        drop(
            self.connection
                .send(Method::DELETE, PATH, Bytes::new())
                .await,
        );
    }
}

impl Connection {
    async fn open(port: u16, key: Option<String>) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, format!("127.0.0.1:{port}").parse()?);
        headers.insert(ACCEPT, "application/json, text/event-stream".parse()?);
        headers.insert(CONTENT_TYPE, "application/json".parse()?);
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, format!("Bearer {key}").parse()?);
        }
        Ok(Self {
            sender,
            headers,
            _driver: driver,
        })
    }

    /// Sends one request and reads its whole response.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(HeaderMap, Bytes), Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse()?;
        *request.headers_mut() = self.headers.clone();
        let exchange = async {
            self.sender.ready().await?;
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            if head.status.is_success() {
                Ok((head.headers, body))
            } else {
                Err(format!("status {}: {}", head.status, cut(&body)).into())
            }
        };
        timeout(PATIENCE, exchange).await?
    }
}

/// Returns the message in a body: the body itself, or the last event of a stream.
fn message(head: &HeaderMap, body: &Bytes) -> Bytes {
    let media = head
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if !media.starts_with(b"text/event-stream") {
        return body.clone();
    }
    let lines = body.split(|byte| *byte == b'\n');
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.next_back()
        .map_or_else(Bytes::new, |line| body.slice_ref(line.trim_ascii()))
}
