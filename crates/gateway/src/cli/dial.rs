//! A connection to a gateway on which nothing is heard before something was said.
//!
//! A gateway that has no room answers at once and closes the connection. Read before the request is
//! written, that answer belongs to no request, and is lost; here it waits. Entry point: [`connect`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::trouble::{self, words};

/// Sends requests on one connection.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Connects to a gateway; whoever calls drives the connection. Says why there is none.
pub(super) async fn connect(
    address: &str,
    within: Duration,
) -> Result<(Sender, Connection<TokioIo<Dialled>, Full<Bytes>>), String> {
    let stream = match timeout(within, Dialled::to(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(words(&error)),
        Err(_) => return Err(trouble::NO_CONNECTION.to_owned()),
    };
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    shaken.map_err(|error| words(&error))
}

/// A connection whose first word is ours.
#[derive(Debug)]
pub(super) struct Dialled {
    stream: TcpStream,
    first: First,
}

/// Whether something was said.
#[derive(Debug)]
enum First {
    Unsaid(Option<Waker>),
    Said,
}

impl Dialled {
    async fn to(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // Small requests must not wait for each other's acknowledgement.
        drop(stream.set_nodelay(true));
        Ok(Self {
            stream,
            first: First::Unsaid(None),
        })
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        // One that cannot be written to is read: it may have said why.
        if written.is_ready()
            && let First::Unsaid(Some(waiting)) = std::mem::replace(&mut self.first, First::Said)
        {
            waiting.wake();
        }
    }
}

impl AsyncRead for Dialled {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.first {
            First::Said => Pin::new(&mut this.stream).poll_read(context, buffer),
            First::Unsaid(waiting) => {
                *waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Dialled {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_comes_too_early_waits_for_its_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut dialled = Dialled::to(&address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"full").await.unwrap();
        drop(server);
        let mut heard = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(20), dialled.read_exact(&mut heard));
        assert!(early.await.is_err());
        dialled.write_all(b"hello").await.unwrap();
        dialled.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"full");
    }
}
