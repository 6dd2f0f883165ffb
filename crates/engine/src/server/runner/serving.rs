//! The state in which a server answers: watched until it is stopped, ends, or stops answering.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::status::State;

use super::care::Care;
use super::{EndKind, Ended, Next, Running, ServerRunner};
use crate::server::handle::{Live, Order, UNANSWERED};
use crate::server::pending::Failure;
use crate::server::topics;

/// How long a server may take to die once one of its pipes is closed.
const HALF_DEAD: Duration = Duration::from_millis(500);

impl ServerRunner {
    /// Serves calls until something ends that. What ends it is looked at in order of urgency, and
    /// nothing is waited for beside it.
    pub(super) async fn serving(&mut self, mut running: Running) -> Next {
        self.history.record_healthy(self.watch.now());
        // Row 2.6: what the lists failed with stays shown until they can be had.
        let is_hidden = self.catalog.load().hidden;
        self.status.send_modify(|status| {
            let reason = status.reason.take().filter(|_| is_hidden);
            status.enter(State::Ready, reason);
            status.ready_since = Some(status.since);
            status.pid = running.pid();
            status.failed_connects = 0;
        });
        if let Some(far) = &mut self.far {
            far.reconnect.connected(self.watch.now());
        }
        self.show(Live::Ready(Arc::clone(&running.link)));
        let hello = self.catalog.load().hello.clone();
        let link = Arc::clone(&running.link);
        let topics = match &self.topics {
            Some(topics) => Arc::clone(topics),
            None => self.around.topics.of(&self.spec.name),
        };
        link.tells(&topics);
        let mut keeping = std::pin::pin!(async {
            match &hello {
                Some(hello) => topics::keep(&link, hello, &topics).await,
                None => std::future::pending().await,
            }
        });
        let mut care = Care::new(&link, &self.spec.life);
        loop {
            tokio::select! {
                biased; // Stop, then the server's end, then its misdeeds, then orders, then care.
                () = self.stop.cancelled() => return Next::Stop(Some(Box::new(running))),
                exit = running.body.exited() => return self.exited(running, exit).await,
                () = running.reader.ended() => return match running.lost() {
                    Some(error) => self.lost(running, error).await,
                    None => self.half_dead(running).await,
                },
                () = link.input_closed.notified() => return self.deaf(running).await,
                () = link.troubled.notified() => {
                    if let Some(what) = link.take_trouble() {
                        return self.cut(running, what, EndKind::Exit).await;
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Restart) => return Next::Restart(Box::new(running)),
                    None => return Next::Stop(Some(Box::new(running))),
                },
                () = link.silence.opened.notified() => {
                    let name = &self.spec.name;
                    self.around.events.report(name, EventKind::HealthWarning, UNANSWERED);
                }
                never = &mut keeping => match never {},
                cared = care.next() => {
                    if let Some(why) = self.tend(&mut care, cared) {
                        return self.cut(running, why, EndKind::Silence).await;
                    }
                }
            }
        }
    }

    /// The process ended by itself. What it wrote before is delivered first.
    async fn exited(&mut self, mut running: Running, how: String) -> Next {
        self.forget_usage();
        running.deliver().await;
        // One that is cut off for a misdeed often ends by itself, before it can be ended.
        let how = running.link.take_trouble().unwrap_or(how);
        running.close(&Failure::Exited(how.clone())).await;
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
            retry_after: None,
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
            running.strike();
        }
        let how = match tokio::time::timeout(HALF_DEAD, running.body.exited()).await {
            Ok(exit) => misdeed.unwrap_or(exit),
            Err(_elapsed) => {
                running.kill().await;
                let closed = || "closed its stdout without ending, and was killed".to_owned();
                misdeed.unwrap_or_else(closed)
            }
        };
        self.forget_usage();
        running.close(&Failure::Exited(how.clone())).await;
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
            retry_after: None,
        })
    }

    /// The process closed its stdin; if it does not end at once, it is ended.
    async fn deaf(&mut self, mut running: Running) -> Next {
        let how = match tokio::time::timeout(HALF_DEAD, running.body.exited()).await {
            Ok(exit) => exit,
            Err(_elapsed) => {
                running.kill().await;
                "closed its stdin without ending, and was killed".to_owned()
            }
        };
        self.exited(running, how).await
    }

    /// Ends a server that misbehaves, or does not answer. That a remote one is not there any more is
    /// told with the wait.
    async fn cut(&mut self, mut running: Running, what: String, kind: EndKind) -> Next {
        if !running.is_remote() && kind == EndKind::Exit {
            self.around
                .events
                .report(&self.spec.name, EventKind::ProtocolError, what.clone());
        }
        let failure = Failure::Exited(what.clone());
        running.link.end(&failure);
        running.kill().await;
        self.forget_usage();
        running.deliver().await;
        running.close(&failure).await;
        Next::Crashed(Ended {
            how: what,
            kind,
            retry_after: None,
        })
    }
}
