//! Calls that nobody waits for: `Prefer: respond-async` answers at once, the outcome is asked for
//! later.
//!
//! Kept in memory for ten minutes, bounded in number and bytes; the audit row of the call stays
//! whatever happens here. Only the key that made a call, or an admin key, can ask for it or take it
//! back. Entry points: [`Jobs::start`], [`Jobs::get`] and [`Jobs::take_back`].

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::id::{AgentName, KeyId};
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::error::Problem;
use crate::http::unpanicked;

/// Outcomes and running calls that are kept at once.
const JOBS: usize = 1000;
/// Calls that run at once.
const RUNNING: usize = 256;
/// Calls of one agent that run at once.
const RUNNING_PER_AGENT: usize = 64;
/// Bytes of outcomes that are kept at once.
const KEPT_BYTES: usize = 64 << 20;
/// How long an outcome is kept.
const KEPT: Duration = Duration::from_secs(600);

/// The name under which a call's outcome is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct JobId(u128);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "async_{:032x}", self.0)
    }
}

impl FromStr for JobId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text
            .strip_prefix("async_")
            .filter(|digits| digits.len() == 32)
            .ok_or(())?;
        if !digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        {
            return Err(());
        }
        u128::from_str_radix(digits, 16).map(Self).map_err(|_| ())
    }
}

/// What there is to say about a call.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It has no answer yet.
    Running,
    /// Its answer: status and JSON body as the call itself would have had.
    Done(StatusCode, Bytes),
}

#[derive(Debug)]
struct Job {
    key: KeyId,
    agent: AgentName,
    outcome: Outcome,
    since: Instant,
    /// Ends the call while it runs.
    stop: CancellationToken,
}

impl Job {
    fn is_running(&self) -> bool {
        matches!(self.outcome, Outcome::Running)
    }

    fn is_open_to(&self, caller: &Caller) -> bool {
        self.key == caller.key || caller.kind == KeyKind::Admin
    }
}

/// Returns an answer as it is kept.
pub(super) async fn settled(response: Response) -> (StatusCode, Bytes) {
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    (status, body)
}

/// The calls that nobody waits for.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    tasks: TaskTracker,
    jobs: Arc<Mutex<HashMap<JobId, Job>>>,
}

