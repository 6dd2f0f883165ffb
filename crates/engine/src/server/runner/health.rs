//! Health checks and listings of a running server, done while the runner watches everything else.
//! Only a quiet server is checked: one that answers calls is healthy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_model::era::Era;
use gantry_model::event::EventKind;
use gantry_model::id::ServerId;
use gantry_model::spec::{LifecyclePolicy, ServerSpec, WhenUnresponsive, period};
use gantry_model::status::ServerState;
use gantry_store::{CatalogPins, StoreError};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tracing::warn;

use super::{RunnerContext, ServerRunner};
use crate::server::handshake::{self, HandshakeInfo};
use crate::server::link::Link;
use crate::server::listing::{self, Listing, ListingError};
use crate::server::pending::{Answer, Failure, QueueView};
use crate::transport::http::HttpError;

/// The shortest time between two refreshes after `list_changed`.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// The backoff after a failed listing: it doubles from the first to the last.
const RELIST_FIRST: Duration = Duration::from_secs(5);
const RELIST_LAST: Duration = Duration::from_secs(60);
/// How long the store may take to save a catalog before the server is offered without it.
const REMEMBERING: Duration = Duration::from_secs(5);

type PendingCheck<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The health check and the listing of a server, running or due.
pub(super) struct Checks {
    link: Arc<Link>,
    health_check: Option<PendingCheck<Health>>,
    ticks: Interval,
    /// The number of lines at the last tick, and since when there was no new one.
    lines: u64,
    quiet_since: Instant,
    listing: Option<PendingCheck<Result<Listing, ListingError>>>,
    /// The last announced change that this listing includes.
    listing_covers: u64,
    list_not_before: Instant,
    relist_after: Duration,
}

/// A check that is due or done.
pub(super) enum DueCheck {
    /// A periodic health decision.
    Tick,
    /// A health check after a cut connection.
    Doubted,
    /// A finished health check.
    Checked(Health),
    /// A listing after a list change.
    Changed,
    /// A finished listing.
    Listed(Result<Listing, ListingError>),
}

/// The result of a health check.
pub(super) struct Health {
    healthy: bool,
    /// Whether calls were running, which may be why it did not respond.
    busy: bool,
    /// Why the check could not be sent, if known.
    why: Option<HttpError>,
}

impl Checks {
    pub(super) fn new(link: &Arc<Link>, lifecycle: &LifecyclePolicy) -> Self {
        let now = Instant::now();
        let mut ticks =
            tokio::time::interval_at(now + lifecycle.health_every, lifecycle.health_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            link: Arc::clone(link),
            health_check: None,
            ticks,
            lines: link.lines(),
            quiet_since: now,
            listing: None,
            listing_covers: 0,
            list_not_before: now,
            relist_after: RELIST_FIRST,
        }
    }

    /// Waits until something is due. Cancel safe: started checks continue.
    pub(super) async fn next(&mut self) -> DueCheck {
        tokio::select! {
            biased; // What has ended, then what is due.
            health = answer(&mut self.health_check) => DueCheck::Checked(health),
            listed = answer(&mut self.listing) => DueCheck::Listed(listed),
            () = lists_changed(&self.link, self.list_not_before), if self.listing.is_none() => {
                DueCheck::Changed
            }
            () = self.link.doubted.notified(), if self.health_check.is_none() => DueCheck::Doubted,
            _tick = self.ticks.tick(), if self.health_check.is_none() => DueCheck::Tick,
        }
    }

    /// Compares the output with the last tick, and decides what follows.
    fn look(&mut self, too_long: Duration) -> HealthAction {
        let lines = self.link.lines();
        let heard = lines != self.lines;
        if heard {
            self.lines = lines;
            self.quiet_since = Instant::now();
        }
        let quiet = self.quiet_since.elapsed() >= too_long;
        HealthAction::of(self.link.queue(), heard, quiet, self.link.is_mute())
    }

    /// Schedules the next listing after one that failed.
    fn relist_later(&mut self) {
        self.list_not_before = Instant::now() + self.relist_after;
        self.relist_after = (2 * self.relist_after).min(RELIST_LAST);
        self.link.lists.refresh();
    }
}

/// The decision of a periodic tick.
#[derive(Debug, PartialEq, Eq)]
enum HealthAction {
    /// Send a health check.
    Check { busy: bool },
    /// Its output shows that it is healthy.
    Healthy,
    /// It cannot be checked: its only lane is taken by a call that timed out without any output.
    Mute,
    /// It may be doing long work, or a late response is still expected.
    Wait,
}

impl HealthAction {
    /// Decides by the calls on the link, whether a line came since the last tick (`heard`), whether
    /// there was none for too long (`quiet`), and none since the start of a call that timed out
    /// (`mute`).
    fn of(queue: QueueView, heard: bool, quiet: bool, mute: bool) -> Self {
        let busy = queue.in_flight + queue.waiting > 0;
        match queue {
            _ if !busy && queue.closed_lanes == 0 => Self::Check { busy },
            _ if heard => Self::Healthy,
            _ if !busy || !quiet => Self::Wait,
            // With one lane it would respond only after the call.
            QueueView { lanes: ..=1, .. } if mute => Self::Mute,
            QueueView { lanes: ..=1, .. } => Self::Wait,
            QueueView { .. } => Self::Check { busy },
        }
    }
}

