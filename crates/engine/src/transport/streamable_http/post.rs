//! One message: posted and answered, and what an invalid response means. faults H8, H9

use std::sync::Arc;
use std::time::Duration;

use gantry_model::jsonrpc::{self, ErrorBody, Limits, Message, Outcome};
use gantry_model::jsonrpc::{METHOD_NOT_FOUND, Unaddressed, salvage_unaddressed};
use reqwest::{Response, StatusCode};

use super::super::http::{
    Body, Content, HttpError, MOST_ERROR, OutgoingMessage, Replies, drained, each_message, said,
    whole,
};
use super::Session;
use crate::transport::Failure;

/// The request whose response is a long-lived stream.
const SUBSCRIPTION: &str = "subscriptions/listen";
/// The error code that many servers use for an unknown session.
const NO_SESSION: i64 = -32000;
/// The error code that others use, even in the response to a call.
const SESSION_NOT_FOUND: i64 = -32001;
/// Backoff before a cut notification stream is reopened: first and longest delay.
const LISTEN_FIRST: Duration = Duration::from_secs(1);
const LISTEN_LAST: Duration = Duration::from_secs(60);

/// The meaning of a response with an error status.
enum Refused {
    /// It answers the call and was delivered.
    Answered,
    /// The session is unknown to the server, so that the message was not processed; with the error
    /// for this message alone.
    Expired(HttpError),
}

impl<R: Replies> Session<R> {
    /// Posts a message and handles its response; its call ends in every case.
    pub(super) async fn deliver(self: Arc<Self>, letter: OutgoingMessage) {
        self.remember(&letter);
        let outcome = match self.remote.limit.refusal_of(&letter.head.method) {
            Some(limited) => Err(Failure::Remote(limited)),
            None if letter.head.method.as_ref() == SUBSCRIPTION => self.subscribe(&letter).await,
            None => self.exchange(&letter).await,
        };
        if let Some(call) = letter.call {
            self.calls.lock().remove(&call);
        }
        let Err(failure) = outcome else { return };
        let error = failure.remote().cloned();
        if let Some(call) = letter.call {
            self.replies.fail(call, failure);
        }
        match error {
            Some(error) if error.ends_session() => self.end(error),
            Some(HttpError::Cut { .. }) => self.replies.doubt(),
            Some(_) | None => {}
        }
    }

    /// Keeps a notification stream open and reports what may have been missed while it was cut.
    async fn subscribe(self: &Arc<Self>, letter: &OutgoingMessage) -> Result<(), Failure> {
        let mut wait = LISTEN_FIRST;
        loop {
            match self.exchange(letter).await {
                Err(Failure::Remote(HttpError::Cut { .. } | HttpError::Failed { .. })) => {}
                ended => return ended,
            }
            self.replies.doubt();
            tokio::time::sleep(wait.mul_f64(crate::random::jitter())).await;
            wait = (2 * wait).min(LISTEN_LAST);
            self.replies.missed_news();
        }
    }

    async fn exchange(self: &Arc<Self>, letter: &OutgoingMessage) -> Result<(), Failure> {
        let mut renewed = false;
        loop {
            let (generation, has_session) = self.generation();
            let asking = self.asking(letter);
            let response = self.remote.send(&asking).await.map_err(Failure::Remote)?;
            let sent = asking.headers.get("mcp-session-id");
            let checked = self.check(&response, &letter.head.method, sent);
            checked.map_err(|error| {
                self.end(error.clone());
                Failure::Remote(error)
            })?;
            if response.status().is_success() {
                return self.answered(response, letter).await;
            }
            let names_session = has_session && sent.is_some();
            match self.refused(response, letter, names_session).await? {
                Refused::Answered => return Ok(()),
                Refused::Expired(_) if !renewed => {
                    renewed = true;
                    self.renew(generation).await.map_err(|error| {
                        self.end(error.clone());
                        Failure::Remote(error)
                    })?;
                }
                // The session is new, so it is this message that the server refuses.
                Refused::Expired(error) => return Err(Failure::Remote(error)),
            }
        }
    }

