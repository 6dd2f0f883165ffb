//! A call on its way to a server and back: which link it takes, what is sent, and the rounds in
//! which a server of the stateless era needs something of the client first. Entry point:
//! [`Trip::make`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::era::meta::{
    CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, upstream_params_with,
};
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::jsonrpc::{Edit, OneLine, Payload, Raw, RawBuf};
use gantry_model::mcp::{ClientCan, LogLevel, Method, may_ask_back};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer::{self, Answered};
use super::asks::{Again, Asker, input_required};
use super::limit::Limit;
use super::target::{self, Target};
use super::urls::{Visits, url_required};
use super::{Router, again, asks};
use crate::error::CallError;
use crate::request::{Client, Request};
use crate::server::handle::ServerHandle;
use crate::server::link::{Addressed, Deadline, InFlight, Link, Refusal, Voice};
use crate::server::pending::Answer;
use crate::server::profiles::{Lease, Party, Wanted};

/// How often a server may need something of the client before it answers one call.
const ROUNDS: u32 = 10;
/// Requests of a server's that may wait for one call's client.
const ASKS: usize = 8;

/// A call, its server, and who made it.
pub(super) struct Trip<'a> {
    router: &'a Router,
    caller: &'a Caller,
    request: Request<'a>,
    method: Option<Method>,
    target: &'a Target<'a>,
    server: &'a ServerHandle,
    client: Option<Arc<Client>>,
    limit: Limit,
}

/// The road that a trip takes.
struct Road {
    way: Way,
    version: ProtocolVersion,
    /// The era of the server there, if it has said so.
    era: Option<Era>,
    /// Its server must be told once from which level on it is to log.
    logs: bool,
}

impl Road {
    fn link(&self) -> &Arc<Link> {
        match &self.way {
            Way::Shared(link) => link,
            Way::Own(lease) => &lease.link,
        }
    }
}

/// Which link it is.
enum Way {
    Shared(Arc<Link>),
    /// One that declared what the client can do.
    Own(Lease),
}

