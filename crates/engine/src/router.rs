//! The way of a request: resolved in the caller's view, judged, recorded, sent, answered, recorded
//! again. A tool of a server that was never listed is judged only after the server is up, and hence
//! after it was recorded. Lists are served from memory and need none of that.

pub(crate) mod again;
mod answer;
mod asks;
mod limit;
mod links;
mod record;
mod refreshes;
mod subscribe;
mod target;
mod trip;
mod urls;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::era::meta::Identity;
use gantry_model::event::EventKind;
use gantry_model::id::{CallId, ServerName};
use gantry_model::mcp::Method;
use gantry_model::secret::Redactor;
use gantry_store::CallStatus;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answers::{AnswerBudget, AnswerPermit};
use crate::audit::{Audit, CallIds, Outcome, RowCode};
use crate::catalog::{Catalog, ListKind};
use crate::clock::unix_ms;
use crate::error::{CallError, CallFailure};
use crate::events::Events;
use crate::guard;
use crate::request::{Announced, Lists, Reply, Request, Scope};
use crate::server::handle::ServerHandle;
use crate::server::link::Link;
use crate::server::profiles::{Lease, Wanted};
use crate::server::topics::TopicTable;
use crate::supervisor::Supervisor;
use crate::telemetry::Figures;
pub(crate) use answer::Answered;
use asks::Asking;
use limit::Limit;
pub(crate) use links::Links;
use record::{describe, intent};
pub(crate) use refreshes::Refreshes;
use target::{Place, Target};
use trip::Trip;

/// What a request meets on its way.
pub(crate) struct Router {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) audit: Audit,
    pub(crate) ids: CallIds,
    pub(crate) events: Events,
    pub(crate) figures: Arc<Figures>,
    pub(crate) identity: Identity,
    pub(crate) listing_wait: Duration,
    pub(crate) topics: Arc<TopicTable>,
    /// What answers may take until they are read.
    pub(crate) answers: AnswerBudget,
    /// Which server gave a client a URI.
    pub(crate) links: Links,
    /// Which lists a client's calls have changed.
    pub(crate) refreshes: Refreshes,
    /// The engine stops: nobody can answer a server's questions any more.
    pub(crate) draining: CancellationToken,
}

impl Router {
    /// Answers one request of a caller, under the id that was given out for it, if there is one.
    pub(crate) async fn request(
        &self,
        caller: &Caller,
        request: Request<'_>,
        announced: Option<Announced>,
    ) -> Result<Reply, CallFailure> {
        let announced = announced.unwrap_or_else(|| Announced::unheard(self.ids.next(unix_ms())));
        let (id, call) = (announced.id, announced);
        let told = |call: Announced, refused: CallFailure| {
            if refused.call.is_some() {
                call.record();
            }
            refused
        };
        let method = Method::parse(request.method);
        let begun = Instant::now();
        if let Scope::Server(name) = &request.scope
            && name.as_str() != ServerName::NATIVE
            && self.supervisor.find(name.as_str()).is_none()
        {
            let error = CallError::UnknownServer {
                name: name.to_string(),
            };
            let refused = self.refuse((id, caller), &request, None, begun, error);
            return Err(told(call, refused.await));
        }
        if let Some(list) = ListKind::of(request.method)
            && is_from_memory(caller, &request)
        {
            let warming = async {
                self.warm_up(caller, &request.scope).await;
                let session = request.speaker.session();
                self.refreshes.done(&caller.agent, session).await;
                Ok(())
            };
            let warmed = until_key_ends(caller, warming).await;
            warmed.map_err(|error| CallFailure { call: None, error })?;
            let view = self
                .catalog
                .view_for(caller, &request.scope, request.speaker);
            let result = view.asked_page(list, &request);
            let result = result.map_err(|error| CallFailure { call: None, error })?;
            return Ok(Reply {
                call: None,
                result,
                upstream: None,
                is_error: false,
                is_odd: false,
                permit: AnswerPermit::default(),
            });
        }
        let target = match self.target(caller, &request, method) {
            Ok(target) => target,
            Err(error) => {
                let refused = self.refuse((id, caller), &request, None, begun, error);
                return Err(told(call, refused.await));
            }
        };
        if let Err(error) = admitted(caller, &target).await {
            let refused = self.refuse((id, caller), &request, Some(&target), begun, error);
            return Err(told(call, refused.await));
        }
        self.carry_out((call, caller), request, method, target, begun)
            .await
    }

