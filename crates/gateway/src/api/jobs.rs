//! Asynchronous calls: `Prefer: respond-async` answers at once, and the outcome is fetched later
//! under the call's id.
//!
//! Outcomes are kept in memory for ten minutes; the audit row stays in any case. Each agent has
//! limits in number and bytes, beyond which its own oldest outcomes are dropped; when all agents
//! together hold too much, the one with the most loses its oldest (a plain `Quota` cannot do that).
//! Only the key that made a call, or an admin key of its project, can fetch or cancel it. Entry
//! points: [`Jobs::start`], [`Jobs::get`] and [`Jobs::take_back`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_engine::{Quota, QuotaExceeded, QuotaLimits, QuotaPermit};
use gantry_model::caller::Caller;
use gantry_model::id::{AgentName, CallId, KeyId, ProjectName};
use http::StatusCode;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::catch_panic;
use crate::http::error::Problem;

/// Concurrent calls of one project.
const RUNNING: usize = 1024;
/// Concurrent calls of one agent.
const RUNNING_PER_AGENT: usize = 64;
/// Outcomes kept per agent.
const KEPT_PER_AGENT: usize = 256;
/// Bytes of outcomes kept per agent; a single longer one is kept alone.
const BYTES_PER_AGENT: usize = 16 << 20;
/// Outcomes kept in total.
const KEPT: usize = 4096;
/// Bytes of outcomes kept in total.
const KEPT_BYTES: usize = 64 << 20;
/// How long an outcome is kept.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The state of a call.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It has no answer yet.
    Running,
    /// Its response: status and JSON body.
    Done(StatusCode, Bytes),
}

/// The account that a call is counted on.
type Owner = (ProjectName, AgentName);

#[derive(Debug)]
struct Job {
    key: KeyId,
    owner: Owner,
    outcome: Outcome,
    since: Instant,
    /// Cancels the call while it runs.
    stop: CancellationToken,
    /// Its slot among the running calls, released at its end.
    running: Option<QuotaPermit<AgentName>>,
}

impl Job {
    fn is_running(&self) -> bool {
        matches!(self.outcome, Outcome::Running)
    }

    /// Returns whether a caller may see it: its creator, and administrators of its project. row 3.2
    fn is_open_to(&self, caller: &Caller) -> bool {
        self.owner.0 == caller.project && (self.key == caller.key || caller.kind.is_admin())
    }

    /// Returns the bytes of its outcome; none while it runs.
    fn kept(&self) -> Option<usize> {
        match &self.outcome {
            Outcome::Running => None,
            Outcome::Done(_, body) => Some(body.len()),
        }
    }
}

/// Converts a response to the kept form.
pub(super) async fn settled(response: Response) -> (StatusCode, Bytes) {
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    (status, body)
}

/// The asynchronous calls.
#[derive(Debug, Clone)]
pub(super) struct Jobs {
    tasks: TaskTracker,
    jobs: Arc<Mutex<HashMap<CallId, Job>>>,
    running: Quota<AgentName>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            tasks: TaskTracker::new(),
            jobs: Arc::default(),
            running: Quota::new(QuotaLimits::shared(RUNNING, RUNNING_PER_AGENT)),
        }
    }
}

