//! Connections into and out of an instance's own network namespace: the socket of ours behind which an
//! HTTP server is reached, the loopback port that a registration publishes, the listeners of egress.
//! The init of the instance makes the sockets inside; here they are joined to ours.

use std::io;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdUnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_sandbox::{Inside, Network, Tree};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use crate::driver::DriverError;
use crate::egress::Egress;

/// How many connections to one server are carried at a time.
const CONNECTIONS: usize = 256;
/// How long a server may take until it listens.
const LISTENS: Duration = Duration::from_secs(60);
/// How often it is tried until then.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// How long accepting waits after it failed.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// The way to the ports of an instance.
#[derive(Clone)]
pub(super) enum Way {
    /// Sockets that its init makes.
    Inside(Inside),
    /// It has the network of this host.
    Host,
}

impl Way {
    pub(super) fn new(tree: &Tree, network: Network) -> Self {
        match network {
            Network::Full => Self::Host,
            Network::None | Network::Inside => Self::Inside(tree.inside()),
        }
    }

    /// Connects to a port inside; waits for a server that does not listen yet.
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

/// Opens the socket behind which an HTTP server inside is reached, by this process alone.
pub(super) fn open_socket(
    tasks: &mut JoinSet<()>,
    way: Way,
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
    tasks.spawn(async move {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await;
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            };
            // The name is known to whoever may read a list of sockets; only we may use it.
            let is_own = stream.peer_cred().is_ok_and(|peer| peer.pid() == own);
            if is_own {
                let way = way.clone();
                connections.spawn(async move {
                    carry(stream, &way, port).await;
                    drop(permit);
                });
            }
            while connections.try_join_next().is_some() {}
        }
    });
    Ok(PathBuf::from(format!("\0{name}")))
}

/// Takes a loopback port of this machine; returns the address as shown, too.
pub(super) async fn publish(port: u16) -> Result<(TcpListener, String), DriverError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener =
        bound.map_err(|error| DriverError::new(format!("`published_port` {port}: {error}")))?;
    Ok((listener, format!("127.0.0.1:{port}")))
}

/// Carries every connection of a published port to the server.
pub(super) async fn published(listener: TcpListener, way: Way, port: u16) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let way = way.clone();
        connections.spawn(async move {
            carry(stream, &way, port).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(mut from: impl AsyncRead + AsyncWrite + Unpin, way: &Way, port: u16) {
    let carried = async {
        let mut to = way.dial(port).await?;
        copy_bidirectional(&mut from, &mut to).await
    };
    if let Err(error) = carried.await {
        debug!(port, %error, "a connection to a server inside ended");
    }
}

/// Has the init listen inside for the proxy and every destination.
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
