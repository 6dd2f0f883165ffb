//! A receiver of syslog messages that takes them apart by itself: datagrams, and messages after their
//! length on a stream. Plain threads. What cannot be taken apart panics: the test then misses what it
//! waits for, and the panic says why. Entry points: [`SyslogReceiver::udp`], [`SyslogReceiver::tcp`].

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::wait::eventually;

/// A message as it was received.
#[derive(Debug, Clone, PartialEq)]
pub struct SyslogMessage {
    /// Facility and severity.
    pub priority: u8,
    /// When it happened.
    pub time: String,
    /// The machine.
    pub host: String,
    /// The program.
    pub app: String,
    /// Its process.
    pub process: String,
    /// The kind of message.
    pub kind: String,
    /// The structured data.
    pub data: String,
    /// The message itself, which is JSON.
    pub event: Value,
}

impl SyslogMessage {
    /// Takes a message apart as RFC 5424 says.
    fn of(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("UTF-8");
        let (priority, rest) = text
            .strip_prefix('<')
            .expect("<")
            .split_once('>')
            .expect(">");
        let rest = rest.strip_prefix("1 ").expect("version 1");
        let mut words = rest.splitn(6, ' ');
        let mut word = || words.next().expect("six parts").to_owned();
        let [time, host, app, process, kind, rest] = [(); 6].map(|()| word());
        let (data, message) = match rest.strip_prefix("- ") {
            Some(message) => ("-", message),
            None => {
                let end = rest.find("] ").expect("the end of the structured data") + 1;
                (&rest[..end], &rest[end + 1..])
            }
        };
        Self {
            priority: priority.parse().expect("a number"),
            time,
            host,
            app,
            process,
            kind,
            data: data.to_owned(),
            event: serde_json::from_str(message).expect("JSON"),
        }
    }

    /// Returns a value of the event as text; empty if it is not there.
    pub fn value(&self, name: &str) -> &str {
        self.event[name].as_str().unwrap_or_default()
    }
}

#[derive(Default)]
struct State {
    messages: Vec<SyslogMessage>,
    connections: usize,
}

/// A receiver that runs until the test ends.
#[derive(Clone)]
pub struct SyslogReceiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl SyslogReceiver {
    /// Receives datagrams.
    pub fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        let receiver = Self {
            address,
            state: Arc::default(),
        };
        let state = Arc::clone(&receiver.state);
        thread::spawn(move || {
            let mut datagram = vec![0; 64 << 10];
            while let Ok(length) = socket.recv(&mut datagram) {
                let message = SyslogMessage::of(&datagram[..length]);
                lock(&state).messages.push(message);
            }
        });
        receiver
    }

    /// Receives messages on streams.
    pub fn tcp() -> Self {
        Self::streams(|stream| Box::new(stream))
    }

    /// Receives messages on streams that are opened by something, such as TLS.
    pub fn streams(
        open: impl Fn(TcpStream) -> Box<dyn Read + Send> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let receiver = Self {
            address,
            state: Arc::default(),
        };
        let (state, open) = (Arc::clone(&receiver.state), Arc::new(open));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                lock(&state).connections += 1;
                let (state, open) = (Arc::clone(&state), Arc::clone(&open));
                // A connection that fails is its client's to see.
                thread::spawn(move || read(open(stream), &state));
            }
        });
        receiver
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns what was received so far, in order.
    pub fn messages(&self) -> Vec<SyslogMessage> {
        lock(&self.state).messages.clone()
    }

    /// Returns how many connections there were.
    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// Waits for messages that pass, and returns all.
    pub fn wait(
        &self,
        within: Duration,
        are_there: impl Fn(&[SyslogMessage]) -> bool,
    ) -> Vec<SyslogMessage> {
        let found = eventually(within, || are_there(&self.messages()));
        let messages = self.messages();
        assert!(found.is_some(), "the messages did not come: {messages:#?}");
        messages
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads messages after their lengths.
fn read(stream: Box<dyn Read + Send>, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = Vec::new();
        if stream.read_until(b' ', &mut length)? == 0 {
            return Ok(());
        }
        let length = String::from_utf8_lossy(&length);
        let length = length.trim_end().parse().expect("a length");
        let mut message = vec![0; length];
        stream.read_exact(&mut message)?;
        let message = SyslogMessage::of(&message);
        lock(state).messages.push(message);
    }
}
