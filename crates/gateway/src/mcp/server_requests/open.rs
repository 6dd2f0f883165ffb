//! Open server requests to clients of the handshake era: sent on an event stream, answered by
//! posted responses. Only the session that was asked can respond (fault T4), to each request once.
//! Never waits. Entry points: [`OpenRequests::send`] and [`OpenRequests::answered`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gantry_engine::{ClientResponse, RequestLifetime, RequestOutcome, ServerRequests};
use gantry_model::era::shape;
use gantry_model::jsonrpc::{self, Outcome, Raw, RawBuf, Response};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::mcp::quota::SuspendedPermit;
use crate::mcp::sessions::SessionId;
use crate::mcp::stream::{event, notification};

/// The open server requests.
#[derive(Debug)]
pub(in crate::mcp) struct OpenRequests {
    last: AtomicU64,
    table: Mutex<HashMap<(SessionId, u64), WaitingRequest>>,
}

impl Default for OpenRequests {
    /// Starts at a random number: a response to a previous gateway's request must not match.
    fn default() -> Self {
        let mut bits = [0; 8];
        // Without randomness there are no sessions either.
        getrandom::fill(&mut bits).unwrap_or_default();
        Self {
            last: AtomicU64::new(u64::from_ne_bytes(bits) >> 16),
            table: Mutex::default(),
        }
    }
}

/// One request of a group that is answered together.
#[derive(Debug)]
struct WaitingRequest {
    key: Box<str>,
    ask: Arc<Mutex<Responses>>,
}

/// The responses of a group, until complete.
#[derive(Debug)]
struct Responses {
    missing: usize,
    received: Vec<ClientResponse>,
    answer: Option<oneshot::Sender<RequestOutcome>>,
    /// The bytes of requests and responses.
    load: Option<SuspendedPermit>,
}

/// A group of requests, withdrawn when dropped.
#[derive(Debug)]
pub(in crate::mcp) struct RequestGuard {
    table: Arc<OpenRequests>,
    session: SessionId,
    ids: Vec<u64>,
    lifetime: RequestLifetime,
}

impl OpenRequests {
    /// Registers requests, and returns the messages to the client.
    pub(in crate::mcp) fn send(
        self: &Arc<Self>,
        session: SessionId,
        ask: ServerRequests,
        load: SuspendedPermit,
    ) -> (RequestGuard, Vec<Bytes>) {
        let gathered = Arc::new(Mutex::new(Responses {
            missing: ask.requests.len(),
            received: Vec::new(),
            answer: Some(ask.answer),
            load: Some(load),
        }));
        let mut table = self.lock();
        let mut entered = RequestGuard {
            table: Arc::clone(self),
            session,
            ids: Vec::new(),
            lifetime: ask.lifetime,
        };
        let mut events = Vec::new();
        for request in ask.requests {
            let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let params = request.params.as_ref().map(RawBuf::as_raw);
            let params = shape::ask_to_legacy(params, &request.key);
            let mut message = Vec::new();
            let method = request.method.as_str();
            jsonrpc::write_request(&mut message, id, method, Some((&params).into()));
            events.push(event(&message));
            let waiting = WaitingRequest {
                key: request.key,
                ask: Arc::clone(&gathered),
            };
            table.insert((session, id), waiting);
            entered.ids.push(id);
        }
        drop(table);
        (entered, events)
    }

