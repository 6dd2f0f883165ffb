//! The state in which a server answers: watched until it is stopped, ends, or stops answering.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::spec::WhenUnresponsive;
use gantry_model::status::State;
use tokio::time::{Instant, MissedTickBehavior};

use super::{EndKind, Ended, Next, Running, ServerRunner, drain_reader};
use crate::server::handle::{Live, Order};
use crate::server::handshake;
use crate::server::link::Link;
use crate::server::listing;
use crate::server::pending::Failure;

/// `list_changed` is heeded at most this often.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to die once one of its pipes is closed.
const HALF_DEAD: Duration = Duration::from_millis(500);

impl ServerRunner {
    /// Serves calls until something ends that. What ends it is looked at in order of urgency.
    pub(super) async fn serving(&mut self, mut running: Running) -> Next {
        self.history.record_healthy(self.watch.now());
        self.status.send_modify(|status| {
            status.enter(State::Ready, None);
            status.ready_since_ms = Some(status.since_ms);
            status.pid = Some(running.tree.pid());
        });
        self.show(Live::Ready(Arc::clone(&running.link)));
        let hello = self.catalog.load().hello.clone();
        let _listening = hello.and_then(|hello| handshake::listen(&running.link, &hello));
        let mut health = tokio::time::interval(self.spec.life.health_every);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        health.reset();
        let mut last_refresh = Instant::now() - REFRESH_EVERY;
        loop {
            let link = Arc::clone(&running.link);
            tokio::select! {
                biased; // Stop, then the server's end, then its misdeeds, then orders, then care.
                () = self.stop.cancelled() => return Next::Stop(Some(Box::new(running))),
                exit = running.tree.wait() => {
                    return self.exited(running, exit.to_string()).await;
                }
                _end = &mut running.reader => return self.half_dead(running).await,
                () = link.input_closed.notified() => return self.deaf(running).await,
                () = link.troubled.notified() => {
                    if let Some(what) = link.take_trouble() {
                        return self.cut(running, what).await;
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Restart) => return Next::Restart(Box::new(running)),
                    None => return Next::Stop(Some(Box::new(running))),
                },
                () = refresh_due(&link, last_refresh) => {
                    last_refresh = Instant::now();
                    self.refresh(&link).await;
                }
                _tick = health.tick() => {
                    if let Some(ended) = self.check_health(&link).await {
                        return self.cut(running, ended).await;
                    }
                }
            }
        }
    }

