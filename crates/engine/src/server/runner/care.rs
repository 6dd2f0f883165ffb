//! What a server is asked beside its calls: whether it is there, and what it offers now. The
//! questions are asked while the runner watches everything else, and a quiet server only is asked
//! whether it is there: one that answers calls has shown it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::spec::{LifePolicy, ServerSpec, WhenUnresponsive, period};
use gantry_model::status::State;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tracing::warn;

use super::{ServerRunner, Surroundings};
use crate::server::handshake::{self, Hello};
use crate::server::link::Link;
use crate::server::listing::{self, Listing, ListingError};
use crate::server::pending::{Answer, Failure, QueueView};
use crate::transport::http::HttpError;

/// `list_changed` is heeded at most this often.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// How long after a failed list the next is asked for; it doubles with each that fails.
const RELIST_FIRST: Duration = Duration::from_secs(5);
const RELIST_LAST: Duration = Duration::from_secs(60);
/// How long the store may take to remember a catalog before the server is offered without that.
const REMEMBERING: Duration = Duration::from_secs(5);

type Asked<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is being asked of a server, and what is to be asked next.
pub(super) struct Care {
    link: Arc<Link>,
    question: Option<Asked<Health>>,
    ticks: Interval,
    /// How many lines it had written at the last tick, and since when it has written no other.
    lines: u64,
    quiet_since: Instant,
    listing: Option<Asked<Result<Listing, ListingError>>>,
    /// Up to which change the server told of they will have them.
    listing_covers: u64,
    list_not_before: Instant,
    relist_after: Duration,
}

/// What there is to do about a server.
pub(super) enum Cared {
    /// Its health is to be looked at.
    Tick,
    /// A connection to it was cut, so that it is asked whether it is there.
    Doubted,
    /// It was asked whether it is there.
    Answered(Health),
    /// Its lists are to be asked for.
    Changed,
    /// Its lists were asked for.
    Listed(Result<Listing, ListingError>),
}

/// Whether a server that was asked is there.
pub(super) struct Health {
    is_there: bool,
    /// There were calls on it, which may be why it did not answer.
    busy: bool,
    /// How it could not be asked, if that is known.
    why: Option<HttpError>,
}

impl Care {
    pub(super) fn new(link: &Arc<Link>, life: &LifePolicy) -> Self {
        let now = Instant::now();
        let mut ticks = tokio::time::interval_at(now + life.health_every, life.health_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            link: Arc::clone(link),
            question: None,
            ticks,
            lines: link.lines(),
            quiet_since: now,
            listing: None,
            listing_covers: 0,
            list_not_before: now,
            relist_after: RELIST_FIRST,
        }
    }

    /// Waits until there is something to do. Safe to cancel: what was asked stays asked.
    pub(super) async fn next(&mut self) -> Cared {
        tokio::select! {
            biased; // What was asked, then what is to be asked.
            health = answer(&mut self.question) => Cared::Answered(health),
            listed = answer(&mut self.listing) => Cared::Listed(listed),
            () = lists_changed(&self.link, self.list_not_before), if self.listing.is_none() => {
                Cared::Changed
            }
            () = self.link.doubted.notified(), if self.question.is_none() => Cared::Doubted,
            _tick = self.ticks.tick(), if self.question.is_none() => Cared::Tick,
        }
    }

    /// Notes what was heard since the last tick, and says what follows.
    fn look(&mut self, too_long: Duration) -> Checkup {
        let lines = self.link.lines();
        let heard = lines != self.lines;
        if heard {
            self.lines = lines;
            self.quiet_since = Instant::now();
        }
        let quiet = self.quiet_since.elapsed() >= too_long;
        Checkup::of(self.link.queue(), heard, quiet, self.link.is_mute())
    }

    /// Asks again later for a list that failed; the later, the more often it did.
    fn relist_later(&mut self) {
        self.list_not_before = Instant::now() + self.relist_after;
        self.relist_after = (2 * self.relist_after).min(RELIST_LAST);
        self.link.lists.refresh();
    }
}

/// What a look at a server's health leads to.
#[derive(Debug, PartialEq, Eq)]
enum Checkup {
    /// It is asked whether it is there.
    Ask { busy: bool },
    /// It has shown that it is there.
    IsThere,
    /// It cannot be asked, let a call time out, and has said nothing since that began.
    Mute,
    /// It may be doing long work, or owe a late answer.
    Wait,
}

impl Checkup {
    /// Judges by the calls on the link, by whether a line came since the last look, whether it has
    /// been quiet for too long, and whether it let a call time out meanwhile.
    fn of(queue: QueueView, heard: bool, quiet: bool, mute: bool) -> Self {
        let busy = queue.in_flight + queue.waiting > 0;
        match queue {
            _ if !busy && queue.closed_lanes == 0 => Self::Ask { busy },
            _ if heard => Self::IsThere,
            _ if !busy || !quiet => Self::Wait,
            // One that takes a call at a time would answer only after it.
            QueueView { lanes: ..=1, .. } if mute => Self::Mute,
            QueueView { lanes: ..=1, .. } => Self::Wait,
            QueueView { .. } => Self::Ask { busy },
        }
    }
}

