//! Accepts connections within limits: in total, and per address (`slots`).
//!
//! A failing `accept` (no descriptors left) backs off instead of spinning (fault P6); a connection
//! over the limit gets an error and is closed. Entry point: `run`.

mod slots;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_engine::AnswerPool;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use self::slots::Slots;
use super::connection::{self, Timeouts};
use super::tls::{Socket, Tls};
use crate::http::{CONNECTIONS, Service};

/// Connection limits.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// In all.
    pub connections: usize,
    /// Per address, or per /64 of IPv6, including loopback, so that one client cannot take all
    /// slots.
    pub per_address: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            // Behind a proxy, and on loopback, all clients share one address.
            per_address: 5_120,
        }
    }
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The shared state of accept loops. Several loops share one: their connections count together.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) service: Service,
    /// The memory budget of unread responses.
    pub(super) answers: AnswerPool,
    pub(super) slots: Slots,
    pub(super) timeouts: Timeouts,
    /// Stops accepting and lets requests in flight finish.
    pub(super) stop: CancellationToken,
    /// Aborts everything.
    pub(super) abort: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Accepts until stopped; with `tls`, every connection must use it.
pub(super) async fn run(listener: TcpListener, acceptor: Acceptor, tls: Option<Arc<Tls>>) {
    let mut wait = FIRST_WAIT;
    loop {
        let accepted = tokio::select! {
            biased;
            () = acceptor.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                wait = FIRST_WAIT;
                serve(stream, from, &acceptor, tls.clone());
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::warn!(%error, wait_ms = wait.as_millis(), "cannot accept connections");
                tokio::select! {
                    biased;
                    () = acceptor.stop.cancelled() => return,
                    () = sleep(wait) => {}
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

fn serve(stream: TcpStream, from: SocketAddr, acceptor: &Acceptor, tls: Option<Arc<Tls>>) {
    let Some(slot) = acceptor.slots.take(from.ip()) else {
        tracing::debug!(%from, "connection refused: too many");
        // Best effort: the refusal fits an empty send buffer.
        if tls.is_none()
            && let Err(error) = stream.try_write(FULL)
        {
            tracing::trace!(%error, "the refusal was not sent");
        }
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let service = (acceptor.service.clone(), acceptor.answers.clone());
    let timeouts = acceptor.timeouts;
    let (stop, abort) = (acceptor.stop.clone(), acceptor.abort.clone());
    acceptor.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = abort.cancelled() => {}
            () = slot.close.cancelled() => {
                tracing::debug!(%from, "idle connection closed to make room");
            }
            ended = async {
                let socket = match tls {
                    None => Socket::Left(stream),
                    Some(tls) => match tls.accept(stream, timeouts.head).await {
                        Ok(socket) => socket,
                        Err(error) => {
                            tracing::debug!(%error, %from, "TLS handshake failed");
                            return Ok(());
                        }
                    },
                };
                connection::run((socket, from), service, timeouts, &slot.watch, &stop).await
            } => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended with an error");
                }
            }
        }
    });
}

/// Returns whether an error concerns one connection only.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
