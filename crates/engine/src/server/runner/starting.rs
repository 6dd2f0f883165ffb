//! The state in which a server comes to life: process, link, handshake, first listing. Everything
//! that was begun is ended again if one of them fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCan;
use gantry_model::spec::{Launch, ProcessLaunch, RemoteLaunch, ServerSpec};
use gantry_model::status::State;
use gantry_sandbox::{Spawned, Tree};
use tokio::time::{Instant, timeout};

use super::remote::{Kind, needs_person};
use super::running::{Body, Running, Task};
use super::{EndKind, Ended, Next, ServerRunner, Surroundings, care};
use crate::catalog::ServerCatalog;
use crate::server::handle::{Live, Order};
use crate::server::handshake::{self, GreetError, Hello};
use crate::server::link::{Link, LinkLimits, Outbox};
use crate::server::listing::{Listing, ListingError, describe};
use crate::server::pending::Failure;
use crate::transport::stdio::{End, LineReader, LineWriter, drain};

/// Bytes that may wait to be written to one server.
const WRITE_QUEUE_BYTES: usize = 64 << 20;

/// Why a life of a stateless server ends that was to speak the handshake.
const NO_HANDSHAKE: &str = "it knows no handshake";

/// How long a process whose link was cut may take to end before it counts as alive.
const ENDING: Duration = Duration::from_millis(500);

impl ServerRunner {
    pub(super) async fn starting(&mut self) -> Next {
        self.publish(State::Starting, None);
        self.show(Live::Starting);
        self.logs.begin_life();
        self.note_sign_ins();
        self.around
            .events
            .report(&self.spec.name, EventKind::Starting, "starting");
        let begun = Instant::now();
        let spec = Arc::clone(&self.spec);
        match &spec.launch {
            Launch::Process(launch) => {
                let spawned = self.around.driver.start(&spec.name, launch).await;
                let next = match spawned {
                    Ok(spawned) => {
                        let running = self.open(spawned);
                        self.meet(running, begun).await.into_next()
                    }
                    Err(error) => failed(chain(&error)),
                };
                self.explained(next, launch).await
            }
            Launch::Remote(launch) => self.reach(launch, begun).await,
        }
    }

    /// Adds to a failed start of a hosted command what its sandbox keeps from it: that is what its own
    /// words («no such file») do not say.
    async fn explained(&self, mut next: Next, launch: &ProcessLaunch) -> Next {
        if let Next::Crashed(ended) = &mut next
            && let Some(why) = self
                .around
                .driver
                .confinement(&self.spec.name, launch)
                .await
        {
            ended.how = format!("{}; {why}", ended.how);
        }
        next
    }

    /// Reaches for a remote server, with the transport that it wants.
    async fn reach(&mut self, launch: &RemoteLaunch, begun: Instant) -> Next {
        let (now, mut kind) = (self.watch.now(), Kind::Streamable);
        if let Some(far) = &mut self.far {
            far.reconnect.begins(now);
            kind = far.first(launch.transport);
        }
        loop {
            let running = match self.open_remote(launch, kind).await {
                Ok(running) => running,
                Err(error) => return failed(error.to_string()),
            };
            self.status
                .send_modify(|status| status.transport = Some(kind.as_str()));
            let met = self.meet(running, begun).await;
            let Some(far) = &mut self.far else {
                return met.into_next();
            };
            let other = met
                .why
                .as_ref()
                .and_then(|why| far.other(launch.transport, kind, why));
            if let Some(other) = other {
                kind = other;
                continue;
            }
            let came_up = matches!(met.next, Next::Serve(_));
            far.learn(came_up.then_some(kind));
            return met.into_next();
        }
    }