impl ServerRunner {
    /// Handles what is due; `Some` is the reason to stop the server.
    pub(super) fn check(&mut self, checks: &mut Checks, due: DueCheck) -> Option<String> {
        match due {
            DueCheck::Tick => self.check_health(checks),
            DueCheck::Doubted => {
                let queue = checks.link.queue();
                let busy = queue.in_flight + queue.waiting > 0;
                checks.health_check = Some(self.health_check(&checks.link, busy));
            }
            DueCheck::Checked(health) => return self.checked(&health, checks),
            DueCheck::Changed => self.relist(checks),
            DueCheck::Listed(listed) => {
                match listed {
                    Ok(listing) => {
                        checks.relist_after = RELIST_FIRST;
                        self.relisted(listing);
                    }
                    Err(error) => {
                        checks.relist_later();
                        self.hide(&error);
                    }
                }
                checks.link.lists.end(checks.listing_covers);
            }
        }
        None
    }

    fn check_health(&mut self, checks: &mut Checks) {
        let warns = self.policy.warns(&self.history, self.watch.now());
        self.status.send_if_modified(|status| {
            std::mem::replace(&mut status.health_warning, warns) != warns
        });
        let lifecycle = &self.spec.lifecycle;
        match checks.look(lifecycle.health_every + lifecycle.health_timeout) {
            // A rate limit also applies to health checks.
            HealthAction::Check { .. } if self.counters.rate_limit.remaining().is_some() => {}
            HealthAction::Check { busy } => {
                checks.health_check = Some(self.health_check(&checks.link, busy))
            }
            HealthAction::Healthy => self.healthy(),
            HealthAction::Mute => {
                let how = "let a call time out, and has said nothing since it got it";
                self.unresponsive(how.into());
            }
            HealthAction::Wait => {}
        }
    }

    /// Starts a health check. Any response counts, even an error.
    fn health_check(&self, link: &Arc<Link>, busy: bool) -> PendingCheck<Health> {
        let link = Arc::clone(link);
        let within = self.spec.lifecycle.health_timeout;
        let era = self.era_hint.unwrap_or(Era::Handshake);
        Box::pin(async move {
            let lines = link.lines();
            let (method, params) = handshake::health_question(era);
            let answer = link.ask(method, params.as_ref(), within).await;
            let unheard = Failure::NotReading;
            let (answers, why) = match answer {
                // A server that limits the rate is healthy.
                Ok(Answer::Failed(Failure::Remote(HttpError::Limited { .. }))) => (true, None),
                Ok(Answer::Failed(Failure::Remote(error))) => (false, Some(error)),
                Ok(Answer::Failed(Failure::Exited(_))) | Err(_) => (false, None),
                Ok(Answer::Failed(failure)) => (failure != unheard, None),
                Ok(Answer::Result(_) | Answer::Error(_)) => (true, None),
            };
            Health {
                healthy: answers || busy && link.lines() != lines,
                busy,
                why,
            }
        })
    }