impl Jobs {
    /// Starts a call whose outcome is available under this id.
    pub(super) fn start(
        &self,
        caller: &Caller,
        id: CallId,
        work: impl Future<Output = (StatusCode, Bytes)> + Send + 'static,
    ) -> Result<(), Problem> {
        let running = self.running.take(&caller.project, &caller.agent, 1);
        let running = running.map_err(|exceeded| {
            let (whose, limit) = match exceeded {
                QuotaExceeded::Key(limit) => ("of this agent ", limit),
                QuotaExceeded::Project(limit) => ("of this project ", limit),
                QuotaExceeded::All(limit) => ("", limit),
            };
            let detail = format!("{limit} calls {whose}run asynchronously already");
            Problem::new("call.too_many_async")
                .with_detail(detail)
                .with_retry_after(Duration::from_secs(5))
        })?;
        let stop = CancellationToken::new();
        let job = Job {
            key: caller.key,
            owner: (caller.project.clone(), caller.agent.clone()),
            outcome: Outcome::Running,
            since: Instant::now(),
            stop: stop.clone(),
            running: Some(running),
        };
        self.jobs.lock().insert(id, job);
        let own = self.clone();
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                biased;
                // Dropping the work cancels the call.
                () = stop.cancelled() => Err(cancelled()),
                outcome = catch_panic(work) => outcome,
            };
            let (status, body) = match outcome {
                Ok(outcome) => outcome,
                Err(problem) => settled(problem.into_response()).await,
            };
            own.finish(id, status, body);
        });
        Ok(())
    }

    /// Returns the outcome of a call that the caller made, or of any call for an administrator.
    /// fault T4
    pub(super) fn get(&self, caller: &Caller, id: CallId) -> Option<Outcome> {
        let jobs = self.jobs.lock();
        let job = jobs.get(&id)?;
        let is_there = job.is_running() || job.since.elapsed() < KEPT_FOR;
        (is_there && job.is_open_to(caller)).then(|| job.outcome.clone())
    }

    /// Returns whether the caller's own key made a call.
    pub(super) fn is_maker(&self, caller: &Caller, id: CallId) -> bool {
        let jobs = self.jobs.lock();
        let is_own = |job: &Job| job.key == caller.key && job.owner.0 == caller.project;
        jobs.get(&id).is_some_and(is_own)
    }

    /// Cancels a running call, or discards its outcome; returns whether the caller has such a call.
    pub(super) fn take_back(&self, caller: &Caller, id: CallId) -> bool {
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get(&id).filter(|job| job.is_open_to(caller)) else {
            return false;
        };
        if job.is_running() {
            job.stop.cancel();
        } else {
            jobs.remove(&id);
        }
        true
    }

    /// Removes a call whose id was never returned.
    pub(super) fn forget(&self, id: CallId) {
        self.jobs.lock().remove(&id);
    }

    fn finish(&self, id: CallId, status: StatusCode, body: Bytes) {
        let mut jobs = self.jobs.lock();
        let Some(owner) = jobs.get(&id).map(|job| job.owner.clone()) else {
            return;
        };
        if !make_room(&mut jobs, &owner, body.len()) {
            jobs.remove(&id);
        } else if let Some(job) = jobs.get_mut(&id) {
            job.outcome = Outcome::Done(status, body);
            job.running = None;
            job.since = Instant::now();
        }
    }
}

fn cancelled() -> Problem {
    Problem::new("call.cancelled").with_detail("the call was cancelled")
}

/// What an agent holds: number and bytes of outcomes, and the oldest.
#[derive(Debug, Clone, Copy)]
struct Kept {
    count: usize,
    bytes: usize,
    oldest: (Instant, CallId),
}

/// Returns what each agent holds.
fn kept(jobs: &HashMap<CallId, Job>) -> HashMap<&Owner, Kept> {
    let mut all: HashMap<&Owner, Kept> = HashMap::new();
    for (id, job) in jobs {
        let Some(bytes) = job.kept() else { continue };
        let this = (job.since, *id);
        let own = all.entry(&job.owner).or_insert(Kept {
            count: 0,
            bytes: 0,
            oldest: this,
        });
        own.count += 1;
        own.bytes += bytes;
        own.oldest = own.oldest.min(this);
    }
    all
}

