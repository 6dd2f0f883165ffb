//! HTTP to a gateway, for every verb: pooled connections, plain HTTP/1.1, bounded waits and bodies.
//!
//! A response is returned with its body unread, so that streams can be followed. The errors
//! distinguish a request that was never written from one that may have arrived: only the first may
//! be retried. Entry points: [`Pool::send`] and [`Pool::read`].

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long a connection may take to be accepted.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a used connection may take to be ready for the next request.
const READY: Duration = Duration::from_millis(100);
/// Idle connections that are kept.
const IDLE: usize = 32;

/// What a 503 without a body means.
pub(super) const NO_ROOM: &str = "the gateway accepts no more connections";
/// The deadline of a response has passed.
pub(super) const NO_ANSWER: &str = "no response in time";

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendError {
    /// The request was not accepted.
    Unsent(String),
    /// The request may have arrived.
    Cut(String),
}

/// Sends requests on one connection.
type Sender = SendRequest<Full<Bytes>>;

/// A gateway, the key to it, and the connections that are open.
pub(super) struct Pool {
    authority: HeaderValue,
    address: String,
    bearer: HeaderValue,
    idle: Mutex<Vec<Sender>>,
    tasks: TaskTracker,
}

/// A connection with a response on it; given back by [`Pool::read`].
pub(super) struct Used(Sender);

impl Pool {
    /// Prepares connections to a gateway; nothing if its key cannot be sent in a header.
    pub(super) fn new(authority: &str, address: String, key: &str) -> Option<Self> {
        Some(Self {
            authority: HeaderValue::try_from(authority).ok()?,
            address,
            bearer: HeaderValue::try_from(format!("Bearer {key}")).ok()?,
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// Sends a request with `Host` and `Authorization`.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Used), SendError> {
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(AUTHORIZATION, self.bearer.clone());
        loop {
            let idle = self.take();
            let is_new = idle.is_none();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect().await.map_err(SendError::Unsent)?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Used(sender))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) => return Err(SendError::Unsent(words(&error.into_error()))),
                    None => {
                        // The other connections lead to the same gateway and may be dead too.
                        self.idle.lock().clear();
                        return Err(SendError::Cut(words(&error.into_error())));
                    }
                },
            }
        }
    }

    /// Reads a response to its end and keeps its connection. A gateway that is out of connections
    /// responds with 503 without a body, and has not processed the request.
    pub(super) async fn read(
        &self,
        response: Response<Incoming>,
        used: Used,
        longest: usize,
    ) -> Result<Bytes, SendError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), longest).collect().await;
        let body = body.map_err(|error| SendError::Cut(words(error.as_ref())))?;
        let body = body.to_bytes();
        let mut sender = used.0;
        if let Ok(Ok(())) = timeout(READY, sender.ready()).await {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE {
                idle.push(sender);
            }
        }
        match body.is_empty() && status == StatusCode::SERVICE_UNAVAILABLE {
            true => Err(SendError::Unsent(NO_ROOM.to_owned())),
            false => Ok(body),
        }
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Sender, String> {
        let stream = match timeout(CONNECT, TcpStream::connect(&self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(words(&error)),
            Err(_) => return Err("connecting timed out".to_owned()),
        };
        // Small requests must not wait for each other's acknowledgement.
        drop(stream.set_nodelay(true));
        let handshake = http1::handshake(TokioIo::new(WriteFirst::new(stream))).await;
        let (sender, connection) = handshake.map_err(|error| words(&error))?;
        // The caller that waits for the response learns how the connection ended.
        self.tasks.spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// A connection that is not read before something was written. A gateway without free connections
/// responds at once and closes; read before the request is written, that response would belong to
/// no request.
#[derive(Debug)]
struct WriteFirst {
    stream: TcpStream,
    has_written: bool,
    reader: Option<Waker>,
}

impl WriteFirst {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            has_written: false,
            reader: None,
        }
    }

    /// Wakes the reader; also after a failed write, since the gateway may have sent a reason.
    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        self.has_written |= written.is_ready();
        if self.has_written
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
    }
}

impl AsyncRead for WriteFirst {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.has_written {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        this.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for WriteFirst {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Describes why an exchange failed: the system's message if there is one, else a plain sentence.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    let mut link = Some(error);
    let mut found = None;
    while let Some(cause) = link {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.to_string();
        }
        if cause.is::<LengthLimitError>() {
            return "the response is too long".to_owned();
        }
        if let Some(http) = cause.downcast_ref::<hyper::Error>() {
            found = found.or_else(|| Some(of_http(http)));
        }
        link = cause.source();
    }
    found.map_or_else(|| error.to_string(), str::to_owned)
}

fn of_http(error: &hyper::Error) -> &'static str {
    if error.is_parse() || error.is_parse_too_large() {
        "the other side does not speak HTTP/1.1"
    } else if error.is_timeout() {
        NO_ANSWER
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        "the connection was closed before the response was complete"
    } else if error.is_body_write_aborted() || error.is_user() {
        "the request could not be sent completely"
    } else {
        "the connection failed"
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_comes_too_early_waits_for_its_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = WriteFirst::new(TcpStream::connect(address).await.unwrap());
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"full").await.unwrap();
        drop(server);
        let mut read = [0; 4];
        let early = timeout(Duration::from_millis(20), stream.read_exact(&mut read));
        assert!(early.await.is_err());
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"full");
    }

    #[test]
    fn the_systems_words_are_kept_and_lengths_are_told() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(words(&refused), "Connection refused (os error 111)");
        assert_eq!(
            words(&io::Error::other(refused)),
            "Connection refused (os error 111)"
        );
        assert_eq!(words(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
