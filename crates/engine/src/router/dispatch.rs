//! Sends a call to its server: chooses the link, writes the params, waits for the response, retries
//! where that is allowed, and repeats the call with the client's answers where a server of the
//! stateless era requires input first. Entry point: [`Dispatch::run`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::KeyKind;
use gantry_model::era::meta::{
    CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, upstream_params_with,
};
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::jsonrpc::{Edit, OneLine, Payload, Raw, RawBuf};
use gantry_model::mcp::{ClientCapabilities, LogLevel, Method, may_ask_back};
use gantry_model::spec::Source;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::target::Target;
use super::{Call, Router, answer, context};
use crate::audit::{Measured, Phase, Timing};
use crate::error::CallError;
use crate::request::{Client, Reply};
use crate::server::handle::ServerHandle;
use crate::server::link::{CallMessage, Deadline, InFlight, Link, LinkRefusal};
use crate::server::pending::{Answer, LaneTime};
use crate::server::profiles::{InstanceLease, InstanceOwner, InstanceRequest};
use crate::server::server_requests::{
    CallForwarder, CallerChannel, InputResponses, UrlVisits, check_urls, input_required, resume,
    url_required,
};
use crate::transport::http::TraceHeaders;

/// How often a server may require input from the client during one call.
const ROUNDS: u32 = 10;
/// The most requests of a server that wait for one call's client.
const ASKS: usize = 8;

/// A call and the server it is for.
pub(super) struct Dispatch<'a> {
    router: &'a Router,
    call: &'a Call<'a>,
    target: &'a Target<'a>,
    server: &'a Arc<ServerHandle>,
}

/// The link of a call, and what is known of its server.
struct Route {
    link: Arc<Link>,
    /// Set for the client's own link, which declared the client's capabilities.
    lease: Option<InstanceLease>,
    version: ProtocolVersion,
    /// The era of the server, if known.
    era: Option<Era>,
    /// Whether the log level must be requested from the server.
    logs: bool,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(
        router: &'a Router,
        call: &'a Call<'a>,
        target: &'a Target<'a>,
        server: &'a Arc<ServerHandle>,
    ) -> Self {
        Self {
            router,
            call,
            target,
            server,
        }
    }

    /// Sends the call and waits for the response; retries an interrupted call if its tool allows
    /// that.
    pub(super) async fn run(self) -> Result<Reply, CallError> {
        self.server.retries.earn();
        match self.attempt().await {
            Err(error) if is_retried(self.server, &self.target.item, &error) => {
                // How the call ended says more than that the server is down now.
                let is_down = |later: &CallError| matches!(later, CallError::Down { .. });
                let later = Box::pin(self.attempt()).await;
                later.map_err(|later| if is_down(&later) { error } else { later })
            }
            made => made,
        }
    }

