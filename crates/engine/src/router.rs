//! The way of a request: resolved in the caller's view, judged, recorded, sent, answered, recorded
//! again. A tool of a server that was never listed is judged only after the server is up, and hence
//! after it was recorded. Lists are served from memory and need none of that.

pub(crate) mod again;
mod answer;
mod limit;
mod record;
mod target;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::era::meta::{Identity, PROGRESS_TOKEN, upstream_params};
use gantry_model::event::EventKind;
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::{OneLine, Payload, Raw, RawBuf};
use gantry_model::mcp::Method;
use gantry_model::secret::Redactor;
use gantry_store::CallStatus;
use tokio::time::Instant;

use crate::audit::{Audit, CallIds, Outcome};
use crate::catalog::{Catalog, ListKind};
use crate::clock::unix_ms;
use crate::error::{CallError, CallFailure};
use crate::events::Events;
use crate::guard;
use crate::request::{Lists, Reply, Request, Scope};
use crate::server::handle::ServerHandle;
use crate::server::handshake::Hello;
use crate::server::link::{Addressed, Deadline, InFlight, Link, Refusal};
use crate::supervisor::Supervisor;
use crate::telemetry::Figures;
pub(crate) use answer::Answered;
use limit::Limit;
use record::{describe, intent};
use target::{Place, Target};

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
}

impl Router {
    /// Answers one request of a caller.
    pub(crate) async fn request(
        &self,
        caller: &Caller,
        request: Request<'_>,
    ) -> Result<Reply, CallFailure> {
        let method = Method::parse(request.method);
        let begun = Instant::now();
        if let Scope::Server(name) = &request.scope
            && name.as_str() != ServerName::NATIVE
            && self.supervisor.find(name.as_str()).is_none()
        {
            let error = CallError::UnknownServer {
                name: name.to_string(),
            };
            return Err(self.refuse(caller, &request, None, begun, error).await);
        }
        if let Some(list) = ListKind::of(request.method)
            && is_from_memory(caller, &request)
        {
            self.warm_up(caller, &request.scope).await;
            let view = self.catalog.view(caller, &request.scope);
            let result = view.page(list);
            return Ok(Reply {
                call: None,
                result,
                upstream: None,
                is_error: false,
            });
        }
        let target = match self.target(caller, &request, method) {
            Ok(target) => target,
            Err(error) => return Err(self.refuse(caller, &request, None, begun, error).await),
        };
        if let Err(error) = admitted(caller, &target).await {
            return Err(self
                .refuse(caller, &request, Some(&target), begun, error)
                .await);
        }
        self.carry_out(caller, request, method, target, begun).await
    }

