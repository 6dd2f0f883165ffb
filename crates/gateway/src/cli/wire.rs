//! Connections to a gateway that are kept and used again, for verbs that send many messages.
//!
//! An answer comes as it is, its body unread, so that streams can be followed. A request that was
//! never written is told apart from one that may have arrived: only the first may be repeated.
//! Entry point: [`Wire::send`].

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::dial::{Sender, connect};
use super::trouble::words;

/// How long a gateway on this machine may take to accept.
const CONNECT: Duration = Duration::from_millis(800);
/// How long a used connection may take to be ready for the next request.
const READY: Duration = Duration::from_millis(100);
/// Connections that are kept while nobody uses them.
const IDLE: usize = 32;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Down {
    /// The request never left.
    Unsent(String),
    /// The request may have arrived.
    Cut(String),
}

/// A gateway, the key to it, and the connections that are open.
pub(super) struct Wire {
    authority: HeaderValue,
    address: String,
    bearer: HeaderValue,
    idle: Mutex<Vec<Sender>>,
    tasks: TaskTracker,
}

/// A connection with an answer on it; given back when the answer has been read to its end.
pub(super) struct Used(Sender);

impl Wire {
    /// Prepares connections to a client's gateway; nothing if its key cannot stand in a header.
    pub(super) fn new(client: &Client) -> Option<Self> {
        Some(Self {
            authority: HeaderValue::try_from(client.authority()).ok()?,
            address: client.address().to_owned(),
            bearer: HeaderValue::try_from(format!("Bearer {}", client.key())).ok()?,
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// Sends a request; what it lacks of headers that every request has is added.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Used), Down> {
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(AUTHORIZATION, self.bearer.clone());
        while let Some(mut sender) = self.take() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Used(sender))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.cut(words(&error.into_error()))),
                },
            }
        }
        let mut sender = self.connect().await.map_err(Down::Unsent)?;
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, Used(sender))),
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                let why = words(&error.into_error());
                Err(match unsent {
                    true => Down::Unsent(why),
                    false => self.cut(why),
                })
            }
        }
    }

    /// Takes a connection back whose answer was read to its end.
    pub(super) async fn give_back(&self, used: Used) {
        let mut sender = used.0;
        if let Ok(Ok(())) = timeout(READY, sender.ready()).await {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE {
                idle.push(sender);
            }
        }
    }

    /// Says that a request was cut off. What else is open was open to the same gateway, and may be cut
    /// as well without having noticed: none of it is used again.
    fn cut(&self, why: String) -> Down {
        self.idle.lock().clear();
        Down::Cut(why)
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Sender, String> {
        let (sender, connection) = connect(&self.address, CONNECT).await?;
        self.tasks.spawn(async move {
            // How it ended is told to whoever waits for the answer.
            drop(connection.await);
        });
        Ok(sender)
    }
}