impl Jobs {
    /// Starts a call and returns the name of its outcome.
    pub(super) fn start(
        &self,
        caller: &Caller,
        work: impl Future<Output = (StatusCode, Bytes)> + Send + 'static,
    ) -> Result<JobId, Problem> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "gateway.random"))?;
        let id = JobId(u128::from_ne_bytes(bits));
        let mut jobs = self.lock();
        make_room(&mut jobs, 0);
        let running: Vec<_> = jobs.values().filter(|job| job.is_running()).collect();
        let own = running.iter().filter(|job| job.agent == caller.agent);
        let own = own.count();
        let running = running.len();
        if own >= RUNNING_PER_AGENT || running >= RUNNING || jobs.len() >= JOBS {
            let detail =
                format!("{running} calls that nobody waits for run already, {own} of this agent");
            return Err(
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "call.too_many_async")
                    .with_detail(detail)
                    .with_retry_after(Duration::from_secs(5)),
            );
        }
        let stop = CancellationToken::new();
        let job = Job {
            key: caller.key,
            agent: caller.agent.clone(),
            outcome: Outcome::Running,
            since: Instant::now(),
            stop: stop.clone(),
        };
        jobs.insert(id, job);
        drop(jobs);
        let own = self.clone();
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                biased;
                // Dropping the work takes the call back.
                () = stop.cancelled() => Err(cancelled()),
                outcome = unpanicked(work) => outcome,
            };
            let (status, body) = match outcome {
                Ok(outcome) => outcome,
                Err(problem) => settled(problem.into_response()).await,
            };
            own.finish(id, status, body);
        });
        Ok(id)
    }

    /// Returns the outcome of a call that the caller made, or of any to an administrator. fault T4
    pub(super) fn get(&self, caller: &Caller, id: JobId) -> Option<Outcome> {
        let jobs = self.lock();
        let job = jobs.get(&id)?;
        (job.is_open_to(caller) && job.since.elapsed() < KEPT).then(|| job.outcome.clone())
    }

    /// Takes a call back while it runs, and forgets its outcome afterwards.
    pub(super) fn take_back(&self, caller: &Caller, id: JobId) {
        let mut jobs = self.lock();
        let Some(job) = jobs.get(&id).filter(|job| job.is_open_to(caller)) else {
            return;
        };
        if job.is_running() {
            job.stop.cancel();
        } else {
            jobs.remove(&id);
        }
    }

    fn finish(&self, id: JobId, status: StatusCode, body: Bytes) {
        let mut jobs = self.lock();
        make_room(&mut jobs, body.len());
        if let Some(job) = jobs.get_mut(&id) {
            job.outcome = Outcome::Done(status, body);
            job.since = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cancelled() -> Problem {
    let status = StatusCode::from_u16(499).expect("499 is a status");
    Problem::new(status, "call.cancelled").with_detail("the call was taken back")
}

/// Forgets what is too old, then the oldest outcomes until number and bytes are in bounds.
fn make_room(jobs: &mut HashMap<JobId, Job>, incoming: usize) {
    let now = Instant::now();
    let size = |job: &Job| match &job.outcome {
        Outcome::Running => None,
        Outcome::Done(_, body) => Some(body.len()),
    };
    jobs.retain(|_, job| size(job).is_none() || now.duration_since(job.since) < KEPT);
    let mut done: Vec<(Instant, JobId, usize)> = jobs
        .iter()
        .filter_map(|(id, job)| Some((job.since, *id, size(job)?)))
        .collect();
    done.sort_by_key(|(since, ..)| *since);
    let mut bytes: usize = done.iter().map(|(_, _, size)| size).sum::<usize>() + incoming;
    for (_, id, size) in done {
        if bytes <= KEPT_BYTES && jobs.len() < JOBS {
            return;
        }
        jobs.remove(&id);
        bytes -= size;
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::grant::GrantSet;

    use super::*;

    fn caller(key: u128, kind: KeyKind) -> Caller {
        Caller {
            project: gantry_model::id::ProjectName::local(),
            agent: format!("agent-{key}").parse().unwrap(),
            key: KeyId::from_random(key),
            kind,
            grants: Arc::new(GrantSet::everything()),
            users: Default::default(),
            validity: Default::default(),
        }
    }

    async fn settle(jobs: &Jobs) {
        jobs.tasks.close();
        jobs.tasks.wait().await;
        jobs.tasks.reopen();
    }

    // row 2.9, fault T4
    #[tokio::test]
    async fn an_outcome_is_for_the_key_that_asked_and_for_admins() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        let work = async { (StatusCode::OK, Bytes::from_static(b"{}")) };
        let id = jobs.start(&mine, work).unwrap();
        settle(&jobs).await;
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(matches!(
            jobs.get(&mine, id),
            Some(Outcome::Done(StatusCode::OK, _))
        ));
        assert!(jobs.get(&other, id).is_none());
        assert!(jobs.get(&caller(3, KeyKind::Admin), id).is_some());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let jobs = Jobs::default();
        let mine = caller(1, KeyKind::Agent);
        for _ in 0..80 {
            let body = Bytes::from(vec![b'x'; 1 << 20]);
            jobs.start(&mine, async { (StatusCode::OK, body) }).unwrap();
            settle(&jobs).await;
        }
        assert!(jobs.lock().len() <= 65);
        for _ in 0..RUNNING_PER_AGENT {
            jobs.start(&mine, std::future::pending()).unwrap();
        }
        let refused = jobs.start(&mine, std::future::pending()).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        for n in 0..RUNNING - RUNNING_PER_AGENT {
            let other = caller(2 + n as u128 / 8, KeyKind::Agent);
            jobs.start(&other, std::future::pending()).unwrap();
        }
        let other = caller(1000, KeyKind::Agent);
        assert!(jobs.start(&other, std::future::pending()).is_err());
    }

    #[tokio::test]
    async fn a_call_is_taken_back_by_who_made_it_only() {
        let jobs = Jobs::default();
        let (mine, other) = (caller(1, KeyKind::Agent), caller(2, KeyKind::Agent));
        let id = jobs.start(&mine, std::future::pending()).unwrap();
        jobs.take_back(&other, id);
        assert!(matches!(jobs.get(&mine, id), Some(Outcome::Running)));
        jobs.take_back(&mine, id);
        settle(&jobs).await;
        let outcome = jobs.get(&mine, id);
        let Some(Outcome::Done(status, _)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(status.as_u16(), 499);
        jobs.take_back(&mine, id);
        assert!(jobs.get(&mine, id).is_none());
    }
}