    /// Greets a server over its open link, and asks what it offers.
    async fn meet(&mut self, mut running: Running, begun: Instant) -> Met {
        let deadline = begun + self.spec.life.handshake;
        let greeted = {
            let who = (&*self.around, &*self.spec, self.id);
            let how = (self.wanted_era(), self.declares);
            let greet = greet(who, how, Arc::clone(&running.link), deadline);
            tokio::select! {
                biased; // Stop, the server's end, its misdeeds, its pipes' end, orders, the greeting.
                () = self.stop.cancelled() => return Next::Stop(Some(Box::new(running))).into(),
                exit = running.body.exited() => Err(Greeted::Exited(exit)),
                () = running.link.troubled.notified() => {
                    let what = running.link.take_trouble();
                    Err(Greeted::Refused(what.unwrap_or_else(|| "misbehaved".into())))
                }
                () = running.reader.ended() => Err(match running.lost() {
                    Some(error) => Greeted::Lost(Failure::Remote(error)),
                    None => Greeted::Cut("closed its stdout during the handshake".into()),
                }),
                () = running.link.input_closed.notified() => {
                    Err(Greeted::Cut("closed its stdin during the handshake".into()))
                }
                order = self.orders.recv() => return match order {
                    Some(Order::Restart) => Next::Restart(Box::new(running)),
                    None => Next::Stop(Some(Box::new(running))),
                }.into(),
                greeted = greet => greeted,
            }
        };
        let greeted = match greeted {
            // A process that ends is first noticed by its closed pipes.
            Err(Greeted::Cut(why)) if !running.is_remote() => {
                match timeout(ENDING, running.body.exited()).await {
                    Ok(exit) => Err(Greeted::Exited(exit)),
                    Err(_elapsed) => Err(Greeted::Refused(why)),
                }
            }
            greeted => greeted,
        };
        match greeted {
            Err(error) if self.is_refused(&error) => {
                running.strike();
                let why = Failure::Exited(NO_HANDSHAKE.into());
                self.end(running, &why, Duration::ZERO).await;
                Next::Stop(None).into()
            }
            Ok((hello, listed)) => {
                self.era_hint = Some(hello.era);
                let took = begun.elapsed().as_millis();
                let what = match &listed {
                    Ok(_) => "ready".to_owned(),
                    // Row 2.6: it is there; its lists are asked for again.
                    Err(error) => format!("ready without its lists ({error})"),
                };
                match listed {
                    Ok(listing) => {
                        self.take_listing(listing, Arc::new(hello), false);
                    }
                    Err(error) => self.unlisted(&error, Arc::new(hello), &running.link),
                }
                let tools = self.catalog.load().tools.len();
                let what = self.logs.redactor().redact(&what).into_owned();
                let what = format!("{what} with {tools} tools after {took} ms");
                self.around
                    .events
                    .report(&self.spec.name, EventKind::Ready, what);
                Next::Serve(Box::new(running)).into()
            }
            Err(Greeted::Exited(how)) => {
                self.forget_usage();
                running.deliver().await;
                running.close(&Failure::Exited(how.clone())).await;
                if self.era_hint.is_none() {
                    // Some servers end on a request before `initialize`: the next try asks that first.
                    self.era_hint = Some(Era::Handshake);
                }
                let misdeed = running.link.take_trouble();
                failed(misdeed.unwrap_or_else(|| format!("ended during the handshake: {how}")))
                    .into()
            }
            Err(Greeted::Refused(why) | Greeted::Cut(why)) => {
                self.era_hint = None;
                running.strike();
                self.end(running, &Failure::Exited(why.clone()), Duration::ZERO)
                    .await;
                failed(why).into()
            }
            Err(Greeted::Lost(why)) => {
                self.era_hint = None;
                self.end(running, &why, Duration::ZERO).await;
                let retry_after = match &why {
                    Failure::Remote(error) => error.retry_after(),
                    Failure::Protocol(_)
                    | Failure::TooLarge(_)
                    | Failure::Undelivered(_)
                    | Failure::Exited(_)
                    | Failure::NotReading
                    | Failure::Displaced => None,
                };
                let next = match &why {
                    Failure::Remote(error) if needs_person(error) => {
                        Next::SignIn(error.to_string())
                    }
                    Failure::Remote(_)
                    | Failure::Protocol(_)
                    | Failure::TooLarge(_)
                    | Failure::Undelivered(_)
                    | Failure::Exited(_)
                    | Failure::NotReading
                    | Failure::Displaced => Next::Crashed(Ended {
                        how: describe(&why),
                        kind: EndKind::Start,
                        retry_after,
                    }),
                };
                let why = Some(why);
                Met { next, why }
            }
        }
    }

    /// Returns the era to begin with. Only the handshake says what the client can do.
    fn wanted_era(&self) -> Option<Era> {
        match self.declares.anything() {
            true => Some(Era::Handshake),
            false => self.era_hint,
        }
    }

    /// Tells whether the server has shown that it knows no handshake, and notes it. One that cannot
    /// be reached just now has shown nothing.
    fn is_refused(&self, error: &Greeted) -> bool {
        let has_shown = match error {
            Greeted::Lost(Failure::Remote(error)) => error.is_unknowing(),
            Greeted::Lost(_) => false,
            Greeted::Exited(_) | Greeted::Cut(_) | Greeted::Refused(_) => true,
        };
        let Some(refuses) = self.refuses.as_ref().filter(|_| has_shown) else {
            return false;
        };
        refuses.store(true, Ordering::Relaxed);
        true
    }

    /// Returns how a link to the server is bounded.
    pub(super) fn link_limits(&self) -> LinkLimits {
        LinkLimits {
            lanes: self.spec.concurrency(),
            queue: self.spec.calls.queue,
            line_bytes: self.around.limits.line_bytes,
            depth: self.around.limits.depth,
            late_grace: self.spec.calls.late_grace,
            asks: self.declares.anything(),
        }
    }