impl ServerRunner {
    /// Does what there is to do; `Some` is the reason to end the server.
    pub(super) fn tend(&mut self, care: &mut Care, cared: Cared) -> Option<String> {
        match cared {
            Cared::Tick => self.look_after(care),
            Cared::Doubted => {
                let queue = care.link.queue();
                let busy = queue.in_flight + queue.waiting > 0;
                care.question = Some(self.question(&care.link, busy));
            }
            Cared::Answered(health) => return self.heard_of(&health, care),
            Cared::Changed => self.relist(care),
            Cared::Listed(listed) => {
                match listed {
                    Ok(listing) => {
                        care.relist_after = RELIST_FIRST;
                        self.relisted(listing);
                    }
                    Err(error) => {
                        care.relist_later();
                        self.hide(&error);
                    }
                }
                care.link.lists.end(care.listing_covers);
            }
        }
        None
    }

    fn look_after(&mut self, care: &mut Care) {
        let warns = self.policy.warns(&self.history, self.watch.now());
        self.status.send_if_modified(|status| {
            std::mem::replace(&mut status.health_warning, warns) != warns
        });
        let life = &self.spec.life;
        match care.look(life.health_every + life.health_timeout) {
            // A server that wants no calls for a while is not asked this either.
            Checkup::Ask { .. } if self.counters.rate_limit.remaining().is_some() => {}
            Checkup::Ask { busy } => care.question = Some(self.question(&care.link, busy)),
            Checkup::IsThere => self.is_there(),
            Checkup::Mute => {
                let how = "let a call time out, and has said nothing since it got it";
                self.unresponsive(how.into());
            }
            Checkup::Wait => {}
        }
    }

    /// Returns the question whether it is there. Any answer will do, an error too.
    fn question(&self, link: &Arc<Link>, busy: bool) -> Asked<Health> {
        let link = Arc::clone(link);
        let within = self.spec.life.health_timeout;
        let era = self.era_hint.unwrap_or(Era::Handshake);
        Box::pin(async move {
            let lines = link.lines();
            let (method, params) = handshake::health_question(era);
            let answer = link.ask(method, params.as_ref(), within).await;
            let unheard = Failure::NotReading;
            let (answers, why) = match answer {
                // Who wants fewer questions is there.
                Ok(Answer::Failed(Failure::Remote(HttpError::Limited { .. }))) => (true, None),
                Ok(Answer::Failed(Failure::Remote(error))) => (false, Some(error)),
                Ok(Answer::Failed(Failure::Exited(_))) | Err(_) => (false, None),
                Ok(Answer::Failed(failure)) => (failure != unheard, None),
                Ok(Answer::Result(_) | Answer::Error(_)) => (true, None),
            };
            Health {
                is_there: answers || busy && link.lines() != lines,
                busy,
                why,
            }
        })
    }

    fn heard_of(&mut self, health: &Health, care: &Care) -> Option<String> {
        if health.is_there {
            self.is_there();
            return None;
        }
        let within = self.spec.life.health_timeout;
        let how = match &health.why {
            Some(why) => format!("failed a health check: {why}"),
            None => format!(
                "did not answer a health check within {}",
                period::show(within)
            ),
        };
        let how = self.logs.redactor().redact(&how).into_owned();
        // Long work is no reason to end a server, unless it outlasts what its callers wait.
        let is_lost = !health.busy || care.link.is_mute();
        match self.spec.when_unresponsive() {
            WhenUnresponsive::Reconnect if is_lost => {
                self.note_unresponsive(&how);
                Some(how)
            }
            WhenUnresponsive::Reconnect | WhenUnresponsive::Keep => {
                self.unresponsive(how);
                None
            }
        }
    }

    fn is_there(&mut self) {
        self.history.record_healthy(self.watch.now());
        if self.status.borrow().state == State::Unresponsive {
            self.publish(State::Ready, None);
            (self.around.changed)();
            self.around
                .events
                .report(&self.spec.name, EventKind::Recovered, "answers again");
        }
    }

    /// Shows that the server does not answer, and keeps it.
    fn unresponsive(&mut self, how: String) {
        self.note_unresponsive(&how);
        if self.status.borrow().state != State::Unresponsive {
            self.publish(State::Unresponsive, Some(how));
        }
    }

    fn note_unresponsive(&mut self, how: &str) {
        self.history
            .record_unhealthy(&self.policy, self.watch.now());
        if self.status.borrow().state != State::Unresponsive {
            self.around
                .events
                .report(&self.spec.name, EventKind::Unresponsive, how);
        }
    }