    /// Records the call, makes it, and records how it ended.
    async fn carry_out<'a>(
        &self,
        (call, caller): (Announced, &Caller),
        request: Request<'a>,
        method: Option<Method>,
        mut target: Target<'a>,
        begun: Instant,
    ) -> Result<Reply, CallFailure> {
        let id = call.id;
        let key = caller.key.to_string();
        let redactor = target.redactor();
        let version = target.schema_version();
        let intent = intent(
            id,
            caller,
            &key,
            &request,
            Some(&target),
            version,
            &redactor,
        );
        let mut ticket = match self.audit.intent(&intent).await {
            Ok(ticket) => ticket,
            Err(error) => {
                return Err(CallFailure {
                    call: None,
                    error: CallError::Audit(error),
                });
            }
        };
        ticket.on_drop(CallStatus::Cancelled, RowCode::Cancelled);
        ticket.made_with(&caller.validity);
        call.record();
        let counted = self.figures.begin(begun);
        let limit = Limit::of(begun, request.timeout);
        let making = self.make(caller, request, method, &mut target, limit);
        let made = until_key_ends(caller, making).await;
        let redactor = target.redactor();
        let ended = made.map_err(|error| answer::hide(error, &redactor));
        let (status, code, error) = describe(&ended);
        if matches!(ended, Err(CallError::Panicked)) {
            self.figures.panicked();
        }
        let duration = counted.end(status);
        let output = ended.as_ref().ok().map(Answered::text);
        ticket
            .outcome(&Outcome {
                status,
                code: code.as_deref(),
                error: error.as_deref(),
                output,
                duration,
                redactor: &redactor,
            })
            .await;
        match ended {
            Ok(answered) => Ok(Reply {
                call: Some(id),
                upstream: answered.upstream,
                is_error: answered.is_error,
                is_odd: answered.is_odd,
                permit: answered.permit,
                result: answered.result,
            }),
            Err(error) => Err(CallFailure {
                call: Some(id),
                error,
            }),
        }
    }

    /// Makes a call that was recorded; `target` is found anew if it was only guessed.
    async fn make<'a>(
        &self,
        caller: &Caller,
        request: Request<'a>,
        method: Option<Method>,
        target: &mut Target<'a>,
        limit: Limit,
    ) -> Result<Answered, CallError> {
        if let Some(server) = target.guessed() {
            self.link(caller, server, limit).await?;
            *target = self.learned(caller, &request, method)?;
            judge(caller, target).await?;
        }
        let session = request.speaker.session();
        let answered = match &target.place {
            Place::Server(server) => {
                let place = (&*target, server);
                let trip = Trip::new(self, caller, request, method, place, limit);
                trip.make().await?
            }
            Place::Native(native) => native.call(caller, &request, target.arguments).await?,
        };
        let answered = answered.settle(target).await?;
        if let Place::Server(server) = &target.place {
            let named = (answered.raw(), target.item.as_ref());
            let client = (&caller.agent, session);
            self.links.note(client, &server.name, method, named);
        }
        answered.charged(&self.answers, &caller.agent, target)
    }

    /// Returns a server's link, waiting for one that is on its way up.
    async fn link(
        &self,
        caller: &Caller,
        server: &ServerHandle,
        limit: Limit,
    ) -> Result<Arc<Link>, CallError> {
        let within = limit.within(server.spec.life.handshake);
        let linked = server.link(&caller.agent, within).await;
        match (linked, limit.passed()) {
            (Err(CallError::Down { .. }), Some(after)) => Err(self.timed_out(server, after)),
            (linked, _) => linked,
        }
    }

    /// Returns a link of its own for a client that can be asked, waiting for it to come up; none if
    /// the server knows no handshake, in which it would be told so.
    async fn own_link(
        &self,
        server: &ServerHandle,
        wanted: Wanted<'_>,
        limit: Limit,
    ) -> Result<Option<Lease>, CallError> {
        let within = limit.within(server.spec.life.handshake);
        let linked = server.profiles.link(server, wanted, within).await;
        let lease = match (linked, limit.passed()) {
            (Err(CallError::Down { .. }), Some(after)) => {
                return Err(self.timed_out(server, after));
            }
            (linked, _) => linked?,
        };
        if let Some(lease) = &lease
            && let Some(asked) = lease.link.take_questions()
        {
            let asking = Asking {
                server: server.clone(),
                link: Arc::clone(&lease.link),
                draining: self.draining.clone(),
            };
            lease.spawn(asking.serve(asked));
        }
        Ok(lease)
    }

    fn timed_out(&self, server: &ServerHandle, after: Duration) -> CallError {
        let what = format!("a call got no answer within {after:?}");
        self.events
            .report(&server.name, EventKind::CallTimeout, what);
        CallError::Timeout {
            server: server.name.clone(),
            after,
        }
    }

    /// Records a refusal, which is an answer too.
    async fn refuse(
        &self,
        (id, caller): (CallId, &Caller),
        request: &Request<'_>,
        target: Option<&Target<'_>>,
        begun: Instant,
        error: CallError,
    ) -> CallFailure {
        use gantry_model::diagnose::Diagnose;
        let key = caller.key.to_string();
        let redactor = target.map_or_else(|| Arc::clone(Redactor::own_keys()), Target::redactor);
        let intent = intent(id, caller, &key, request, target, None, &redactor);
        let text = error.to_string();
        let duration = self.figures.begin(begun).end(CallStatus::Refused);
        let outcome = Outcome {
            status: CallStatus::Refused,
            code: Some(error.code()),
            error: Some(&text),
            output: None,
            duration,
            redactor: &redactor,
        };
        match self.audit.refusal(&intent, &outcome).await {
            // One that was only counted cannot be asked for.
            Ok(has_row) => CallFailure {
                call: has_row.then_some(id),
                error,
            },
            Err(audit) => CallFailure {
                call: None,
                error: CallError::Audit(audit),
            },
        }
    }

    /// Wakes lazy servers of the caller's that were never listed, and waits a moment for them.
    pub(crate) async fn warm_up(&self, caller: &Caller, scope: &Scope) {
        let cold = self.catalog.cold(caller, scope);
        if !cold.is_empty() {
            self.supervisor.warm(&cold, self.listing_wait).await;
        }
    }
}

