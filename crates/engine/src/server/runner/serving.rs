//! The state `ready`: watches the server until it is stopped, exits, or stops responding.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gantry_model::event::EventKind;
use gantry_model::spec::Start;
use gantry_model::status::ServerState;
use tokio::time::Instant;

use super::health::Checks;
use super::{EndKind, FailedRun, NextState, Running, ServerRunner};
use crate::server::handle::{LinkState, RunnerCommand, UNANSWERED};
use crate::server::link::Link;
use crate::server::pending::Failure;
use crate::server::topics;

/// How long a server may take to exit once it has closed one of its streams.
const HALF_DEAD: Duration = Duration::from_millis(500);
/// How long callers that hold the link may take to use it before an idle server is stopped.
const LAST_CALLS: Duration = Duration::from_millis(100);

impl ServerRunner {
    /// Serves calls until an event ends that. Events are handled in order of urgency; nothing else
    /// is awaited here.
    pub(super) async fn serving(&mut self, mut running: Running) -> NextState {
        self.history.record_healthy(self.watch.now());
        // Row 2.6: the error of the lists stays visible until they can be fetched.
        let is_hidden = self.catalog.load().hidden;
        self.status.send_modify(|status| {
            let reason = status.reason.take().filter(|_| is_hidden);
            status.enter(ServerState::Ready, reason);
            status.ready_since = Some(status.since);
            status.pid = running.pid;
            status.failed_connects = 0;
            status.attempts.ready();
        });
        self.note_instance();
        if let Some(remote) = &mut self.remote {
            remote.reconnect.connected(self.watch.now());
        }
        self.show(LinkState::Ready(Arc::clone(&running.link)));
        let handshake = self.catalog.load().handshake.clone();
        let link = Arc::clone(&running.link);
        let topics = match &self.topics {
            Some(topics) => Arc::clone(topics),
            None => self.context.topics.of(&self.spec.name),
        };
        link.set_topics(&topics);
        let mut keeping = std::pin::pin!(async {
            match &handshake {
                Some(handshake) => topics::keep(&link, handshake, &topics).await,
                None => std::future::pending().await,
            }
        });
        let idle_stop = self.idle_stop();
        let mut idling = std::pin::pin!(async {
            match idle_stop {
                Some(after) => unused(&link, after).await,
                None => std::future::pending().await,
            }
        });
        let mut checks = Checks::new(&link, &self.spec.lifecycle);
        loop {
            tokio::select! {
                biased; // Stop, then the server's end, then protocol errors, then commands, then checks.
                () = self.stop.cancelled() => return NextState::Stop(Some(Box::new(running))),
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
                order = self.commands.recv() => match order {
                    Some(RunnerCommand::Restart) => return NextState::Restart(Box::new(running)),
                    None => return NextState::Stop(Some(Box::new(running))),
                },
                () = link.breaker.opened.notified() => {
                    let name = &self.spec.name;
                    self.context.events.report(name, EventKind::HealthWarning, UNANSWERED);
                }
                never = &mut keeping => match never {},
                () = &mut idling => return self.idle(running).await,
                due = checks.next() => {
                    if let Some(why) = self.check(&mut checks, due) {
                        return self.cut(running, why, EndKind::Silence).await;
                    }
                }
            }
        }
    }

    /// Returns after how long without a call the server is stopped, if at all.
    fn idle_stop(&self) -> Option<Duration> {
        let stops = self.spec.start == Start::Lazy && !self.declares.anything();
        self.spec.lifecycle.idle_stop.filter(|_| stops)
    }

    /// Stops an idle lazy server; the next call starts it again.
    async fn idle(&mut self, running: Running) -> NextState {
        self.show(LinkState::Cold);
        // A caller that took the link before gets its response from this instance.
        tokio::time::sleep(LAST_CALLS).await;
        let queue = running.link.queue();
        if queue.in_flight + queue.waiting > 0 {
            return NextState::Serve(Box::new(running));
        }
        let why = "stopped after idle_stop without a call";
        self.context
            .events
            .report(&self.spec.name, EventKind::Stopped, why);
        let grace = self.spec.lifecycle.stop_grace;
        self.end(running, &Failure::Exited(why.into()), grace).await;
        if self.stop.is_cancelled() {
            NextState::Stop(None)
        } else {
            NextState::Rest
        }
    }

