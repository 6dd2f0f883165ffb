//! The life of a server that is somewhere else: how its link is opened, which transport it is tried
//! with, and how long it is left alone when it cannot be reached. rows 0.7 and 0.12

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::reconnect::Reconnect;
use gantry_model::spec::{RemoteLaunch, TransportWish};
use gantry_model::status::State;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

use super::running::{Body, Running, Task};
use super::{EndKind, Ended, Next, ServerRunner};
use crate::credentials::{Credentials, SignInTrust};
use crate::random::jitter;
use crate::server::handle::{Live, Order};
use crate::server::link::{Link, Outbox};
use crate::server::pending::Failure;
use crate::transport::http::{HttpError, HttpOutbox, Remote};
use crate::transport::{sse, streamable_http};

/// A link is good for ten minutes; the next one is there before that.
const NEXT_LINK: Duration = Duration::from_secs(540);
/// How long after a link could not be made the next is tried.
const AFTER_NO_LINK: Duration = Duration::from_secs(60);

/// How the messages of a remote server travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Streamable,
    Sse,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Streamable => "streamable-http",
            Self::Sse => "sse",
        }
    }
}

/// What a runner remembers of its remote server between connections.
pub(crate) struct Far {
    pub(crate) reconnect: Reconnect,
    /// What was learnt of the server's transport; only a hint, a mismatch drops it.
    learnt: Option<Kind>,
    /// How often somebody had signed in when this life began.
    sign_ins: u64,
}

impl Far {
    pub(crate) fn new(launch: &RemoteLaunch) -> Self {
        Self {
            reconnect: Reconnect::new(&launch.reconnect),
            learnt: None,
            sign_ins: 0,
        }
    }

    /// Returns the transport to try first.
    pub(super) fn first(&self, wish: TransportWish) -> Kind {
        match wish {
            TransportWish::StreamableHttp => Kind::Streamable,
            TransportWish::Sse => Kind::Sse,
            TransportWish::Auto => self.learnt.unwrap_or(Kind::Streamable),
        }
    }

    /// Returns the transport to try after one that failed so, if there is another.
    pub(super) fn other(&self, wish: TransportWish, tried: Kind, why: &Failure) -> Option<Kind> {
        let Failure::Remote(error) = why else {
            return None;
        };
        match (wish, tried) {
            (TransportWish::Auto, Kind::Streamable) if error.is_not_streamable() => Some(Kind::Sse),
            _ => None,
        }
    }

    pub(super) fn learn(&mut self, kind: Option<Kind>) {
        self.learnt = kind;
    }
}

impl ServerRunner {
    /// Opens a link to a remote server; nothing is sent before something is asked.
    pub(super) async fn open_remote(
        &self,
        launch: &RemoteLaunch,
        kind: Kind,
    ) -> Result<Running, HttpError> {
        let (credentials, known) = (self.credentials.clone(), self.logs.known());
        let limit = Arc::clone(&self.counters.rate_limit);
        let remote = Remote::new(&self.around.clients, launch, credentials, known, limit).await?;
        let (outbox, out, closed) = HttpOutbox::new();
        let link = Arc::new(Link::new(
            Outbox::Http(outbox),
            Arc::clone(&self.logs),
            Arc::clone(&self.counters),
            self.link_limits(),
            self.around.first_id,
            self.around.tracker.clone(),
        ));
        link.charge(&self.around.answers);
        let (replies, tracker) = (Arc::clone(&link), self.around.tracker.clone());
        let why = Arc::new(OnceLock::new());
        let told = Arc::clone(&why);
        let reader = self.around.tracker.spawn(async move {
            let ended = match kind {
                Kind::Streamable => {
                    let session = streamable_http::Session::new(remote, replies, tracker);
                    session.run(out, closed).await
                }
                Kind::Sse => {
                    let session = sse::Session::new(remote, replies, tracker);
                    session.run(out, closed).await
                }
            };
            if let Some(ended) = ended {
                drop(told.set(ended));
            }
        });
        Ok(Running {
            link,
            reader: Task::new(reader),
            body: Body::Remote { why },
        })
    }

