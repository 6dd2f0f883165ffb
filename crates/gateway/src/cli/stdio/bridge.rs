//! Forwards one client's messages to the gateway and the responses back.
//!
//! A request is a task that ends with exactly one response, or none if the client cancelled it.
//! `initialize` is awaited, so that later messages have a session. The messages in flight are
//! bounded. Only the envelope is inspected. Entry points: [`Bridge::take`] and [`Bridge::end`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use super::batch::Batch;
use super::error::BridgeError;
use super::inflight::{Inflight, InflightSlot, Kind, REQUESTS};
use super::lines::Line;
use super::session::Session;

/// How long to wait for nearly finished responses after the client closed stdin.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A client, and the gateway behind it.
pub(super) struct Bridge {
    pub(super) gateway: Arc<Attached>,
    /// `/mcp`, or the path of one server.
    pub(super) path: String,
    pub(super) out: mpsc::Sender<Vec<u8>>,
    /// The negotiated session of a handshake-era client.
    pub(super) session: tokio::sync::Mutex<Session>,
    inflight: Arc<Inflight>,
    /// Whether dropped notifications were logged.
    is_told: AtomicBool,
    requests: TaskTracker,
    pub(super) others: TaskTracker,
    /// Cancels everything.
    pub(super) stop: CancellationToken,
}

impl Bridge {
    /// Puts a bridge between a client and its gateway.
    pub(super) fn new(
        gateway: Arc<Attached>,
        path: String,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            path,
            out,
            session: tokio::sync::Mutex::default(),
            inflight: Arc::default(),
            is_told: AtomicBool::new(false),
            requests: TaskTracker::new(),
            others: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Handles a line from the client.
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
                self.batch(refused.bytes).await;
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
            Message::Request(request) => {
                let kind = Kind::Request(request.id);
                match self.inflight.enter(kind, frame.text().len(), &self.stop) {
                    Some(place) => {
                        let bridge = Arc::clone(self);
                        self.requests
                            .spawn(async move { bridge.request(frame, place).await });
                    }
                    None => self.refuse(Some(request.id), &busy()).await,
                }
            }
            Message::Notification(notification)
                if notification.method == "notifications/cancelled" =>
            {
                self.take_back(&notification);
            }
            Message::Notification(_) => {
                self.pass_on(Kind::Notice, frame.text().to_owned().into());
            }
            // A call waits for it, so it counts as a request.
            Message::Response(_) => self.pass_on(Kind::Batch, frame.text().to_owned().into()),
        }
    }

    /// Sends a request and relays the response, unless it is cancelled.
    async fn request(&self, frame: Frame, place: InflightSlot) {
        let Message::Request(request) = frame.incoming().message else {
            return;
        };
        let answered = tokio::select! {
            biased;
            () = place.token.cancelled() => return,
            answered = self.exchange(&frame) => answered,
        };
        if let Err(error) = answered {
            self.refuse(Some(request.id), &error.problem()).await;
        }
    }

    /// Sends a batch; a rejected one gets error responses in any case.
    async fn batch(self: &Arc<Self>, bytes: Vec<u8>) {
        let Ok(text) = String::from_utf8(bytes) else {
            return self.refuse(None, &Problem::from(WireError::Batch)).await;
        };
        let batch = Batch::new(text, self.session.lock().await.allows_batches());
        let size = batch.text().len();
        let Some(place) = self.inflight.enter(Kind::Batch, size, &self.stop) else {
            return self.refuse_batch(&batch, &busy()).await;
        };
        let bridge = Arc::clone(self);
        self.requests.spawn(async move {
            let answered = tokio::select! {
                biased;
                () = place.token.cancelled() => return,
                answered = bridge.exchange_batch(&batch) => answered,
            };
            if let Err(error) = answered {
                bridge.refuse_batch(&batch, &error.problem()).await;
            }
        });
    }

    /// Sends notifications and the client's responses; those over the limit are dropped.
    fn pass_on(self: &Arc<Self>, kind: Kind<'_>, body: Bytes) {
        let Some(place) = self.inflight.enter(kind, body.len(), &self.stop) else {
            if !self.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "notifications arrive faster than they can be sent; some are dropped"
                );
            }
            return;
        };
        let bridge = Arc::clone(self);
        self.requests.spawn(async move {
            let passed = tokio::select! {
                biased;
                () = place.token.cancelled() => return,
                passed = bridge.deliver(body) => passed,
            };
            if let Err(error) = passed {
                tracing::debug!(%error, "a message was not delivered");
            }
        });
    }

    /// Cancels the request that the client names.
    fn take_back(&self, notification: &Notification<'_>) {
        let id = notification
            .params
            .and_then(|params| params.get("requestId"));
        if let Some(id) = id.and_then(RequestId::read) {
            self.inflight.take_back(id);
        }
    }

    /// Answers with our own error.
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

    /// Sends a message to the client; does not block at the end.
    pub(super) async fn say(&self, message: Vec<u8>) {
        tokio::select! {
            biased;
            sent = self.out.send(message) => drop(sent),
            () = self.stop.cancelled() => {}
        }
    }

    /// Ends: nearly finished requests are answered, the rest is cancelled.
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
}

fn busy() -> Problem {
    BridgeError::Busy(REQUESTS).problem()
}

/// Whether to wait for responses at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// For a moment.
    Short,
    /// Not at all.
    None,
}