    async fn attempt(&self) -> Result<Reply, CallError> {
        let waiting = self.call.measured.during(Phase::Queue);
        let route = self.route().await?;
        drop(waiting);
        self.router.check_current(self.call, self.target)?;
        // Boxed, as it is rare.
        let mut again: Option<Box<InputResponses>> = None;
        let mut visits = UrlVisits::default();
        let mut left = self.server.spec.calls.timeout_max;
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let answer = self.send(&route, again.as_deref(), left).await?;
            let (agent, session) = (
                &self.call.caller.agent,
                self.call.request.identity.session(),
            );
            self.router.refreshes.note(agent, session, &route.link);
            if let Answer::Error(error) = &answer {
                check_urls(error, self.server)?;
            }
            let Some(client) = self.client() else {
                return Reply::read(answer, self.server, self.call.method, route.era);
            };
            left = left.saturating_sub(begun.elapsed());
            if let Answer::Error(error) = &answer
                && client.era == Era::Stateless
                && self.capabilities().elicit_url
                && let Some(urls) = url_required(error, self.server)
            {
                let forwarder = self.forwarder(client);
                let visit = forwarder.visit(urls, &mut visits, (&route.link, client));
                Box::pin(visit).await?;
                continue;
            }
            let needed = match (&answer, route.era) {
                (Answer::Result(result), Some(Era::Stateless))
                    if self.capabilities().anything() =>
                {
                    input_required(result, self.server)?
                }
                _ => None,
            };
            let Some(needed) = needed else {
                return Reply::read(answer, self.server, self.call.method, route.era);
            };
            let responses = Box::pin(self.forwarder(client).input_responses(needed, round)).await?;
            again = Some(Box::new(responses));
        }
        Err(CallError::Protocol {
            server: self.server.name.clone(),
            detail: format!("it needed something of the client more than {ROUNDS} times"),
        })
    }

    fn client(&self) -> Option<&'a Arc<Client>> {
        self.call.client.as_ref()
    }

    fn forwarder<'c>(&'c self, client: &'c Client) -> CallForwarder<'c> {
        CallForwarder {
            client,
            server: self.server,
            draining: &self.router.draining,
        }
    }

    /// Returns the minimum level of log messages for the client.
    fn log_level(&self) -> Option<LogLevel> {
        self.client().and_then(|client| client.log_level)
    }

    /// Returns the client's capabilities, as far as servers may use them for this request.
    fn capabilities(&self) -> ClientCapabilities {
        let client = self.client();
        let client = client.filter(|_| may_ask_back(self.call.request.method));
        client.map_or(ClientCapabilities::NOTHING, |client| client.capabilities)
    }

    /// Returns the client of the call.
    fn owner(&self) -> InstanceOwner {
        InstanceOwner {
            agent: self.call.caller.agent.clone(),
            key: self.call.caller.key,
            session: self.session(),
        }
    }

    /// Chooses the link: a server of the handshake era learns the client's capabilities when the
    /// link is opened, so such a client has its own. A server of both eras sends requests to
    /// clients of the handshake era only in that era.
    async fn route(&self) -> Result<Route, CallError> {
        let call = self.call;
        let shared = match self.server.ready() {
            Some(link) => link,
            None => Box::pin(self.router.link(call.caller, self.server, call.limit())).await?,
        };
        if let Some(limited) = self.server.limited() {
            return Err(limited);
        }
        let handshake = self.server.catalog.load().handshake.clone();
        let capabilities = self.capabilities();
        let is_of_handshake = handshake
            .as_deref()
            .is_none_or(|handshake| handshake.era == Era::Handshake);
        let lease = match capabilities.anything() && (is_of_handshake || self.session().is_some()) {
            true => {
                let (owner, is_tool) = (self.owner(), call.method == Some(Method::ToolsCall));
                let tool = is_tool.then_some(&*self.target.item);
                let owner = &owner;
                let wanted = InstanceRequest {
                    capabilities,
                    owner,
                    tool,
                };
                let leased = self.router.own_link(self.server, wanted, call.limit());
                Box::pin(leased).await?
            }
            false => None,
        };
        let (link, handshake) = match &lease {
            Some(lease) => (Arc::clone(&lease.link), lease.handshake.clone()),
            None => (shared, handshake),
        };
        let handshake = handshake.as_deref();
        let era = handshake.map(|handshake| handshake.era);
        Ok(Route {
            link,
            lease,
            version: handshake.map_or(ProtocolVersion::LATEST_HANDSHAKE, |handshake| {
                handshake.version
            }),
            era,
            logs: era == Some(Era::Handshake)
                && handshake.is_some_and(|handshake| handshake.has("logging")),
        })
    }

    /// Returns the session of the client; only clients of the handshake era have one.
    fn session(&self) -> Option<u128> {
        self.client().and_then(|client| client.session)
    }

    /// Refuses the call if another gateway may run the server by now; checked right before sending.
    fn check_lease(&self) -> Result<(), CallError> {
        let leases = self.router.supervisor.leases();
        if self.server.spec.source != Source::Api || leases.may_run(self.server.id) {
            return Ok(());
        }
        Err(CallError::Down {
            server: self.server.name.clone(),
            reason: "another gateway may run it: the lease on it could not be renewed".to_owned(),
            next_try: None,
        })
    }

    /// Sends the call, or the responses to its server's last requests, and waits for the response.
    async fn send(
        &self,
        route: &Route,
        again: Option<&InputResponses>,
        longest: Duration,
    ) -> Result<Answer, CallError> {
        let (link, request) = (&route.link, self.call.request);
        self.check_lease()?;
        if let Some(level) = self.log_level()
            && route.logs
        {
            Box::pin(link.log_from(level)).await;
        }
        let id = link.new_id();
        let line = {
            let params = self.params(route.version, id, again);
            OneLine::request(id, request.method, Some(Payload::Edit(&params)))
        };
        let line = CallMessage {
            line,
            head: link
                .has_heads()
                .then(|| self.target.head(request, self.passed_trace().cloned())),
            method: self.call.method,
            reason: request.reason.clone(),
            others: self.router.callers.others(),
        };
        let (asks, asked) = match &route.lease {
            Some(lease) => {
                let (tx, asked) = mpsc::channel(ASKS);
                (Some(tx), Some((lease, asked)))
            }
            None => (None, None),
        };
        let caller_channel = self.client().map(|client| CallerChannel {
            client: Arc::clone(client),
            asks,
        });
        let timing = self.call.measured.during(Phase::Queue);
        let sent = link.call(&self.call.caller.agent, id, line, caller_channel);
        let mut sent = sent.map_err(|refusal| refused(self.server, refusal))?;
        let _timing = SentTiming::new(self.call.measured, timing, sent.lane_time());
        match (self.client(), asked) {
            (Some(client), Some((lease, asked))) => {
                let forwarder = self.forwarder(client);
                let waiting = Box::pin(self.wait(&mut sent, longest));
                tokio::select! {
                    biased; // What is answered needs nothing any more.
                    answer = waiting => answer,
                    error = Box::pin(forwarder.serve(&lease.link, id, asked)) => Err(error),
                }
            }
            _ => self.wait(&mut sent, longest).await,
        }
    }

    fn params<'s>(
        &'s self,
        version: ProtocolVersion,
        id: u64,
        again: Option<&'s InputResponses>,
    ) -> Edit<'s> {
        let (call, request) = (self.call, self.call.request);
        let mut params = upstream_params_with(version, &request.params, &self.router.identity);
        self.target.rename(&mut params);
        if call.method == Some(Method::ToolsCall) && call.caller.kind == KeyKind::Agent {
            // Agents cannot access tasks, so none is requested.
            params.remove("task");
        }
        if request.params.meta.is_some_and(asks_for_progress) {
            let token = self.client();
            // Without a channel for progress the server need not report any.
            match token.and_then(|client| client.progress_token.as_ref()) {
                Some(_) => params.set_meta_buf(PROGRESS_TOKEN, own_token(id)),
                None => params.remove_meta(PROGRESS_TOKEN),
            };
        }
        if self.server.spec.calls.pass_context {
            context::pass_context(&mut params, &request.context, call.caller.users);
        }
        context::pass_trace(&mut params, request.params.meta, self.passed_trace());
        if let (Some(level), Era::Stateless) = (self.log_level(), version.era()) {
            params.set_meta_buf(LOG_LEVEL, RawBuf::string(level.as_str()));
        }
        let capabilities = self.capabilities();
        if capabilities.anything() {
            if version.era() == Era::Stateless {
                params.set_meta_buf(CLIENT_CAPABILITIES, capabilities.to_json());
            }
            resume(&mut params, version.era(), &request.params, again);
        }
        params
    }

    /// Returns the trace that is passed on to the server, if any.
    fn passed_trace(&self) -> Option<&TraceHeaders> {
        let trace = self.call.trace.as_ref();
        trace.filter(|_| self.server.spec.calls.pass_context)
    }

    async fn wait(&self, call: &mut InFlight, longest: Duration) -> Result<Answer, CallError> {
        let spec = &self.server.spec;
        // A tool's own timeout takes precedence over its server's. row 3.4
        let settings = spec.tools.settings.get(self.target.item.as_ref());
        let own = settings.and_then(|settings| settings.timeout);
        let timeout = own.unwrap_or(spec.calls.timeout);
        let quiet = self.call.limit().within(timeout);
        let whole = self.call.limit().within(longest.max(timeout));
        let answered = call
            .answer_within(Deadline {
                quiet,
                whole,
                fair: timeout.max(spec.calls.timeout),
            })
            .await;
        answered.map_err(|waited| {
            let own = if waited < whole { quiet } else { whole };
            self.router
                .timed_out(self.server, self.call.limit().passed().unwrap_or(own))
        })
    }
}