    /// The session with a remote server has ended by itself.
    pub(super) async fn lost(&mut self, mut running: Running, error: HttpError) -> Next {
        let how = error.to_string();
        running.close(&Failure::Remote(error.clone())).await;
        if needs_person(&error) {
            return Next::SignIn(how);
        }
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
            retry_after: error.retry_after(),
        })
    }

    /// Waits for a person to sign in; nothing is tried until then. A link is kept ready for them.
    pub(super) async fn awaiting_sign_in(&mut self, why: String) -> Next {
        let name = &self.spec.name;
        let why = self.logs.redactor().redact(&why).into_owned();
        let reason = format!("{why}; run `gantry auth {name}`");
        let events = &self.around.events;
        events.report(name, EventKind::NeedsSignIn, reason.clone());
        self.publish(State::NeedsSignIn, Some(reason.clone()));
        self.show(Live::Down(Arc::from(reason), None));
        // Who signed in while the life that was refused came to its end found nobody waiting.
        if self
            .far
            .as_ref()
            .is_some_and(|far| far.sign_ins < self.sign_ins())
        {
            // Its order has done what it is for.
            if self.orders.try_recv().is_ok() {
                self.forgive();
            }
            return Next::Start;
        }
        tokio::select! {
            biased; // Stop, then the order that follows a sign-in.
            () = self.stop.cancelled() => Next::Stop(None),
            order = self.orders.recv() => match order {
                Some(Order::Restart) => {
                    self.forgive();
                    Next::Start
                }
                None => Next::Stop(None),
            },
            next = offer_links(self.credentials.as_ref(), self.around.callback.subscribe()) => next,
        }
    }

    /// Notes how often somebody had signed in when a life begins.
    pub(super) fn note_sign_ins(&mut self) {
        let sign_ins = self.sign_ins();
        if let Some(far) = &mut self.far {
            far.sign_ins = sign_ins;
        }
    }

    fn sign_ins(&self) -> u64 {
        let credentials = self.credentials.as_ref();
        credentials.map_or(0, Credentials::sign_ins)
    }

    /// Waits before a remote server is reached for again, and says why and how long.
    pub(super) async fn reaching_again(&mut self, ended: Ended) -> Next {
        let how = self.logs.redactor().redact(&ended.how).into_owned();
        let now = self.watch.now();
        let Some(far) = &mut self.far else {
            return Next::Stop(None);
        };
        let wait = match ended.kind {
            EndKind::Start => far.reconnect.failed(now, ended.retry_after, jitter()),
            EndKind::Exit | EndKind::Silence => {
                far.reconnect.lost(now, ended.retry_after, jitter())
            }
        };
        let (failures, was_connected) = (far.reconnect.failures(), far.reconnect.was_connected());
        let reason = format!("{how}; {}", wait.reason);
        let next_try = Instant::now() + wait.delay;
        let state = match was_connected {
            true => State::Disconnected,
            false => State::Failed,
        };
        let kind = match ended.kind {
            EndKind::Start => EventKind::StartFailed,
            EndKind::Exit | EndKind::Silence => EventKind::Disconnected,
        };
        let events = &self.around.events;
        events.report(&self.spec.name, kind, reason.clone());
        if wait.is_away {
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
        self.show(Live::Down(Arc::from(reason), Some(next_try)));
        self.next_try(next_try).await
    }
}

/// Tells whether nothing helps but a person who signs in.
pub(super) fn needs_person(error: &HttpError) -> bool {
    if let HttpError::SignIn { needs_person, .. } = error {
        return *needs_person;
    }
    false
}

/// Keeps a link ready at which a person may sign in; never ends.
async fn offer_links(
    credentials: Option<&Credentials>,
    mut callback: watch::Receiver<Option<String>>,
) -> Next {
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
                debug!(%error, "no link can be offered yet");
                AFTER_NO_LINK
            }
        };
        tokio::time::sleep(wait).await;
    }
}