    /// Handles an instance that exited by itself. Its last output is delivered first.
    async fn exited(&mut self, mut running: Running, how: String) -> NextState {
        self.forget_usage();
        running.deliver().await;
        // A server with a protocol error often exits before it is stopped.
        let how = running.link.take_trouble().unwrap_or(how);
        running.close(&Failure::Exited(how.clone())).await;
        NextState::Crashed(FailedRun {
            how,
            kind: EndKind::Exit,
            retry_after: None,
        })
    }

    /// Handles a closed stdout; if the server does not exit immediately, it is killed.
    async fn half_dead(&mut self, mut running: Running) -> NextState {
        let misdeed = running.link.take_trouble();
        if let Some(what) = &misdeed {
            self.context
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
        NextState::Crashed(FailedRun {
            how,
            kind: EndKind::Exit,
            retry_after: None,
        })
    }

    /// Handles a closed stdin; if the server does not exit immediately, it is killed.
    async fn deaf(&mut self, mut running: Running) -> NextState {
        let how = match tokio::time::timeout(HALF_DEAD, running.control.exited()).await {
            Ok(exit) => exit.to_string(),
            Err(_elapsed) => {
                running.kill().await;
                "closed its stdin without ending, and was killed".to_owned()
            }
        };
        self.exited(running, how).await
    }

    /// Stops a server after a protocol error or a failed health check. For a remote server, the
    /// backoff reports why.
    async fn cut(&mut self, mut running: Running, what: String, kind: EndKind) -> NextState {
        if running.session.is_none() && kind == EndKind::Exit {
            self.context
                .events
                .report(&self.spec.name, EventKind::ProtocolError, what.clone());
        }
        let failure = Failure::Exited(what.clone());
        running.link.end(&failure);
        running.kill().await;
        self.forget_usage();
        running.deliver().await;
        running.close(&failure).await;
        NextState::Crashed(FailedRun {
            how: what,
            kind,
            retry_after: None,
        })
    }
}

/// Waits until there was no call for this long, or up to an eighth longer.
async fn unused(link: &Link, after: Duration) {
    let mut calls = link.calls.load(Ordering::Relaxed);
    let mut since = Instant::now();
    while since.elapsed() < after {
        tokio::time::sleep(after / 8).await;
        let (queue, now) = (link.queue(), link.calls.load(Ordering::Relaxed));
        if queue.in_flight + queue.waiting > 0 || now != calls {
            (calls, since) = (now, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::jsonrpc::OneLine;
    use tokio::net::unix::pipe;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::known_secrets::KnownSecrets;
    use crate::server::link::{LinkLimits, Outbox};
    use crate::server::logs::Logs;
    use crate::transport::stdio::LineWriter;

    #[tokio::test]
    async fn a_call_keeps_a_server_from_being_idle() {
        let (sender, _receiver) = pipe::pipe().unwrap();
        let limits = LinkLimits {
            lanes: 1,
            queue: 4,
            line_bytes: 1 << 20,
            depth: 64,
            late_grace: Duration::ZERO,
            asks: true,
            cleans: true,
        };
        let link = Arc::new(Link::new(
            Outbox::Pipe(LineWriter::new(sender, 1 << 20)),
            Arc::new(Logs::new(Arc::new(KnownSecrets::default()))),
            Arc::default(),
            limits,
            1,
            TaskTracker::new(),
        ));
        tokio::time::pause();
        let after = Duration::from_secs(80);
        let id = link.new_id();
        let line = OneLine::request(id, "tools/call", None);
        let call = link.call(&"a".parse().unwrap(), id, line, None).unwrap();
        let begun = Instant::now();
        let idle = tokio::time::timeout(4 * after, unused(&link, after)).await;
        assert!(idle.is_err(), "a call is in flight");
        drop(call);
        unused(&link, after).await;
        let waited = begun.elapsed() - 4 * after;
        assert!(waited >= after && waited <= after + after / 4, "{waited:?}");
    }
}
