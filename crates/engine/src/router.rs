//! The request pipeline: a request is resolved in the caller's view, checked, recorded, sent,
//! answered and recorded again. A tool of a server that was never listed is checked only after the
//! server is up, hence after it was recorded. Lists are served from memory and skip all that. Entry
//! point: [`Router::request`].

mod answer;
mod context;
mod dispatch;
mod held;
mod hooked;
mod limit;
mod links;
mod record;
mod refreshes;
mod subscribe;
mod target;
mod withheld;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::caller::Caller;
use gantry_model::era::meta::Identity;
use gantry_model::event::EventKind;
use gantry_model::grant::{Decision, MethodClass, Verdict};
use gantry_model::id::{CallId, ServerName};
use gantry_model::mcp::{LogLevel, Method};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::answers::AnswerBudget;
use crate::approvals::Approvals;
use crate::audit::{Audit, CallIds, Measured, Phase};
use crate::catalog::{Catalog, ListKind};
use crate::error::{CallError, CallFailure};
use crate::events::Events;
use crate::guard;
use crate::hooks::HookRunner;
use crate::limits::{CallLimits, CallerCount, LimitPermit};
use crate::pins::Pins;
use crate::request::{Announced, Client, Lists, Reply, Request, Scope};
use crate::server::handle::ServerHandle;
use crate::server::link::Link;
use crate::server::profiles::{InstanceLease, InstanceRequest};
use crate::server::server_requests::SessionForwarder;
use crate::server::topics::TopicTable;
use crate::supervisor::Supervisor;
use crate::suspended::Suspended;
use crate::telemetry::Metrics;
use crate::transport::http::TraceHeaders;
use dispatch::Dispatch;
use limit::Limit;
pub(crate) use links::Links;
use record::Record;
pub(crate) use refreshes::Refreshes;
use target::{NameLocation, Target};

/// The parts that requests are answered with.
pub(crate) struct Router {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) audit: Audit,
    pub(crate) ids: Arc<CallIds>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) identity: Identity,
    pub(crate) listing_wait: Duration,
    pub(crate) topics: Arc<TopicTable>,
    /// The memory of unread responses.
    pub(crate) answers: AnswerBudget,
    /// Which server named a URI to a client.
    pub(crate) links: Links,
    /// The list refreshes that a client's calls have caused.
    pub(crate) refreshes: Refreshes,
    /// Cancelled when the engine stops and clients can no longer respond to servers.
    pub(crate) draining: CancellationToken,
    /// The suspended servers and tools.
    pub(crate) suspended: Arc<Suspended>,
    /// How many agents share the lanes of servers.
    pub(crate) callers: Arc<CallerCount>,
    /// What keys, agents and the project may use.
    pub(crate) limits: Arc<CallLimits>,
    /// What of the servers' tools is approved.
    pub(crate) pins: Arc<Pins>,
    /// What looks at requests and results.
    pub(crate) hooks: Arc<HookRunner>,
    /// Servers are told of a call's trace even if the call began it: its span is exported.
    pub(crate) begins_traces: bool,
    /// The calls that wait for an approver.
    pub(crate) approvals: Arc<Approvals>,
    /// What callers may use now.
    pub(crate) access: Arc<Access>,
}

/// A call: caller, request and time limit.
struct Call<'a> {
    id: CallId,
    caller: &'a Caller,
    request: &'a Request<'a>,
    method: Option<Method>,
    /// The channel to the caller while the call runs.
    client: Option<Arc<Client>>,
    limit: Limit,
    /// How long it waited for an approver, once one has allowed it.
    held: OnceLock<Duration>,
    /// Whether the caller's grants ask for an approval, as far as its tool is known.
    is_asked: bool,
    /// What it is measured by.
    measured: &'a Measured,
    /// The trace that is passed on to the server.
    trace: Option<TraceHeaders>,
}

