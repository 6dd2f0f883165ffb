//! A request that the engine answers.
//!
//! Entry points: `Endpoint::forward` for an answer in one piece, [`Asked::forward`] for any other.

use futures_util::future::Abortable;
use gantry_engine::{Lists, Progress, Reply, Request as EngineRequest, Scope, Surface};
use gantry_model::caller::{Caller, Context};
use gantry_model::era::Era;
use gantry_model::jsonrpc::{Raw, Request, RequestId};

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
}

impl<'a> Asked<'a> {
    /// Takes what a request says.
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
        }
    }

    /// Lets the engine answer; dropping the future takes the call back.
    pub(super) async fn forward(
        &self,
        endpoint: &Endpoint,
        (caller, scope): (&Caller, Scope),
        context: Context,
        progress: Option<Progress>,
    ) -> Answer {
        let server = match &scope {
            Scope::All => None,
            Scope::Server(name) => Some(name.clone()),
        };
        let request = EngineRequest {
            surface: Surface::Mcp,
            scope,
            method: self.method,
            params: self.params,
            context,
            progress,
            timeout: None,
            lists: Lists::FromCatalog,
        };
        // On the heap once, so that the futures around it stay small and cheap to move.
        let work = Box::pin(endpoint.engine().request(caller, request));
        // Lists come from memory: there is nothing to take back.
        let outcome = match self.owner.filter(|_| !self.method.ends_with("/list")) {
            None => work.await,
            Some(owner) => {
                let (_entered, registration) =
                    endpoint.sessions.inflight().enter(owner, self.id.raw());
                match Abortable::new(work, registration).await {
                    Ok(outcome) => outcome,
                    Err(_) => return Answer::nothing(),
                }
            }
        };
        match outcome {
            // An empty list is also what a server that is not there has.
            Ok(reply) if reply.call.is_none() && reply.result.len() < EMPTY_LIST => {
                match server.filter(|name| endpoint.server_of(caller, name).is_none()) {
                    Some(name) => Answer::problem(Some(self.id), unknown_server(name.as_str())),
                    None => self.reply(endpoint, reply),
                }
            }
            Ok(reply) => self.reply(endpoint, reply),
            Err(failure) => Answer::failure(self.id, self.era, Problem::from(failure)),
        }
    }

    fn reply(&self, endpoint: &Endpoint, reply: Reply) -> Answer {
        let info = endpoint.identity.info();
        Answer::reply(self.id, (self.method, self.era), reply, info)
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
        Ok(asked.forward(self, who, context, None).await)
    }
}