    /// Records the call, makes it, and records how it ended.
    async fn carry_out<'a>(
        &self,
        caller: &Caller,
        request: Request<'a>,
        method: Option<Method>,
        mut target: Target<'a>,
        begun: Instant,
    ) -> Result<Reply, CallFailure> {
        let id = self.ids.next(unix_ms());
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
        ticket.on_drop(CallStatus::Cancelled, "call.cancelled");
        let counted = self.figures.begin(begun);
        let limit = Limit::of(begun, request.timeout);
        let made = self.make(caller, request, method, &mut target, limit).await;
        let redactor = target.redactor();
        let ended = made.map_err(|error| answer::hide(error, &redactor));
        let (status, code, error) = describe(&ended);
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
            self.link(server, limit).await?;
            *target = self.learned(caller, &request, method)?;
            judge(caller, target).await?;
        }
        let answered = match &target.place {
            Place::Server(server) => {
                self.forward(caller, request, method, target, server, limit)
                    .await?
            }
            Place::Native(native) => native.call(caller, &request, target.arguments).await?,
        };
        answered.settle(target).await
    }

    /// Returns a server's link, waiting for one that is on its way up.
    async fn link(&self, server: &ServerHandle, limit: Limit) -> Result<Arc<Link>, CallError> {
        let linked = server.link(limit.within(server.spec.life.handshake)).await;
        match (linked, limit.passed()) {
            (Err(CallError::Down { .. }), Some(after)) => Err(self.timed_out(server, after)),
            (linked, _) => linked,
        }
    }

    /// Sends a call to its server and waits for the answer; one that was cut off is sent once more
    /// if its tool allows that.
    async fn forward(
        &self,
        caller: &Caller,
        request: Request<'_>,
        method: Option<Method>,
        target: &Target<'_>,
        server: &ServerHandle,
        limit: Limit,
    ) -> Result<Answered, CallError> {
        again::begun(server);
        let sent = self.send(caller, &request, method, target, server, limit);
        match sent.await {
            Err(error) if again::is_made_again(server, &target.item, &error) => {
                let more = self.send(caller, &request, method, target, server, limit);
                // That it is down by now says less than how the call ended.
                more.await.map_err(|later| match later {
                    CallError::Down { .. } => error,
                    later => later,
                })
            }
            sent => sent,
        }
    }

    async fn send(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        method: Option<Method>,
        target: &Target<'_>,
        server: &ServerHandle,
        limit: Limit,
    ) -> Result<Answered, CallError> {
        let link = self.link(server, limit).await?;
        let hello = server.catalog.load().hello.clone();
        let version = hello.as_ref().map_or(
            gantry_model::era::ProtocolVersion::LATEST_HANDSHAKE,
            |hello| hello.version,
        );
        let id = link.new_id();
        let mut params = upstream_params(version, request.params, &self.identity);
        target.rename(&mut params);
        if request.params.is_some_and(asks_for_progress) {
            // Without a way back for progress the server need not report any.
            match &request.progress {
                Some(_) => params.set_meta_buf(PROGRESS_TOKEN, own_token(id)),
                None => params.remove_meta(PROGRESS_TOKEN),
            };
        }
        if server.spec.calls.pass_context {
            target::pass_context(&mut params, &request.context);
        }
        let line = OneLine::request(id, request.method, Some(Payload::Edit(&params)));
        let head = link.has_heads().then(|| target.head(request));
        let line = Addressed { line, head };
        let called = link.call(&caller.agent, id, line, request.progress.clone());
        let call = called.map_err(|refusal| refused(server, refusal))?;
        let answer = self.wait(call, server, target, limit).await?;
        let era = hello.as_deref().map(|hello: &Hello| hello.era);
        Answered::read(answer, server, method, era)
    }

    async fn wait(
        &self,
        call: InFlight,
        server: &ServerHandle,
        target: &Target<'_>,
        limit: Limit,
    ) -> Result<crate::server::pending::Answer, CallError> {
        let policy = &server.spec.calls;
        // A tool's own time counts before its server's. row 3.4
        let settings = server.spec.tools.settings.get(target.item.as_ref());
        let own = settings.and_then(|settings| settings.timeout);
        let timeout = own.unwrap_or(policy.timeout);
        let quiet = limit.within(timeout);
        let whole = limit.within(policy.timeout_max.max(timeout));
        let answered = call
            .answer_within(Deadline {
                quiet,
                whole,
                fair: timeout.max(policy.timeout),
            })
            .await;
        answered.map_err(|waited| {
            let own = if waited < whole { quiet } else { whole };
            self.timed_out(server, limit.passed().unwrap_or(own))
        })
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
        caller: &Caller,
        request: &Request<'_>,
        target: Option<&Target<'_>>,
        begun: Instant,
        error: CallError,
    ) -> CallFailure {
        use gantry_model::diagnose::Diagnose;
        let id = self.ids.next(unix_ms());
        let key = caller.key.to_string();
        let redactor = target.map_or_else(|| Arc::new(Redactor::default()), Target::redactor);
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
        Place::Server(server) if !server.has_room() => Err(server.busy()),
        Place::Server(_) | Place::Native(_) => Ok(()),
    }
}

async fn judge(caller: &Caller, target: &Target<'_>) -> Result<(), CallError> {
    guard::judge(
        caller,
        target.class,
        &target.server_name(),
        &target.item,
        target.tool(),
        target.arguments,
    )
    .await
}

fn asks_for_progress(params: Raw<'_>) -> bool {
    params
        .get("_meta")
        .and_then(|meta| meta.get(PROGRESS_TOKEN))
        .is_some()
}

fn own_token(id: u64) -> RawBuf {
    RawBuf::integer(i64::try_from(id).unwrap_or(i64::MAX))
}

fn refused(server: &ServerHandle, refusal: Refusal) -> CallError {
    match refusal {
        Refusal::Busy => server.busy(),
        Refusal::NotReading => CallError::NotReading {
            server: server.name.clone(),
        },
        Refusal::Ended(failure) => answer::failed(server, failure),
        Refusal::Silent(retry_in) => server.silent(retry_in),
    }
}

#[cfg(test)]
mod tests;
