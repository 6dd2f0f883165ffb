//! The gateway as a whole: build, serve, drain.
//!
//! The caller passes socket, engine and shutdown future, so tests can bind port 0 and stop at any
//! time. Entry point: [`serve`].

pub mod accept;
pub mod connection;
pub mod listen;
pub(crate) mod routes;
mod self_wake;
pub mod signals;
pub mod tls;
pub mod users;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use gantry_engine::Engine;
use gantry_model::spec::Guarded;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::routes::AppState;
use self::tls::Tls;
use crate::http::{BrowserSessions, HostPolicy, Origin};
use crate::{api, mcp};

/// The version shown everywhere.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long responses may still be written after the engine has ended the last call.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Options for serving.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Connection limits.
    pub bounds: accept::Bounds,
    /// How long clients may take.
    pub timeouts: connection::Timeouts,
    /// Host names and addresses, besides loopback, by which clients may reach the gateway.
    pub hosts: Vec<String>,
    /// The origins whose web pages may use the MCP endpoint.
    pub origins: Vec<Origin>,
    /// The browser sessions; the caller can create codes for sign-in links.
    pub browsers: BrowserSessions,
    /// Whether clients get the instructions of all servers, joined.
    pub instructions: mcp::Instructions,
    /// The paths that no hosted server may write to.
    pub guarded: Arc<Guarded>,
    /// A second listener, with TLS, for other machines.
    pub secure: Option<Arc<SecureListener>>,
}

/// A listener with TLS.
#[derive(Debug)]
pub struct SecureListener {
    /// The socket, bound and nonblocking.
    pub listener: TcpListener,
    /// Its certificate.
    pub tls: Arc<Tls>,
}

/// Serves until `shutdown` completes, then finishes requests in flight and drains the engine.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    raise_descriptor_limit();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let bound = listener.local_addr()?;
    engine.set_callback(&callback(bound));
    let secure = match &options.secure {
        None => None,
        Some(secure) => {
            let listener = tokio::net::TcpListener::from_std(secure.listener.try_clone()?)?;
            Some((listener.local_addr()?, listener, Arc::clone(&secure.tls)))
        }
    };
    let mut addresses = vec![bound];
    addresses.extend(secure.iter().map(|(address, ..)| *address));
    let state = AppState {
        engine: engine.clone(),
        hosts: Arc::new(HostPolicy::new(&addresses, &options.hosts).with_origins(&options.origins)),
        sessions: Arc::new(mcp::Sessions::default()),
        browsers: options.browsers,
        version: VERSION,
        instructions: options.instructions,
        guarded: options.guarded,
    };
    let (stop, abort, tasks) = (
        CancellationToken::new(),
        CancellationToken::new(),
        TaskTracker::new(),
    );
    let acceptor = accept::Acceptor {
        service: routes::service(state),
        answers: engine.answers().clone(),
        slots: accept::Slots::new(options.bounds),
        timeouts: options.timeouts,
        stop: stop.clone(),
        abort: abort.clone(),
        tasks: tasks.clone(),
    };
    let accepting = tasks.spawn(accept::run(listener, acceptor.clone(), None));
    let accepting_tls = secure
        .map(|(_, listener, tls)| tasks.spawn(accept::run(listener, acceptor.clone(), Some(tls))));
    drop(acceptor);

    shutdown.await;
    tracing::info!("stopping");
    stop.cancel();
    for accepting in std::iter::once(accepting).chain(accepting_tls) {
        if accepting.await.is_err() {
            tracing::error!("an accept loop had panicked");
        }
    }
    tasks.close();
    // Calls in flight are answered while the engine drains; it bounds how long that takes.
    engine.drain().await;
    if timeout(LAST_WORDS, tasks.wait()).await.is_err() {
        abort.cancel();
        tasks.wait().await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// Returns the redirect URL of sign-ins for a browser on this machine.
fn callback(bound: SocketAddr) -> String {
    let mut reached = bound;
    if bound.ip().is_unspecified() {
        reached.set_ip(match bound {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{reached}{}", api::auth::CALLBACK)
}

/// Raises the limit of open files as far as allowed: 1,024 are few for connections and pipes.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}