/// Measures how long a call waits for a lane, and how long for its answer, also if nobody waits to the end.
struct SentTiming<'m> {
    measured: &'m Measured,
    timing: Timing<'m>,
    /// Set while it is not known whether the call got its lane.
    lane_time: Option<LaneTime>,
}

impl<'m> SentTiming<'m> {
    fn new(measured: &'m Measured, mut timing: Timing<'m>, lane_time: Option<LaneTime>) -> Self {
        if lane_time.is_none() {
            measured.sent();
            timing.turn_to(Phase::Server);
        }
        Self {
            measured,
            timing,
            lane_time,
        }
    }
}

impl Drop for SentTiming<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.lane_time.as_ref().and_then(|time| time.get()) {
            self.measured.sent();
            self.timing.turned_to(Phase::Server, *at);
        }
    }
}

fn asks_for_progress(meta: Raw<'_>) -> bool {
    meta.get(PROGRESS_TOKEN).is_some()
}

fn own_token(id: u64) -> RawBuf {
    RawBuf::integer(i64::try_from(id).unwrap_or(i64::MAX))
}

fn refused(server: &ServerHandle, refusal: LinkRefusal) -> CallError {
    match refusal {
        LinkRefusal::Busy => server.busy(),
        LinkRefusal::NotReading => CallError::NotReading {
            server: server.name.clone(),
        },
        LinkRefusal::Ended(failure) => answer::failed(server, failure),
        LinkRefusal::Silent(retry_in) => server.silent(retry_in),
    }
}

/// Returns whether a failed call is retried: only if an administrator declared its tool idempotent,
/// and only within the server's budget. row 3.4, fault H13
fn is_retried(server: &ServerHandle, tool: &str, error: &CallError) -> bool {
    let settings = server.spec.tools.settings.get(tool);
    let was_cut_off = if let CallError::Remote { error, .. } = error {
        error.is_worth_a_retry()
    } else {
        matches!(error, CallError::Exited { .. })
    };
    settings.is_some_and(|settings| settings.idempotent) && was_cut_off && server.retries.spend()
}
