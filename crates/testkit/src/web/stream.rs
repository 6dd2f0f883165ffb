//! The messages of one stream, in order and numbered, so that a client that lost its connection can
//! take the stream up where it was. Whoever speaks appends; whoever writes them out waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The most messages that are kept; a storm loses its oldest.
const KEPT: usize = 4096;

pub(crate) struct Stream {
    /// Its number within its session.
    pub(crate) number: u64,
    state: Mutex<State>,
    said: Condvar,
}

#[derive(Default)]
struct State {
    first: u64,
    messages: VecDeque<Vec<u8>>,
    closed: bool,
}

/// What a stream has for its reader.
pub(crate) enum Next {
    /// A message and its position.
    Message(u64, Vec<u8>),
    Nothing,
    /// Nothing will come any more.
    Closed,
}

impl Stream {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            state: Mutex::default(),
            said: Condvar::new(),
        }
    }

    /// Appends a message, which has no line break in it.
    pub(crate) fn say(&self, message: Vec<u8>) {
        let mut state = self.lock();
        if state.messages.len() >= KEPT {
            state.messages.pop_front();
            state.first += 1;
        }
        state.messages.push_back(message);
        self.said.notify_all();
    }

    /// Says that nothing will come any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.said.notify_all();
    }

    /// Returns the first message from that position on, waiting a while for it.
    pub(crate) fn next(&self, position: u64, patience: Duration) -> Next {
        let empty = |state: &mut State| {
            let end = state.first + state.messages.len() as u64;
            position >= end && !state.closed
        };
        let waited = self.said.wait_timeout_while(self.lock(), patience, empty);
        let (state, _) = waited.expect("nothing panics under this lock");
        let position = position.max(state.first);
        let index = usize::try_from(position - state.first).unwrap_or(usize::MAX);
        match state.messages.get(index) {
            Some(message) => Next::Message(position, message.clone()),
            None if state.closed => Next::Closed,
            None => Next::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}
