//! Servers over HTTP: opening a session, choosing the transport, and retrying a server that cannot
//! be reached. rows 0.7 and 0.12

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::reconnect::Reconnect;
use gantry_model::spec::{RemoteLaunch, TransportPreference};
use gantry_model::status::ServerState;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

use super::running::{Running, Task};
use super::{EndKind, FailedRun, NextState, ServerRunner};
use crate::credentials::{Credentials, SignInTrust};
use crate::random::jitter;
use crate::server::handle::{LinkState, RunnerCommand};
use crate::server::link::{Link, Outbox};
use crate::server::pending::Failure;
use crate::transport::http::{HttpError, HttpOutbox, Remote};
use crate::transport::{sse, streamable_http};

/// A sign-in link is valid for ten minutes; the next one is made before that.
const NEXT_LINK: Duration = Duration::from_secs(540);
/// The pause after a sign-in link could not be created.
const AFTER_NO_LINK: Duration = Duration::from_secs(60);

/// The HTTP transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    StreamableHttp,
    Sse,
}

impl Transport {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::StreamableHttp => "streamable-http",
            Self::Sse => "sse",
        }
    }

    /// Returns the transport to try after this failure, if there is another.
    pub(super) fn other(self, preference: TransportPreference, why: &Failure) -> Option<Self> {
        let Failure::Remote(error) = why else {
            return None;
        };
        let has_other = (preference, self) == (TransportPreference::Auto, Self::StreamableHttp);
        (has_other && error.is_not_streamable()).then_some(Self::Sse)
    }
}

/// The state of a remote server that is kept between connections.
pub(crate) struct RemoteState {
    pub(crate) reconnect: Reconnect,
    /// The transport that worked last; only a hint, a mismatch drops it.
    pub(super) learnt: Option<Transport>,
    /// The number of sign-ins when this instance was started.
    sign_ins: u64,
}

impl RemoteState {
    pub(crate) fn new(launch: &RemoteLaunch) -> Self {
        Self {
            reconnect: Reconnect::new(&launch.reconnect),
            learnt: None,
            sign_ins: 0,
        }
    }
}

impl ServerRunner {
    /// Returns the transport to try first.
    pub(super) fn first_transport(&self, preference: TransportPreference) -> Transport {
        match preference {
            TransportPreference::StreamableHttp => Transport::StreamableHttp,
            TransportPreference::Sse => Transport::Sse,
            TransportPreference::Auto => {
                let learnt = self.remote.as_ref().and_then(|remote| remote.learnt);
                learnt.unwrap_or(Transport::StreamableHttp)
            }
        }
    }

    /// Opens a session over HTTP, through a Unix socket of the gateway if there is one; sends
    /// nothing yet. Returns the link, the task that reads the session, and the cell in which that
    /// task stores why it ended.
    pub(super) async fn open_session(
        &self,
        address: &RemoteLaunch,
        transport: Transport,
        socket: Option<&Path>,
    ) -> Result<(Arc<Link>, Task, Arc<OnceLock<HttpError>>), HttpError> {
        let (credentials, known) = (self.credentials.clone(), self.logs.known());
        let limit = Arc::clone(&self.counters.rate_limit);
        let clients = &self.context.clients;
        let remote = Remote::new(clients, address, socket, credentials, known, limit).await?;
        let (outbox, out, closed) = HttpOutbox::new();
        let link = self.new_link(Outbox::Http(outbox));
        let (replies, tracker) = (Arc::clone(&link), self.context.tracker.clone());
        let why = Arc::new(OnceLock::new());
        let told = Arc::clone(&why);
        let reader = self.context.tracker.spawn(async move {
            let ended = match transport {
                Transport::StreamableHttp => {
                    let session = streamable_http::Session::new(remote, replies, tracker);
                    session.run(out, closed).await
                }
                Transport::Sse => {
                    let session = sse::Session::new(remote, replies, tracker);
                    session.run(out, closed).await
                }
            };
            if let Some(ended) = ended {
                drop(told.set(ended));
            }
        });
        Ok((link, Task::new(reader), why))
    }

    /// Handles a session with a remote server that ended by itself.
    pub(super) async fn lost(&mut self, mut running: Running, error: HttpError) -> NextState {
        let how = error.to_string();
        running.close(&Failure::Remote(error.clone())).await;
        if needs_person(&error) {
            return NextState::SignIn(how);
        }
        NextState::Crashed(FailedRun {
            how,
            kind: EndKind::Exit,
            retry_after: error.retry_after(),
        })
    }

