//! The way of a request: resolved in the caller's view, judged, recorded, sent, answered, recorded
//! again. Lists are served from memory and need none of that.

mod answer;
mod target;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::era::meta::{Identity, PROGRESS_TOKEN, upstream_params};
use gantry_model::event::EventKind;
use gantry_model::id::CallId;
use gantry_model::jsonrpc::{OneLine, Payload, Raw, RawBuf};
use gantry_model::mcp::Method;
use gantry_model::secret::Redactor;
use gantry_store::CallStatus;
use tokio::time::Instant;

use crate::audit::{Audit, CallIds, Intent, Outcome};
use crate::catalog::{Catalog, ListKind};
use crate::clock::unix_ms;
use crate::error::{CallError, CallFailure};
use crate::events::Events;
use crate::guard;
use crate::request::{Lists, Reply, Request, Scope};
use crate::server::handle::ServerHandle;
use crate::server::handshake::Hello;
use crate::server::link::{Deadline, InFlight, Refusal};
use crate::supervisor::Supervisor;
use crate::telemetry::Figures;
pub(crate) use answer::Answered;
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
            && self.supervisor.find(name.as_str()).is_none()
        {
            let error = CallError::UnknownServer {
                name: name.to_string(),
            };
            return Err(self.refuse(caller, &request, None, begun, error).await);
        }
        if request.lists == Lists::FromCatalog
            && let Some(list) = ListKind::of(request.method)
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
        let target = match self.found(caller, &request, method).await {
            Ok(target) => target,
            Err(error) => return Err(self.refuse(caller, &request, None, begun, error).await),
        };
        let arguments = target.arguments;
        let judged = guard::judge(
            caller,
            target.class,
            &target.server_name(),
            &target.item,
            target.tool(),
            arguments,
        )
        .await;
        if let Err(error) = judged {
            return Err(self
                .refuse(caller, &request, Some(&target), begun, error)
                .await);
        }
        self.carry_out(caller, request, target, begun).await
    }

    /// Finds what a request is for; a server that was never listed is started first, so that the
    /// call is judged by its tool's own schema.
    async fn found<'a>(
        &self,
        caller: &Caller,
        request: &Request<'a>,
        method: Option<Method>,
    ) -> Result<Target<'a>, CallError> {
        let target = self.target(caller, request, method)?;
        if target.is_guessed()
            && let Place::Server(server) = &target.place
        {
            // If it does not come up, the call says so.
            drop(server.link(server.spec.life.handshake).await);
            return self.target(caller, request, method);
        }
        Ok(target)
    }

    /// Records the call, makes it, and records how it ended.
    async fn carry_out(
        &self,
        caller: &Caller,
        request: Request<'_>,
        target: Target<'_>,
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
        let made = match &target.place {
            Place::Server(server) => self.forward(caller, request, &target, server).await,
            Place::Native(native) => native.call(caller, &request, target.arguments).await,
        };
        let duration = begun.elapsed();
        let ended = made.and_then(|answered| answered.settle(&target, &redactor));
        let (status, code, error) = describe(&ended);
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
        self.figures.call(status, duration);
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

    /// Sends a call to its server and waits for the answer.
    async fn forward(
        &self,
        caller: &Caller,
        request: Request<'_>,
        target: &Target<'_>,
        server: &ServerHandle,
    ) -> Result<Answered, CallError> {
        let link = server.link(server.spec.life.handshake).await?;
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
        let called = link.call(&caller.agent, id, line, request.progress);
        let call = called.map_err(|refusal| refused(server, refusal))?;
        let answer = self.wait(call, server, request.timeout).await?;
        Answered::read(
            answer,
            server,
            hello.as_deref().map(|hello: &Hello| hello.era),
        )
    }

    async fn wait(
        &self,
        call: InFlight,
        server: &ServerHandle,
        timeout: Option<Duration>,
    ) -> Result<crate::server::pending::Answer, CallError> {
        let policy = &server.spec.calls;
        let quiet = timeout.map_or(policy.timeout, |shorter| shorter.min(policy.timeout));
        let whole = timeout.map_or(policy.timeout_max, |shorter| {
            shorter.min(policy.timeout_max)
        });
        call.answer_within(Deadline { quiet, whole })
            .await
            .map_err(|waited| {
                let after = if waited < whole { quiet } else { whole };
                let what = format!("a call got no answer within {after:?}");
                self.events
                    .report(&server.name, EventKind::CallTimeout, what);
                CallError::Timeout {
                    server: server.name.clone(),
                    after,
                }
            })
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
        let duration = begun.elapsed();
        let outcome = Outcome {
            status: CallStatus::Refused,
            code: Some(error.code()),
            error: Some(&text),
            output: None,
            duration,
            redactor: &redactor,
        };
        self.figures.call(CallStatus::Refused, duration);
        match self.audit.refusal(&intent, &outcome).await {
            Ok(()) => CallFailure {
                call: Some(id),
                error,
            },
            Err(audit) => CallFailure {
                call: None,
                error: CallError::Audit(audit),
            },
        }
    }

    /// Wakes lazy servers of the caller's that were never listed, and waits a moment for them.
    async fn warm_up(&self, caller: &Caller, scope: &Scope) {
        let cold = self.catalog.cold(caller, scope);
        if !cold.is_empty() {
            self.supervisor.warm(&cold, self.listing_wait).await;
        }
    }
}

fn intent<'a>(
    id: CallId,
    caller: &'a Caller,
    key: &'a str,
    request: &'a Request<'_>,
    target: Option<&'a Target<'_>>,
    schema_version: Option<&'a str>,
    redactor: &'a Redactor,
) -> Intent<'a> {
    Intent {
        id,
        project: caller.project.as_str(),
        agent: caller.agent.as_str(),
        key,
        context: &request.context,
        surface: request.surface,
        server: target.map_or("", |target| target.server_str()),
        method: request.method,
        tool: target.map_or("", |target| &target.item),
        schema_version,
        started_ms: unix_ms(),
        input: target
            .map_or(request.params, |target| target.arguments.or(request.params))
            .map(Raw::text),
        redactor,
    }
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
    let name = server.name.clone();
    match refusal {
        Refusal::Busy => CallError::Busy {
            server: name,
            limit: server.spec.calls.queue,
            retry_after: Duration::from_secs(1),
        },
        Refusal::NotReading => CallError::NotReading { server: name },
        Refusal::Ended(failure) => answer::failed(server, failure),
    }
}

/// Says how a call ended in the words of the audit.
fn describe(ended: &Result<Answered, CallError>) -> (CallStatus, Option<String>, Option<String>) {
    use gantry_model::diagnose::Diagnose;
    match ended {
        Ok(answered) if answered.is_error => (CallStatus::Error, Some("tool_error".into()), None),
        Ok(_) => (CallStatus::Ok, None, None),
        Err(error) => {
            let status = if matches!(error, CallError::Timeout { .. }) {
                CallStatus::Timeout
            } else if matches!(error, CallError::Cancelled) {
                CallStatus::Cancelled
            } else if matches!(error, CallError::Busy { .. }) {
                CallStatus::Refused
            } else {
                CallStatus::Error
            };
            let code = if let CallError::Rpc { code, .. } = error {
                code.to_string()
            } else {
                error.code().to_owned()
            };
            (status, Some(code), Some(error.to_string()))
        }
    }
}
