//! One request per connection, read and answered with plain threads.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_BODY: usize = 1 << 20;

/// A request.
pub(super) struct Asked {
    pub(super) method: String,
    target: String,
    headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    /// Returns path and query.
    pub(super) fn target(&self) -> (&str, &str) {
        self.target.split_once('?').unwrap_or((&self.target, ""))
    }

    /// Returns a header by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the members of the query.
    pub(super) fn query(&self) -> BTreeMap<String, String> {
        pairs(self.target().1)
    }

    /// Returns the members of a form.
    pub(super) fn form(&self) -> BTreeMap<String, String> {
        match self.header("content-type") {
            Some(kind) if kind.starts_with("application/x-www-form-urlencoded") => {
                pairs(&String::from_utf8_lossy(&self.body))
            }
            _ => BTreeMap::new(),
        }
    }
}

/// An answer.
pub(super) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    pub(super) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(super) fn json(status: u16, body: &Value) -> Self {
        let mut answer = Self::new(status).with("Content-Type", "application/json");
        answer.body = body.to_string();
        answer
    }

    /// Answers with messages as a stream of events.
    pub(super) fn events(messages: &[Value]) -> Self {
        let mut answer = Self::new(200).with("Content-Type", "text/event-stream");
        let event = |message: &Value| format!("event: message\ndata: {message}\n\n");
        answer.body = messages.iter().map(event).collect();
        answer
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Reads one request and answers it.
pub(super) fn serve(stream: TcpStream, answer: impl Fn(&Asked) -> Answer) {
    let Some((asked, mut stream)) = read(stream) else {
        return;
    };
    let answer = answer(&asked);
    let mut text = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", answer.body.len()));
    text.push_str(&answer.body);
    // The client may have disconnected.
    drop(stream.write_all(text.as_bytes()));
}

fn read(stream: TcpStream) -> Option<(Asked, TcpStream)> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0).min(LONGEST_BODY)];
    reader.read_exact(&mut body).ok()?;
    let asked = Asked {
        method,
        target,
        headers,
        body,
    };
    Some((asked, reader.into_inner()))
}

/// Reads what a form or a query says.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name), decoded(value)))
    };
    text.split('&').filter_map(pair).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                let digits = String::from_utf8_lossy(&digits).into_owned();
                u8::from_str_radix(&digits, 16).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a text as it may stand in a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
