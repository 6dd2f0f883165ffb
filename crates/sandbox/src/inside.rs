//! The control socket of a running tree: receives the end of the tree, and requests sockets inside
//! the tree's network namespace.
//!
//! Any waiting task reads for all of them ([`Channel::pump`]): different tasks may wait for the end
//! of the tree and for several sockets at once. Entry points: [`Inside::dial`] and
//! [`Inside::listen`].

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::control::{self, Received};
use crate::exit::Exit;
use crate::protocol::{
    COMMAND_SOCKET, KIND_EXITED, KIND_SOCKET, Record, SOCKET_COMMAND_LEN, SOCKET_LISTEN,
    SOCKET_VERSION_6,
};

/// Time limit of a socket request, including a full queue of the listener.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most unanswered requests; their responses fit the control socket.
const MOST_OUTSTANDING: usize = 64;

/// Creates sockets inside the network namespace of one tree while it runs.
#[derive(Clone, Debug)]
pub struct Inside {
    channel: Arc<Channel>,
    /// Whether the tree has its own network namespace, as opposed to the host's network.
    reachable: bool,
}

/// What is known of the end of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeState {
    Running,
    Exited(Exit),
    /// The init exited without a report.
    Gone,
}

/// The control socket of a running tree.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    state: watch::Sender<TreeState>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    next: u32,
    waiting: HashMap<u32, oneshot::Sender<io::Result<OwnedFd>>>,
    /// Unanswered requests, including those without a waiting task.
    outstanding: usize,
}

impl Channel {
    pub(crate) fn new(control: OwnedFd) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::from(control);
        Ok(Self {
            stream: UnixStream::from_std(stream)?,
            state: watch::Sender::new(TreeState::Running),
            requests: Mutex::default(),
        })
    }

    /// Waits until the init reports the end, or has exited. Cancel safe.
    pub(crate) async fn ended(&self) -> TreeState {
        let mut state = self.state.subscribe();
        let ended = async {
            let ended = state.wait_for(|state| *state != TreeState::Running).await;
            ended.map_or(TreeState::Gone, |state| state.clone())
        };
        tokio::select! {
            biased;
            state = ended => state,
            () = self.pump() => self.state.borrow().clone(),
        }
    }

    /// Sends a command; does nothing if the tree has ended.
    pub(crate) fn command(&self, bytes: &[u8]) -> io::Result<()> {
        // Bypasses the runtime, which treats a new socket as full until it has polled it once.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.stream, bytes, flags)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
        }
    }

    /// Closes the socket for the init, even if other tasks hold it here.
    pub(crate) fn close(&self) {
        // Fails only if the init has already closed its end.
        rustix::net::shutdown(&self.stream, Shutdown::Both).ok();
        self.gone();
    }

    /// Receives records for all waiting tasks, until the init has exited.
    async fn pump(&self) {
        loop {
            let receive = || control::receive_with_socket(self.stream.as_fd());
            match self.stream.async_io(Interest::READABLE, receive).await {
                Ok(Some((Received { record, .. }, socket))) => self.take(record, socket),
                Ok(None) | Err(_) => break,
            }
        }
        self.gone();
    }

    /// Records that no more reports will arrive.
    fn gone(&self) {
        self.state.send_if_modified(|state| {
            let unheard = *state == TreeState::Running;
            if unheard {
                *state = TreeState::Gone;
            }
            unheard
        });
        // Dropping the senders wakes the tasks that wait for a socket.
        self.requests.lock().waiting.clear();
    }

    fn take(&self, record: Record, socket: Option<OwnedFd>) {
        match record.kind {
            KIND_EXITED => {
                let exit = Exit::from_wait_status(record.value);
                self.state.send_replace(TreeState::Exited(exit));
            }
            KIND_SOCKET => {
                let mut requests = self.requests.lock();
                requests.outstanding = requests.outstanding.saturating_sub(1);
                let id = u32::try_from(record.data).unwrap_or(u32::MAX);
                let answer = socket.ok_or_else(|| io::Error::from_raw_os_error(record.value));
                if let Some(waiting) = requests.waiting.remove(&id) {
                    // If the task no longer waits, the socket is closed.
                    waiting.send(answer).ok();
                }
            }
            _ => {}
        }
    }

    /// Requests a socket from the init and waits for it.
    async fn request(&self, what: u8, port: u16) -> io::Result<OwnedFd> {
        if *self.state.borrow() != TreeState::Running {
            return Err(ended());
        }
        let mut answer = self.ask(what, port)?;
        tokio::select! {
            biased;
            answer = &mut answer => answer.map_err(|_| ended())?,
            // The response may have been the last record.
            () = self.pump() => answer.try_recv().map_err(|_| ended())?,
        }
    }

    fn ask(&self, what: u8, port: u16) -> io::Result<oneshot::Receiver<io::Result<OwnedFd>>> {
        let mut requests = self.requests.lock();
        if requests.outstanding >= MOST_OUTSTANDING {
            return Err(busy());
        }
        let id = requests.next;
        let mut command = [0; SOCKET_COMMAND_LEN];
        command[..2].copy_from_slice(&[COMMAND_SOCKET, what]);
        command[2..4].copy_from_slice(&port.to_le_bytes());
        command[4..].copy_from_slice(&id.to_le_bytes());
        self.command(&command).map_err(|error| {
            match error.kind() == io::ErrorKind::WouldBlock {
                true => busy(),
                false => ended(),
            }
        })?;
        requests.next = id.wrapping_add(1);
        requests.outstanding += 1;
        // Requests without a waiting task are removed here, so that the map stays small.
        requests.waiting.retain(|_, waiting| !waiting.is_closed());
        let (sender, receiver) = oneshot::channel();
        requests.waiting.insert(id, sender);
        Ok(receiver)
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the instance has ended")
}