    /// Handles a session's response to a request of ours; returns whether it was expected.
    pub(in crate::mcp) fn answered(&self, session: SessionId, response: &Response<'_>) -> bool {
        let Some(id) = response.id.matches_u64() else {
            return false;
        };
        let Some(waiting) = self.lock().remove(&(session, id)) else {
            return false;
        };
        let outcome = match response.outcome {
            Outcome::Result(result) if result.is_object() => Ok(result.to_buf()),
            Outcome::Result(_) => Err(unfit("the client's response is not an object")),
            Outcome::Error(error) => Err(error.to_buf()),
        };
        let mut ask = waiting.ask.lock();
        ask.missing = ask.missing.saturating_sub(1);
        let (Ok(text) | Err(text)) = &outcome;
        // A response that waits for others needs room; the last one is forwarded at once.
        let is_last = ask.missing == 0;
        let fits = match &mut ask.load {
            Some(load) if !is_last => load.add(text.text().len()).is_ok(),
            Some(_) | None => true,
        };
        ask.received.push(ClientResponse {
            key: waiting.key,
            outcome: match fits {
                true => outcome,
                false => Err(unfit("the client's responses exceed the memory limit")),
            },
        });
        if ask.missing == 0 {
            let said = std::mem::take(&mut ask.received);
            ask.load = None;
            if let Some(answer) = ask.answer.take() {
                // A call that just ended needs no answer.
                drop(answer.send(RequestOutcome::Answered(said)));
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionId, u64), WaitingRequest>> {
        self.table.lock()
    }
}

/// Creates the error for a response that cannot be forwarded.
fn unfit(why: &str) -> RawBuf {
    let mut error = jsonrpc::Edit::new(Raw::EMPTY_OBJECT);
    error
        .set_buf("code", RawBuf::integer(jsonrpc::INTERNAL_ERROR))
        .set_buf("message", RawBuf::string(why));
    error.to_buf()
}

impl RequestGuard {
    /// Returns whether something is unanswered, and still awaited.
    pub(in crate::mcp) fn is_open(&self) -> bool {
        let is_over = match &self.lifetime {
            RequestLifetime::Call => false,
            RequestLifetime::Session(over) => over.is_cancelled(),
        };
        let table = self.table.lock();
        let mut ids = self.ids.iter();
        !is_over && ids.any(|id| table.contains_key(&(self.session, *id)))
    }

    /// Returns whether it stays open when its call ends.
    pub(in crate::mcp) fn outlives_call(&self) -> bool {
        matches!(self.lifetime, RequestLifetime::Session(_)) && self.is_open()
    }

    /// Waits until no one waits for the response.
    pub(in crate::mcp) async fn over(&self) {
        match &self.lifetime {
            RequestLifetime::Call => {}
            RequestLifetime::Session(over) => over.cancelled().await,
        }
    }

    /// Withdraws what is unanswered, and returns the cancellations for the client.
    pub(in crate::mcp) fn withdraw(&mut self) -> Vec<Bytes> {
        let mut table = self.table.lock();
        let session = self.session;
        let left = self.ids.drain(..);
        let left = left.filter(|id| table.remove(&(session, *id)).is_some());
        let told = left.map(|id| {
            let params = format!("{{\"requestId\":{id},\"reason\":\"the call has ended\"}}");
            notification("notifications/cancelled", &params)
        });
        told.collect()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use gantry_engine::ServerRequest;
    use gantry_model::jsonrpc::{Limits, Message};
    use gantry_model::mcp::Method;
    use tokio::sync::oneshot::error::TryRecvError::Closed;
    use tokio::time::Instant;

    use gantry_model::id::ProjectName;

    use super::*;
    use crate::mcp::quota::{BYTES_PER_AGENT, SuspendedQuota};

    fn session(digit: char) -> SessionId {
        String::from(digit).repeat(32).parse().unwrap()
    }

    fn load() -> SuspendedPermit {
        loaded(1)
    }

    fn loaded(bytes: usize) -> SuspendedPermit {
        let quota = Arc::new(SuspendedQuota::default());
        let owner = (&ProjectName::local(), &"a".parse().unwrap());
        quota.call(owner, 1).unwrap().suspend(bytes).unwrap()
    }

    fn ask(keys: &[&str]) -> (ServerRequests, oneshot::Receiver<RequestOutcome>) {
        let (answer, answered) = oneshot::channel();
        let requests = keys.iter().map(|key| ServerRequest {
            key: (*key).into(),
            method: Method::RootsList,
            params: None,
        });
        let ask = ServerRequests {
            requests: requests.collect(),
            until: Instant::now(),
            answer,
            lifetime: RequestLifetime::Call,
        };
        (ask, answered)
    }

    fn answered(asks: &OpenRequests, session: SessionId, text: &str) -> bool {
        let incoming = jsonrpc::parse(text.as_bytes(), &Limits::default()).unwrap();
        let Message::Response(response) = incoming.message else {
            panic!("a response")
        };
        asks.answered(session, &response)
    }

    // fault T4
    #[tokio::test]
    async fn only_the_session_that_was_asked_answers_and_once() {
        let asks = Arc::new(OpenRequests::default());
        let (ask, said) = ask(&["a", "b"]);
        let (entered, events) = asks.send(session('1'), ask, load());
        assert_eq!(events.len(), 2);
        let answer = |place: usize, result: &str| {
            let id = entered.ids[place];
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
        };
        let first = answer(0, r#"{"roots":[]}"#);
        assert!(!answered(&asks, session('2'), &first));
        assert!(answered(&asks, session('1'), &first));
        assert!(!answered(&asks, session('1'), &first));
        assert!(answered(&asks, session('1'), &answer(1, "7")));
        let RequestOutcome::Answered(said) = said.await.unwrap() else {
            panic!("answers")
        };
        assert!(said[0].outcome.is_ok() && said[1].outcome.is_err());
        assert!(asks.lock().is_empty());
    }

    #[tokio::test]
    async fn answers_that_wait_for_others_are_bounded() {
        let asks = Arc::new(OpenRequests::default());
        let (ask, said) = ask(&["a", "b"]);
        let (entered, _) = asks.send(session('1'), ask, loaded(BYTES_PER_AGENT - 9));
        let long = "x".repeat(9);
        let first = entered.ids[0];
        let first = format!(r#"{{"jsonrpc":"2.0","id":{first},"result":{{"text":"{long}"}}}}"#);
        assert!(answered(&asks, session('1'), &first));
        let last = entered.ids[1];
        let last = format!(r#"{{"jsonrpc":"2.0","id":{last},"result":{{}}}}"#);
        assert!(answered(&asks, session('1'), &last));
        let RequestOutcome::Answered(said) = said.await.unwrap() else {
            panic!("answers")
        };
        let refused = said[0].outcome.as_ref().unwrap_err();
        assert!(
            refused.text().contains("exceed the memory limit"),
            "{refused:?}"
        );
        assert!(said[1].outcome.is_ok());
    }

    #[test]
    fn what_is_not_answered_is_taken_back() {
        let asks = Arc::new(OpenRequests::default());
        let (ask, mut said) = ask(&["a"]);
        let (mut entered, _) = asks.send(session('1'), ask, load());
        let told = entered.withdraw();
        let told = std::str::from_utf8(&told[0]).unwrap();
        assert!(
            told.contains(r#""method":"notifications/cancelled""#),
            "{told}"
        );
        assert!(asks.lock().is_empty());
        assert!(said.try_recv().is_err_and(|error| error == Closed));
        assert!(entered.withdraw().is_empty());
    }
}
