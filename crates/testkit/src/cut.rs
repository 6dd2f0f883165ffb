//! A TCP proxy that can be cut: connections are closed and new ones refused, or bytes stay where they are
//! as on a network that drops them, or something is done at a given piece of what clients send. Plain
//! threads. Entry point: [`Cut::to`].

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const PASSES: u8 = 0;
const IS_CUT: u8 = 1;
const STALLS: u8 = 2;
const ENDED: u8 = 3;

/// How often a connection looks whether bytes may pass.
const LOOK: Duration = Duration::from_millis(10);

/// A proxy on the loopback; it ends with this value.
#[derive(Debug)]
pub struct Cut {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mode: AtomicU8,
    open: Mutex<Vec<TcpStream>>,
    /// Pieces that clients have sent.
    pieces: AtomicUsize,
    trap: Mutex<Option<Trap>>,
}

/// What is done at a piece.
struct Trap {
    /// How many pieces there are then.
    at: usize,
    is_passed_on: bool,
    act: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trap at piece {}", self.at)
    }
}

impl Cut {
    /// Begins to pass connections on to a port of the loopback.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            mode: AtomicU8::new(PASSES),
            open: Mutex::new(Vec::new()),
            pieces: AtomicUsize::new(0),
            trap: Mutex::new(None),
        });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, port, &accepting));
        Self { port: own, shared }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and every new one at once.
    pub fn cut(&self) {
        self.shared.set(IS_CUT);
    }

    /// Holds all bytes back, in both directions.
    pub fn stall(&self) {
        self.shared.mode.store(STALLS, Ordering::SeqCst);
    }

    /// Returns how many pieces clients have sent; one is what a single read gives, mostly one message.
    pub fn pieces(&self) -> usize {
        self.shared.pieces.load(Ordering::SeqCst)
    }

    /// Does something when the `number`-th piece from now comes, counted from 1. The piece itself is passed
    /// on before or is lost, and its connection ends.
    pub fn at_piece(&self, number: usize, is_passed_on: bool, act: impl FnOnce() + Send + 'static) {
        let trap = Trap {
            at: self.pieces() + number,
            is_passed_on,
            act: Box::new(act),
        };
        *self.shared.trap() = Some(trap);
    }

    /// Takes back what was to be done.
    pub fn disarm(&self) {
        self.shared.trap().take();
    }

    /// Passes everything on again.
    pub fn mend(&self) {
        self.shared.mode.store(PASSES, Ordering::SeqCst);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.shared.set(ENDED);
        // Wakes the accepting thread.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.drain(..) {
            // One that is closed already is closed.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a piece of a client's and returns what is to be done at it.
    fn sprung(&self) -> Option<Trap> {
        let mut trap = self.trap();
        let count = self.pieces.fetch_add(1, Ordering::SeqCst) + 1;
        trap.take_if(|trap| count >= trap.at)
    }

    fn mode(&self) -> u8 {
        self.mode.load(Ordering::SeqCst)
    }
}

fn accept(listener: &TcpListener, port: u16, shared: &Arc<Shared>) {
    for near in listener.incoming() {
        let Ok(near) = near else { continue };
        match shared.mode() {
            ENDED => return,
            IS_CUT => continue,
            _ => {}
        }
        let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
            continue;
        };
        let pairs = [
            (near.try_clone(), far.try_clone(), Sender::Client),
            (far.try_clone(), near.try_clone(), Sender::Server),
        ];
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extend([near, far]);
        drop(open);
        for (from, to, sender) in pairs {
            if let (Ok(from), Ok(to)) = (from, to) {
                let shared = shared.clone();
                thread::spawn(move || pump(from, to, sender, &shared));
            }
        }
    }
}

/// Whose bytes are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Server,
}

fn pump(mut from: TcpStream, mut to: TcpStream, sender: Sender, shared: &Shared) {
    from.set_read_timeout(Some(LOOK)).ok();
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        while shared.mode() == STALLS {
            thread::sleep(LOOK);
        }
        let trap = match sender {
            Sender::Client => shared.sprung(),
            Sender::Server => None,
        };
        let is_passed_on = trap.as_ref().is_none_or(|trap| trap.is_passed_on);
        let is_gone = is_passed_on && to.write_all(&buffer[..count]).is_err();
        if let Some(trap) = trap {
            (trap.act)();
            break;
        }
        if is_gone {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