    /// Waits for a person to sign in, and keeps a sign-in link ready. Makes no attempts until then.
    pub(super) async fn awaiting_sign_in(&mut self, why: String) -> NextState {
        let name = &self.spec.name;
        let why = self.logs.redactor().redact(&why).into_owned();
        let reason = format!("{why}; run `gantry auth {name}`");
        let events = &self.context.events;
        events.report(name, EventKind::NeedsSignIn, reason.clone());
        self.publish(ServerState::NeedsSignIn, Some(reason.clone()));
        self.show(LinkState::Down(Arc::from(reason), None));
        // A sign-in may have happened while the refused instance was stopped.
        if self
            .remote
            .as_ref()
            .is_some_and(|remote| remote.sign_ins < self.sign_ins())
        {
            // This is the restart that follows a sign-in.
            if self.commands.try_recv().is_ok() {
                self.forgive();
            }
            return NextState::Start;
        }
        tokio::select! {
            biased; // Stop, then the order that follows a sign-in.
            () = self.stop.cancelled() => NextState::Stop(None),
            order = self.commands.recv() => match order {
                Some(RunnerCommand::Restart) => {
                    self.forgive();
                    NextState::Start
                }
                None => NextState::Stop(None),
            },
            next = offer_links(self.credentials.as_ref(), self.context.callback.subscribe()) => next,
        }
    }

    /// Stores the number of sign-ins at the start of an instance.
    pub(super) fn note_sign_ins(&mut self) {
        let sign_ins = self.sign_ins();
        if let Some(remote) = &mut self.remote {
            remote.sign_ins = sign_ins;
        }
    }

    fn sign_ins(&self) -> u64 {
        let credentials = self.credentials.as_ref();
        credentials.map_or(0, Credentials::sign_ins)
    }

    /// Waits before the next connection to a remote server, and reports why and how long.
    pub(super) async fn reaching_again(&mut self, ended: FailedRun) -> NextState {
        let how = self.logs.redactor().redact(&ended.how).into_owned();
        let now = self.watch.now();
        let Some(remote) = &mut self.remote else {
            return NextState::Stop(None);
        };
        let wait = match ended.kind {
            EndKind::Start => remote.reconnect.failed(now, ended.retry_after, jitter()),
            EndKind::Exit | EndKind::Silence => {
                remote.reconnect.lost(now, ended.retry_after, jitter())
            }
        };
        let (failures, was_connected) = (
            remote.reconnect.failures(),
            remote.reconnect.was_connected(),
        );
        let reason = format!("{how}; {}", wait.reason);
        let next_try = Instant::now() + wait.delay;
        let state = match was_connected {
            true => ServerState::Disconnected,
            false => ServerState::Failed,
        };
        let kind = match ended.kind {
            EndKind::Start => EventKind::StartFailed,
            EndKind::Exit | EndKind::Silence => EventKind::Disconnected,
        };
        let events = &self.context.events;
        events.report(&self.spec.name, kind, reason.clone());
        let is_warned_of = self.status.borrow().health_warning;
        if wait.is_away && !is_warned_of {
            events.report(&self.spec.name, EventKind::HealthWarning, wait.reason);
        }
        self.status.send_modify(|status| {
            status.enter(state, Some(reason.clone()));
            status.restarts += 1;
            status.failed_connects = failures;
            status.is_away = wait.is_away;
            status.health_warning = wait.is_away;
            status.next_try = Some(next_try);
        });
        self.show(LinkState::Down(Arc::from(reason), Some(next_try)));
        self.next_try(next_try).await
    }
}

/// Returns whether a person has to sign in.
pub(super) fn needs_person(error: &HttpError) -> bool {
    if let HttpError::SignIn { needs_person, .. } = error {
        return *needs_person;
    }
    false
}

/// Keeps a sign-in link ready; never returns.
async fn offer_links(
    credentials: Option<&Credentials>,
    mut callback: watch::Receiver<Option<String>>,
) -> NextState {
    let known = callback.wait_for(Option::is_some).await;
    let redirect_uri = known.ok().and_then(|known| known.clone());
    let (Some(credentials), Some(redirect_uri)) = (credentials, redirect_uri) else {
        return std::future::pending().await;
    };
    loop {
        let wait = match credentials
            .begin(&redirect_uri, SignInTrust::Remembered)
            .await
        {
            Ok(_link) => NEXT_LINK,
            Err(error) => {
                debug!(%error, "no sign-in link yet");
                AFTER_NO_LINK
            }
        };
        tokio::time::sleep(wait).await;
    }
}