impl Call<'_> {
    /// Returns its time limit; while it was held, its time did not run.
    fn limit(&self) -> Limit {
        self.limit
            .after(self.held.get().copied().unwrap_or_default())
    }
}

impl Router {
    /// Answers one request of a caller, under its preassigned id if there is one.
    pub(crate) async fn request(
        &self,
        caller: &Caller,
        request: &mut Request<'_>,
        announced: Option<Announced>,
    ) -> Result<Reply, CallFailure> {
        let client = request.client.take();
        let request = &*request;
        let measured = Measured::begin(caller.authenticated_in);
        let mut record = Record::open(self, caller, announced, &measured);
        let method = Method::parse(request.method);
        if let Err(error) = self.has_server(&request.scope) {
            return Err(Box::pin(record.refuse(request, None, error)).await);
        }
        if let Some(list) = ListKind::of(request.method)
            && is_from_memory(caller, request)
        {
            let listed = Box::pin(self.list(caller, list, request)).await;
            return listed.map_err(|error| CallFailure { call: None, error });
        }
        let target = measured.timed(Phase::Grant, || self.target(caller, request, method));
        let target = match target {
            Ok(target) => target,
            Err(error) => return Err(Box::pin(record.refuse(request, None, error)).await),
        };
        let decision = measured.timed(Phase::Grant, || target.decide(caller));
        record.decided(decision);
        let permit = match self.admit(caller, &target, decision, &measured).await {
            Ok(permit) => permit,
            Err(error) => {
                let refused = record.refuse(request, Some(&target), error);
                return Err(Box::pin(refused).await);
            }
        };
        let limit = Limit::of(record.begun, request.timeout);
        let client = client.map(|client| Arc::new(self.listening(*client, caller, &target)));
        let call = Call {
            id: record.id(),
            caller,
            request,
            method,
            client,
            limit,
            held: OnceLock::new(),
            is_asked: decision.verdict == Verdict::Ask,
            measured: &measured,
            trace: record.passed_trace(&request.context),
        };
        // Pinned here, so that the large future is not moved.
        let work = pin!(self.call(&call, &target));
        let (id, mut reply) = record
            .carry_out(request, &target, Reply::output, work)
            .await?;
        permit.charge(reply.result.len());
        reply.call = Some(id);
        Ok(reply)
    }

    /// Answers a list from memory.
    async fn list(
        &self,
        caller: &Caller,
        list: ListKind,
        request: &Request<'_>,
    ) -> Result<Reply, CallError> {
        let warming = async {
            self.warm_up(caller, &request.scope).await;
            let session = request.identity.session();
            self.refreshes.done(&caller.agent, session).await;
            Ok(())
        };
        until_key_ends(caller, warming).await?;
        let view = self
            .catalog
            .view_for(caller, &request.scope, request.identity);
        view.asked_page(list, request).map(Reply::of_ours)
    }

    /// Makes a recorded call.
    async fn call(&self, call: &Call<'_>, target: &Target<'_>) -> Result<Reply, CallError> {
        let prepared;
        let target = match self.needs_preparing(call, target) {
            false => target,
            true => {
                prepared = Box::pin(self.prepare(call, target)).await?;
                prepared.as_deref().unwrap_or(target)
            }
        };
        let made = match &target.place {
            NameLocation::Server(server) => {
                let dispatch = Dispatch::new(self, call, target, server).run();
                tokio::select! {
                    biased; // What is suspended answers nothing, not even what has just come.
                    error = self.suspended.until(&server.name, &target.item) => return Err(error),
                    made = dispatch => made,
                }
            }
            NameLocation::Native(native) => {
                let answer = native.call(call.caller, call.request, target.arguments());
                Box::pin(answer).await
            }
        };
        let reply = match made {
            Err(error) if !self.hooks.is_empty() => {
                return Err(Box::pin(self.hooked_error(call, target, error)).await);
            }
            made => made?,
        };
        let checking = call.measured.during(Phase::Output);
        let reply = reply.check(target, call.measured).await?;
        let mut reply = reply.clean(target).redact(target);
        drop(checking);
        if !self.hooks.is_empty() {
            reply = Box::pin(self.hooked_result(call, target, reply)).await?;
        }
        let reply = reply.cut(target)?;
        if let NameLocation::Server(server) = &target.place {
            let named = (&*reply.result, target.item.as_ref());
            let client = (&call.caller.agent, call.request.identity.session());
            self.links.note(client, &server.name, call.method, named);
        }
        reply.charge(&self.answers, &call.caller.agent, target)
    }

