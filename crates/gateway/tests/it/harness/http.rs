//! A small blocking HTTP/1.1 client that hides nothing: every byte that it sends is the test's.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net;
use serde_json::Value;

/// Longer than any answer takes that a test does not bound itself.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection to the gateway, kept open between requests.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(authority: &str) -> io::Result<Self> {
        Self::over(TcpStream::connect(authority)?, authority)
    }

    fn over(stream: TcpStream, authority: &str) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Self {
            stream: BufReader::new(stream),
            host: authority.to_owned(),
        })
    }

    /// Connects from another address of the loopback: another client, for whatever is counted by address.
    pub(crate) fn open_from(source: Ipv4Addr, authority: &str) -> io::Result<Self> {
        let far: SocketAddr = authority.parse().map_err(io::Error::other)?;
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None)?;
        net::bind(&socket, &SocketAddr::from((source, 0)))?;
        net::connect(&socket, &far)?;
        Self::over(TcpStream::from(socket), authority)
    }

    /// Returns the socket, for tests that misuse it.
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// Sends a request and reads the whole answer.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.write(method, path, headers, body)?;
        self.answer()
    }

    /// Sends a request; a `Host` among the headers replaces ours.
    pub(crate) fn write(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            text.push_str(&format!("Host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads a whole answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        answer.body = self.body_of(&answer)?;
        Ok(answer)
    }

    /// Reads the body that belongs to a head.
    pub(crate) fn body_of(&mut self, head: &Answer) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        let length = head
            .header("content-length")
            .and_then(|length| length.parse::<usize>().ok());
        if head
            .header("transfer-encoding")
            .is_some_and(|coding| coding.contains("chunked"))
        {
            while let Some(chunk) = self.chunk()? {
                body.extend(chunk);
            }
        } else if let Some(length) = length {
            body = self.body(length)?;
        } else if !matches!(head.status, 100..=199 | 204 | 304) {
            self.stream.read_to_end(&mut body)?;
        }
        Ok(body)
    }

    /// Reads the head of an answer and leaves its body, for streams.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let first = self
            .line()?
            .ok_or_else(|| wrong("the connection was closed"))?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| wrong(&format!("no status line: {first}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?.ok_or_else(|| wrong("the head is cut"))?;
            if line.is_empty() {
                return Ok(Answer {
                    status,
                    headers,
                    body: Vec::new(),
                });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("no header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads a body of this length, after its head.
    pub(crate) fn body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Reads the next chunk of a body that is sent in pieces; `None` at its end.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let size = self.line()?.ok_or_else(cut)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| cut())?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned())),
        }
    }
}

/// An answer, whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The headers, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the first header of that name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!(
                "answer {} is no JSON ({error}): {}",
                self.status,
                self.text()
            )
        })
    }

    /// Returns all JSON-RPC messages of the body, sent as JSON or as events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let kind = self.header("content-type").unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return vec![self.json()];
        }
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = data.map(str::trim).filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).expect("an event carries JSON"))
            .collect()
    }

    /// Returns the JSON-RPC answer: the last message.
    pub(crate) fn message(&self) -> Value {
        self.messages().pop().expect("there is an answer")
    }
}