fn busy() -> io::Error {
    let why = "too many sockets are being made inside this instance";
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

impl Inside {
    pub(crate) fn new(channel: Arc<Channel>, reachable: bool) -> Self {
        Self { channel, reachable }
    }

    /// Connects to a port of the tree's own loopback device, `127.0.0.1` before `[::1]`. The socket
    /// is nonblocking, and valid while the tree runs.
    pub async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        self.within(port, "connected to", async {
            match self.connect(0, port).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    // If IPv6 is not available, the first error is more useful.
                    let second = self.connect(SOCKET_VERSION_6, port).await;
                    second.map_err(|_| error)
                }
                outcome => outcome,
            }
        })
        .await
    }

    /// Listens on a port of the tree's own loopback device (`127.0.0.1`), where only the tree can
    /// connect; zero selects a free port. The socket is nonblocking.
    pub async fn listen(&self, port: u16) -> io::Result<TcpListener> {
        let listening = self.channel.request(SOCKET_LISTEN, port);
        let socket = self.within(port, "listened on", listening).await?;
        Ok(TcpListener::from(socket))
    }

    async fn connect(&self, version: u8, port: u16) -> io::Result<TcpStream> {
        let socket = TcpStream::from(self.channel.request(version, port).await?);
        // The socket is still connecting when it arrives.
        let socket = tokio::net::TcpStream::from_std(socket)?;
        socket.writable().await?;
        match socket.take_error()? {
            None => socket.into_std(),
            Some(error) => Err(error),
        }
    }

    /// Limits the time of a request and adds the port to its error.
    async fn within<T>(
        &self,
        port: u16,
        done: &str,
        request: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        if !self.reachable {
            let why = "this instance has no network namespace of its own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let outcome = timeout(DEADLINE, request).await;
        let error = match outcome {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => error,
            Err(_) => {
                let late = format!("no answer within {} s", DEADLINE.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, late)
            }
        };
        let text = format!("port {port} inside the instance cannot be {done}: {error}");
        Err(io::Error::new(error.kind(), text))
    }
}