    /// Asks anew what the server offers, after it said that this changed.
    fn relist(&self, care: &mut Care) {
        if let Some(wait) = self.counters.rate_limit.remaining() {
            care.list_not_before = Instant::now() + wait;
            return;
        }
        care.list_not_before = Instant::now() + REFRESH_EVERY;
        care.listing_covers = care.link.lists.begin();
        let Some(hello) = self.catalog.load().hello.clone() else {
            return;
        };
        let (around, spec, id) = (Arc::clone(&self.around), Arc::clone(&self.spec), self.id);
        let link = Arc::clone(&care.link);
        let within = self.spec.life.handshake;
        let is_own = self.declares.anything();
        care.listing = Some(Box::pin(async move {
            match is_own {
                // What is remembered of a server is what all see of it.
                true => listing::fetch(&link, &hello, &around.limits, within).await,
                false => list(&around, &spec, id, &link, &hello, within).await,
            }
        }));
    }

    fn relisted(&mut self, listing: Listing) {
        let Some(hello) = self.catalog.load().hello.clone() else {
            return;
        };
        if self.take_listing(listing, hello, self.declares.anything()) {
            let what = format!("offers {} tools", self.catalog.load().tools.len());
            self.around
                .events
                .report(&self.spec.name, EventKind::CatalogChanged, what);
        }
    }

    /// Row 2.6: a failed list marks the server and hides its tools; calls by name still find them.
    pub(super) fn hide(&self, error: &ListingError) {
        let why = error.to_string();
        let why = self.logs.redactor().redact(&why).into_owned();
        self.around
            .events
            .report(&self.spec.name, EventKind::ProtocolError, why.clone());
        if self.declares.anything() {
            // Its client goes on seeing what it saw.
            return;
        }
        self.status.send_modify(|status| {
            status.reason = Some(why);
            (status.tools, status.unchecked_tools) = (0, 0);
        });
        let mut hidden = self.catalog.load().as_ref().clone();
        hidden.hidden = true;
        self.catalog.store(Arc::new(hidden));
        (self.around.changed)();
    }
}

/// Asks for a server's lists, and has the store remember them and count their versions.
pub(super) async fn list(
    around: &Surroundings,
    spec: &ServerSpec,
    id: ServerId,
    link: &Arc<Link>,
    hello: &Hello,
    within: Duration,
) -> Result<Listing, ListingError> {
    let listing = listing::fetch(link, hello, &around.limits, within).await?;
    let (fingerprint, hello, rows) = (spec.fingerprint(), hello.to_json(), listing.to_rows());
    let saving = around.store.save_catalog(id, &fingerprint, &hello, &rows);
    match tokio::time::timeout(REMEMBERING, saving).await {
        Ok(Ok(rows)) => return Ok(listing.with_versions(&rows)),
        Ok(Err(error)) => {
            let error: &dyn std::error::Error = &error;
            warn!(server = %spec.name, error, "the catalog is not remembered");
        }
        Err(_elapsed) => {
            warn!(server = %spec.name, "the catalog is not remembered: the store is slow");
        }
    }
    Ok(listing)
}

/// Waits for what was asked; for ever, if nothing was.
async fn answer<T>(asked: &mut Option<Asked<T>>) -> T {
    match asked {
        Some(future) => {
            let answer = future.await;
            *asked = None;
            answer
        }
        None => std::future::pending().await,
    }
}

/// Waits until the lists have changed and may be asked for again.
async fn lists_changed(link: &Link, not_before: Instant) {
    link.lists.due().await;
    tokio::time::sleep_until(not_before).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(lanes: u32, in_flight: usize, closed_lanes: u32) -> QueueView {
        QueueView {
            in_flight,
            waiting: 0,
            lanes,
            closed_lanes,
        }
    }

    #[test]
    fn a_server_is_asked_when_it_is_quiet_and_owes_nothing() {
        // rows 1.15 and 2.11
        let calm = |queue| Checkup::of(queue, false, false, false);
        assert_eq!(calm(queue(32, 0, 0)), Checkup::Ask { busy: false });
        assert_eq!(calm(queue(1, 0, 1)), Checkup::Wait);
        assert_eq!(calm(queue(1, 1, 0)), Checkup::Wait);
        assert_eq!(calm(queue(32, 5, 0)), Checkup::Wait);
    }

    #[test]
    fn a_server_that_hangs_under_load_is_found() {
        // fault P5
        let hung = |queue, mute| Checkup::of(queue, false, true, mute);
        assert_eq!(hung(queue(32, 5, 0), false), Checkup::Ask { busy: true });
        assert_eq!(hung(queue(1, 1, 0), false), Checkup::Wait);
        assert_eq!(hung(queue(1, 1, 0), true), Checkup::Mute);
        let heard = |queue| Checkup::of(queue, true, false, false);
        assert_eq!(heard(queue(1, 1, 0)), Checkup::IsThere);
    }
}
