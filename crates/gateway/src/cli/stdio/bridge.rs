//! One client's messages, each on its way to the gateway and back.
//!
//! A request is a task that ends with exactly one answer, or with none if the client took it back.
//! `initialize` is waited for, so that what follows it finds its session. Never judges a message
//! beyond its envelope: the gateway does. Entry points: [`Bridge::take`] and [`Bridge::end`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_model::jsonrpc::{
    self, Frame, Limits, Message, Notification, Payload, Raw, RequestId, WireError,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::error::Problem;
use crate::http::limits::BODY_BYTES;

use super::attach::Attached;
use super::error::BridgeError;
use super::lines::Line;
use super::session::Session;

/// Requests that may be on their way at once.
const IN_FLIGHT: usize = 512;
/// How long answers that are nearly there are waited for when the client has said its last.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A client, and the gateway that its messages go to.
pub(super) struct Bridge {
    pub(super) gateway: Attached,
    /// `/mcp`, or one server's door.
    pub(super) path: String,
    pub(super) out: mpsc::Sender<Vec<u8>>,
    /// What a client of the handshake era has agreed on.
    pub(super) session: tokio::sync::Mutex<Session>,
    inflight: Mutex<HashMap<Box<str>, Vec<CancellationToken>>>,
    requests: TaskTracker,
    pub(super) others: TaskTracker,
    /// Everything ends with it.
    pub(super) stop: CancellationToken,
}

impl Bridge {
    /// Puts a bridge between a client and its gateway.
    pub(super) fn new(gateway: Attached, path: String, out: mpsc::Sender<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            path,
            out,
            session: tokio::sync::Mutex::default(),
            inflight: Mutex::default(),
            requests: TaskTracker::new(),
            others: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Takes a line of the client's.
    pub(super) async fn take(self: &Arc<Self>, line: Line) {
        let bytes = match line {
            Line::Whole(bytes) if bytes.trim_ascii().is_empty() => return,
            Line::Whole(bytes) => bytes,
            Line::TooLong(head) => {
                let id = jsonrpc::salvage_id(&head);
                return self
                    .refuse(id, &BridgeError::TooLong(BODY_BYTES).problem())
                    .await;
            }
        };
        match Frame::parse(bytes, &Limits::default()) {
            Ok(frame) => self.message(frame).await,
            Err(refused) if matches!(refused.error, WireError::Batch) => {
                self.pass_on(refused.bytes.into());
            }
            Err(refused) => {
                let id = jsonrpc::salvage_id(&refused.bytes);
                self.refuse(id, &Problem::from(refused.error)).await;
            }
        }
    }

    async fn message(self: &Arc<Self>, frame: Frame) {
        match frame.incoming().message {
            Message::Request(request) if request.method == "initialize" => {
                Box::pin(self.initialize(&frame)).await;
            }
            Message::Request(request) => match self.enter(request.id) {
                Some(token) => {
                    let bridge = Arc::clone(self);
                    self.requests
                        .spawn(async move { bridge.request(frame, token).await });
                }
                None => {
                    self.refuse(Some(request.id), &BridgeError::Busy(IN_FLIGHT).problem())
                        .await
                }
            },
            Message::Notification(notification)
                if notification.method == "notifications/cancelled" =>
            {
                self.take_back(&notification);
            }
            Message::Notification(_) | Message::Response(_) => {
                self.pass_on(frame.text().to_owned().into());
            }
        }
    }

    /// Sends a request and answers it, unless it is taken back.
    async fn request(&self, frame: Frame, token: CancellationToken) {
        let Message::Request(request) = frame.incoming().message else {
            return;
        };
        let answered = tokio::select! {
            biased;
            () = token.cancelled() => Ok(()),
            answered = self.exchange(&frame) => answered,
        };
        self.leave(request.id, &token);
        if let Err(error) = answered {
            self.refuse(Some(request.id), &error.problem()).await;
        }
    }

    /// Sends what needs no answer of its own: notifications, answers, batches.
    fn pass_on(self: &Arc<Self>, body: Bytes) {
        let (bridge, stop) = (Arc::clone(self), self.stop.clone());
        self.requests.spawn(async move {
            let passed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                passed = bridge.deliver(body) => passed,
            };
            if let Err(error) = passed {
                tracing::debug!(%error, "a message was not delivered");
            }
        });
    }

    /// Takes back the one request that the client means, by going away from it.
    fn take_back(&self, notification: &Notification<'_>) {
        let id = notification
            .params
            .and_then(|params| params.get("requestId"));
        if let Some(id) = id.and_then(RequestId::read)
            && let Some([only]) = self.entries().get(id.raw()).map(Vec::as_slice)
        {
            only.cancel();
        }
    }

    /// Answers with an error of our own.
    pub(super) async fn refuse(&self, id: Option<RequestId<'_>>, problem: &Problem) {
        let mut answer = Vec::new();
        let data = problem.rpc_data();
        let data = data.as_deref().map(|data| Payload::Raw(Raw::trusted(data)));
        jsonrpc::write_error(
            &mut answer,
            id,
            problem.rpc_code(),
            problem.rpc_message(),
            data,
        );
        self.say(answer).await;
    }

    /// Says something to the client; one that is gone hears nothing.
    pub(super) async fn say(&self, message: Vec<u8>) {
        self.out.send(message).await.ok();
    }

    /// Ends: what is nearly answered is answered, the rest is taken back.
    pub(super) async fn end(&self, grace: Grace) {
        self.requests.close();
        self.others.close();
        if grace == Grace::Short {
            timeout(LAST_ANSWERS, self.requests.wait()).await.ok();
        }
        self.stop.cancel();
        self.requests.wait().await;
        self.others.wait().await;
        self.goodbye().await;
    }

    fn enter(&self, id: RequestId<'_>) -> Option<CancellationToken> {
        let mut entries = self.entries();
        if self.requests.len() >= IN_FLIGHT {
            return None;
        }
        let token = self.stop.child_token();
        entries
            .entry(id.raw().into())
            .or_default()
            .push(token.clone());
        Some(token)
    }

    fn leave(&self, id: RequestId<'_>, token: &CancellationToken) {
        token.cancel();
        let mut entries = self.entries();
        if let Some(tokens) = entries.get_mut(id.raw()) {
            tokens.retain(|token| !token.is_cancelled());
            if tokens.is_empty() {
                entries.remove(id.raw());
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Box<str>, Vec<CancellationToken>>> {
        self.inflight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether answers are waited for at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// For a moment.
    Short,
    /// Not at all.
    None,
}