    /// Handles a response with a success status.
    async fn answered(
        &self,
        mut response: Response,
        letter: &OutgoingMessage,
    ) -> Result<(), Failure> {
        let Some(call) = letter.call else {
            drained(response).await;
            return Ok(());
        };
        match Content::of(&response) {
            Content::Events => self.follow(response, call).await,
            Content::Json => {
                let limit = self.replies.most_bytes(call);
                let read = whole(&self.remote.origin, &mut response, limit).await;
                let body = match read.map_err(Failure::Remote)? {
                    Body::Whole(body) => body,
                    Body::TooLong => return Err(Failure::TooLarge(limit)),
                };
                each_message(body.clone(), |message| self.replies.line_of(call, message));
                match self.replies.waits(call) {
                    true => Err(Failure::Remote(self.remote.class(&response, &body))),
                    false => Ok(()),
                }
            }
            Content::Other => Err(Failure::Remote(self.remote.unusable(response).await)),
        }
    }

    /// Handles a response with another status.
    async fn refused(
        &self,
        mut response: Response,
        letter: &OutgoingMessage,
        names_session: bool,
    ) -> Result<Refused, Failure> {
        let status = response.status();
        let is_final = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
        let body = said(&self.remote.origin, &mut response, MOST_ERROR).await;
        if is_final {
            return Err(Failure::Remote(self.remote.class(&response, &body)));
        }
        let forgotten = match status {
            StatusCode::NOT_FOUND => {
                let is_answered = letter.call.is_some_and(|call| is_error_of(&body, call));
                !is_answered && !is_unknown_method(&body)
            }
            StatusCode::BAD_REQUEST => {
                salvage_unaddressed(&body) == Some(Unaddressed::Error(NO_SESSION))
            }
            _ => false,
        };
        if names_session && forgotten {
            let error = self.remote.class(&response, &body);
            return Ok(Refused::Expired(error));
        }
        if let Some(call) = letter.call
            && is_answer(&body, call)
        {
            each_message(body.clone(), |message| self.replies.line_of(call, message));
            if !self.replies.waits(call) {
                return Ok(Refused::Answered);
            }
        }
        Err(Failure::Remote(self.remote.class(&response, &body)))
    }
}

/// Returns whether a body answers a call: with its id, or with an error without an id.
fn is_answer(body: &[u8], call: u64) -> bool {
    if let Some(Unaddressed::Error(_)) = salvage_unaddressed(body) {
        return true;
    }
    match jsonrpc::parse(body, &Limits::default()) {
        Ok(incoming) => match incoming.message {
            Message::Response(response) => response.id.matches_u64() == Some(call),
            Message::Request(_) | Message::Notification(_) => false,
        },
        Err(_) => false,
    }
}

/// Returns whether a body is an error for this call other than an unknown session.
fn is_error_of(body: &[u8], call: u64) -> bool {
    let Ok(incoming) = jsonrpc::parse(body, &Limits::default()) else {
        return false;
    };
    let Message::Response(response) = incoming.message else {
        return false;
    };
    if response.id.matches_u64() != Some(call) {
        return false;
    }
    match response.outcome {
        Outcome::Error(error) => {
            ErrorBody::read(error).is_some_and(|error| error.code != SESSION_NOT_FOUND)
        }
        Outcome::Result(_) => false,
    }
}

/// Returns whether a body reports an unknown method, which a lost session would not.
fn is_unknown_method(body: &[u8]) -> bool {
    let Ok(incoming) = jsonrpc::parse(body, &Limits::default()) else {
        return false;
    };
    let Message::Response(response) = incoming.message else {
        return false;
    };
    match response.outcome {
        Outcome::Error(error) => {
            ErrorBody::read(error).is_some_and(|error| error.code == METHOD_NOT_FOUND)
        }
        Outcome::Result(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_an_id_answers_the_request_it_came_to() {
        // Servers of the handshake era answer a probe of the stateless era like this.
        let body = br#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"},"id":null}"#;
        assert!(is_answer(body, 7));
        let other = br#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"},"id":8}"#;
        assert!(!is_answer(other, 7) && is_answer(other, 8));
        assert!(!is_answer(b"<html>", 7));
    }

    #[test]
    fn an_unknown_method_is_no_lost_session() {
        // fault H9
        let unknown = br#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"x"},"id":8}"#;
        assert!(is_unknown_method(unknown));
        assert!(!is_unknown_method(b"Session not found"));
    }

    #[test]
    fn an_error_of_a_call_is_no_lost_session() {
        // fault H9
        let error = br#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"x"},"id":8}"#;
        assert!(is_error_of(error, 8) && !is_error_of(error, 7));
        let gone = br#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"x"},"id":8}"#;
        assert!(!is_error_of(gone, 8));
        assert!(!is_error_of(b"Session not found", 8));
    }
}
