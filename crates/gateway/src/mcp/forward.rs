//! A request that the engine answers.
//!
//! Entry points: `Endpoint::forward` for an answer in one piece, [`Asked::forward`] for any other.

use futures_util::future::Abortable;
use gantry_engine::{
    CallFailure, Client, Lists, Reply, Request as EngineRequest, Scope, Speaker, Surface,
};
use gantry_model::caller::{Caller, Context};
use gantry_model::era::Era;
use gantry_model::era::meta::Identity;
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::{Raw, Request, RequestId};
use gantry_model::mcp::{ClientCan, LogLevel};

use super::answer::Answer;
use super::inflight::Owner;
use super::{Endpoint, Visit, unknown_server};
use crate::http::context;
use crate::http::error::Problem;

/// A list shorter than this has no entry.
const EMPTY_LIST: usize = 48;

/// A request as it was read, and who may take it back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The client's id, echoed as it is.
    pub(super) id: RequestId<'a>,
    /// The method.
    pub(super) method: &'a str,
    /// Its params.
    pub(super) params: Option<Raw<'a>>,
    /// The `_meta` of its params.
    pub(super) meta: Option<Raw<'a>>,
    /// The era of the client.
    pub(super) era: Era,
    /// Who may take it back by notification; in the stateless era nobody.
    pub(super) owner: Option<Owner>,
    /// What the client can do for the server while it is answered.
    pub(super) can: ClientCan,
    /// From which level on the client wants log messages.
    pub(super) level: Option<LogLevel>,
    /// Which of the caller's clients it is of, if that one can be asked.
    pub(super) speaker: Speaker,
}

/// What became of a request, to be answered under whatever id it is waited for now.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The engine replied.
    Reply(Reply),
    /// The engine failed.
    Failed(CallFailure),
    /// There is no such server for this caller.
    NoServer(ServerName),
    /// The client took it back.
    TakenBack,
    /// It failed inside the gateway.
    Problem(Problem),
}

impl Outcome {
    /// Makes the answer to a request.
    pub(super) fn answer(
        self,
        id: RequestId<'_>,
        (method, era): (&str, Era),
        identity: &Identity,
    ) -> Answer {
        match self {
            Self::Reply(reply) => Answer::reply(id, (method, era), reply, identity.info()),
            Self::Failed(failure) => Answer::failure(id, era, Problem::from(failure)),
            Self::NoServer(name) => Answer::problem(Some(id), unknown_server(name.as_str())),
            Self::TakenBack => Answer::nothing(),
            Self::Problem(problem) => Answer::problem(Some(id), problem),
        }
    }
}

impl<'a> Asked<'a> {
    /// Takes what a request says; its client can do nothing.
    pub(super) fn of(
        request: &'a Request<'a>,
        meta: Option<Raw<'a>>,
        era: Era,
        owner: Option<Owner>,
    ) -> Self {
        let (id, method, params) = (request.id, &*request.method, request.params);
        Self {
            id,
            method,
            params,
            meta,
            era,
            owner,
            can: ClientCan::NOTHING,
            level: None,
            speaker: Speaker::Anyone,
        }
    }

    /// Lets the engine answer; dropping the future takes the call back.
    pub(super) async fn forward(
        &self,
        endpoint: &Endpoint,
        (caller, scope): (&Caller, Scope),
        context: Context,
        client: Option<Client>,
    ) -> Outcome {
        let server = match &scope {
            Scope::All => None,
            Scope::Server(name) => Some(name.clone()),
        };
        // Lists come from memory: there is nothing to take back.
        let owner = self.owner.filter(|_| !self.method.ends_with("/list"));
        let inflight = endpoint.sessions.inflight();
        let entered = owner.map(|owner| inflight.enter(owner, self.id.raw()));
        let request = EngineRequest {
            surface: Surface::Mcp,
            scope,
            method: self.method,
            params: self.params,
            context,
            client,
            timeout: None,
            lists: Lists::FromCatalog,
            speaker: self.speaker,
            reason: entered.as_ref().map(|(entered, _)| entered.reason()),
        };
        // On the heap once, so that the futures around it stay small and cheap to move.
        let work = Box::pin(endpoint.engine().request(caller, request));
        let outcome = match entered {
            None => work.await,
            Some((_entered, registration)) => match Abortable::new(work, registration).await {
                Ok(outcome) => outcome,
                Err(_) => return Outcome::TakenBack,
            },
        };
        match outcome {
            // An empty list is also what a server that is not there has.
            Ok(reply) if reply.call.is_none() && reply.result.len() < EMPTY_LIST => {
                match server.filter(|name| endpoint.server_of(caller, name).is_none()) {
                    Some(name) => Outcome::NoServer(name),
                    None => Outcome::Reply(reply),
                }
            }
            Ok(reply) => Outcome::Reply(reply),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

impl Endpoint {
    /// Lets the engine answer in one piece.
    pub(super) async fn forward(
        &self,
        visit: &Visit,
        asked: &Asked<'_>,
    ) -> Result<Answer, Problem> {
        let context = context::read(&visit.parts.headers, asked.meta)?;
        let who = (&visit.caller, visit.scope.clone());
        let outcome = asked.forward(self, who, context, None).await;
        Ok(outcome.answer(asked.id, (asked.method, asked.era), &self.identity))
    }
}
