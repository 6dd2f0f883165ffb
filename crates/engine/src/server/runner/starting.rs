//! The state `starting`: instance, link, handshake, first listing. If one of them fails, the
//! earlier ones are stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use gantry_model::diagnose::chain;
use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCapabilities;
use gantry_model::pin::find_in_text;
use gantry_model::spec::ServerSpec;
use gantry_model::status::ServerState;
use tokio::time::{Instant, timeout};

use super::remote::{Transport, needs_person};
use super::running::{Running, Task};
use super::{EndKind, FailedRun, NextState, RunnerContext, ServerRunner, attempts, health};
use crate::driver::{
    ByteSource, Driver, DriverError, Instance, Io, Labels, StartRequest, Stdin, Streams,
};
use crate::server::catalog::ServerCatalog;
use crate::server::handle::{LinkState, RunnerCommand};
use crate::server::handshake::{self, HandshakeFailure, HandshakeInfo};
use crate::server::link::{Link, LinkLimits, Outbox};
use crate::server::listing::{Listing, ListingError, describe};
use crate::server::pending::Failure;
use crate::transport::http::HttpError;
use crate::transport::stdio::{End, LineReader, LineWriter, bridge, drain};

/// The maximum number of bytes queued for writing to one server.
const WRITE_QUEUE_BYTES: usize = 64 << 20;

/// Why an instance for the handshake is stopped if the server is stateless.
const NO_HANDSHAKE: &str = "it does not support the handshake";

/// How long a server that closed a stream may take to exit before it counts as running.
const ENDING: Duration = Duration::from_millis(500);

impl ServerRunner {
    pub(super) async fn starting(&mut self) -> NextState {
        self.publish(ServerState::Starting, None);
        self.show(LinkState::Starting);
        let attempt = self.status.borrow().starts;
        self.logs.begin_instance(attempt);
        *self.exit.lock() = None;
        self.note_sign_ins();
        self.context
            .events
            .report(&self.spec.name, EventKind::Starting, "starting");
        if let Some(waits) = self.take_secrets().await {
            return waits;
        }
        let spec = Arc::clone(&self.spec);
        let driver = self.context.drivers.of(&spec.launch);
        let mut next = match self.bring_up(&*driver).await {
            Ok(next) => next,
            // If the instance never started, as when an image cannot be pulled, its isolation is
            // not the cause.
            Err(why) if spec.launch.image().is_some() => return failed(why),
            Err(why) => failed(why),
        };
        if let NextState::Crashed(ended) = &mut next
            && let Some(why) = driver.explain(&self.context.project, &spec).await
        {
            ended.how = format!("{}; {why}", ended.how);
        }
        next
    }