    /// The process ended by itself. What it wrote before is delivered first.
    async fn exited(&mut self, mut running: Running, how: String) -> Next {
        self.forget_usage();
        drain_reader(&mut running.reader).await;
        // One that is cut off for a misdeed often ends by itself, before it can be ended.
        let how = running.link.take_trouble().unwrap_or(how);
        running.link.end(&Failure::Exited(how.clone()));
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
        })
    }

    /// The process closed its stdout; if it does not end at once, it is ended.
    async fn half_dead(&mut self, mut running: Running) -> Next {
        let misdeed = running.link.take_trouble();
        if let Some(what) = &misdeed {
            self.around
                .events
                .report(&self.spec.name, EventKind::ProtocolError, what.clone());
            running.link.end(&Failure::Exited(what.clone()));
            running.tree.kill();
        }
        let how = match tokio::time::timeout(HALF_DEAD, running.tree.wait()).await {
            Ok(exit) => misdeed.unwrap_or_else(|| exit.to_string()),
            Err(_elapsed) => {
                running.tree.kill();
                running.tree.wait().await;
                let closed = || "closed its stdout without ending, and was killed".to_owned();
                misdeed.unwrap_or_else(closed)
            }
        };
        self.forget_usage();
        running.link.end(&Failure::Exited(how.clone()));
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
        })
    }

    /// The process closed its stdin; if it does not end at once, it is ended.
    async fn deaf(&mut self, mut running: Running) -> Next {
        let how = match tokio::time::timeout(HALF_DEAD, running.tree.wait()).await {
            Ok(exit) => exit.to_string(),
            Err(_elapsed) => {
                running.tree.kill();
                running.tree.wait().await;
                "closed its stdin without ending, and was killed".to_owned()
            }
        };
        self.exited(running, how).await
    }

    /// Ends a process that misbehaves.
    async fn cut(&mut self, mut running: Running, what: String) -> Next {
        self.around
            .events
            .report(&self.spec.name, EventKind::ProtocolError, what.clone());
        running.link.end(&Failure::Exited(what.clone()));
        running.tree.kill();
        running.tree.wait().await;
        self.forget_usage();
        drain_reader(&mut running.reader).await;
        Next::Crashed(Ended {
            how: what,
            kind: EndKind::Exit,
        })
    }

    /// Asks a quiet server whether it is there; `Some` is the reason to end it.
    async fn check_health(&mut self, link: &Arc<Link>) -> Option<String> {
        let queue = link.queue();
        if queue.in_flight + queue.waiting > 0 {
            return None;
        }
        let within = self.spec.life.health_timeout;
        let (method, params) = handshake::health_question(self.era_hint.unwrap_or(Era::Handshake));
        // Any answer will do, an error too: it shows that somebody is there.
        let answers = tokio::select! {
            biased;
            () = self.stop.cancelled() => true,
            answer = link.ask(method, params.as_ref(), within) => answer.is_ok(),
        };
        let state = self.status.borrow().state;
        match (answers, state) {
            (true, State::Unresponsive) => {
                self.history.record_healthy(self.watch.now());
                self.publish(State::Ready, None);
                (self.around.changed)();
                self.around
                    .events
                    .report(&self.spec.name, EventKind::Recovered, "answers again");
                None
            }
            (true, _) => {
                self.history.record_healthy(self.watch.now());
                None
            }
            (false, _) => self.unresponsive(state, within),
        }
    }

    fn unresponsive(&mut self, state: State, within: Duration) -> Option<String> {
        let how = format!("did not answer a health check within {within:?}");
        self.history
            .record_unhealthy(&self.policy, self.watch.now());
        if state != State::Unresponsive {
            self.around
                .events
                .report(&self.spec.name, EventKind::Unresponsive, how.clone());
        }
        match self.spec.when_unresponsive() {
            WhenUnresponsive::Reconnect => Some(how),
            WhenUnresponsive::Keep => {
                if state != State::Unresponsive {
                    self.publish(State::Unresponsive, Some(how));
                }
                None
            }
        }
    }

    /// Lists anew what the server offers, after it said that this changed.
    async fn refresh(&mut self, link: &Arc<Link>) {
        link.lists_changed.store(false, Ordering::Relaxed);
        let Some(hello) = self.catalog.load().hello.clone() else {
            return;
        };
        let within = self.spec.life.handshake;
        let listed = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            listed = listing::fetch(link, &hello, &self.around.limits, within) => listed,
        };
        match listed {
            Ok(listing) => {
                let changed = self.take_listing(listing, hello).await;
                if changed {
                    let what = format!("offers {} tools", self.catalog.load().tools.len());
                    self.around
                        .events
                        .report(&self.spec.name, EventKind::CatalogChanged, what);
                }
            }
            Err(error) => {
                // Row 2.6: a failed list marks the server and hides its tools.
                let what = error.to_string();
                self.around
                    .events
                    .report(&self.spec.name, EventKind::ProtocolError, what.clone());
                self.status.send_modify(|status| {
                    status.reason = Some(what);
                    status.tools = 0;
                });
                self.hide_tools();
            }
        }
    }
}

/// Waits for a `list_changed`, and then until the last refresh is long enough ago.
async fn refresh_due(link: &Link, last: Instant) {
    if !link.lists_changed.load(Ordering::Relaxed) {
        link.lists_notify.notified().await;
    }
    tokio::time::sleep_until(last + REFRESH_EVERY).await;
}
