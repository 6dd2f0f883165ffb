//! Connections into and out of an instance's network namespace: the Unix socket that forwards to an
//! HTTP server, the published loopback port, the egress listeners. The init of the instance creates
//! the sockets inside; this module connects them to the gateway's.

use std::future::poll_fn;
use std::io;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdUnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gantry_sandbox::{Inside, Network, Tree};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::driver::DriverError;
use crate::egress::Egress;

/// The most concurrent connections to one server.
const CONNECTIONS: usize = 256;
/// How long a server may take until it listens.
const LISTENS: Duration = Duration::from_secs(60);
/// The retry interval until then.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// The pause after a failed accept.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// How the ports of an instance are reached.
#[derive(Clone)]
pub(super) enum Dialer {
    /// Through sockets that its init creates.
    Inside(Inside),
    /// Directly: it uses the host's network.
    Host,
}

impl Dialer {
    pub(super) fn new(tree: &Tree, network: Network) -> Self {
        match network {
            Network::Full => Self::Host,
            Network::None | Network::Inside => Self::Inside(tree.inside()),
        }
    }

    /// Connects to a port inside; waits until the server listens.
    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let until = Instant::now() + LISTENS;
        loop {
            let dialled = match self {
                Self::Host => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await,
                Self::Inside(inside) => inside.dial(port).await.and_then(|stream| {
                    stream.set_nonblocking(true)?;
                    TcpStream::from_std(stream)
                }),
            };
            match dialled {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens the Unix socket that forwards to an HTTP server inside, for this process only.
pub(super) fn open_socket(
    tasks: &mut JoinSet<()>,
    dialer: Dialer,
    port: u16,
) -> Result<PathBuf, DriverError> {
    let random = u128::from_le_bytes(crate::random::random());
    let name = format!("gantry-{}-{random:032x}", std::process::id());
    let listener = SocketAddr::from_abstract_name(&name)
        .and_then(|address| StdUnixListener::bind_addr(&address))
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        });
    let listener = listener.map_err(DriverError::new)?;
    let own = i32::try_from(std::process::id()).ok();
    // Other users may see the name in a list of sockets, but only this process may connect.
    let is_own = move |stream: &UnixStream| stream.peer_cred().is_ok_and(|peer| peer.pid() == own);
    let accept = move |context: &mut Context<'_>| {
        let accepted = listener.poll_accept(context);
        accepted.map_ok(|(stream, _)| Some(stream).filter(is_own))
    };
    tasks.spawn(forward(accept, dialer, port));
    Ok(PathBuf::from(format!("\0{name}")))
}

/// Binds a loopback port of this machine; also returns the address as text.
pub(super) async fn publish(port: u16) -> Result<(TcpListener, String), DriverError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener =
        bound.map_err(|error| DriverError::new(format!("`published_port` {port}: {error}")))?;
    Ok((listener, format!("127.0.0.1:{port}")))
}

/// Forwards every connection of a published port to the server.
pub(super) async fn published(listener: TcpListener, dialer: Dialer, port: u16) {
    let accept = |context: &mut Context<'_>| {
        let accepted = listener.poll_accept(context);
        accepted.map_ok(|(stream, _)| Some(stream))
    };
    forward(accept, dialer, port).await;
}

/// Forwards every accepted connection to a port of the server; `None` is one that was refused.
async fn forward<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<Option<S>>>,
    dialer: Dialer,
    port: u16,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        match poll_fn(&mut accept).await {
            Ok(Some(stream)) => {
                let dialer = dialer.clone();
                connections.spawn(async move {
                    carry(stream, &dialer, port).await;
                    drop(permit);
                });
            }
            Ok(None) => {}
            Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut from: impl AsyncRead + AsyncWrite + Unpin, dialer: &Dialer, port: u16) {
    let carried = async {
        let mut to = dialer.dial(port).await?;
        copy_bidirectional(&mut from, &mut to).await
    };
    if let Err(error) = carried.await {
        debug!(port, %error, "a connection to a server inside ended");
    }
}

/// Has the init listen inside for the proxy and for every destination.
pub(super) async fn open_egress(
    tasks: &mut JoinSet<()>,
    inside: &Inside,
    egress: &Arc<Egress>,
) -> Result<(), DriverError> {
    for (port, destination) in egress.ports() {
        let listening = inside.listen(port).await;
        let listener = listening
            .and_then(|listener| {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            })
            .map_err(DriverError::new)?;
        let egress = Arc::clone(egress);
        match destination {
            None => tasks.spawn(egress.proxy(listener)),
            Some(to) => tasks.spawn(egress.carry(listener, to)),
        };
    }
    Ok(())
}