    /// Starts an instance and connects to it; if needed, once more with another transport. Fails if
    /// no instance started.
    async fn bring_up(&mut self, driver: &dyn Driver) -> Result<NextState, String> {
        let (begun, now) = (Instant::now(), self.watch.now());
        if let Some(remote) = &mut self.remote {
            remote.reconnect.begins(now);
        }
        let (mut http, mut deadline) = (None, None);
        loop {
            let instance = match self.start_instance(driver).await {
                Ok(instance) => instance,
                Err(error) => return Err(chain(&error)),
            };
            // A slow start, such as a download, does not count; every transport attempt does.
            let handshake = self.spec.lifecycle.handshake;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + handshake);
            let wish = match &instance.io {
                Io::Streams(_) => None,
                Io::Address(address) => Some(address.transport),
                Io::Inside(inside) => Some(inside.address.transport),
            };
            http = http.or_else(|| wish.map(|wish| self.first_transport(wish)));
            let running = match self.open(instance, http).await {
                Ok(running) => running,
                Err(why) => {
                    self.forget_usage();
                    return Ok(failed(why));
                }
            };
            let met = self.meet(running, begun, deadline).await;
            let other = wish.zip(http).zip(met.why.as_ref());
            match other.and_then(|((wish, tried), why)| tried.other(wish, why)) {
                Some(other) => http = Some(other),
                None => {
                    if let Some(remote) = &mut self.remote {
                        remote.learnt = http.filter(|_| matches!(met.next, NextState::Serve(_)));
                    }
                    return Ok(met.next);
                }
            }
        }
    }

    async fn start_instance(&self, driver: &dyn Driver) -> Result<Instance, DriverError> {
        let generation = self.context.generations.fetch_add(1, Ordering::Relaxed) + 1;
        self.status
            .send_modify(|status| status.generation = generation);
        let progress = |doing| {
            self.status
                .send_modify(|status| status.reason = Some(doing));
        };
        let request = StartRequest {
            spec: &self.spec,
            labels: Labels {
                project: self.context.project.clone(),
                server: self.spec.name.clone(),
                generation,
            },
            progress: &progress,
            stop: &self.stop,
        };
        let mut instance = driver.start(request).await?;
        instance.control = attempts::noted(instance.control, &self.exit);
        let usage = Arc::clone(&instance.usage);
        *self.usage.lock() = Some(usage);
        self.status.send_modify(|status| {
            status.reason = None;
            status.pid = instance.pid;
            status.isolation.clone_from(&instance.isolation);
            status.hosting = instance.hosting.take().map(Arc::new);
        });
        Ok(instance)
    }

    /// Performs the handshake over an open link, and fetches the lists.
    async fn meet(
        &mut self,
        mut running: Running,
        begun: Instant,
        deadline: Instant,
    ) -> HandshakeOutcome {
        let greeted = {
            let who = (&*self.context, &*self.wanted, self.id);
            let how = (self.wanted_era(), self.declares);
            let greet = greet(who, how, Arc::clone(&running.link), deadline);
            tokio::select! {
                biased; // Stop, exit, protocol errors, end of its streams, commands, the handshake.
                () = self.stop.cancelled() => return NextState::Stop(Some(Box::new(running))).into(),
                exit = running.control.exited() => Err(StartFailure::Exited(exit.to_string())),
                () = running.link.troubled.notified() => {
                    let what = running.link.take_trouble();
                    Err(StartFailure::Refused(what.unwrap_or_else(|| "misbehaved".into())))
                }
                () = running.reader.ended() => Err(match running.lost() {
                    Some(error) => StartFailure::Lost(Failure::Remote(error)),
                    None => StartFailure::Cut("closed its stdout during the handshake".into()),
                }),
                () = running.link.input_closed.notified() => {
                    Err(StartFailure::Cut("closed its stdin during the handshake".into()))
                }
                order = self.commands.recv() => return match order {
                    Some(RunnerCommand::Restart) => NextState::Restart(Box::new(running)),
                    None => NextState::Stop(Some(Box::new(running))),
                }.into(),
                greeted = greet => greeted,
            }
        };
        let greeted = match greeted {
            // An exit is first noticed by the closed streams.
            Err(StartFailure::Cut(why)) if running.session.is_none() => {
                match timeout(ENDING, running.control.exited()).await {
                    Ok(exit) => Err(StartFailure::Exited(exit.to_string())),
                    Err(_elapsed) => Err(StartFailure::Refused(why)),
                }
            }
            // The reader of a remote server knows why, and may end a moment later.
            Err(StartFailure::Cut(why)) => {
                drop(timeout(ENDING, running.reader.ended()).await);
                let lost = running.lost().map(Failure::Remote);
                Err(lost.map_or(StartFailure::Refused(why), StartFailure::Lost))
            }
            greeted => greeted,
        };
        match greeted {
            Err(error) if self.is_refused(&error) => {
                running.control.kill();
                let why = Failure::Exited(NO_HANDSHAKE.into());
                self.end(running, &why, Duration::ZERO).await;
                NextState::Stop(None).into()
            }
            Ok((handshake, listed)) => {
                self.era_hint = Some(handshake.era);
                let took = begun.elapsed().as_millis();
                let what = match &listed {
                    Ok(_) => "ready".to_owned(),
                    // Row 2.6: the server is ready; its lists are fetched again later.
                    Err(error) => format!("ready without its lists ({error})"),
                };
                match listed {
                    Ok(listing) => {
                        self.take_listing(listing, Arc::new(handshake), false);
                    }
                    Err(error) => self.unlisted(&error, Arc::new(handshake), &running.link),
                }
                let tools = self.catalog.load().tools.len();
                let what = self.logs.redactor().redact(&what).into_owned();
                let what = format!("{what} with {tools} tools after {took} ms");
                self.context
                    .events
                    .report(&self.spec.name, EventKind::Ready, what);
                NextState::Serve(Box::new(running)).into()
            }
            Err(StartFailure::Exited(how)) => {
                self.forget_usage();
                running.deliver().await;
                running.close(&Failure::Exited(how.clone())).await;
                if self.era_hint.is_none() {
                    // Some servers exit on a request before `initialize`: the next attempt sends
                    // that first.
                    self.era_hint = Some(Era::Handshake);
                }
                let misdeed = running.link.take_trouble();
                failed(misdeed.unwrap_or_else(|| format!("ended during the handshake: {how}")))
                    .into()
            }
            Err(StartFailure::Refused(why) | StartFailure::Cut(why)) => {
                self.era_hint = None;
                running.control.kill();
                self.end(running, &Failure::Exited(why.clone()), Duration::ZERO)
                    .await;
                failed(why).into()
            }
            Err(StartFailure::Lost(why)) => {
                self.era_hint = None;
                self.end(running, &why, Duration::ZERO).await;
                let next = match why.remote() {
                    Some(error) if needs_person(error) => NextState::SignIn(error.to_string()),
                    error => NextState::Crashed(FailedRun {
                        how: describe(&why),
                        kind: EndKind::Start,
                        retry_after: error.and_then(HttpError::retry_after),
                    }),
                };
                let why = Some(why);
                HandshakeOutcome { next, why }
            }
        }
    }

    /// Returns the era to try first. Only the handshake declares client capabilities.
    fn wanted_era(&self) -> Option<Era> {
        match self.declares.anything() {
            true => Some(Era::Handshake),
            false => self.era_hint,
        }
    }

    /// Returns whether the server has shown that it does not support the handshake, and remembers
    /// it. An unreachable server has shown nothing.
    fn is_refused(&self, error: &StartFailure) -> bool {
        let has_shown = match error {
            StartFailure::Lost(Failure::Remote(error)) => error.is_unknowing(),
            StartFailure::Lost(_) => false,
            StartFailure::Exited(_) | StartFailure::Cut(_) | StartFailure::Refused(_) => true,
        };
        let Some(refuses) = self.refuses.as_ref().filter(|_| has_shown) else {
            return false;
        };
        refuses.store(true, Ordering::Relaxed);
        true
    }

    /// Creates a link over an outbox, with the server's limits.
    pub(super) fn new_link(&self, outbox: Outbox) -> Arc<Link> {
        let limits = LinkLimits {
            lanes: self.spec.concurrency(),
            queue: self.spec.calls.queue,
            line_bytes: self.context.limits.line_bytes,
            depth: self.context.limits.depth,
            late_grace: self.spec.calls.late_grace,
            asks: self.declares.anything(),
            cleans: self.spec.calls.clean_results,
        };
        let link = Arc::new(Link::new(
            outbox,
            Arc::clone(&self.logs),
            Arc::clone(&self.counters),
            limits,
            self.context.first_id,
            self.context.tracker.clone(),
        ));
        link.charge(&self.context.answers);
        link
    }

    /// Opens the link to an instance: lines over its streams, or HTTP to its address.
    async fn open(&self, instance: Instance, http: Option<Transport>) -> Result<Running, String> {
        let (control, pid) = (instance.control, instance.pid);
        let (link, reader, stderr, session) = match instance.io {
            Io::Streams(streams) => {
                let (link, reader, stderr) =
                    self.open_streams(streams).map_err(|error| chain(&error))?;
                (link, reader, stderr, None)
            }
            Io::Address(address) => {
                let transport = http.unwrap_or(Transport::StreamableHttp);
                let opened = self.open_session(&address, transport, None).await;
                let (link, reader, session) = opened.map_err(|error| error.to_string())?;
                (link, reader, Task::default(), Some(session))
            }
            Io::Inside(inside) => {
                let output = self.log_output(inside.output);
                let transport = http.unwrap_or(Transport::StreamableHttp);
                let (address, socket) = (&inside.address, Some(&*inside.socket));
                let opened = self.open_session(address, transport, socket).await;
                let (link, reader, session) = opened.map_err(|error| error.to_string())?;
                (link, reader, output, Some(session))
            }
        };
        let transport = http.map_or("stdio", Transport::as_str);
        self.status
            .send_modify(|status| status.transport = Some(transport));
        Ok(Running {
            link,
            reader,
            stderr,
            control,
            pid,
            session,
        })
    }

    /// Opens a link over byte streams and starts the tasks that write and read them.
    fn open_streams(&self, streams: Streams) -> io::Result<(Arc<Link>, Task, Task)> {
        let tracker = &self.context.tracker;
        let stdin = match streams.stdin {
            Stdin::Pipe(pipe) => pipe,
            Stdin::Stream(stream) => {
                let (pipe, copying) = bridge(stream)?;
                tracker.spawn(copying);
                pipe
            }
        };
        let link = self.new_link(Outbox::Pipe(LineWriter::new(stdin, WRITE_QUEUE_BYTES)));
        let write_deadline = self.context.limits.write;
        let writer = Arc::clone(&link);
        tracker.spawn(async move { writer.run_writer(write_deadline).await });
        let inbox = Arc::clone(&link);
        let lines = LineReader::new(streams.stdout, self.context.limits.line_bytes);
        let reader = tracker.spawn(async move {
            if lines.run(&inbox).await == End::Endless {
                inbox.endless();
            }
        });
        let stderr = streams.stderr.map(|stream| {
            let logs = Arc::clone(&self.logs);
            tracker.spawn(async move { drain(stream, |bytes| logs.stderr(bytes)).await })
        });
        let stderr = stderr.map_or_else(Task::default, Task::new);
        Ok((link, Task::new(reader), stderr))
    }

    /// Logs the output of a server whose messages use another channel.
    fn log_output(&self, output: Vec<ByteSource>) -> Task {
        let logs = Arc::clone(&self.logs);
        let reading = async move {
            let streams = output.into_iter();
            let drained = streams.map(|stream| drain(stream, |bytes| logs.stderr(bytes)));
            join_all(drained).await;
        };
        Task::new(self.context.tracker.spawn(reading))
    }

    /// Keeps a server whose first listing failed, and schedules another.
    fn unlisted(&self, error: &ListingError, handshake: Arc<HandshakeInfo>, link: &Link) {
        let mut catalog = self.catalog.load().as_ref().clone();
        catalog.handshake = Some(handshake);
        self.catalog.store(Arc::new(catalog));
        self.hide(error);
        link.lists.refresh();
    }

    /// Publishes a listing in the catalog; returns true if it changed. `is_own`: only one client
    /// sees it.
    pub(super) fn take_listing(
        &self,
        listing: Listing,
        handshake: Arc<HandshakeInfo>,
        is_own: bool,
    ) -> bool {
        let listing = listing.with_versions_of(&self.catalog.load());
        let mut catalog = ServerCatalog::new(listing.filtered(&self.spec.tools), Some(handshake));
        if let Some(text) = catalog
            .handshake
            .as_ref()
            .and_then(|own| own.instructions.as_deref())
        {
            let found = find_in_text("instructions", text).into_iter();
            let found = found.map(|finding| ("instructions".to_owned(), finding));
            catalog.findings.extend(found);
        }
        self.report_findings(&catalog);
        catalog.is_own = is_own;
        let news = !self.catalog.load().offers_the_same(&catalog);
        self.status.send_modify(|status| {
            if status.state != ServerState::Unresponsive {
                status.reason = None;
            }
            status.count(&catalog);
            if let Some(handshake) = &catalog.handshake {
                status.protocol_version = Some(handshake.version.to_string());
                status.server_info = handshake.server_info.clone().map(|info| info.into_text());
                status.instructions = handshake.shown_instructions();
            }
        });
        self.catalog.store(Arc::new(catalog));
        (self.context.changed)();
        news
    }
}

