//! Forwards a request to the engine. Entry point: `Endpoint::forward`.

use futures_util::future::Abortable;
use gantry_engine::{
    CallError, CallFailure, Client, ClientIdentity, Lists, Reply, Request as EngineRequest, Scope,
    Surface,
};
use gantry_model::caller::{Caller, Context};
use gantry_model::era::Era;
use gantry_model::jsonrpc::{Request, RequestId};
use gantry_model::mcp::{ClientCapabilities, LogLevel, Params};

use super::Endpoint;
use super::inflight::Owner;

/// A shorter list has no entries.
const EMPTY_LIST: usize = 48;

/// A parsed request, and its owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The client's id, echoed unchanged.
    pub(super) id: RequestId<'a>,
    /// The method.
    pub(super) method: &'a str,
    /// Its params.
    pub(super) params: Params<'a>,
    /// The era of the client.
    pub(super) era: Era,
    /// Who may cancel it by notification; no one in the stateless era.
    pub(super) owner: Option<Owner>,
    /// The client's capabilities during the request.
    pub(super) capabilities: ClientCapabilities,
    /// The minimum level of log messages for the client.
    pub(super) level: Option<LogLevel>,
    /// The client's identity, if it can be asked.
    pub(super) identity: ClientIdentity,
}

impl<'a> Asked<'a> {
    /// Creates it without client capabilities.
    pub(super) fn of(
        request: &'a Request<'a>,
        params: Params<'a>,
        era: Era,
        owner: Option<Owner>,
    ) -> Self {
        let (id, method) = (request.id, &*request.method);
        Self {
            id,
            method,
            params,
            era,
            owner,
            capabilities: ClientCapabilities::NOTHING,
            level: None,
            identity: ClientIdentity::Anyone,
        }
    }
}

impl Endpoint {
    /// Forwards a request to the engine; dropping the future cancels the call.
    pub(super) async fn forward(
        &self,
        (caller, scope): (&Caller, &Scope),
        asked: &Asked<'_>,
        context: Context,
        client: Option<Box<Client>>,
    ) -> Result<Reply, CallFailure> {
        // Lists come from memory and need no cancellation.
        let owner = asked.owner.filter(|_| !asked.method.ends_with("/list"));
        let inflight = self.sessions.inflight();
        let entered = owner.map(|owner| inflight.enter(owner, asked.id.raw()));
        let request = EngineRequest {
            surface: Surface::Mcp,
            scope: scope.clone(),
            method: asked.method,
            params: asked.params,
            context,
            client,
            timeout: None,
            lists: Lists::FromCatalog,
            identity: asked.identity,
            reason: entered.as_ref().map(|(entered, _)| entered.reason()),
        };
        // Boxed once, so that the surrounding futures stay small.
        let work = Box::pin(self.engine().request(caller, request));
        let reply = match entered {
            None => work.await?,
            Some((_entered, registration)) => match Abortable::new(work, registration).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(not_made(CallError::Cancelled)),
            },
        };
        // A server that the caller may not use also has an empty list.
        if reply.call.is_none()
            && reply.result.len() < EMPTY_LIST
            && let Scope::Server(name) = scope
            && self.server_of(caller, name).is_none()
        {
            let name = name.to_string();
            return Err(not_made(CallError::UnknownServer { name }));
        }
        Ok(reply)
    }
}

/// Fails a request that is not recorded.
pub(super) fn not_made(error: CallError) -> CallFailure {
    CallFailure { call: None, error }
}
