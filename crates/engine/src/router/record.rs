//! The record of a request: an intent before it is sent and an outcome when it has ended, or both
//! at once if it is refused. Written only here. Entry points: [`Record::carry_out`] and
//! [`Record::refuse`].

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use gantry_model::caller::{Caller, Context};
use gantry_model::diagnose::Diagnose;
use gantry_model::grant::Decision;
use gantry_model::id::{CallId, ServerId};
use gantry_model::jsonrpc::Raw;
use gantry_model::secret::Redactor;
use gantry_model::trace::TraceParent;
use gantry_store::{CallStatus, ErrorKind, UserSource};
use tokio::time::Instant;

use super::target::Target;
use super::{Router, answer, until_key_ends};
use crate::audit::{Intent, Measured, Outcome, RowCode};
use crate::clock::unix_ms;
use crate::error::{CallError, CallFailure};
use crate::request::{Announced, Request};
use crate::transport::http::TraceHeaders;

/// The code of a result that does not fit its output schema.
const OUTPUT: &str = "schema.output";

/// A request that is not recorded yet.
pub(super) struct Record<'a> {
    router: &'a Router,
    caller: &'a Caller,
    announced: Announced,
    /// What the caller's grants say.
    decision: Option<Decision<'a>>,
    /// What the request is measured by.
    measured: &'a Measured,
    /// When the request arrived.
    pub(super) begun: Instant,
}

