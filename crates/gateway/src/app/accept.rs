//! Takes connections in, within bounds: so many in all, so many from one address (`seats`).
//!
//! A failing `accept` (no descriptors left) waits a little longer each time instead of spinning
//! (fault P6); a connection over the bounds is told so and closed. Entry point: `run`.

mod seats;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use gantry_engine::AnswerPool;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::seats::Seats;
use super::connection::{self, Patience};
use crate::http::{CONNECTIONS, Service};

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// In all.
    pub connections: usize,
    /// From one address, or one /64 of IPv6; loopback too: one client cannot take all places.
    pub per_address: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            // Behind a proxy, and on loopback, everybody has one address.
            per_address: 5_120,
        }
    }
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What an accept loop needs.
pub(super) struct Acceptor {
    pub(super) service: Service,
    /// What answers may take until they are read.
    pub(super) answers: AnswerPool,
    pub(super) bounds: Bounds,
    pub(super) patience: Patience,
    /// Ends accepting and lets requests in flight finish.
    pub(super) stop: CancellationToken,
    /// Ends everything.
    pub(super) abort: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Accepts until told to stop.
pub(super) async fn run(listener: TcpListener, acceptor: Acceptor) {
    let seats = Seats::new(acceptor.bounds);
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
                serve(stream, from, &seats, &acceptor);
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

fn serve(stream: TcpStream, from: SocketAddr, seats: &Seats, acceptor: &Acceptor) {
    let Some(seat) = seats.take(from.ip()) else {
        tracing::debug!(%from, "connection refused: too many");
        // It fits an empty send buffer or it does not matter.
        if let Err(error) = stream.try_write(FULL) {
            tracing::trace!(%error, "the refusal was not sent");
        }
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let service = (acceptor.service.clone(), acceptor.answers.clone());
    let patience = acceptor.patience;
    let (stop, abort) = (acceptor.stop.clone(), acceptor.abort.clone());
    acceptor.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = abort.cancelled() => {}
            () = seat.close.cancelled() => {
                tracing::debug!(%from, "idle connection is closed: its place is needed");
            }
            ended = connection::run((stream, from), service, patience, &seat.watch, &stop) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended with an error");
                }
            }
        }
    });
}

/// Tells errors of one connection, which say nothing about the next.
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