impl<'a> Trip<'a> {
    pub(super) fn new(
        router: &'a Router,
        caller: &'a Caller,
        mut request: Request<'a>,
        method: Option<Method>,
        (target, server): (&'a Target<'a>, &'a ServerHandle),
        limit: Limit,
    ) -> Self {
        let client = request.client.take().map(Arc::new);
        Self {
            router,
            caller,
            request,
            method,
            target,
            server,
            client,
            limit,
        }
    }

    /// Sends the call to its server and waits for the answer; one that was cut off is sent once more
    /// if its tool allows that.
    pub(super) async fn make(self) -> Result<Answered, CallError> {
        again::begun(self.server);
        match self.once().await {
            Err(error) if again::is_made_again(self.server, &self.target.item, &error) => {
                // That it is down by now says less than how the call ended.
                let is_down = |later: &CallError| matches!(later, CallError::Down { .. });
                let later = Box::pin(self.once()).await;
                later.map_err(|later| if is_down(&later) { error } else { later })
            }
            made => made,
        }
    }

    async fn once(&self) -> Result<Answered, CallError> {
        let shared = self
            .router
            .link(self.caller, self.server, self.limit)
            .await?;
        if let Some(limited) = self.server.limited() {
            return Err(limited);
        }
        let road = self.road(shared).await?;
        let era = road.era;
        let mut again = None;
        let mut visits = Visits::default();
        let mut left = self.server.spec.calls.timeout_max;
        for round in 0..=ROUNDS {
            let begun = Instant::now();
            let answer = self.send(&road, again.as_ref(), left).await?;
            let (agent, session) = (&self.caller.agent, self.request.speaker.session());
            self.router.refreshes.note(agent, session, road.link());
            left = left.saturating_sub(begun.elapsed());
            if let (Answer::Error(error), Some(client)) = (&answer, &self.client)
                && client.era == Era::Stateless
                && self.can().elicit_url
                && let Some(urls) = url_required(error, self.server)
            {
                let asker = self.asker(client);
                let visit = asker.visit(urls, &mut visits, (road.link(), client));
                Box::pin(visit).await?;
                continue;
            }
            let needed = match (&answer, era, &self.client) {
                (Answer::Result(result), Some(Era::Stateless), Some(client))
                    if self.can().anything() =>
                {
                    input_required(result, self.server)?.map(|needed| (needed, client))
                }
                _ => None,
            };
            let Some((needed, client)) = needed else {
                return Answered::read(answer, self.server, self.method, era);
            };
            again = Some(Box::pin(self.asker(client).inputs(needed, round)).await?);
        }
        Err(CallError::Protocol {
            server: self.server.name.clone(),
            detail: format!("it needed something of the client more than {ROUNDS} times"),
        })
    }

    fn asker<'c>(&'c self, client: &'c Client) -> Asker<'c> {
        Asker {
            client,
            server: self.server,
            draining: &self.router.draining,
        }
    }

    /// Returns from which level on the client wants to hear what the server logs.
    fn log_level(&self) -> Option<LogLevel> {
        self.client.as_ref().and_then(|client| client.log_level)
    }

    /// Returns what the client can do, as far as this request may be answered with a question.
    fn can(&self) -> ClientCan {
        let client = self.client.as_ref();
        let client = client.filter(|_| may_ask_back(self.request.method));
        client.map_or(ClientCan::NOTHING, |client| client.can)
    }

    /// Returns for whom the call is made.
    fn party(&self) -> Party {
        Party {
            agent: self.caller.agent.clone(),
            key: self.caller.key,
            session: self.session(),
        }
    }

    /// Chooses the link: a server of the handshake era is told what its client can do when the link
    /// is opened, so that a client has its own. A server of both eras asks clients of the handshake
    /// era only in that.
    async fn road(&self, shared: Arc<Link>) -> Result<Road, CallError> {
        let hello = self.server.catalog.load().hello.clone();
        let can = self.can();
        let is_of_handshake = hello
            .as_deref()
            .is_none_or(|hello| hello.era == Era::Handshake);
        let has_session = self.session().is_some();
        let lease = match can.anything() && (is_of_handshake || has_session) {
            true => {
                let (party, is_tool) = (self.party(), self.method == Some(Method::ToolsCall));
                let tool = is_tool.then_some(&*self.target.item);
                let party = &party;
                let wanted = Wanted { can, party, tool };
                self.router
                    .own_link(self.server, wanted, self.limit)
                    .await?
            }
            false => None,
        };
        let (way, hello) = match lease {
            Some(lease) => {
                let hello = lease.hello.clone();
                (Way::Own(lease), hello)
            }
            None => (Way::Shared(shared), hello),
        };
        let hello = hello.as_deref();
        let era = hello.map(|hello| hello.era);
        Ok(Road {
            way,
            version: hello.map_or(ProtocolVersion::LATEST_HANDSHAKE, |hello| hello.version),
            era,
            logs: era == Some(Era::Handshake) && hello.is_some_and(|hello| hello.has("logging")),
        })
    }

    /// Returns the session of the client, which only those of the handshake era have.
    fn session(&self) -> Option<u128> {
        self.client.as_ref().and_then(|client| client.session)
    }

    /// Sends the call, or what answers its server's last question, and waits for the answer.
    async fn send(
        &self,
        road: &Road,
        again: Option<&Again>,
        longest: Duration,
    ) -> Result<Answer, CallError> {
        let link = road.link();
        if let Some(level) = self.log_level()
            && road.logs
        {
            link.log_from(level).await;
        }
        let id = link.new_id();
        let params = self.params(road.version, id, again);
        let line = OneLine::request(id, self.request.method, Some(Payload::Edit(&params)));
        let head = link.has_heads().then(|| self.target.head(&self.request));
        let method = self.method;
        let reason = self.request.reason.clone();
        let line = Addressed {
            line,
            head,
            method,
            reason,
        };
        let (asks, served) = match &road.way {
            Way::Own(lease) => {
                let (tx, asked) = mpsc::channel(ASKS);
                (Some(tx), Some((lease, asked)))
            }
            Way::Shared(_) => (None, None),
        };
        let voice = self.client.as_ref().map(|client| Voice {
            client: Arc::clone(client),
            asks,
        });
        let called = link.call(&self.caller.agent, id, line, voice);
        let call = called.map_err(|refusal| refused(self.server, refusal))?;
        let waiting = self.wait(call, longest);
        match (&self.client, served) {
            (Some(client), Some((lease, asked))) => {
                let asker = self.asker(client);
                tokio::select! {
                    biased; // What is answered needs nothing any more.
                    answer = waiting => answer,
                    error = Box::pin(asker.serve(lease, id, asked)) => Err(error),
                }
            }
            _ => waiting.await,
        }
    }

    fn params<'s>(
        &'s self,
        version: ProtocolVersion,
        id: u64,
        again: Option<&'s Again>,
    ) -> Edit<'s> {
        let request = &self.request;
        let meta = request.params.and_then(|params| params.get("_meta"));
        let params = (request.params, meta);
        let mut params = upstream_params_with(version, params, &self.router.identity);
        self.target.rename(&mut params);
        if self.method == Some(Method::ToolsCall) && self.caller.kind == KeyKind::Agent {
            // Nobody could ask for the task: agents do not reach what is kept for the gateway.
            params.remove("task");
        }
        if meta.is_some_and(asks_for_progress) {
            let token = self.client.as_ref();
            // Without a way back for progress the server need not report any.
            match token.and_then(|client| client.progress_token.as_ref()) {
                Some(_) => params.set_meta_buf(PROGRESS_TOKEN, own_token(id)),
                None => params.remove_meta(PROGRESS_TOKEN),
            };
        }
        if self.server.spec.calls.pass_context {
            target::pass_context(&mut params, &request.context, self.caller.users);
        }
        if let (Some(level), Era::Stateless) = (self.log_level(), version.era()) {
            params.set_meta_buf(LOG_LEVEL, RawBuf::string(level.as_str()));
        }
        let can = self.can();
        if can.anything() {
            if version.era() == Era::Stateless {
                params.set_meta_buf(CLIENT_CAPABILITIES, can.capabilities());
            }
            asks::resume(&mut params, version.era(), request.params, again);
        }
        params
    }

    async fn wait(&self, call: InFlight, longest: Duration) -> Result<Answer, CallError> {
        let spec = &self.server.spec;
        // A tool's own time counts before its server's. row 3.4
        let settings = spec.tools.settings.get(self.target.item.as_ref());
        let own = settings.and_then(|settings| settings.timeout);
        let timeout = own.unwrap_or(spec.calls.timeout);
        let quiet = self.limit.within(timeout);
        let whole = self.limit.within(longest.max(timeout));
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
                .timed_out(self.server, self.limit.passed().unwrap_or(own))
        })
    }
}

fn asks_for_progress(meta: Raw<'_>) -> bool {
    meta.get(PROGRESS_TOKEN).is_some()
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