/// Does something for a caller, unless its key ends first: then it is dropped, which tells a server
/// that was asked. fault U6
async fn until_key_ends<T>(
    caller: &Caller,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::select! {
        biased; // Whose key is gone gets nothing, not even what has just come.
        end = caller.validity.ended() => Err(CallError::KeyEnded { end }),
        done = work => done,
    }
}

/// Tells whether a list is served from memory. Only an administrator may ask a server itself: what
/// it says is not cut to anybody's grants.
fn is_from_memory(caller: &Caller, request: &Request<'_>) -> bool {
    let is_native =
        matches!(&request.scope, Scope::Server(name) if name.as_str() == ServerName::NATIVE);
    request.lists == Lists::FromCatalog || caller.kind != KeyKind::Admin || is_native
}

/// Decides whether a call may be made now.
async fn admitted(caller: &Caller, target: &Target<'_>) -> Result<(), CallError> {
    judge(caller, target).await?;
    match &target.place {
        // Known before the record, so that a flood is counted and not recorded one by one.
        Place::Server(server) if !server.has_room(&caller.agent) => Err(server.busy()),
        Place::Server(_) | Place::Native(_) => Ok(()),
    }
}

async fn judge(caller: &Caller, target: &Target<'_>) -> Result<(), CallError> {
    guard::judge(
        caller,
        target.class,
        &target.server_name(),
        &target.item,
        target.tool().map(|tool| (tool, target.permits())),
        target.arguments,
    )
    .await
}

#[cfg(test)]
mod tests;
