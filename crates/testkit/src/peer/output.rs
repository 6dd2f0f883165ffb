//! The output: one lock around stdout, and the faults about how bytes are written (noise, pieces,
//! bursts, order, line ends). Independent of the content of the lines. Entry points:
//! [`Output::reply`] for responses, [`Output::send`] for everything else.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::faults::{Fault, Faults};
use super::garbage;
use super::random::Random;
use super::state::stop;
use super::timer::Timer;

/// Where the bytes go.
pub(crate) enum Sink {
    Stdout,
    /// Each line to a function; what is not ended yet waits.
    Lines(Mutex<Vec<u8>>, TakeLine),
}

type TakeLine = Box<dyn Fn(&[u8]) + Send + Sync>;

pub(crate) struct Output {
    sink: Sink,
    shape: Shape,
    timer: Arc<Timer>,
    inner: Mutex<Inner>,
}

struct Shape {
    noise: bool,
    pieces: Pieces,
    crlf: bool,
    hold: Option<Hold>,
    /// Whether a closed reader ends the process, as for a well-behaved server.
    leaves: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pieces {
    Whole,
    Bytes,
    Random,
}

#[derive(Clone, Copy)]
struct Hold {
    limit: usize,
    wait: Duration,
    shuffle: bool,
}

struct Inner {
    random: Random,
    held: Vec<Vec<u8>>,
}

/// How one line leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Normal,
    /// One byte at a time, with this pause.
    Drip(Duration),
    /// Without its newline.
    Unterminated,
}

impl Sink {
    pub(crate) fn lines(take: impl Fn(&[u8]) + Send + Sync + 'static) -> Self {
        Self::Lines(Mutex::default(), Box::new(take))
    }
}

impl Output {
    pub(crate) fn new(faults: &Faults, seed: u64, timer: Arc<Timer>, sink: Sink) -> Arc<Self> {
        let pieces = match faults.words(Fault::Chunk).next() {
            Some("1") => Pieces::Bytes,
            Some(_) => Pieces::Random,
            None => Pieces::Whole,
        };
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        let hold = |limit: u64, wait: u64, shuffle: bool| Hold {
            limit: count(limit),
            wait: Duration::from_millis(wait),
            shuffle,
        };
        let shuffle = faults
            .number(Fault::Shuffle)
            .map(|limit| hold(limit, 5, true));
        let burst = faults
            .number(Fault::Burst)
            .map(|limit| hold(limit, 20, false));
        let shape = Shape {
            noise: faults.has(Fault::Noise),
            pieces,
            crlf: faults.has(Fault::Crlf),
            hold: shuffle.or(burst),
            leaves: !faults.has(Fault::IgnoreEof),
        };
        let inner = Mutex::new(Inner {
            random: Random::new(seed),
            held: Vec::new(),
        });
        Arc::new(Self {
            sink,
            shape,
            timer,
            inner,
        })
    }

    /// Writes a reply, or holds it back if a fault requires that.
    pub(crate) fn reply(self: &Arc<Self>, line: Vec<u8>) {
        let Some(hold) = self.shape.hold else {
            return self.send(line);
        };
        let mut inner = self.lock();
        inner.held.push(line);
        if inner.held.len() >= hold.limit {
            self.release(&mut inner);
        } else if inner.held.len() == 1 {
            let output = Arc::clone(self);
            self.timer.after(hold.wait, move || output.flush());
        }
    }

    /// Writes a line that is never held back.
    pub(crate) fn send(&self, line: Vec<u8>) {
        self.write(&line, Delivery::Normal);
    }

    /// Writes the replies that are held back.
    pub(crate) fn flush(&self) {
        self.release(&mut self.lock());
    }

    pub(crate) fn write(&self, line: &[u8], delivery: Delivery) {
        let mut inner = self.lock();
        let bytes = self.frame(&mut inner, line, delivery != Delivery::Unterminated);
        match delivery {
            Delivery::Normal | Delivery::Unterminated => self.put(&mut inner, &bytes),
            Delivery::Drip(pause) => {
                for byte in bytes {
                    self.put_all(&[byte]);
                    thread::sleep(pause);
                }
            }
        }
    }

    /// Writes bytes as they are, in one piece.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let _turn = self.lock();
        self.put_all(bytes);
    }

    /// Writes bytes without a newline until the reader is gone; nothing else is written afterwards.
    pub(crate) fn flood(&self) {
        let _for_ever = self.lock();
        let bytes = [b'x'; 64 * 1024];
        while self.put_all(&bytes) {}
    }

    /// Closes stdout for the reader, while this process continues.
    pub(crate) fn close(&self) {
        let _turn = self.lock();
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
        if null
            .and_then(|null| Ok(rustix::stdio::dup2_stdout(&null)?))
            .is_err()
        {
            stop("evilpeer: cannot open /dev/null\n", 3);
        }
    }

    fn release(&self, inner: &mut Inner) {
        let mut lines = std::mem::take(&mut inner.held);
        if self.shape.hold.is_some_and(|hold| hold.shuffle) {
            inner.random.shuffle(&mut lines);
        }
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(self.frame(inner, &line, true));
        }
        self.put(inner, &bytes);
    }

    fn frame(&self, inner: &mut Inner, line: &[u8], terminated: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(line.len() + 2);
        let end: &[u8] = if self.shape.crlf { b"\r\n" } else { b"\n" };
        if self.shape.noise {
            bytes.extend_from_slice(inner.random.pick(garbage::NOISE).as_bytes());
            bytes.extend_from_slice(end);
        }
        bytes.extend_from_slice(line);
        if terminated {
            bytes.extend_from_slice(end);
        }
        bytes
    }

    fn put(&self, inner: &mut Inner, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = match self.shape.pieces {
                Pieces::Whole => rest.len(),
                Pieces::Bytes => 1,
                Pieces::Random => inner.random.below(64) + 1,
            };
            let (piece, tail) = rest.split_at(size.min(rest.len()));
            self.put_all(piece);
            rest = tail;
            if self.shape.pieces != Pieces::Whole {
                thread::yield_now();
            }
        }
    }

    /// Writes all bytes and returns whether the reader is still there.
    fn put_all(&self, bytes: &[u8]) -> bool {
        let there = match &self.sink {
            Sink::Stdout => write_all(rustix::stdio::stdout(), bytes),
            Sink::Lines(begun, take) => {
                let mut begun = begun.lock().expect("nothing panics under this lock");
                begun.extend_from_slice(bytes);
                while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = begun.drain(..=end).collect();
                    take(&line);
                }
                true
            }
        };
        if !there && self.shape.leaves {
            stop("", 0);
        }
        there
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this lock")
    }
}

/// Writes all bytes to a file descriptor and returns whether that worked.
pub(crate) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return false,
        }
    }
    true
}
