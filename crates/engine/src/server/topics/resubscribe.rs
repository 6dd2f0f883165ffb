//! Keeps a server subscribed to the wanted resources while its link is open.
//!
//! A server of the handshake era gets one request per resource; one of the stateless era gets one
//! request that stays open, for lists and resources together, and is sent again when the wanted set
//! changes or it ended. Entry point: [`keep`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::era::Era;
use gantry_model::era::meta::{Identity, upstream_params};
use gantry_model::jsonrpc::{ErrorBody, METHOD_NOT_FOUND, Raw, RawBuf};
use tokio::time::{sleep, timeout};

use super::{SubscriptionState, Topics};
use crate::server::handshake::{HandshakeInfo, trusted};
use crate::server::link::{InFlight, Link};
use crate::server::pending::Answer;

/// How long a server may take to acknowledge.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long changes of the wanted set are collected before they are sent.
const GATHER: Duration = Duration::from_millis(20);
/// The longest refusal message that is kept, in bytes.
const MESSAGE: usize = 1 << 10;
/// The backoff before an open request that ended is sent again: initial and maximum.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Keeps the server's subscriptions up to date; never returns.
pub(crate) async fn keep(
    link: &Arc<Link>,
    handshake: &HandshakeInfo,
    topics: &Topics,
) -> Infallible {
    match handshake.era {
        Era::Handshake => one_by_one(link, handshake, topics).await,
        Era::Stateless => all_at_once(link, handshake, topics).await,
    }
}

async fn one_by_one(link: &Arc<Link>, handshake: &HandshakeInfo, topics: &Topics) -> Infallible {
    let mut told: BTreeMap<Arc<str>, SubscriptionState> = BTreeMap::new();
    let mut changes = topics.revision.subscribe();
    loop {
        changes.mark_unchanged();
        let wanted = topics.wanted();
        let mut still = BTreeMap::new();
        for uri in wanted {
            let standing = match told.remove(&uri) {
                Some(standing) => Some(standing),
                None if handshake.subscribes() => tell(link, "resources/subscribe", &uri).await,
                None => Some(unable()),
            };
            // If there was no response, it is sent again when the wanted set changes.
            if let Some(standing) = standing {
                topics.stands(&uri, &standing);
                still.insert(uri, standing);
            }
        }
        for (uri, standing) in std::mem::replace(&mut told, still) {
            if standing == SubscriptionState::Kept {
                tell(link, "resources/unsubscribe", &uri).await;
            }
        }
        // The topics own the sender, so it cannot be closed.
        drop(changes.changed().await);
    }
}

/// Sends a request for one resource; `None` if the server does not respond.
async fn tell(link: &Arc<Link>, method: &str, uri: &str) -> Option<SubscriptionState> {
    let params = RawBuf::serialize(&serde_json::json!({ "uri": uri })).ok()?;
    match link.ask(method, Some(&params), PATIENCE).await {
        Ok(Answer::Result(_)) => Some(SubscriptionState::Kept),
        Ok(Answer::Error(error)) => Some(refused(&error)),
        Ok(Answer::Failed(_)) | Err(_) => None,
    }
}

