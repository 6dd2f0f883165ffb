//! The state `ready`: the server is watched until it is stopped, exits, or stops answering.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::status::State;

use super::health::Checks;
use super::{EndKind, Ended, Next, Running, ServerRunner};
use crate::server::handle::{Live, Order, UNANSWERED};
use crate::server::pending::Failure;
use crate::server::topics;

/// How long a server may take to exit once it has closed one of its streams.
const HALF_DEAD: Duration = Duration::from_millis(500);

impl ServerRunner {
    /// Serves calls until something ends that. Events are handled in order of urgency; nothing else is
    /// awaited here.
    pub(super) async fn serving(&mut self, mut running: Running) -> Next {
        self.history.record_healthy(self.watch.now());
        // Row 2.6: what the lists failed with stays shown until they can be had.
        let is_hidden = self.catalog.load().hidden;
        self.status.send_modify(|status| {
            let reason = status.reason.take().filter(|_| is_hidden);
            status.enter(State::Ready, reason);
            status.ready_since = Some(status.since);
            status.pid = running.pid;
            status.failed_connects = 0;
        });
        if let Some(remote) = &mut self.remote {
            remote.reconnect.connected(self.watch.now());
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
        let mut checks = Checks::new(&link, &self.spec.life);
        loop {
            tokio::select! {
                biased; // Stop, then the server's end, then protocol errors, then orders, then checks.
                () = self.stop.cancelled() => return Next::Stop(Some(Box::new(running))),
                exit = running.control.exited() => {
                    return self.exited(running, exit.to_string()).await;
                }
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
                due = checks.next() => {
                    if let Some(why) = self.check(&mut checks, due) {
                        return self.cut(running, why, EndKind::Silence).await;
                    }
                }
            }
        }
    }

    /// The instance exited by itself. What it wrote before is delivered first.
    async fn exited(&mut self, mut running: Running, how: String) -> Next {
        self.forget_usage();
        running.deliver().await;
        // A server with a protocol error often exits before it is ended.
        let how = running.link.take_trouble().unwrap_or(how);
        running.close(&Failure::Exited(how.clone())).await;
        Next::Crashed(Ended {
            how,
            kind: EndKind::Exit,
            retry_after: None,
        })
    }

    /// The server closed its stdout; if it does not exit at once, it is killed.
    async fn half_dead(&mut self, mut running: Running) -> Next {
        let misdeed = running.link.take_trouble();
        if let Some(what) = &misdeed {
            self.around
                .events
                .report(&self.spec.name, EventKind::ProtocolError, what.clone());
            running.link.end(&Failure::Exited(what.clone()));
            running.control.kill();
        }
        let how = match tokio::time::timeout(HALF_DEAD, running.control.exited()).await {
            Ok(exit) => misdeed.unwrap_or_else(|| exit.to_string()),
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

    /// The server closed its stdin; if it does not exit at once, it is killed.
    async fn deaf(&mut self, mut running: Running) -> Next {
        let how = match tokio::time::timeout(HALF_DEAD, running.control.exited()).await {
            Ok(exit) => exit.to_string(),
            Err(_elapsed) => {
                running.kill().await;
                "closed its stdin without ending, and was killed".to_owned()
            }
        };
        self.exited(running, how).await
    }

    /// Ends a server after a protocol error or a failed health check. For a remote server, the backoff
    /// reports why.
    async fn cut(&mut self, mut running: Running, what: String, kind: EndKind) -> Next {
        if running.session.is_none() && kind == EndKind::Exit {
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
