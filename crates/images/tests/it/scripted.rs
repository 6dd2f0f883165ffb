//! A small HTTP server that does what a test says: one thread and one request a connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a client asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(known, _)| known == name);
        named.next().map(|(_, value)| value.as_str())
    }
}

/// Answers a request.
pub(crate) type Handler = Arc<dyn Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync>;

/// A server on loopback, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            ended: Arc::default(),
        };
        let (requests, ended) = (Arc::clone(&server.requests), Arc::clone(&server.ended));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (handler, requests) = (Arc::clone(&handler), Arc::clone(&requests));
                let Ok(mut stream) = stream else { continue };
                thread::spawn(move || {
                    stream.set_write_timeout(Some(Duration::from_secs(30))).ok();
                    let Ok(request) = read(&stream) else { return };
                    requests.lock().unwrap().push(request.clone());
                    // Clients hang up on purpose.
                    handler(&request, &mut stream).ok();
                });
            }
        });
        server
    }

    /// Returns what was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns how many requests of a method had a path with this in it.
    pub(crate) fn count(&self, method: &str, part: &str) -> usize {
        let requests = self.requests();
        let fits = |request: &&Request| request.method == method && request.path.contains(part);
        requests.iter().filter(fits).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
    }
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ').map(str::to_owned);
    let mut request = Request {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers: Vec::new(),
        body: String::new(),
    };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let pair = (name.to_ascii_lowercase(), value.trim().to_owned());
        request.headers.push(pair);
    }
    let length = request
        .header("content-length")
        .and_then(|text| text.parse().ok());
    reader
        .take(length.unwrap_or(0))
        .read_to_string(&mut request.body)?;
    Ok(request)
}

/// Sends the head of an answer; the connection ends after its body.
pub(crate) fn head(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, &str)],
) -> io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())
}

/// Sends a whole answer.
pub(crate) fn reply(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let length = body.len().to_string();
    let mut all = vec![("Content-Length", length.as_str())];
    all.extend_from_slice(headers);
    head(stream, status, &all)?;
    stream.write_all(body)
}

/// Sends bytes until the client has enough.
pub(crate) fn endless(stream: &mut TcpStream, piece: &[u8]) -> io::Result<()> {
    loop {
        stream.write_all(piece)?;
    }
}

/// Sends one byte after the other, slowly.
pub(crate) fn drip(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    for byte in body {
        stream.write_all(&[*byte])?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Says nothing until the client hangs up.
pub(crate) fn silence(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}