/// Makes room for an outcome of this size; false if impossible. Expired outcomes go first, then the
/// owner's oldest while it exceeds its limits, then the oldest of the largest holder.
fn make_room(jobs: &mut HashMap<CallId, Job>, owner: &Owner, incoming: usize) -> bool {
    jobs.retain(|_, job| job.is_running() || job.since.elapsed() < KEPT_FOR);
    loop {
        let goes = {
            let kept = kept(jobs);
            let own = kept.get(owner);
            let own_bytes = own.map_or(0, |own| own.bytes) + incoming;
            let own_count = own.map_or(0, |own| own.count) + 1;
            let is_over = |own: &&Kept| own.count >= KEPT_PER_AGENT || own_bytes > BYTES_PER_AGENT;
            let count: usize = kept.values().map(|kept| kept.count).sum();
            let bytes: usize = kept.values().map(|kept| kept.bytes).sum();
            if let Some(own) = own.filter(is_over) {
                own.oldest.1
            } else {
                // The largest holder, if it holds more than the owner would.
                let most = if bytes + incoming > KEPT_BYTES {
                    let most = kept.values().max_by_key(|kept| (kept.bytes, kept.count));
                    most.filter(|most| most.bytes > own_bytes)
                } else if count >= KEPT {
                    let most = kept.values().max_by_key(|kept| (kept.count, kept.bytes));
                    most.filter(|most| most.count > own_count)
                } else {
                    return true;
                };
                match most.or(own) {
                    Some(goes) => goes.oldest.1,
                    None => return false,
                }
            }
        };
        jobs.remove(&goes);
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::caller::{KeyKind, Role};
    use gantry_model::grant::GrantSet;

    use super::*;

    fn caller(key: u128, kind: KeyKind) -> Caller {
        Caller {
            project: ProjectName::local(),
            agent: format!("agent-{key}").parse().unwrap(),
            key: KeyId::from_random(key),
            kind,
            grants: Arc::new(GrantSet::everything()),
            users: Default::default(),
            validity: Default::default(),
            token: None,
            authenticated_in: Duration::ZERO,
        }
    }

    fn id(n: usize) -> CallId {
        CallId::new(1, n as u128)
    }

    async fn settle(jobs: &Jobs) {
        jobs.tasks.close();
        jobs.tasks.wait().await;
        jobs.tasks.reopen();
    }

    /// Makes a call with an outcome of this many bytes, and waits for its end.
    async fn make(jobs: &Jobs, who: &Caller, id: CallId, bytes: usize) {
        let body = Bytes::from(vec![b'x'; bytes]);
        jobs.start(who, id, async { (StatusCode::OK, body) })
            .unwrap();
        settle(jobs).await;
    }

    // row 2.9, fault T4
    #[tokio::test]
    async fn an_outcome_is_for_the_key_that_asked_and_for_admins() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        make(&jobs, &mine, id(1), 2).await;
        assert!(matches!(
            jobs.get(&mine, id(1)),
            Some(Outcome::Done(StatusCode::OK, _))
        ));
        assert!(jobs.get(&other, id(1)).is_none());
        let mut admin = caller(3, KeyKind::Admin(Role::Admin));
        assert!(jobs.get(&admin, id(1)).is_some());
        // Another project's administrator, and a key of the same id there, find nothing. row 3.2
        admin.project = "other".parse().unwrap();
        assert!(jobs.get(&admin, id(1)).is_none() && !jobs.take_back(&admin, id(1)));
        let mut same = mine.clone();
        same.project = "other".parse().unwrap();
        assert!(jobs.get(&same, id(1)).is_none() && !jobs.is_maker(&same, id(1)));
    }

    // fault T7
    #[tokio::test]
    async fn what_one_agent_makes_drops_its_own_outcomes_only() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        make(&jobs, &other, id(0), 1 << 20).await;
        for n in 1..=KEPT_PER_AGENT + 100 {
            make(&jobs, &mine, id(n), 10).await;
        }
        assert_eq!(jobs.jobs.lock().len(), KEPT_PER_AGENT + 1);
        assert!(jobs.get(&mine, id(100)).is_none() && jobs.get(&mine, id(101)).is_some());
        for n in 1000..1020 {
            make(&jobs, &mine, id(n), 1 << 20).await;
        }
        let bytes: usize = jobs.jobs.lock().values().filter_map(Job::kept).sum();
        assert!(bytes <= BYTES_PER_AGENT + (1 << 20), "{bytes}");
        // A single outcome over the limit is kept alone.
        make(&jobs, &mine, id(2000), BYTES_PER_AGENT + 1).await;
        assert!(jobs.get(&mine, id(2000)).is_some() && jobs.get(&mine, id(1019)).is_none());
        assert!(jobs.get(&other, id(0)).is_some(), "nobody else's goes");
    }

    #[tokio::test]
    async fn all_agents_together_are_bounded_and_who_holds_most_makes_room() {
        let jobs = Jobs::default();
        let small = caller(0, KeyKind::Agent);
        make(&jobs, &small, id(0), 4 << 20).await;
        for n in 1..=8 {
            for m in 0..4 {
                let who = caller(n as u128, KeyKind::Agent);
                make(&jobs, &who, id(n * 10 + m), 4 << 20).await;
            }
        }
        let bytes: usize = jobs.jobs.lock().values().filter_map(Job::kept).sum();
        assert!(bytes <= KEPT_BYTES, "{bytes}");
        assert!(
            jobs.get(&small, id(0)).is_some(),
            "who holds little keeps it"
        );
        let last = caller(8, KeyKind::Agent);
        assert!(jobs.get(&last, id(83)).is_some(), "who comes last has room");
    }

    // fault T7: many short outcomes of others leave room for a longer one of who has none.
    #[tokio::test]
    async fn at_the_bound_of_outcomes_who_has_the_most_of_them_makes_room() {
        let jobs = Jobs::default();
        for n in 0..KEPT {
            let who = caller((n / KEPT_PER_AGENT) as u128, KeyKind::Agent);
            let job = Job {
                key: who.key,
                owner: (who.project, who.agent),
                outcome: Outcome::Done(StatusCode::OK, Bytes::from_static(b"{}")),
                since: Instant::now(),
                stop: CancellationToken::new(),
                running: None,
            };
            jobs.jobs.lock().insert(id(n), job);
        }
        let late = caller(1000, KeyKind::Agent);
        for n in 0..3 {
            make(&jobs, &late, id(KEPT + n), 1 << 20).await;
        }
        assert!((0..3).all(|n| jobs.get(&late, id(KEPT + n)).is_some()));
        assert_eq!(jobs.jobs.lock().len(), KEPT);
        // An agent that holds as many as every other drops its own.
        let first = caller(0, KeyKind::Agent);
        make(&jobs, &first, id(KEPT + 3), 10).await;
        assert!((0..3).all(|n| jobs.get(&late, id(KEPT + n)).is_some()));
        assert!(jobs.get(&first, id(KEPT + 3)).is_some());
    }

    #[tokio::test]
    async fn what_runs_is_bounded_for_each_agent() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        for n in 0..RUNNING_PER_AGENT {
            jobs.start(&mine, id(n), std::future::pending()).unwrap();
        }
        let refused = jobs.start(&mine, id(99), std::future::pending());
        let refused = refused.unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(jobs.start(&other, id(100), std::future::pending()).is_ok());
        // The other project can store outcomes until the total is reached.
        let mut n = 101;
        for project in ["local", "other"] {
            let start = |n: usize| {
                let mut who = caller(3 + n as u128 / 8, KeyKind::Agent);
                who.project = project.parse().unwrap();
                jobs.start(&who, id(n), std::future::pending())
            };
            while start(n).is_ok() {
                n += 1;
            }
        }
        assert_eq!(jobs.jobs.lock().len(), RUNNING + RUNNING / 3);
        let late = caller(1000, KeyKind::Agent);
        assert!(jobs.start(&late, id(9999), std::future::pending()).is_err());
    }

    #[tokio::test]
    async fn a_call_is_taken_back_by_who_made_it_only() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        let id = id(1);
        jobs.start(&mine, id, std::future::pending()).unwrap();
        assert!(!jobs.take_back(&other, id));
        assert!(matches!(jobs.get(&mine, id), Some(Outcome::Running)));
        assert!(jobs.take_back(&mine, id));
        settle(&jobs).await;
        let outcome = jobs.get(&mine, id);
        let Some(Outcome::Done(status, _)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(status.as_u16(), 499);
        assert!(jobs.take_back(&mine, id));
        assert!(jobs.get(&mine, id).is_none() && !jobs.take_back(&mine, id));
    }
}
