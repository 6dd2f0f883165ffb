//! URL elicitations of servers of the handshake era: by a request, or by the error that a URL must
//! be visited first. Remembers which clients to notify on completion, and which calls to repeat
//! then.
//!
//! Bounded, the oldest are forgotten first; an id is sent only to the client that got it. Entry
//! points: [`url_required`], [`CallForwarder::visit`], `Link::elicitation_completed`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::era::error::URL_ELICITATION_REQUIRED;
use gantry_model::jsonrpc::{Edit, ErrorBody, Raw, RawBuf};
use gantry_model::mcp::{Method, is_web_url};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{CallForwarder, MOST_AT_ONCE, broken, readable_params};
use crate::error::CallError;
use crate::request::{CallEvent, Client, ServerRequest, SessionChannel};
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;
use crate::server::link::Link;

/// The maximum number of elicitations that are remembered.
const MOST: usize = 256;
/// The longest id that is remembered.
const LONGEST_ID: usize = 256;
/// How long to wait for a person who accepted, before asking again.
const VISIT: Duration = Duration::from_secs(30);

/// The URL elicitations of one link.
#[derive(Default)]
pub(in crate::server) struct Elicitations {
    known: Mutex<VecDeque<Elicitation>>,
    completed: Notify,
}

struct Elicitation {
    id: Box<str>,
    client: Weak<Client>,
    /// The session channel of a client of the handshake era, for use after its call.
    channel: Option<SessionChannel>,
    is_complete: bool,
}

/// The client of a URL elicitation: through a call, a session, or both.
pub(super) type UrlRecipient = (Weak<Client>, Option<SessionChannel>);

/// Returns the client of a call as a recipient.
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
        let mut known = self.known.lock();
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
}

/// Returns the elicitations that an error requires; `None` if it is another error.
fn needed(error: Raw<'_>) -> Option<Raw<'_>> {
    let body = ErrorBody::read(error)?;
    (body.code == URL_ELICITATION_REQUIRED).then_some(())?;
    body.data?.get("elicitations")
}

impl Link {
    /// Records the recipient of a URL request.
    pub(super) fn note_url_request(&self, params: Option<Raw<'_>>, visitor: UrlRecipient) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        if let Some(id) = id {
            self.elicitations.note(&id, visitor);
        }
    }

    /// Records the recipient of the error that a call ended with.
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

    /// Notifies the clients that got the id of an elicitation that it is complete: on their call if
    /// it is running, else in their session.
    pub(in crate::server) fn elicitation_completed(&self, params: Option<Raw<'_>>) {
        let id = params.and_then(|params| params.get("elicitationId")?.string());
        let Some(id) = id.filter(|id| id.len() <= LONGEST_ID) else {
            return;
        };
        let mut visitors = Vec::new();
        for known in self.elicitations.known.lock().iter_mut() {
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

    /// Waits until a client's elicitations with these ids are complete, with a time limit.
    async fn wait_completed(&self, ids: &[Box<str>], client: &Arc<Client>, within: Duration) {
        let client = Arc::downgrade(client);
        let waiting = async {
            loop {
                let completed = self.elicitations.completed.notified();
                tokio::pin!(completed);
                // Enabled before the check, so that no notification is missed.
                completed.as_mut().enable();
                let is_open = |known: &Elicitation| {
                    ids.contains(&known.id) && known.client.ptr_eq(&client) && !known.is_complete
                };
                if !self.elicitations.known.lock().iter().any(is_open) {
                    return;
                }
                completed.await;
            }
        };
        // They may be complete even if no notification came in time.
        timeout(within, waiting).await.unwrap_or_default();
    }
}

/// One URL that a person must visit.
pub(crate) struct RequiredUrl {
    id: Option<Box<str>>,
    params: RawBuf,
}

/// The URLs that were accepted during one call.
#[derive(Default)]
pub(crate) struct UrlVisits {
    accepted: Vec<Option<Box<str>>>,
}

/// Fails if an error sends a person to what is no web page. fault L7
pub(crate) fn check_urls(error: &Bytes, server: &ServerHandle) -> Result<(), CallError> {
    let is_page = |elicitation: Raw<'_>| elicitation.get("url").is_none_or(is_web_url);
    if needed(trusted(error)).is_none_or(|all| all.items().all(is_page)) {
        return Ok(());
    }
    Err(broken(server, "it sends a person to what is no web page"))
}

/// Returns the URLs that an error requires; `None` if it is another error.
pub(crate) fn url_required(error: &Bytes, server: &ServerHandle) -> Option<Vec<RequiredUrl>> {
    let elicitations = needed(trusted(error))?.items().take(MOST_AT_ONCE);
    let urls = elicitations.filter_map(|elicitation| {
        elicitation.get("url")?.string()?;
        let id = elicitation.get("elicitationId").and_then(Raw::string);
        let mut params = Edit::new(elicitation);
        params.set_buf("mode", RawBuf::string("url"));
        Some(RequiredUrl {
            id: id.map(|id| id.as_ref().into()),
            params: readable_params(params.to_buf().as_raw(), server),
        })
    });
    let urls: Vec<RequiredUrl> = urls.collect();
    (!urls.is_empty()).then_some(urls)
}

impl CallForwarder<'_> {
    /// Asks a person to visit the URL, for a client of the stateless era, which has no such error.
    /// Does not ask again right after an acceptance: the person or the server may need a moment,
    /// and the server reports the completion.
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
