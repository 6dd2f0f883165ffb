//! A TCP proxy that can be cut: connections are closed and new ones refused, or bytes stay where they are
//! as on a network that drops them. Plain threads. Entry point: [`Cut::to`].

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
}

impl Cut {
    /// Begins to pass connections on to a port of the loopback.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let own = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            mode: AtomicU8::new(PASSES),
            open: Mutex::new(Vec::new()),
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
            (near.try_clone(), far.try_clone()),
            (far.try_clone(), near.try_clone()),
        ];
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extend([near, far]);
        drop(open);
        for (from, to) in pairs {
            if let (Ok(from), Ok(to)) = (from, to) {
                let shared = shared.clone();
                thread::spawn(move || pump(from, to, &shared));
            }
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
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
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