    /// Opens the link over the process's pipes and starts its three tasks.
    fn open(&self, spawned: Spawned) -> Running {
        let limits = self.link_limits();
        let link = Arc::new(Link::new(
            Outbox::Pipe(LineWriter::new(spawned.stdin, WRITE_QUEUE_BYTES)),
            Arc::clone(&self.logs),
            Arc::clone(&self.counters),
            limits,
            self.around.first_id,
            self.around.tracker.clone(),
        ));
        link.charge(&self.around.answers);
        let write_deadline = self.around.limits.write;
        let writer = Arc::clone(&link);
        self.around
            .tracker
            .spawn(async move { writer.run_writer(write_deadline).await });
        let inbox = Arc::clone(&link);
        let lines = LineReader::new(spawned.stdout, limits.line_bytes);
        let reader = self.around.tracker.spawn(async move {
            if lines.run(&inbox).await == End::Endless {
                inbox.endless();
            }
        });
        let logs = Arc::clone(&self.logs);
        let stderr = self
            .around
            .tracker
            .spawn(async move { drain(spawned.stderr, |bytes| logs.stderr(bytes)).await });
        self.remember_usage(&spawned.tree);
        self.status.send_modify(|status| {
            status.pid = Some(spawned.tree.pid());
            status.isolation = Some(spawned.report);
            status.transport = Some("stdio");
        });
        Running {
            link,
            reader: Task::new(reader),
            body: Body::Process {
                tree: spawned.tree,
                stderr: Task::new(stderr),
            },
        }
    }

    fn remember_usage(&self, tree: &Tree) {
        if let Ok(mut usage) = self.usage.lock() {
            *usage = Some(tree.meter());
        }
    }

    /// Takes in a server whose first lists could not be had, and has them asked for again.
    fn unlisted(&self, error: &ListingError, hello: Arc<Hello>, link: &Link) {
        let mut catalog = self.catalog.load().as_ref().clone();
        catalog.hello = Some(hello);
        self.catalog.store(Arc::new(catalog));
        self.hide(error);
        link.lists.refresh();
    }

    /// Puts what a server offers into the catalog, or what one life of it does; true if it is news.
    pub(super) fn take_listing(&self, listing: Listing, hello: Arc<Hello>, is_own: bool) -> bool {
        let mut catalog = ServerCatalog::new(listing.filtered(&self.spec.tools), Some(hello));
        catalog.is_own = is_own;
        let news = !self.catalog.load().offers_the_same(&catalog);
        self.status.send_modify(|status| {
            if status.state != State::Unresponsive {
                status.reason = None;
            }
            status.count(&catalog);
            if let Some(hello) = &catalog.hello {
                status.protocol_version = Some(hello.version.to_string());
                status.server_info = hello.server_info.clone().map(|info| info.into_text());
                status.instructions.clone_from(&hello.instructions);
            }
        });
        self.catalog.store(Arc::new(catalog));
        (self.around.changed)();
        news
    }
}

/// Handshake and first listing, all within one deadline, and the listing remembered. A list that the
/// server does not give, or that cannot be read, is no reason to do without the server.
async fn greet(
    (around, spec, id): (&Surroundings, &ServerSpec, ServerId),
    (hint, can): (Option<Era>, ClientCan),
    link: Arc<Link>,
    deadline: Instant,
) -> Result<(Hello, Result<Listing, ListingError>), Greeted> {
    let hello = handshake::greet(&link, hint, can, spec.life.probe, deadline).await?;
    if can.anything() {
        return Ok((hello, Ok(Listing::default())));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    match care::list(around, spec, id, &link, &hello, left).await {
        Err(error) if !error.leaves_server() => Err(error.into()),
        listed => Ok((hello, listed)),
    }
}

/// What came of meeting a server: what follows, and why it failed if the link said so.
struct Met {
    next: Next,
    why: Option<Failure>,
}

impl Met {
    fn into_next(self) -> Next {
        self.next
    }
}

impl From<Next> for Met {
    fn from(next: Next) -> Self {
        Self { next, why: None }
    }
}

/// Why a started process, or a remote server, did not become a server of ours.
enum Greeted {
    /// It could not be reached, or not be understood.
    Lost(Failure),
    /// It ended.
    Exited(String),
    /// Its link was cut; it may be about to end.
    Cut(String),
    /// It answered wrongly or not at all.
    Refused(String),
}

impl From<GreetError> for Greeted {
    fn from(error: GreetError) -> Self {
        match error {
            GreetError::Cut(failure @ Failure::Remote(_)) => Self::Lost(failure),
            GreetError::Cut(_) => Self::Cut(error.to_string()),
            GreetError::Silent(..) | GreetError::Refused { .. } | GreetError::NotUnderstood(_) => {
                Self::Refused(error.to_string())
            }
        }
    }
}

impl From<ListingError> for Greeted {
    fn from(error: ListingError) -> Self {
        match error {
            ListingError::Cut {
                failure: failure @ Failure::Remote(_),
                ..
            } => Self::Lost(failure),
            ListingError::Cut { .. } => Self::Cut(error.to_string()),
            ListingError::Silent { .. }
            | ListingError::Refused { .. }
            | ListingError::Shape { .. }
            | ListingError::Unreadable => Self::Refused(error.to_string()),
        }
    }
}

fn failed(how: String) -> Next {
    Next::Crashed(Ended {
        how,
        kind: EndKind::Start,
        retry_after: None,
    })
}
