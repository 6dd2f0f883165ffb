//! A remote server under the test's own hand: every request is seen, every answer is the test's, byte
//! for byte. Blocking, a thread per connection; gone with its handle, connections and all.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::harness::held_port;

/// One request that came in.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) verb: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Value,
}

impl Seen {
    /// Returns the only value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter();
        let found = found.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the MCP method; empty if there is none.
    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// Returns a result for this request.
    pub(super) fn result(&self, result: Value) -> Reply {
        Reply::Json(json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}))
    }
}

type Writing = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// What is answered.
pub(super) enum Reply {
    /// 200 with a JSON body.
    Json(Value),
    /// A status with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// 200 with a stream of events, written by the test; what it leaves open is cut.
    Events(Writing),
    /// Whatever the test writes, head and all, at its own pace; then the connection is closed.
    Raw(Writing),
    /// Nothing, for as long as the other side waits.
    Hang,
    /// The connection is closed without an answer.
    Cut,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self::Status(status, Vec::new(), String::new())
    }

    /// Answers with these bytes.
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Self::Raw(Box::new(move |to: &mut dyn Write| to.write_all(&bytes)))
    }
}

/// Writes one event as a chunk of its own.
pub(super) fn event(to: &mut dyn Write, text: &str) -> io::Result<()> {
    write!(to, "{:x}\r\n{text}\r\n", text.len())?;
    to.flush()
}

/// Ends a stream properly.
pub(super) fn finish(to: &mut dyn Write) -> io::Result<()> {
    to.write_all(b"0\r\n\r\n")?;
    to.flush()
}

type Handler = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    seen: Mutex<Vec<Seen>>,
    open: Mutex<Vec<TcpStream>>,
    reached: Mutex<Vec<(IpAddr, SocketAddr)>>,
    closed: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// A remote server.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Peer {
    /// Starts a server on any free port.
    pub(super) fn start(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::at(held_port(), None, Box::new(handler))
    }

    /// Starts a server where another was.
    pub(super) fn again(
        address: SocketAddr,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::at(address, None, Box::new(handler))
    }

    /// Starts a server with a certificate of the test's own authority.
    pub(super) fn encrypted(
        certificate: &str,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::encrypted_at(held_port(), certificate, handler)
    }

    /// Starts such a server at an address of the test's choice.
    pub(super) fn encrypted_at(
        address: SocketAddr,
        certificate: &str,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let tls = tls(certificate);
        Self::at(address, Some(Arc::new(tls)), Box::new(handler))
    }

    fn at(
        address: SocketAddr,
        tls: Option<Arc<rustls::ServerConfig>>,
        handler: Box<Handler>,
    ) -> Self {
        // Where another was, its listener may take a moment to go.
        let mut listener = None;
        eventually(Duration::from_secs(5), || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handler,
            seen: Mutex::default(),
            open: Mutex::default(),
            reached: Mutex::default(),
            closed: AtomicBool::new(false),
            tls,
        });
        let serving = Arc::clone(&shared);
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                serving.note(&stream);
                let serving = Arc::clone(&serving);
                thread::spawn(move || drop(serving.connection(stream)));
            }
        });
        Self {
            address,
            shared,
            listening: Some(listening),
        }
    }

    /// Returns a URL of the server.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = match self.shared.tls {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Returns everything that was asked so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Returns the requests for one method.
    pub(super) fn asked(&self, method: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|seen| seen.method() == method);
        seen
    }

    /// Returns to which of its addresses it was connected to, and from where, in that order.
    pub(super) fn reached(&self) -> Vec<(IpAddr, SocketAddr)> {
        self.shared.reached.lock().unwrap().clone()
    }

    /// Returns the same, and begins to count anew.
    pub(super) fn forget(&self) -> Vec<(IpAddr, SocketAddr)> {
        std::mem::take(&mut *self.shared.reached.lock().unwrap())
    }

    /// Cuts every connection there is, and goes on listening.
    pub(super) fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        // Who comes from now on is refused: nobody is left waiting at a door that is about to close.
        if let (Ok(_), Some(listening)) = (woken, self.listening.take()) {
            drop(listening.join());
        }
        self.cut();
    }
}

impl Shared {
    fn note(&self, stream: &TcpStream) {
        if let (Ok(to), Ok(from)) = (stream.local_addr(), stream.peer_addr()) {
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            let reached = (to.ip().to_canonical(), from);
            self.reached.lock().unwrap().push(reached);
        }
        if let Ok(stream) = stream.try_clone() {
            self.open.lock().unwrap().push(stream);
        }
    }

    fn connection(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match &self.tls {
            None => {
                let mut reading = BufReader::new(stream.try_clone()?);
                while let Some(seen) = request(&mut reading)? {
                    if !self.answer(seen, &mut &stream)? {
                        break;
                    }
                }
            }
            Some(config) => {
                let session = rustls::ServerConnection::new(Arc::clone(config));
                let session = session.map_err(io::Error::other)?;
                let mut tls = BufReader::new(rustls::StreamOwned::new(session, &stream));
                while let Some(seen) = request(&mut tls)? {
                    if !self.answer(seen, tls.get_mut())? {
                        break;
                    }
                }
            }
        }
        stream.shutdown(Shutdown::Both)
    }

