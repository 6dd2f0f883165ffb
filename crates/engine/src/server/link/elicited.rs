//! People whom a server of the handshake era sends to a URL, in a question or in an error that says
//! that they must go there first: who of its callers hears when they are through.
//!
//! Bounded, the oldest are forgotten first; an id is told only to who was given it. Entry points:
//! `Link::sends_to_url`, `Link::elicited` and `Link::completed`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gantry_model::era::Era;
use gantry_model::era::error::URL_ELICITATION_REQUIRED;
use gantry_model::jsonrpc::{ErrorBody, Raw};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Link;
use crate::request::{Client, SessionChannel, Word};

/// The most that are remembered.
const MOST: usize = 256;
/// The longest id that is remembered.
const LONGEST_ID: usize = 256;

/// The elicitations of one link that send people to a URL.
#[derive(Default)]
pub(super) struct Elicitations {
    sent: Mutex<VecDeque<Sent>>,
    completed: Notify,
}

struct Sent {
    id: Box<str>,
    client: Weak<Client>,
    /// How a client of the handshake era hears of it after its call.
    channel: Option<SessionChannel>,
    is_complete: bool,
}

/// Who is sent to a URL: by a call, by its session, or both.
pub(super) type Addressee = (Weak<Client>, Option<SessionChannel>);

/// Returns the client of a call as one that is sent to a URL.
pub(super) fn addressee(client: &Arc<Client>) -> Addressee {
    let channel = client.channel.clone();
    let channel = channel.filter(|_| client.era == Era::Handshake);
    (Arc::downgrade(client), channel)
}

impl Elicitations {
    fn note(&self, id: &str, (client, channel): Addressee) {
        if id.len() > LONGEST_ID {
            return;
        }
        let mut sent = self.lock();
        sent.retain(|known| *known.id != *id || !known.client.ptr_eq(&client));
        if sent.len() >= MOST {
            sent.pop_front();
        }
        sent.push_back(Sent {
            id: id.into(),
            client,
            channel,
            is_complete: false,
        });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Sent>> {
        self.sent.lock()
    }
}

fn is_same(sent: &Sent, client: &Arc<Client>) -> bool {
    std::ptr::eq(sent.client.as_ptr(), Arc::as_ptr(client))
}

/// Returns the ids of the elicitations that an error says are needed first.
fn needed(error: Raw<'_>) -> Option<Raw<'_>> {
    let body = ErrorBody::read(error)?;
    (body.code == URL_ELICITATION_REQUIRED).then_some(())?;
    body.data?.get("elicitations")
}

impl Link {
    /// Notes who is sent to a URL by a question.
    pub(super) fn asks_to_url(&self, params: Option<Raw<'_>>, to: Addressee) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        if let Some(id) = id {
            self.elicitations.note(&id, to);
        }
    }

    /// Notes who is sent to a URL by the error that a call is answered with.
    pub(super) fn sends_to_url(&self, call: u64, error: Raw<'_>) {
        let Some(elicitations) = needed(error) else {
            return;
        };
        let Some(voice) = self.pending.voice(call) else {
            return;
        };
        for elicitation in elicitations.items().take(MOST) {
            self.asks_to_url(Some(elicitation), addressee(&voice.client));
        }
    }

    /// Tells those who were given the id of an elicitation that it is complete: on their call if that
    /// goes on, else later.
    pub(super) fn elicited(&self, params: Option<Raw<'_>>) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        let Some(id) = id.filter(|id| id.len() <= LONGEST_ID) else {
            return;
        };
        let mut told = Vec::new();
        for sent in self.elicitations.lock().iter_mut() {
            if *sent.id == *id && !sent.is_complete {
                sent.is_complete = true;
                told.push((sent.client.upgrade(), sent.channel.take()));
            }
        }
        for (client, channel) in told {
            let client = client.filter(|client| client.era == Era::Handshake);
            let word = || Word::Elicited(id.as_ref().into());
            let is_heard = client.is_some_and(|client| client.words.try_send(word()).is_ok());
            if let Some(channel) = channel.filter(|_| !is_heard) {
                channel.send(word());
            }
        }
        self.elicitations.completed.notify_waiters();
    }

    /// Waits until a client's elicitations with these ids are complete, or for so long.
    pub(crate) async fn completed(&self, ids: &[Box<str>], client: &Arc<Client>, within: Duration) {
        let waiting = async {
            loop {
                let completed = self.elicitations.completed.notified();
                tokio::pin!(completed);
                // Before the look, so that what comes after it is heard.
                completed.as_mut().enable();
                let is_open = |sent: &Sent| {
                    ids.contains(&sent.id) && is_same(sent, client) && !sent.is_complete
                };
                if !self.elicitations.lock().iter().any(is_open) {
                    return;
                }
                completed.await;
            }
        };
        // What was not heard of in time may be complete all the same.
        timeout(within, waiting).await.unwrap_or_default();
    }
}