async fn all_at_once(link: &Arc<Link>, handshake: &HandshakeInfo, topics: &Topics) -> Infallible {
    let able = handshake.subscribes();
    let mut previous = None;
    let mut kept: Vec<Arc<str>> = Vec::new();
    let mut again = AGAIN.0;
    loop {
        let wanted = topics.wanted();
        let open = listen(link, handshake, if able { &wanted } else { &[] });
        let id = open.as_ref().map(InFlight::id);
        let mut ended = Box::pin(async move {
            match open {
                Some(open) => open.answer().await,
                None => std::future::pending().await,
            }
        });
        let noted = async {
            if let Some(id) = id {
                // A server that does not acknowledge may still have accepted.
                drop(timeout(PATIENCE, link.acknowledged(id)).await);
            }
        };
        let refusal = tokio::select! {
            biased; // A refusal is an answer, and comes without a note.
            answer = &mut ended => Some(answer),
            () = noted => None,
        };
        if let (Some(Answer::Error(error)), Some(old)) = (&refusal, previous.as_mut()) {
            // The new resources are refused; the previous subscription stays.
            let standing = refused(error);
            for uri in wanted.iter().filter(|uri| !kept.contains(uri)) {
                topics.stands(uri, &standing);
            }
            let has_ended = tokio::select! {
                () = topics.changed.notified() => false,
                _answer = old => true,
            };
            if has_ended {
                previous = None;
            }
            sleep(GATHER).await;
            continue;
        }
        let standing = match (&refusal, able) {
            (_, false) => Some(unable()),
            (Some(Answer::Error(error)), true) => Some(refused(error)),
            (Some(Answer::Result(_)) | None, true) => id.map(|_| SubscriptionState::Kept),
            // The link has ended; the next one subscribes again.
            (Some(Answer::Failed(_)), true) => None,
        };
        if let Some(standing) = &standing {
            for uri in &wanted {
                topics.stands(uri, standing);
            }
        }
        // Only now, so that no change is missed in between.
        drop(previous.take());
        kept.clone_from(&wanted);
        if refusal.is_none() {
            tokio::select! {
                () = others_wanted(topics, &kept, standing.as_ref()) => {
                    again = AGAIN.0;
                    previous = Some(ended);
                    continue;
                }
                _answer = &mut ended => {}
            }
        }
        sleep(again).await;
        again = (again * 2).min(AGAIN.1);
    }
}

/// Waits until the wanted set differs from what the server has, or changes at all if the request
/// failed. A resource that the server already covers is accepted without a new request: that would
/// duplicate notifications meanwhile.
async fn others_wanted(topics: &Topics, told: &[Arc<str>], standing: Option<&SubscriptionState>) {
    loop {
        topics.changed.notified().await;
        sleep(GATHER).await;
        let Some(standing) = standing.filter(|_| topics.wanted() == told) else {
            return;
        };
        for uri in told {
            topics.stands(uri, standing);
        }
    }
}

/// Asks a stateless server for notifications of changed lists and these resources, which it sends
/// as long as the returned request is held.
fn listen(link: &Arc<Link>, handshake: &HandshakeInfo, uris: &[Arc<str>]) -> Option<InFlight> {
    let capabilities = handshake.capabilities.as_raw().members();
    let changes = capabilities.filter(|capability| {
        let changing = capability.value.get("listChanged");
        changing.and_then(Raw::boolean) == Some(true)
    });
    let changes = changes.filter_map(|capability| {
        let lists = ["tools", "prompts", "resources"];
        lists.into_iter().find(|list| capability.is(list))
    });
    let mut wishes: serde_json::Map<_, _> = changes
        .map(|list| (format!("{list}ListChanged"), true.into()))
        .collect();
    if !uris.is_empty() {
        wishes.insert("resourceSubscriptions".to_owned(), serde_json::json!(uris));
    }
    if wishes.is_empty() {
        return None;
    }
    let params = RawBuf::serialize(&serde_json::json!({ "notifications": wishes })).ok()?;
    let identity = Identity::gantry();
    let params = upstream_params(handshake.version, Some(params.as_raw()), &identity).to_buf();
    link.ask_begin("subscriptions/listen", Some(&params)).ok()
}

fn unable() -> SubscriptionState {
    let why = "the server does not tell of changes of its resources";
    SubscriptionState::Refused(METHOD_NOT_FOUND, why.into())
}

fn refused(error: &[u8]) -> SubscriptionState {
    match ErrorBody::read(trusted(error)) {
        Some(body) => {
            let message = &body.message[..body.message.floor_char_boundary(MESSAGE)];
            SubscriptionState::Refused(body.code, Arc::from(message))
        }
        None => {
            SubscriptionState::Refused(METHOD_NOT_FOUND, "its error has no code and message".into())
        }
    }
}