    /// Answers a request; false if the connection is to be closed.
    fn answer(&self, seen: Seen, to: &mut dyn Write) -> io::Result<bool> {
        self.seen.lock().unwrap().push(seen.clone());
        match (self.handler)(&seen) {
            Reply::Json(body) => {
                let body = body.to_string();
                let kind = [("Content-Type", "application/json".to_owned())];
                write_head(to, 200, &kind, Some(body.len()))?;
                to.write_all(body.as_bytes())?;
            }
            Reply::Status(status, headers, body) => {
                write_head(to, status, &headers, Some(body.len()))?;
                to.write_all(body.as_bytes())?;
            }
            Reply::Events(writing) => {
                let kind = [
                    ("Content-Type", "text/event-stream".to_owned()),
                    ("Connection", "close".to_owned()),
                ];
                write_head(to, 200, &kind, None)?;
                writing(to)?;
                return Ok(false);
            }
            Reply::Raw(writing) => {
                writing(to)?;
                to.flush()?;
                return Ok(false);
            }
            Reply::Hang => {
                while !self.closed.load(Ordering::SeqCst) {
                    thread::park_timeout(Duration::from_millis(50));
                }
                return Ok(false);
            }
            Reply::Cut => return Ok(false),
        }
        to.flush()?;
        Ok(true)
    }
}

fn write_head(
    to: &mut dyn Write,
    status: u16,
    headers: &[(&'static str, String)],
    length: Option<usize>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Word\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        Some(length) => head.push_str(&format!("Content-Length: {length}\r\n\r\n")),
        None => head.push_str("Transfer-Encoding: chunked\r\n\r\n"),
    }
    to.write_all(head.as_bytes())?;
    to.flush()
}

/// Returns how a server with this certificate encrypts.
pub(super) fn tls(certificate: &str) -> rustls::ServerConfig {
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// Reads one request; nothing at the end of the connection.
pub(super) fn request(from: &mut impl BufRead) -> io::Result<Option<Seen>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (verb, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0_usize);
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(Seen {
        verb,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }))
}

/// Answers as a well-behaved server of the handshake era would, with one tool that echoes.
pub(super) fn legacy(seen: &Seen) -> Reply {
    match (seen.verb.as_str(), seen.method()) {
        ("POST", "initialize") => {
            let hello = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                "protocolVersion": "2025-06-18", "serverInfo": {"name": "peer", "version": "1"},
                "capabilities": {"tools": {"listChanged": true}}}});
            let headers = vec![
                ("Content-Type", "application/json".to_owned()),
                ("Mcp-Session-Id", "session-1".to_owned()),
            ];
            Reply::Status(200, headers, hello.to_string())
        }
        ("POST", "server/discover") => not_initialized(),
        ("POST", "tools/list") => seen.result(json!({"tools": [tool()]})),
        ("POST", "tools/call") => echo(seen),
        ("POST", "ping") => seen.result(json!({})),
        ("POST", method) if method.starts_with("notifications/") => Reply::status(202),
        ("DELETE", _) => Reply::status(200),
        _ => Reply::status(405),
    }
}

/// Answers as a server of the handshake era answers what it does not know before a handshake.
pub(super) fn not_initialized() -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": null,
        "error": {"code": -32000, "message": "Bad Request: Server not initialized"}});
    let kind = ("Content-Type", "application/json".to_owned());
    Reply::Status(400, vec![kind], body.to_string())
}

/// Answers as a well-behaved server of the stateless era would.
pub(super) fn modern(seen: &Seen) -> Reply {
    match (seen.verb.as_str(), seen.method()) {
        ("POST", "server/discover") => seen.result(json!({"supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})),
        ("POST", "tools/list") => seen.result(json!({"tools": [tool()], "resultType": "complete",
            "ttlMs": 0, "cacheScope": "private"})),
        ("POST", "tools/call") => echo(seen),
        _ => Reply::status(405),
    }
}

/// Returns the tool that both offer.
pub(super) fn tool() -> Value {
    json!({"name": "echo", "inputSchema": {"type": "object",
        "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}})
}

/// Answers a call with the text that it got.
pub(super) fn echo(seen: &Seen) -> Reply {
    let text = seen.body["params"]["arguments"]["text"].clone();
    seen.result(json!({"content": [{"type": "text", "text": text}]}))
}

/// Returns the answer to a call as the body of an event.
pub(super) fn answer_event(seen: &Seen) -> String {
    let text = seen.body["params"]["arguments"]["text"].clone();
    let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"],
        "result": {"content": [{"type": "text", "text": text}]}});
    format!("event: message\ndata: {answer}\n\n")
}
