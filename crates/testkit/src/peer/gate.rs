//! When faults apply: after the handshake, and only within the calls selected by `--fault-after`
//! and `--fault-calls`. Entry points: [`Gate::next_call`] and [`Gate::wait_open`].

use std::sync::{Condvar, Mutex};

pub(crate) struct Gate {
    after: u64,
    calls: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    handshaken: bool,
    calls: u64,
}

impl Gate {
    pub(crate) fn new(after: u64, calls: Option<u64>) -> Self {
        Self {
            after,
            calls,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Counts a tool call and returns whether faults apply to it.
    pub(crate) fn next_call(&self) -> bool {
        let mut state = self.state.lock().expect("nothing panics under this lock");
        let bites = self.bites(state.calls);
        state.calls += 1;
        self.changed.notify_all();
        bites
    }

    pub(crate) fn set_handshaken(&self) {
        self.state
            .lock()
            .expect("nothing panics under this lock")
            .handshaken = true;
        self.changed.notify_all();
    }

    /// Returns whether a fault that is not tied to a call applies now.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock().expect("nothing panics under this lock");
        state.handshaken && self.bites(state.calls)
    }

    /// Returns whether faults apply after the calls so far, regardless of the handshake.
    pub(crate) fn bites_now(&self) -> bool {
        self.bites(
            self.state
                .lock()
                .expect("nothing panics under this lock")
                .calls,
        )
    }

    /// Waits until [`Gate::is_open`].
    pub(crate) fn wait_open(&self) {
        let state = self.state.lock().expect("nothing panics under this lock");
        let closed = |state: &mut State| !(state.handshaken && self.bites(state.calls));
        drop(
            self.changed
                .wait_while(state, closed)
                .expect("nothing panics under this lock"),
        );
    }

    fn bites(&self, seen: u64) -> bool {
        seen >= self.after && self.calls.is_none_or(|calls| seen < self.after + calls)
    }
}