    /// Returns whether hooks or an approval come before a call is sent, which is rare.
    fn needs_preparing(&self, call: &Call<'_>, target: &Target<'_>) -> bool {
        target.guessed().is_some() || !self.hooks.is_empty() || call.is_asked
    }

    /// Prepares a call: a tool that was not known yet is resolved again once its server is ready,
    /// hooks see the request, and an approver is waited for. Returns the target if it is another
    /// by then.
    async fn prepare<'c>(
        &self,
        call: &Call<'c>,
        target: &Target<'c>,
    ) -> Result<Option<Box<Target<'c>>>, CallError> {
        let mut prepared: Option<Box<Target<'c>>> = None;
        let mut decision = target.decide(call.caller);
        if let Some(server) = target.guessed() {
            let starting = call.measured.during(Phase::Queue);
            self.link(call.caller, server, call.limit()).await?;
            drop(starting);
            let learned = self.learned(call.caller, call.request, call.method)?;
            decision = learned.decide(call.caller);
            judge(call.caller, &learned, &decision, call.measured).await?;
            learned.check_approved(&self.pins)?;
            prepared = Some(Box::new(learned));
        }
        if !self.hooks.is_empty() {
            let known = prepared.as_deref().unwrap_or(target);
            if let Some(arguments) = self.hooked_request(call, known).await? {
                let replaced = known.with_arguments(arguments);
                decision = replaced.decide(call.caller);
                judge(call.caller, &replaced, &decision, call.measured).await?;
                prepared = Some(Box::new(replaced));
            }
        }
        if decision.verdict == Verdict::Ask {
            let known = prepared.as_deref().unwrap_or(target);
            self.approved(call, known, &decision).await?;
        }
        Ok(prepared)
    }

    /// Waits for a part of a call, until its server or its tool is suspended.
    async fn unless_suspended<T>(
        &self,
        target: &Target<'_>,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let server = target.server_name();
        tokio::select! {
            biased; // A suspension comes first: what it covers does nothing more.
            error = self.suspended.until(&server, &target.item) => Err(error),
            done = work => done,
        }
    }

    /// Decides whether a call may be made now, and counts it against the limits of who makes it.
    async fn admit(
        &self,
        caller: &Caller,
        target: &Target<'_>,
        decision: Decision<'_>,
        measured: &Measured,
    ) -> Result<LimitPermit, CallError> {
        // What is not granted counts for nothing, and what is asked for too often is not checked.
        guard::permit(caller, &decision, &target.server_name(), &target.item)?;
        let bytes = target
            .arguments()
            .map_or(0, |arguments| arguments.text().len());
        let permit = self.limits.admit(caller, bytes).map_err(|exceeded| {
            self.metrics.limited(exceeded.owner);
            CallError::Limited(exceeded)
        })?;
        judge(caller, target, &decision, measured).await?;
        self.suspended.check(&target.server_name(), &target.item)?;
        target.check_approved(&self.pins)?;
        match &target.place {
            // Checked before recording, so that a flood is counted and not recorded one by one.
            NameLocation::Server(server) if !server.has_room(&caller.agent) => Err(server.busy()),
            NameLocation::Server(_) | NameLocation::Native(_) => Ok(permit),
        }
    }

    /// Returns the client of a call. It gets log messages of servers only where they are granted, and
    /// no texts on the way to a result that must not pass without the project's hooks.
    fn listening(&self, client: Client, caller: &Caller, target: &Target<'_>) -> Client {
        let (class, server) = (MethodClass::Logging, target.server_name());
        let withholds_texts = self
            .hooks
            .must_see_result(target.server_str(), &target.item);
        let is_granted = |_: &LogLevel| caller.grants.shows(class, &server, None);
        Client {
            log_level: client
                .log_level
                .filter(is_granted)
                .filter(|_| !withholds_texts),
            withholds_texts,
            ..client
        }
    }

    /// Refuses a request for an unknown server.
    fn has_server(&self, scope: &Scope) -> Result<(), CallError> {
        match scope {
            Scope::Server(name)
                if name.as_str() != ServerName::NATIVE
                    && self.supervisor.find(name.as_str()).is_none() =>
            {
                Err(CallError::UnknownServer {
                    name: name.to_string(),
                })
            }
            Scope::Server(_) | Scope::All => Ok(()),
        }
    }

    /// Returns a server's link, waiting for one that is starting.
    async fn link(
        &self,
        caller: &Caller,
        server: &ServerHandle,
        limit: Limit,
    ) -> Result<Arc<Link>, CallError> {
        let within = limit.within(server.spec.lifecycle.handshake);
        let linked = server.link(&caller.agent, within).await;
        match (linked, limit.passed()) {
            (Err(CallError::Down { .. }), Some(after)) => Err(self.timed_out(server, after)),
            (linked, _) => linked,
        }
    }

    /// Returns the own link of a client with capabilities, waiting until it is ready; `None` if the
    /// server does not support the handshake, which would declare them.
    async fn own_link(
        &self,
        server: &Arc<ServerHandle>,
        wanted: InstanceRequest<'_>,
        limit: Limit,
    ) -> Result<Option<InstanceLease>, CallError> {
        let within = limit.within(server.spec.lifecycle.handshake);
        let linked = server.profiles.link(server, wanted, within).await;
        let lease = match (linked, limit.passed()) {
            (Err(CallError::Down { .. }), Some(after)) => {
                return Err(self.timed_out(server, after));
            }
            (linked, _) => linked?,
        };
        if let Some(lease) = &lease
            && let Some(incoming) = lease.link.take_session_requests()
        {
            let forwarder = SessionForwarder {
                server: Arc::clone(server),
                link: Arc::clone(&lease.link),
                draining: self.draining.clone(),
            };
            lease.spawn(forwarder.serve(incoming));
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

    /// Wakes the caller's lazy servers that were never listed, and waits a moment for them.
    pub(crate) async fn warm_up(&self, caller: &Caller, scope: &Scope) {
        let cold = self.catalog.cold(caller, scope);
        if !cold.is_empty() {
            self.supervisor.warm(&cold, self.listing_wait).await;
        }
    }
}

/// Runs a future for a caller until its key ends: then it is dropped, which cancels the call at the
/// server. fault U6
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

/// Returns whether a list is served from memory. Only an administrator may request it from a
/// server: its response is not filtered by grants.
fn is_from_memory(caller: &Caller, request: &Request<'_>) -> bool {
    let is_native =
        matches!(&request.scope, Scope::Server(name) if name.as_str() == ServerName::NATIVE);
    request.lists == Lists::FromCatalog || !caller.kind.is_admin() || is_native
}

async fn judge(
    caller: &Caller,
    target: &Target<'_>,
    decision: &Decision<'_>,
    measured: &Measured,
) -> Result<(), CallError> {
    guard::judge(
        caller,
        decision,
        &target.server_name(),
        &target.item,
        target.tool().map(|tool| (tool, target.permits())),
        target.arguments(),
        measured,
    )
    .await
}

#[cfg(test)]
mod tests;
