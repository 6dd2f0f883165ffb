//! An active call and the request that waits for it. In the handshake era that is one client on one
//! stream; in the stateless era the call may be suspended while a user answers, and continued by
//! the next request. Entry points: [`ActiveCall`], [`Waiter`].

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use gantry_engine::{
    CallEvent, CallFailure, ClientIdentity, Reply, RequestOutcome, Scope, ServerRequests,
};
use gantry_model::caller::KeyValidity;
use gantry_model::era::Era;
use gantry_model::era::meta::Identity;
use gantry_model::id::{AgentName, KeyId, ProjectName};
use gantry_model::jsonrpc::{Edit, OwnedRequestId, Raw, RawBuf};
use gantry_model::mcp::{ClientCapabilities, LogLevel};

use super::answer::Answer;
use super::forward::Asked;
use super::inflight::Owner;
use super::quota::{CallPermit, SuspendedPermit, SuspendedQuota};
use super::sessions::SessionId;
use super::stream::notification;
use crate::http::limits::BodyPermit;

/// Maximum size of a forwarded progress or log message.
const EVENT_BYTES: usize = 64 << 10;

/// The future of a call; dropping it cancels the call.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<Reply, CallFailure>> + Send>>;

/// A call, its future, and its events.
pub(super) struct ActiveCall {
    pub(super) call: Arc<CallInfo>,
    pub(super) work: Work,
    pub(super) words: tokio::sync::mpsc::Receiver<CallEvent>,
    /// Its body permit, until it is suspended.
    pub(super) room: BodyPermit,
    /// Its permit among the suspended calls, once its server has asked.
    pub(super) seat: Option<Arc<CallPermit>>,
}

impl ActiveCall {
    /// Takes a permit for the call and one for a server request, or returns the exhausted quota.
    pub(super) fn sit(
        &mut self,
        quota: &Arc<SuspendedQuota>,
        ask: &ServerRequests,
    ) -> Result<SuspendedPermit, RequestOutcome> {
        let seat = match self.seat.take() {
            Some(seat) => seat,
            None => {
                let params = self.call.params.as_ref();
                let bytes = params.map_or(0, |params| params.text().len());
                quota.call((&self.call.project, &self.call.agent), bytes)?
            }
        };
        self.room = BodyPermit::default();
        let load = seat.suspend(ask.length());
        self.seat = Some(seat);
        load
    }
}

/// An owned request that may outlive the one it came in.
#[derive(Debug)]
pub(super) struct CallInfo {
    id: OwnedRequestId,
    pub(super) method: String,
    pub(super) params: Option<RawBuf>,
    pub(super) era: Era,
    owner: Option<Owner>,
    pub(super) capabilities: ClientCapabilities,
    level: Option<LogLevel>,
    identity: ClientIdentity,
    pub(super) key: KeyId,
    /// The validity of that key; the call ends with it.
    pub(super) validity: KeyValidity,
    pub(super) project: ProjectName,
    pub(super) agent: AgentName,
    pub(super) scope: Scope,
}

impl CallInfo {
    pub(super) fn of(asked: &Asked<'_>, authorized: &super::AuthorizedRequest) -> Self {
        Self {
            id: asked.id.to_owned(),
            method: asked.method.to_owned(),
            params: asked.params.whole.map(Raw::to_buf),
            era: asked.era,
            owner: asked.owner,
            capabilities: asked.capabilities,
            level: asked.level,
            identity: asked.identity,
            key: authorized.caller.key,
            validity: authorized.caller.validity.clone(),
            project: authorized.caller.project.clone(),
            agent: authorized.caller.agent.clone(),
            scope: authorized.scope.clone(),
        }
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            id: self.id.as_id(),
            method: &self.method,
            params: self.params.as_ref().map(RawBuf::as_raw).into(),
            era: self.era,
            owner: self.owner,
            capabilities: self.capabilities,
            level: self.level,
            identity: self.identity,
        }
    }

    /// Creates a handshake-era call for tests.
    #[cfg(test)]
    pub(super) fn example(id: &OwnedRequestId, owner: Option<Owner>) -> Self {
        Self {
            id: id.clone(),
            method: "tools/call".to_owned(),
            params: None,
            era: Era::Handshake,
            owner,
            capabilities: ClientCapabilities::NOTHING,
            level: None,
            identity: ClientIdentity::Anyone,
            key: KeyId::from_random(1),
            validity: KeyValidity::default(),
            project: ProjectName::local(),
            agent: "a".parse().expect("a name"),
            scope: Scope::All,
        }
    }

    /// Returns the session that asked, if there is one.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.owner.and_then(Owner::session)
    }
}

/// A request that waits for a call.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The id of the response.
    pub(super) id: OwnedRequestId,
    /// The raw progress token of this request, if it differs from the call's first.
    pub(super) token: Token,
}

/// The progress token of a request.
#[derive(Debug)]
pub(super) enum Token {
    /// That of the call's first request.
    First,
    /// Its own, or none: then it gets no progress.
    Own(Option<Box<str>>),
}

impl Waiter {
    /// Creates the response to this request.
    pub(super) fn answer(
        &self,
        call: &CallInfo,
        outcome: Result<Reply, CallFailure>,
        identity: &Identity,
    ) -> Answer {
        Answer::outcome(self.id.as_id(), (&call.method, call.era), outcome, identity)
    }

    /// Returns the event for progress.
    pub(super) fn progress(&self, params: &str) -> Option<Bytes> {
        let method = "notifications/progress";
        match &self.token {
            _ if params.len() > EVENT_BYTES => None,
            Token::First => Some(notification(method, params)),
            Token::Own(None) => None,
            Token::Own(Some(token)) => {
                let mut edit = Edit::new(Raw::trusted(params));
                edit.set("progressToken", Raw::trusted(token));
                Some(notification(method, edit.to_buf().text()))
            }
        }
    }

    /// Returns the event for a log message.
    pub(super) fn log(&self, params: &str) -> Option<Bytes> {
        (params.len() <= EVENT_BYTES).then(|| notification("notifications/message", params))
    }
}
