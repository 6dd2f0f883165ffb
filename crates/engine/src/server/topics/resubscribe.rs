//! Keeps a server subscribed to what is listened to, as long as its link is open.
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

/// How long a server may take to take note.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long what is wanted may change before it is told, so that many changes are told at once.
const GATHER: Duration = Duration::from_millis(20);
/// The most of a server's message that is kept of its refusal, in bytes.
const MESSAGE: usize = 1 << 10;
/// How long to wait before an open request that ended is sent again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Keeps a server informed of what is listened to; never ends by itself.
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
            // One that said nothing is told again when what is wanted changes.
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
        // The sender is among the topics, so that it cannot be gone.
        drop(changes.changed().await);
    }
}

/// Tells a server of one resource; `None` if it is silent or gone.
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
                // One that takes no note in words may have all the same.
                drop(timeout(PATIENCE, link.acknowledged(id)).await);
            }
        };
        let refusal = tokio::select! {
            biased; // A refusal is an answer, and comes without a note.
            answer = &mut ended => Some(answer),
            () = noted => None,
        };
        if let (Some(Answer::Error(error)), Some(old)) = (&refusal, previous.as_mut()) {
            // What is new is refused; what was listened to before goes on as it was.
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
            // The link is at its end; the next one is subscribed again.
            (Some(Answer::Failed(_)), true) => None,
        };
        if let Some(standing) = &standing {
            for uri in &wanted {
                topics.stands(uri, standing);
            }
        }
        // Only now, so that no change falls between the two.
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

/// Waits until something else is wanted than what the server was told, or anything if it could not be
/// told. Who joins what it tells of
/// already is told so, and the server is not asked again: it would tell of changes twice meanwhile.
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

/// Asks a stateless server to tell when its lists and these resources change, which it does as long
/// as the returned request is kept.
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
