//! One connection of a client's: requests are read off it, answers are written to it. It hides no
//! byte from those who want to misuse it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use super::request::Request;

/// A body is never longer.
const BODY: usize = 64 << 20;

pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// Reads the next request; none when the client has closed the connection.
    pub(crate) fn read(&mut self) -> io::Result<Option<Request>> {
        let first = self.line()?;
        if first.is_empty() {
            return Ok(None);
        }
        let mut words = first.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            ..Request::default()
        };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            let header = (name.to_ascii_lowercase(), value.trim().to_owned());
            request.headers.push(header);
        }
        let length = request
            .header("content-length")
            .and_then(|n| n.parse().ok());
        if request.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(&self.line()?, 16).unwrap_or(0);
                self.take(size, &mut request.body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length.unwrap_or(0), &mut request.body)?;
        }
        Ok(Some(request))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn take(&mut self, size: usize, body: &mut Vec<u8>) -> io::Result<()> {
        if body.len() + size > BODY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = body.len();
        body.resize(start + size, 0);
        self.reader.read_exact(&mut body[start..])
    }

    /// Writes a whole answer.
    pub(crate) fn answer(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut bytes = head(status, headers);
        if !matches!(status, 204 | 304) {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        self.raw(&bytes)
    }

    /// Writes an answer that is JSON.
    pub(crate) fn json(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut all = vec![("Content-Type", "application/json")];
        all.extend_from_slice(headers);
        self.answer(status, &all, body)
    }

    /// Begins an answer that comes in pieces.
    pub(crate) fn begin(&mut self, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut bytes = head(status, headers);
        bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        self.raw(&bytes)
    }

    /// Begins a stream of events.
    pub(crate) fn begin_events(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        let mut all = vec![
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
        ];
        all.extend_from_slice(headers);
        self.begin(200, &all)
    }

    /// Writes a piece.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.raw(&chunk)
    }

    /// Writes an event.
    pub(crate) fn event(&mut self, id: Option<&str>, message: &[u8]) -> io::Result<()> {
        let mut event = Vec::with_capacity(message.len() + 64);
        if let Some(id) = id {
            event.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        event.extend_from_slice(b"event: message\ndata: ");
        event.extend_from_slice(message);
        event.extend_from_slice(b"\n\n");
        self.piece(&event)
    }

    /// Ends an answer that came in pieces.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.raw(b"0\r\n\r\n")
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Closes the connection in the middle of whatever is being written.
    pub(crate) fn cut(&mut self) -> io::Error {
        drop(self.reader.get_mut().shutdown(std::net::Shutdown::Both));
        io::ErrorKind::ConnectionAborted.into()
    }

    /// Tells whether the client has closed the connection.
    pub(crate) fn is_gone(&mut self) -> bool {
        if !self.reader.buffer().is_empty() {
            return false;
        }
        let stream = self.reader.get_mut();
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let peeked = stream.peek(&mut [0]);
        let blocking = stream.set_nonblocking(false);
        match peeked {
            Ok(read) => read == 0 || blocking.is_err(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200..=299 => "OK",
        300..=399 => "Moved",
        400..=499 => "Refused",
        _ => "Failed",
    }
}
