//! A call on a link that waits for its response: its deadlines, and its cancellation, which is also
//! what dropping it does. Entry points: [`InFlight::answer`] and [`InFlight::answer_within`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Link;
use super::breaker::Admitted;
use crate::request::CancelReason;
use crate::server::pending::{Answer, Failure, LaneTime};

/// A call on a link. Dropping it cancels the call: the server is notified, its lane is released.
pub(crate) struct InFlight {
    link: Arc<Link>,
    id: u64,
    answer: oneshot::Receiver<Answer>,
    ended: bool,
    /// How many lines the server had written when the call began.
    lines: u64,
    farewell: CancelNotice,
    admitted: Admitted,
    pub(super) reason: Option<CancelReason>,
    /// Set if the call had to wait for a lane.
    pub(super) lane_time: Option<LaneTime>,
}

/// The timeouts of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    /// The longest time without any sign of progress.
    pub(crate) quiet: Duration,
    /// The longest total time.
    pub(crate) whole: Duration,
    /// The server's own timeout: only a call that waited this long counts for the circuit breaker,
    /// not one with a short deadline of its caller.
    pub(crate) fair: Duration,
}

/// Whether the server is notified when the caller stops waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelNotice {
    Cancelled,
    /// A handshake may not be cancelled.
    Silent,
}

impl CancelNotice {
    pub(super) fn of(method: &str) -> Self {
        match method {
            "initialize" | "server/discover" => Self::Silent,
            _ => Self::Cancelled,
        }
    }
}

impl InFlight {
    /// Returns where it will be known when the call got its lane, if it had to wait for one.
    pub(crate) fn lane_time(&self) -> Option<LaneTime> {
        self.lane_time.clone()
    }

    /// Returns the upstream id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the response without a limit.
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = (&mut self.answer).await;
        self.ended = true;
        answer.unwrap_or_else(|_| Answer::Failed(Failure::Exited("the link was closed".into())))
    }

    /// Waits for the response within the deadline; `Err` is the time waited.
    pub(crate) async fn answer_within(&mut self, deadline: Deadline) -> Result<Answer, Duration> {
        let begun = Instant::now();
        let mut until = begun + deadline.whole.min(deadline.quiet);
        loop {
            match tokio::time::timeout_at(until, &mut self.answer).await {
                Ok(answer) => {
                    self.ended = true;
                    let closed = || Answer::Failed(Failure::Exited("the link was closed".into()));
                    return Ok(answer.unwrap_or_else(|_| closed()));
                }
                Err(_elapsed) => {
                    let activity = self.link.pending.activity(self.id);
                    let (active, paused) = activity.unwrap_or((begun, Duration::ZERO));
                    let last = begun + deadline.whole + paused;
                    let extended = last.min(active + deadline.quiet);
                    if extended <= until {
                        break;
                    }
                    until = extended;
                }
            }
        }
        self.ended = true;
        let keep_lane = self.link.limits.lanes == 1 && !self.link.limits.late_grace.is_zero();
        let had_its_time = begun.elapsed() >= deadline.fair;
        let said_nothing = self.link.lines() == self.lines && self.link.pending.is_sent(self.id);
        if had_its_time && said_nothing {
            self.link.missed.store(self.lines + 1, Ordering::Relaxed);
            self.link.breaker.missed(begun);
        } else if self.admitted == Admitted::AsProbe {
            self.link.breaker.gave_up();
        }
        self.link.cancel(self, "timed out", keep_lane);
        Err(begun.elapsed())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.ended {
            if self.admitted == Admitted::AsProbe {
                self.link.breaker.gave_up();
            }
            let said = self.reason.as_ref().and_then(CancelReason::said);
            let why = said.unwrap_or("the caller has left");
            self.link.cancel(self, why, false);
        }
    }
}

impl Link {
    pub(super) fn in_flight(
        self: &Arc<Self>,
        id: u64,
        answer: oneshot::Receiver<Answer>,
        farewell: CancelNotice,
        admitted: Admitted,
    ) -> InFlight {
        InFlight {
            link: Arc::clone(self),
            id,
            answer,
            ended: false,
            lines: self.lines(),
            farewell,
            admitted,
            reason: None,
            lane_time: None,
        }
    }

    /// Cancels a call whose caller has left or timed out.
    fn cancel(self: &Arc<Self>, call: &InFlight, reason: &str, keep_lane: bool) {
        let id = call.id;
        let (sent, next) = self.pending.abandon(id, keep_lane);
        self.write_next(next);
        if !sent {
            return;
        }
        match call.farewell {
            CancelNotice::Cancelled => self.notify_cancelled(id, reason),
            CancelNotice::Silent => self.outbox.cancel(id, None),
        }
        if keep_lane {
            let link = Arc::clone(self);
            self.tracker.spawn(async move {
                let grace = tokio::time::sleep(link.limits.late_grace);
                if link.ended.run_until_cancelled(grace).await.is_some() {
                    let next = link.pending.reopen(id);
                    link.write_next(next);
                }
            });
        }
    }
}
