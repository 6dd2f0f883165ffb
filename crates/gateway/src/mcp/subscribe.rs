//! Resource subscriptions: of a session by `resources/subscribe`, of the stateless era by
//! `subscriptions/listen`.
//!
//! Limited per session and per stream. Before each notification it is checked again whether the
//! client may read the resource. Entry points: `Endpoint::subscription` and
//! `Endpoint::subscribe_all`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use gantry_engine::{
    CallError, CallFailure, ClientIdentity, LONGEST_URI, Lists, Request as EngineRequest,
    Subscription, Surface, UpdateCallback,
};
use gantry_model::era::Era;
use gantry_model::jsonrpc::{self, Edit, Raw, RawBuf, Request};
use parking_lot::Mutex;

use super::answer::Answer;
use super::notification_log::{Notification, NotificationLog};
use super::sessions::Session;
use super::{AuthorizedRequest, Endpoint};
use crate::http::context;
use crate::http::error::Problem;

/// Maximum number of resources per session or stream.
const MOST: usize = 256;
/// How long servers may take to accept the subscriptions of a stream.
const PATIENCE: Duration = Duration::from_secs(5);

/// The subscriptions of a session.
#[derive(Debug, Default)]
pub(super) struct Subscribed(Mutex<HashMap<Box<str>, Subscription>>);

impl Subscribed {
    /// Ends all of them.
    pub(super) fn clear(&self) {
        let ended = std::mem::take(&mut *self.0.lock());
        drop(ended);
    }

    /// Subscribes, if there is room and the session has not ended.
    fn insert(&self, session: &Session, uri: &str, new: Subscription) -> Result<(), Problem> {
        let mut listens = self.0.lock();
        let mut unwanted = Some(new);
        let is_full = listens.len() >= MOST && !listens.contains_key(uri);
        if !is_full && !session.is_ended() {
            let new = unwanted.take();
            unwanted = new.and_then(|new| listens.insert(uri.into(), new));
        }
        // Dropping it takes locks of the server.
        drop(listens);
        drop(unwanted);
        match is_full {
            true => Err(too_many()),
            false => Ok(()),
        }
    }

    fn is_full_for(&self, uri: &str) -> bool {
        let listens = self.0.lock();
        listens.len() >= MOST && !listens.contains_key(uri)
    }
}

/// Returns whether a handshake-era method is about subscriptions.
pub(super) fn is_subscription(method: &str) -> bool {
    matches!(method, "resources/subscribe" | "resources/unsubscribe")
}

impl Endpoint {
    /// Answers `resources/subscribe` and `resources/unsubscribe` of the handshake era.
    pub(super) async fn subscription(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
        session: Option<&Session>,
    ) -> Result<Answer, Problem> {
        match &*request.method {
            "resources/subscribe" => self.subscribe(authorized, request, session).await,
            _ => unsubscribe(request, session),
        }
    }

    /// Subscribes a session to a resource.
    async fn subscribe(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
        session: Option<&Session>,
    ) -> Result<Answer, Problem> {
        let (session, uri) = named(request, session)?;
        if session.subscribed.is_full_for(&uri) {
            return Err(too_many());
        }
        let who = ClientIdentity::Session(session.id.bits());
        let to = (who, &session.log);
        let begun = self.begin(authorized, request, &uri, to, None).await;
        match begun {
            Ok(subscription) => {
                session.subscribed.insert(session, &uri, subscription)?;
                Ok(Answer::result(request.id, Raw::EMPTY_OBJECT))
            }
            Err(failure) => {
                let problem = Problem::from(failure);
                Ok(Answer::failure(request.id, Era::Handshake, problem))
            }
        }
    }

    /// Subscribes a stateless-era stream; returns the accepted subscriptions.
    pub(super) async fn subscribe_all(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
        asked: Raw<'_>,
        log: &Arc<NotificationLog>,
    ) -> Result<Vec<(String, Subscription)>, Problem> {
        let asked = asked.get("resourceSubscriptions");
        let uris: Vec<_> = asked.into_iter().flat_map(Raw::items).collect();
        if uris.len() > MOST {
            return Err(too_many());
        }
        let fits = |uri: &Cow<'_, str>| uri.len() <= LONGEST_URI;
        let uris = uris.into_iter().filter_map(Raw::string).filter(fits);
        let begin = uris.map(|uri| async {
            let to = (ClientIdentity::Key, log);
            let begun = self
                .begin(authorized, request, &uri, to, Some(PATIENCE))
                .await;
            match begun {
                Ok(subscription) => Ok(Some((uri.into_owned(), subscription))),
                // Too many are refused as a whole; impossible ones are left out.
                Err(failure) if matches!(failure.error, CallError::TooManySubscriptions { .. }) => {
                    Err(Problem::from(failure))
                }
                Err(_) => Ok(None),
            }
        });
        let begun: Result<Vec<_>, Problem> = join_all(begin).await.into_iter().collect();
        Ok(begun?.into_iter().flatten().collect())
    }

    async fn begin(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
        uri: &str,
        (identity, log): (ClientIdentity, &Arc<NotificationLog>),
        timeout: Option<Duration>,
    ) -> Result<Subscription, CallFailure> {
        let meta = request.params.and_then(|params| params.get("_meta"));
        let mut params = Edit::new(Raw::EMPTY_OBJECT);
        params.set_buf("uri", RawBuf::string(uri));
        let params = params.to_buf();
        let log = Arc::clone(log);
        let callback: UpdateCallback =
            Arc::new(move |uri| log.tell(Notification::Updated(Arc::clone(uri))));
        let request = EngineRequest {
            surface: Surface::Mcp,
            scope: authorized.scope.clone(),
            method: "resources/subscribe",
            params: Some(params.as_raw()).into(),
            context: context::read(&authorized.parts.headers, meta).unwrap_or_default(),
            client: None,
            timeout,
            lists: Lists::FromCatalog,
            identity,
            reason: None,
        };
        let engine = self.engine();
        engine
            .subscribe(&authorized.caller, request, callback)
            .await
    }
}

/// Ends a subscription; succeeds if there is none.
fn unsubscribe(request: &Request<'_>, session: Option<&Session>) -> Result<Answer, Problem> {
    let (session, uri) = named(request, session)?;
    let ended = session.subscribed.0.lock().remove(&*uri);
    drop(ended);
    Ok(Answer::result(request.id, Raw::EMPTY_OBJECT))
}

/// Returns the parameters of a subscription: a session with a stream, and a resource.
fn named<'s>(
    request: &Request<'_>,
    session: Option<&'s Session>,
) -> Result<(&'s Session, String), Problem> {
    let session = session.ok_or_else(|| {
        Problem::new("session.missing")
            .with_detail("changes are reported on a session's stream, and there is none")
    })?;
    let uri = request
        .params
        .and_then(|params| params.get("uri")?.string());
    let uri = uri.filter(|uri| uri.len() <= LONGEST_URI).ok_or_else(|| {
        let why = format!("`uri` must be a text of at most {LONGEST_URI} bytes");
        Problem::new("request.params").with_rpc(jsonrpc::INVALID_PARAMS, why)
    })?;
    Ok((session, uri.into_owned()))
}

fn too_many() -> Problem {
    Problem::new("listen.too_many")
        .with_detail(format!("at most {MOST} resources can be subscribed to"))
        .with_retry_after(Duration::from_secs(1))
}
