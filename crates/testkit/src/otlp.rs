//! A receiver of OTLP over HTTP that decodes what it gets by itself, protobuf and JSON, and can misbehave.
//! Plain threads. Entry point: [`OtlpReceiver::start`].

mod decode;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::wait::eventually;
use crate::web::{Connection, Request};

/// How a receiver behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverMood {
    /// It takes everything.
    Takes,
    /// It takes requests of so many bytes, and answers 413 to longer ones.
    TakesAtMost(usize),
    /// It answers so, and takes nothing.
    Refuses(u16),
    /// It takes the connection and says nothing.
    Silent,
    /// It says 200 and then goes on without an end.
    Endless,
    /// It sends everybody elsewhere.
    Redirects(String),
}

/// A span as it was received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedSpan {
    /// 32 digits.
    pub trace: String,
    /// 16 digits.
    pub id: String,
    /// 16 digits, or nothing.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// 2 is SERVER.
    pub kind: u64,
    /// When it began.
    pub start_ns: u64,
    /// When it ended; 0 if it did not.
    pub end_ns: u64,
    /// Its attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// The names of its events.
    pub events: Vec<String>,
    /// 2 is ERROR.
    pub status: u64,
    /// What goes with the status.
    pub message: String,
    /// The attributes of its resource.
    pub resource: BTreeMap<String, String>,
}

/// A log record as it was received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedLog {
    /// When it happened.
    pub at_ns: u64,
    /// How severe it is.
    pub severity: u64,
    /// The name of the event.
    pub event: String,
    /// Its text.
    pub body: String,
    /// Its attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// 32 digits, or nothing.
    pub trace: String,
    /// 16 digits, or nothing.
    pub span: String,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct ReceivedExport {
    /// Its path.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its bytes.
    pub body: Vec<u8>,
}

#[derive(Default)]
struct State {
    mood: Option<ReceiverMood>,
    exports: Vec<ReceivedExport>,
    spans: Vec<ReceivedSpan>,
    logs: Vec<ReceivedLog>,
}

/// A receiver that runs until the test ends.
pub struct OtlpReceiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl OtlpReceiver {
    /// Starts a receiver.
    pub fn start(mood: ReceiverMood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State {
            mood: Some(mood),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A connection that fails is its client's to see.
                thread::spawn(move || {
                    let mut connection = Connection::new(stream)?;
                    while let Some(request) = connection.read()? {
                        answer(&mut connection, &request, &state)?;
                    }
                    Ok::<_, io::Error>(())
                });
            }
        });
        Self { address, state }
    }

    /// Returns its URL, to which a client adds the path of a signal.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes how it behaves from the next request on.
    pub fn set_mood(&self, mood: ReceiverMood) {
        self.state().mood = Some(mood);
    }

    /// Returns the requests that came, those it refused included.
    pub fn exports(&self) -> Vec<ReceivedExport> {
        self.state().exports.clone()
    }

    /// Returns the spans that it took.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.state().spans.clone()
    }

    /// Returns the log records that it took.
    pub fn logs(&self) -> Vec<ReceivedLog> {
        self.state().logs.clone()
    }

    /// Waits for spans that pass, and returns all.
    pub fn wait_spans(
        &self,
        within: Duration,
        are_there: impl Fn(&[ReceivedSpan]) -> bool,
    ) -> Vec<ReceivedSpan> {
        let found = eventually(within, || are_there(&self.spans()));
        let spans = self.spans();
        assert!(found.is_some(), "the spans did not come: {spans:#?}");
        spans
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(connection: &mut Connection, request: &Request, state: &Mutex<State>) -> io::Result<()> {
    let mood = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.exports.push(ReceivedExport {
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
        });
        let mut mood = state.mood.clone().unwrap_or(ReceiverMood::Takes);
        if let ReceiverMood::TakesAtMost(bytes) = mood {
            mood = match request.body.len() > bytes {
                true => ReceiverMood::Refuses(413),
                false => ReceiverMood::Takes,
            };
        }
        if mood == ReceiverMood::Takes {
            let is_json = request.header("content-type") == Some("application/json");
            let (spans, logs) = decode::request(&request.path, is_json, &request.body);
            state.spans.extend(spans);
            state.logs.extend(logs);
        }
        mood
    };
    match mood {
        ReceiverMood::Takes | ReceiverMood::TakesAtMost(_) => connection.answer(200, &[], b""),
        ReceiverMood::Refuses(status) => connection.answer(status, &[], b"no"),
        ReceiverMood::Silent => {
            thread::sleep(Duration::from_secs(120));
            Err(io::ErrorKind::TimedOut.into())
        }
        ReceiverMood::Endless => {
            connection.begin(200, &[("Content-Type", "application/x-protobuf")])?;
            loop {
                connection.piece(&[b' '; 64 << 10])?;
            }
        }
        ReceiverMood::Redirects(to) => connection.answer(307, &[("Location", to.as_str())], b""),
    }
}