impl ServerRunner {
    /// Tells of texts that seem to instruct models, once for the same texts. fault L1
    fn report_findings(&self, catalog: &ServerCatalog) {
        if catalog.findings.is_empty() || self.catalog.load().findings == catalog.findings {
            return;
        }
        let found = catalog.findings.iter().take(5);
        let found: Vec<String> = found
            .map(|(name, finding)| format!("`{name}` {} ({})", finding.path, finding.rule))
            .collect();
        let what = format!("texts to look at: {}", found.join(", "));
        let events = &self.context.events;
        events.report(&self.spec.name, EventKind::SuspiciousText, what);
    }
}

/// Performs handshake and first listing within one deadline; the listing is stored. A list that is
/// refused or unreadable does not fail the start.
async fn greet(
    (context, spec, id): (&RunnerContext, &ServerSpec, ServerId),
    (hint, capabilities): (Option<Era>, ClientCapabilities),
    link: Arc<Link>,
    deadline: Instant,
) -> Result<(HandshakeInfo, Result<Listing, ListingError>), StartFailure> {
    let handshake =
        handshake::greet(&link, hint, capabilities, spec.lifecycle.probe, deadline).await?;
    if capabilities.anything() {
        return Ok((handshake, Ok(Listing::default())));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    match health::list(context, spec, id, &link, &handshake, left).await {
        Err(error) if !error.leaves_server() => Err(error.into()),
        listed => Ok((handshake, listed)),
    }
}

/// The result of a handshake: the next state, and the failure of the link if there was one.
struct HandshakeOutcome {
    next: NextState,
    why: Option<Failure>,
}

impl From<NextState> for HandshakeOutcome {
    fn from(next: NextState) -> Self {
        Self { next, why: None }
    }
}

/// Why a handshake failed.
enum StartFailure {
    /// It could not be reached, or its response could not be read.
    Lost(Failure),
    /// It exited.
    Exited(String),
    /// Its link was cut; it may be about to exit.
    Cut(String),
    /// It sent a wrong response or none.
    Refused(String),
}

impl From<HandshakeFailure> for StartFailure {
    fn from(error: HandshakeFailure) -> Self {
        match error {
            HandshakeFailure::Cut(failure @ Failure::Remote(_)) => Self::Lost(failure),
            HandshakeFailure::Cut(_) => Self::Cut(error.to_string()),
            HandshakeFailure::Silent(..)
            | HandshakeFailure::Refused { .. }
            | HandshakeFailure::NotUnderstood(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<ListingError> for StartFailure {
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

fn failed(how: String) -> NextState {
    NextState::Crashed(FailedRun {
        how,
        kind: EndKind::Start,
        retry_after: None,
    })
}
