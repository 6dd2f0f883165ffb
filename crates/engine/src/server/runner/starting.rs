//! The state in which a server comes to life: process, link, handshake, first listing. Everything
//! that was begun is ended again if one of them fails.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::diagnose::chain;
use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCan;
use gantry_model::spec::{Launch, ServerSpec};
use gantry_model::status::State;
use gantry_sandbox::{Spawned, Tree};
use tokio::time::{Instant, timeout};

use super::running::{Running, Task};
use super::{EndKind, Ended, Next, ServerRunner, Surroundings, care};
use crate::catalog::ServerCatalog;
use crate::server::handle::{Live, Order};
use crate::server::handshake::{self, GreetError, Hello};
use crate::server::link::{Link, LinkLimits};
use crate::server::listing::{Listing, ListingError};
use crate::server::pending::Failure;
use crate::transport::stdio::{End, LineReader, LineWriter, drain};

/// Bytes that may wait to be written to one server.
const WRITE_QUEUE_BYTES: usize = 64 << 20;

/// How long a process whose link was cut may take to end before it counts as alive.
const ENDING: Duration = Duration::from_millis(500);

impl ServerRunner {
    pub(super) async fn starting(&mut self) -> Next {
        self.publish(State::Starting, None);
        self.show(Live::Starting);
        self.logs.begin_life();
        self.around
            .events
            .report(&self.spec.name, EventKind::Starting, "starting");
        let begun = Instant::now();
        let Launch::Process(launch) = &self.spec.launch;
        let spawned = match self.around.driver.start(&self.spec.name, launch).await {
            Ok(spawned) => spawned,
            Err(error) => return failed(chain(&error)),
        };
        let mut running = self.open(spawned);
        let deadline = begun + self.spec.life.handshake;
        let greeted = {
            let who = (&*self.around, &*self.spec, self.id);
            let how = (self.era_hint, self.declares);
            let greet = greet(who, how, Arc::clone(&running.link), deadline);
            tokio::select! {
                biased; // Stop, the process's end, its misdeeds, its pipes' end, orders, the greeting.
                () = self.stop.cancelled() => return Next::Stop(Some(Box::new(running))),
                exit = running.tree.wait() => Err(Greeted::Exited(exit.to_string())),
                () = running.link.troubled.notified() => {
                    let what = running.link.take_trouble();
                    Err(Greeted::Refused(what.unwrap_or_else(|| "misbehaved".into())))
                }
                () = running.reader.ended() => {
                    Err(Greeted::Cut("closed its stdout during the handshake".into()))
                }
                () = running.link.input_closed.notified() => {
                    Err(Greeted::Cut("closed its stdin during the handshake".into()))
                }
                order = self.orders.recv() => return match order {
                    Some(Order::Restart) => Next::Restart(Box::new(running)),
                    None => Next::Stop(Some(Box::new(running))),
                },
                greeted = greet => greeted,
            }
        };
        let greeted = match greeted {
            // A process that ends is first noticed by its closed pipes.
            Err(Greeted::Cut(why)) => match timeout(ENDING, running.tree.wait()).await {
                Ok(exit) => Err(Greeted::Exited(exit.to_string())),
                Err(_elapsed) => Err(Greeted::Refused(why)),
            },
            greeted => greeted,
        };
        match greeted {
            Ok((hello, listing)) => {
                self.era_hint = Some(hello.era);
                self.take_listing(listing, Arc::new(hello));
                let tools = self.catalog.load().tools.len();
                let took = begun.elapsed().as_millis();
                let what = format!("ready with {tools} tools after {took} ms");
                self.around
                    .events
                    .report(&self.spec.name, EventKind::Ready, what);
                Next::Serve(Box::new(running))
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
            }
            Err(Greeted::Refused(why) | Greeted::Cut(why)) => {
                self.era_hint = None;
                running.tree.kill();
                self.end(running, &Failure::Exited(why.clone()), Duration::ZERO)
                    .await;
                failed(why)
            }
        }
    }

    /// Opens the link over the process's pipes and starts its three tasks.
    fn open(&self, spawned: Spawned) -> Running {
        let limits = LinkLimits {
            lanes: self.spec.concurrency(),
            queue: self.spec.calls.queue,
            line_bytes: self.around.limits.line_bytes,
            depth: self.around.limits.depth,
            late_grace: self.spec.calls.late_grace,
        };
        let link = Arc::new(Link::new(
            LineWriter::new(spawned.stdin, WRITE_QUEUE_BYTES),
            Arc::clone(&self.logs),
            Arc::clone(&self.counters),
            limits,
            self.around.first_id,
            self.around.tracker.clone(),
        ));
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
        });
        Running {
            tree: spawned.tree,
            link,
            reader: Task::new(reader),
            stderr: Task::new(stderr),
        }
    }

    fn remember_usage(&self, tree: &Tree) {
        if let Ok(mut usage) = self.usage.lock() {
            *usage = Some(tree.meter());
        }
    }

    /// Puts what a server offers into the catalog; true if it is news.
    pub(super) fn take_listing(&self, listing: Listing, hello: Arc<Hello>) -> bool {
        let catalog = ServerCatalog::new(listing.filtered(&self.spec.tools), Some(hello));
        let news = !self.catalog.load().offers_the_same(&catalog);
        self.status.send_modify(|status| {
            if status.state != State::Unresponsive {
                status.reason = None;
            }
            status.tools = catalog.tools.len();
            status.prompts = catalog.prompts.len();
            status.resources = catalog.resources.len() + catalog.templates.len();
            status.excluded.clone_from(&catalog.excluded);
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

/// Handshake and first listing, all within one deadline, and the listing remembered.
async fn greet(
    (around, spec, id): (&Surroundings, &ServerSpec, ServerId),
    (hint, can): (Option<Era>, ClientCan),
    link: Arc<Link>,
    deadline: Instant,
) -> Result<(Hello, Listing), Greeted> {
    let hello = handshake::greet(&link, hint, can, spec.life.probe, deadline).await?;
    if can.anything() {
        return Ok((hello, Listing::default()));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let listing = care::list(around, spec, id, &link, &hello, left).await?;
    Ok((hello, listing))
}

/// Why a started process did not become a server.
enum Greeted {
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
            GreetError::Cut(_) => Self::Cut(error.to_string()),
            GreetError::Silent(_) | GreetError::Refused { .. } | GreetError::NotUnderstood(_) => {
                Self::Refused(error.to_string())
            }
        }
    }
}

impl From<ListingError> for Greeted {
    fn from(error: ListingError) -> Self {
        match error {
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
    })
}