/// The recorded output of a successful request.
#[derive(Default)]
pub(super) struct Output<'a> {
    pub(super) result: Option<&'a [u8]>,
    /// Whether the tool reports a failure.
    pub(super) is_error: bool,
    /// What its output schema has against it.
    pub(super) warning: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// Starts with a new request, under its preassigned id.
    pub(super) fn open(
        router: &'a Router,
        caller: &'a Caller,
        announced: Option<Announced>,
        measured: &'a Measured,
    ) -> Self {
        let announce = || Announced::unheard(router.ids.next(unix_ms()));
        Self {
            router,
            caller,
            announced: announced.unwrap_or_else(announce),
            decision: None,
            measured,
            begun: Instant::now(),
        }
    }

    /// Takes down what the caller's grants say.
    pub(super) fn decided(&mut self, decision: Decision<'a>) {
        self.decision = Some(decision);
    }

    /// Returns the id under which it is recorded.
    pub(super) fn id(&self) -> CallId {
        self.announced.id
    }

    /// Returns the trace that is passed on to the server: the caller's, or the one that the call begins if its
    /// span is exported. The call's own span is above what the server does.
    pub(super) fn passed_trace(&self, context: &Context) -> Option<TraceHeaders> {
        let id = self.announced.id;
        let began = || self.router.begins_traces.then(|| TraceParent::of_call(id));
        let trace = context.trace.or_else(began)?;
        Some(TraceHeaders {
            parent: trace.below(id),
            state: context.trace_state.clone(),
        })
    }

    /// Records a request, runs it unless the caller's key ends first, and records the outcome.
    pub(super) fn carry_out<T>(
        self,
        request: &Request<'_>,
        target: &Target<'_>,
        output: impl FnOnce(&T) -> Output<'_>,
        work: Pin<&mut impl Future<Output = Result<T, CallError>>>,
    ) -> impl Future<Output = Result<(CallId, T), CallFailure>> {
        let (id, router, caller) = (self.announced.id, self.router, self.caller);
        // No async function, whose future would hold the record twice.
        async move {
            // In a block of its own: what is borrowed in it does not take memory as long as the call.
            let ticket = {
                let (key, redactor) = (caller.key.to_string(), target.redactor());
                let intent = self.intent(&key, request, Some(target), &redactor);
                router.audit.intent(&intent).await
            };
            let mut ticket = ticket.map_err(|error| CallFailure {
                call: None,
                error: CallError::Audit(error),
            })?;
            ticket.on_drop(CallStatus::Cancelled, RowCode::Cancelled);
            ticket.made_with(&caller.validity);
            ticket.measured_by(self.measured);
            self.announced.record();
            let counted = router.metrics.begin(self.begun);
            let ended = until_key_ends(caller, work).await;
            // Fetched again: there may have been a sign-in meanwhile.
            let ended = ended.map_err(|error| answer::hide(error, &target.redactor()));
            let recording = {
                let redactor = target.redactor();
                let (status, code, error) = match &ended {
                    Ok(_) => (CallStatus::Ok, None, None),
                    Err(error) => describe(error),
                };
                let error_kind = ended.as_ref().err().map(|error| error.class().1);
                let output = ended.as_ref().map(output).unwrap_or_default();
                let (status, code, error_kind) = match output.is_error {
                    true => {
                        let code = RowCode::ToolError.code().into();
                        (CallStatus::Error, Some(code), Some(ErrorKind::Tool))
                    }
                    // It was passed on, and the row says what was wrong with it.
                    false if output.warning.is_some() => (status, Some(OUTPUT.into()), error_kind),
                    false => (status, code, error_kind),
                };
                if let (CallStatus::Refused, Some(code)) = (status, &code) {
                    router.metrics.refused(code);
                }
                if matches!(ended, Err(CallError::Panicked)) {
                    router.metrics.panicked();
                }
                let outcome = Outcome {
                    status,
                    code: code.as_deref(),
                    error: error.as_deref().or(output.warning),
                    output: output.result,
                    duration: counted.end(status),
                    redactor: &redactor,
                    measured: self.measured.read(),
                    error_kind,
                };
                ticket.outcome(&outcome)
            };
            recording.await;
            match ended {
                Ok(done) => Ok((id, done)),
                Err(error) => Err(CallFailure {
                    call: Some(id),
                    error,
                }),
            }
        }
    }

    /// Records a request that is refused before it is sent; without a target if none was found.
    pub(super) async fn refuse(
        self,
        request: &Request<'_>,
        target: Option<&Target<'_>>,
        error: CallError,
    ) -> CallFailure {
        let key = self.caller.key.to_string();
        let redactor = target.map_or_else(|| Arc::clone(Redactor::own_keys()), Target::redactor);
        let mut intent = self.intent(&key, request, target, &redactor);
        let asked = RequestedItem::of(self.router, request, &error);
        if target.is_none() {
            intent.server = &asked.server;
            intent.server_id = asked.server_id;
            intent.tool = &asked.item;
            let not_granted = error.not_granted();
            if let Some((_, _, grant)) = &not_granted {
                intent.policy_revision = Some(self.caller.grants.revision());
                intent.grant = *grant;
            }
            if not_granted.is_some() && request.method == "tools/call" {
                intent.input = request.params.arguments.map(Raw::text);
            }
        }
        let text = error.to_string();
        self.router.metrics.refused(error.code());
        let outcome = Outcome {
            status: CallStatus::Refused,
            code: Some(error.code()),
            error: Some(&text),
            output: None,
            duration: self
                .router
                .metrics
                .begin(self.begun)
                .end(CallStatus::Refused),
            redactor: &redactor,
            measured: self.measured.read(),
            error_kind: Some(error.class().1),
        };
        match self.router.audit.refusal(&intent, &outcome).await {
            Ok(true) => {
                let call = Some(self.announced.id);
                self.announced.record();
                CallFailure { call, error }
            }
            // A request that was only counted has no row.
            Ok(false) => CallFailure { call: None, error },
            Err(audit) => CallFailure {
                call: None,
                error: CallError::Audit(audit),
            },
        }
    }

    fn intent<'i>(
        &'i self,
        key: &'i str,
        request: &'i Request<'_>,
        target: Option<&'i Target<'_>>,
        redactor: &'i Redactor,
    ) -> Intent<'i> {
        let caller = self.caller;
        let started_ms = unix_ms();
        if let Some(decision) = &self.decision {
            decision.note_use(started_ms);
        }
        Intent {
            id: self.announced.id,
            project: caller.project.as_str(),
            agent: caller.agent.as_str(),
            key,
            context: &request.context,
            users: caller.users,
            surface: request.surface,
            server: target.map_or("", |target| target.server_str()),
            server_id: target.and_then(Target::server_id),
            method: request.method,
            tool: target.map_or("", |target| &target.item),
            schema_version: target.and_then(Target::schema_version),
            started_ms,
            input: target
                .and_then(Target::arguments)
                .or(request.params.whole)
                .map(Raw::text),
            redactor,
            policy_revision: self.decision.as_ref().map(|decision| decision.revision),
            grant: self.decision.as_ref().and_then(Decision::grant_id),
            user_source: Some(match caller.token {
                Some(_) => UserSource::Token,
                None => UserSource::Agent,
            }),
        }
    }
}

/// What a request that has no target asked for, as far as that is known.
struct RequestedItem<'a> {
    server: Cow<'a, str>,
    server_id: Option<ServerId>,
    item: Cow<'a, str>,
}

impl<'a> RequestedItem<'a> {
    fn of(router: &Router, request: &Request<'a>, error: &'a CallError) -> Self {
        if let Some((server, item, _)) = error.not_granted() {
            let handle = router.supervisor.find(server.as_str());
            return Self {
                server: Cow::Borrowed(server.as_str()),
                server_id: handle.map(|handle| handle.id),
                item: Cow::Borrowed(item),
            };
        }
        let named = request.params.name.or(request.params.uri);
        Self {
            server: Cow::Borrowed(""),
            server_id: None,
            item: named.and_then(Raw::string).unwrap_or_default(),
        }
    }
}

/// Describes a failure for the audit.
fn describe(error: &CallError) -> (CallStatus, Option<String>, Option<String>) {
    let code = if let CallError::Rpc { code, .. } = error {
        code.to_string()
    } else {
        error.code().to_owned()
    };
    (error.class().0, Some(code), Some(error.to_string()))
}
