//! Egress by grant: a server without network access reaches only the hosts and ports of its
//! registration, through listeners inside its network namespace.
//!
//! One listener is an HTTP proxy (`CONNECT`, and plain requests in absolute form); each destination
//! also has its own listener that forwards plain TCP. The gateway connects after checking the
//! address. Entry points: [`Egress::proxy`] and [`Egress::carry`].

mod head;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::spec::EgressRule;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

use self::head::{Asked, Head};
use crate::http_client::dial;

/// The port of the proxy inside; the ports of the destinations follow it.
pub(crate) const PROXY_PORT: u16 = 3128;
/// The most concurrent connections of one server.
const CONNECTIONS: usize = 128;
/// Time limit for reading the head of a proxy request.
const HEAD: Duration = Duration::from_secs(10);
/// The longest head of a proxy request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after a failed accept.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// One host and port that a server may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Destination {
    /// Parses `host:port` or `[address]:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_plain = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|port| *port > 0)?;
        is_plain.then(|| Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// Returns the name of the variable with the local address of this destination's listener.
    pub(crate) fn variable(&self) -> String {
        let letter = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        let host: String = self.host.chars().map(letter).collect();
        format!("GANTRY_EGRESS_{host}_{}", self.port)
    }
}

/// The destinations that one server may connect to.
pub(crate) struct Egress {
    server: String,
    allowed: Vec<EgressRule>,
    permits: Arc<Semaphore>,
}

impl Egress {
    pub(crate) fn new(server: String, allowed: Vec<EgressRule>) -> Arc<Self> {
        Arc::new(Self {
            server,
            allowed,
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
        })
    }

    /// Returns the local ports inside, each with its destination; the proxy has none.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, Option<Destination>)> {
        // A wildcard rule has no listener of its own.
        let single = self
            .allowed
            .iter()
            .filter(|rule| !rule.host().contains('*'));
        let own = (PROXY_PORT + 1..).zip(single.map(|rule| {
            Some(Destination {
                host: rule.host().to_owned(),
                port: rule.port(),
            })
        }));
        std::iter::once((PROXY_PORT, None)).chain(own)
    }

    fn allows(&self, to: &Destination) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|rule| rule.matches(&to.host, to.port))
    }

    /// Returns the variables that describe the listeners to programs inside.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
        let mut variables: Vec<_> = names
            .map(|name| (name.to_owned(), proxy.clone()))
            .into_iter()
            .collect();
        for name in ["NO_PROXY", "no_proxy"] {
            variables.push((name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
        }
        for (port, destination) in self.ports() {
            if let Some(destination) = destination {
                variables.push((destination.variable(), format!("127.0.0.1:{port}")));
            }
        }
        variables
    }

    /// Serves the listener of the proxy while it is polled.
    pub(crate) async fn proxy(self: Arc<Self>, listener: TcpListener) {
        self.serve(listener, |egress, stream| egress.proxied(stream))
            .await;
    }

    /// Forwards every connection of a listener to one destination while it is polled.
    pub(crate) async fn carry(self: Arc<Self>, listener: TcpListener, to: Destination) {
        self.serve(listener, move |egress, stream| {
            egress.carried(stream, to.clone())
        })
        .await;
    }

    async fn serve<F>(
        self: Arc<Self>,
        listener: TcpListener,
        handle: impl Fn(Arc<Self>, TcpStream) -> F,
    ) where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        // Dropped with this future, together with all connections.
        let mut connections = JoinSet::new();
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    debug!(server = %self.server, %error, "egress cannot accept");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            // Acquired after accepting: an idle listener holds no permit.
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let (work, server) = (handle(Arc::clone(&self), stream), self.server.clone());
            connections.spawn(async move {
                if let Err(error) = work.await {
                    debug!(%server, %error, "an egress connection ended");
                }
                drop(permit);
            });
            while connections.try_join_next().is_some() {}
        }
    }

    async fn carried(self: Arc<Self>, mut inside: TcpStream, to: Destination) -> io::Result<()> {
        let mut outside = self.dial(&to).await?;
        copy_bidirectional(&mut inside, &mut outside).await?;
        Ok(())
    }

    async fn proxied(self: Arc<Self>, mut inside: TcpStream) -> io::Result<()> {
        let read = timeout(HEAD, read_head(&mut inside)).await;
        let Ok(Some((head, rest))) = read.unwrap_or(Ok(None)) else {
            return refuse(
                &mut inside,
                400,
                "this proxy takes CONNECT and http:// requests",
            )
            .await;
        };
        let Some(head) = Head::read(&head) else {
            return refuse(
                &mut inside,
                400,
                "this proxy takes CONNECT and http:// requests",
            )
            .await;
        };
        if !self.allows(&head.to) {
            let why = format!(
                "`{}` is not among the hosts that this server may reach",
                head.to
            );
            info!(server = %self.server, to = %head.to, "egress refused");
            return refuse(&mut inside, 403, &why).await;
        }
        let mut outside = match self.dial(&head.to).await {
            Ok(outside) => outside,
            Err(error) => return refuse(&mut inside, 502, &error.to_string()).await,
        };
        match head.asked {
            Asked::Tunnel => inside.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
            Asked::Request(text) => outside.write_all(&text).await?,
        }
        outside.write_all(&rest).await?;
        copy_bidirectional(&mut inside, &mut outside).await?;
        Ok(())
    }

    async fn dial(&self, to: &Destination) -> io::Result<TcpStream> {
        let dialled = dial(&to.host, to.port, false).await;
        dialled.map_err(|error| {
            let why = gantry_model::diagnose::chain(&error);
            info!(server = %self.server, %to, why, "egress failed");
            io::Error::other(why)
        })
    }
}

/// Reads up to the empty line; returns the head and the bytes after it.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut read = Vec::new();
    while read.len() < HEAD_BYTES {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
        if let Some(end) = memchr::memmem::find(&read, b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return Ok(Some((read, rest)));
        }
    }
    Ok(None)
}

async fn refuse(stream: &mut TcpStream, status: u16, why: &str) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{why}\n",
        why.len() + 1
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests;