    fn checked(&mut self, health: &Health, checks: &Checks) -> Option<String> {
        if health.healthy {
            self.healthy();
            return None;
        }
        let within = self.spec.lifecycle.health_timeout;
        let how = match &health.why {
            Some(why) => format!("failed a health check: {why}"),
            None => format!(
                "did not answer a health check within {}",
                period::show(within)
            ),
        };
        let how = self.logs.redactor().redact(&how).into_owned();
        // Long work is no reason to stop a server, unless its calls time out.
        let is_lost = !health.busy || checks.link.is_mute();
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

    fn healthy(&mut self) {
        self.history.record_healthy(self.watch.now());
        if self.status.borrow().state == ServerState::Unresponsive {
            self.publish(ServerState::Ready, None);
            (self.context.changed)();
            self.context
                .events
                .report(&self.spec.name, EventKind::Recovered, "answers again");
        }
    }

    /// Marks the server as unresponsive, but keeps it running.
    fn unresponsive(&mut self, how: String) {
        self.note_unresponsive(&how);
        if self.status.borrow().state != ServerState::Unresponsive {
            self.publish(ServerState::Unresponsive, Some(how));
        }
    }

    fn note_unresponsive(&mut self, how: &str) {
        self.history
            .record_unhealthy(&self.policy, self.watch.now());
        if self.status.borrow().state != ServerState::Unresponsive {
            self.context
                .events
                .report(&self.spec.name, EventKind::Unresponsive, how);
        }
    }

    /// Starts a listing after `list_changed`.
    fn relist(&self, checks: &mut Checks) {
        if let Some(wait) = self.counters.rate_limit.remaining() {
            checks.list_not_before = Instant::now() + wait;
            return;
        }
        checks.list_not_before = Instant::now() + REFRESH_EVERY;
        checks.listing_covers = checks.link.lists.begin();
        let Some(handshake) = self.catalog.load().handshake.clone() else {
            return;
        };
        let (context, spec, id) = (Arc::clone(&self.context), Arc::clone(&self.wanted), self.id);
        let link = Arc::clone(&checks.link);
        let within = self.spec.lifecycle.handshake;
        let is_own = self.declares.anything();
        checks.listing = Some(Box::pin(async move {
            match is_own {
                // Only the shared lists are saved.
                true => listing::fetch(&link, &handshake, &context.limits, within).await,
                false => list(&context, &spec, id, &link, &handshake, within).await,
            }
        }));
    }

    fn relisted(&mut self, listing: Listing) {
        let Some(handshake) = self.catalog.load().handshake.clone() else {
            return;
        };
        if self.take_listing(listing, handshake, self.declares.anything()) {
            let what = format!("offers {} tools", self.catalog.load().tools.len());
            self.context
                .events
                .report(&self.spec.name, EventKind::CatalogChanged, what);
        }
    }

    /// Row 2.6: a failed list marks the server and hides its tools; calls by name still find them.
    pub(super) fn hide(&self, error: &ListingError) {
        let why = error.to_string();
        let why = self.logs.redactor().redact(&why).into_owned();
        self.context
            .events
            .report(&self.spec.name, EventKind::ProtocolError, why.clone());
        if self.declares.anything() {
            // Its client keeps the current list.
            return;
        }
        self.status.send_modify(|status| {
            status.reason = Some(why);
            (status.tools, status.unchecked_tools) = (0, 0);
        });
        let mut hidden = self.catalog.load().as_ref().clone();
        hidden.hidden = true;
        self.catalog.store(Arc::new(hidden));
        (self.context.changed)();
    }
}

/// Fetches a server's lists, and stores them to get their versions.
pub(super) async fn list(
    context: &RunnerContext,
    spec: &ServerSpec,
    id: ServerId,
    link: &Arc<Link>,
    handshake: &HandshakeInfo,
    within: Duration,
) -> Result<Listing, ListingError> {
    let mut listing = listing::fetch(link, handshake, &context.limits, within).await?;
    let (fingerprint, handshake, rows) =
        (spec.fingerprint(), handshake.to_json(), listing.to_rows());
    let pins = CatalogPins {
        policy: context.pins.policy(),
        listed: std::mem::take(&mut listing.listed),
    };
    let before = context.pins.unapproved_of(id);
    let saving = async {
        let store = &context.store;
        let rows = store
            .save_catalog(id, &fingerprint, &handshake, &rows, &pins)
            .await?;
        // Known before anybody is offered what was listed.
        context.pins.reload().await?;
        Ok::<_, StoreError>(rows)
    };
    match tokio::time::timeout(REMEMBERING, saving).await {
        Ok(Ok(rows)) => {
            let now = context.pins.unapproved_of(id);
            if now != before && !now.is_empty() {
                let what = format!("not approved: {}", now.join(", "));
                let events = &context.events;
                events.report(&spec.name, EventKind::ToolsUnapproved, cut(what));
            }
            return Ok(listing.with_versions(&rows));
        }
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

/// Keeps a sentence about many tools short.
fn cut(mut sentence: String) -> String {
    const MOST: usize = 1000;
    if sentence.len() > MOST {
        sentence.truncate(sentence.floor_char_boundary(MOST));
        sentence.push('…');
    }
    sentence
}

/// Waits for the result; forever, if nothing was started.
async fn answer<T>(asked: &mut Option<PendingCheck<T>>) -> T {
    match asked {
        Some(future) => {
            let answer = future.await;
            *asked = None;
            answer
        }
        None => std::future::pending().await,
    }
}

/// Waits until the lists have changed and may be fetched again.
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
        let calm = |queue| HealthAction::of(queue, false, false, false);
        assert_eq!(calm(queue(32, 0, 0)), HealthAction::Check { busy: false });
        assert_eq!(calm(queue(1, 0, 1)), HealthAction::Wait);
        assert_eq!(calm(queue(1, 1, 0)), HealthAction::Wait);
        assert_eq!(calm(queue(32, 5, 0)), HealthAction::Wait);
    }

    #[test]
    fn a_server_that_hangs_under_load_is_found() {
        // fault P5
        let hung = |queue, mute| HealthAction::of(queue, false, true, mute);
        assert_eq!(
            hung(queue(32, 5, 0), false),
            HealthAction::Check { busy: true }
        );
        assert_eq!(hung(queue(1, 1, 0), false), HealthAction::Wait);
        assert_eq!(hung(queue(1, 1, 0), true), HealthAction::Mute);
        let heard = |queue| HealthAction::of(queue, true, false, false);
        assert_eq!(heard(queue(1, 1, 0)), HealthAction::Healthy);
    }
}
