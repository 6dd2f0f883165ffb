//! URL elicitations of servers of the handshake era: by a request, or by the error that a URL must be
//! visited first. Remembers which clients to notify when one is complete, and which calls to send
//! again then.
//!
//! Bounded, the oldest are forgotten first; an id is sent only to the client that was given it. Entry
//! points: [`url_required`], [`CallForwarder::visit`], `Link::elicitation_completed`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::era::error::URL_ELICITATION_REQUIRED;
use gantry_model::jsonrpc::{Edit, ErrorBody, Raw, RawBuf};
use gantry_model::mcp::Method;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{CallForwarder, MOST_AT_ONCE, redacted};
use crate::error::CallError;
use crate::request::{CallEvent, Client, ServerRequest, SessionChannel};
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;
use crate::server::link::Link;

/// The most elicitations that are remembered.
const MOST: usize = 256;
/// The longest id that is remembered.
const LONGEST_ID: usize = 256;
/// How long a person who has said yes is waited for, before it is asked again.
const VISIT: Duration = Duration::from_secs(30);

/// The elicitations of one link that send people to a URL.
#[derive(Default)]
pub(in crate::server) struct Elicitations {
    known: Mutex<VecDeque<Elicitation>>,
    completed: Notify,
}

struct Elicitation {
    id: Box<str>,
    client: Weak<Client>,
    /// How a client of the handshake era hears of it after its call.
    channel: Option<SessionChannel>,
    is_complete: bool,
}

/// Who is sent to a URL: with a call, in a session, or both.
pub(super) type UrlRecipient = (Weak<Client>, Option<SessionChannel>);

/// Returns the client of a call as one that is sent to a URL.
pub(super) fn visitor(client: &Arc<Client>) -> UrlRecipient {
    let channel = client.channel.clone();
    let channel = channel.filter(|_| client.era == Era::Handshake);
    (Arc::downgrade(client), channel)
}

impl Elicitations {
    fn note(&self, id: &str, (client, channel): UrlRecipient) {
        if id.len() > LONGEST_ID {
            return;
        }
        let mut known = self.lock();
        known.retain(|known| *known.id != *id || !known.client.ptr_eq(&client));
        if known.len() >= MOST {
            known.pop_front();
        }
        known.push_back(Elicitation {
            id: id.into(),
            client,
            channel,
            is_complete: false,
        });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Elicitation>> {
        self.known.lock()
    }
}

/// Returns the elicitations that an error says are needed first; nothing if it is another error.
fn needed(error: Raw<'_>) -> Option<Raw<'_>> {
    let body = ErrorBody::read(error)?;
    (body.code == URL_ELICITATION_REQUIRED).then_some(())?;
    body.data?.get("elicitations")
}

impl Link {
    /// Notes who is sent to a URL by a request.
    pub(super) fn note_url_request(&self, params: Option<Raw<'_>>, visitor: UrlRecipient) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        if let Some(id) = id {
            self.elicitations.note(&id, visitor);
        }
    }

    /// Notes who is sent to a URL by the error that a call is answered with.
    pub(in crate::server) fn note_url_error(&self, call: u64, error: Raw<'_>) {
        let Some(elicitations) = needed(error) else {
            return;
        };
        let Some(caller_channel) = self.pending.caller_channel(call) else {
            return;
        };
        for elicitation in elicitations.items().take(MOST) {
            self.note_url_request(Some(elicitation), visitor(&caller_channel.client));
        }
    }

    /// Tells those who were given the id of an elicitation that it is complete: on their call if that
    /// goes on, else in their session.
    pub(in crate::server) fn elicitation_completed(&self, params: Option<Raw<'_>>) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        let Some(id) = id.filter(|id| id.len() <= LONGEST_ID) else {
            return;
        };
        let mut visitors = Vec::new();
        for known in self.elicitations.lock().iter_mut() {
            if *known.id == *id && !known.is_complete {
                known.is_complete = true;
                visitors.push((known.client.upgrade(), known.channel.take()));
            }
        }
        for (client, channel) in visitors {
            let client = client.filter(|client| client.era == Era::Handshake);
            let event = || CallEvent::Elicited(id.as_ref().into());
            let is_heard = client.is_some_and(|client| client.events.try_send(event()).is_ok());
            if let Some(channel) = channel.filter(|_| !is_heard) {
                channel.send(event());
            }
        }
        self.elicitations.completed.notify_waiters();
    }

    /// Waits until a client's elicitations with these ids are complete, or for so long.
    async fn wait_completed(&self, ids: &[Box<str>], client: &Arc<Client>, within: Duration) {
        let client = Arc::downgrade(client);
        let waiting = async {
            loop {
                let completed = self.elicitations.completed.notified();
                tokio::pin!(completed);
                // Before the look, so that what comes after it is heard.
                completed.as_mut().enable();
                let is_open = |known: &Elicitation| {
                    ids.contains(&known.id) && known.client.ptr_eq(&client) && !known.is_complete
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

/// One URL that a person must go to.
pub(crate) struct RequiredUrl {
    id: Option<Box<str>>,
    params: RawBuf,
}

/// Where the people of one call said that they go.
#[derive(Default)]
pub(crate) struct UrlVisits {
    accepted: Vec<Option<Box<str>>>,
}

/// Returns the URLs that an error says are needed first; nothing if it is another error.
pub(crate) fn url_required(error: &Bytes, server: &ServerHandle) -> Option<Vec<RequiredUrl>> {
    let redactor = server.known.redactor();
    let elicitations = needed(trusted(error))?.items().take(MOST_AT_ONCE);
    let urls = elicitations.filter_map(|elicitation| {
        elicitation.get("url")?.string()?;
        let id = elicitation.get("elicitationId").and_then(Raw::string);
        let mut params = Edit::new(elicitation);
        params.set_buf("mode", RawBuf::string("url"));
        Some(RequiredUrl {
            id: id.map(|id| id.as_ref().into()),
            params: redacted(params.to_buf().as_raw(), &redactor),
        })
    });
    let urls: Vec<RequiredUrl> = urls.collect();
    (!urls.is_empty()).then_some(urls)
}

impl CallForwarder<'_> {
    /// Sends a person there, for a client of the stateless era, which has no such error. Who has just
    /// said yes is not asked again at once: the server may need a moment, or the person, and says when
    /// it is through.
    pub(crate) async fn visit(
        &self,
        urls: Vec<RequiredUrl>,
        visits: &mut UrlVisits,
        (link, client): (&Arc<Link>, &Arc<Client>),
    ) -> Result<(), CallError> {
        let ids: Vec<Option<Box<str>>> = urls.iter().map(|url| url.id.clone()).collect();
        if std::mem::take(&mut visits.accepted) == ids {
            let ids: Vec<Box<str>> = ids.into_iter().flatten().collect();
            link.wait_completed(&ids, client, VISIT).await;
            return Ok(());
        }
        let requests = (1..).zip(urls).map(|(number, url)| ServerRequest {
            key: format!("url-{number}").into(),
            method: Method::ElicitationCreate,
            params: Some(url.params),
        });
        for response in self.forward(requests.collect()).await? {
            let result = response.outcome.map_err(|error| self.declined(&error))?;
            let action = result.as_raw().get("action");
            if !action.is_some_and(|action| action.is_string("accept")) {
                return Err(CallError::Declined {
                    server: self.server.name.clone(),
                    message: "the person did not go to the URL".to_owned(),
                });
            }
        }
        visits.accepted = ids;
        Ok(())
    }
}
