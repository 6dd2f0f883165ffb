//! Quota of suspended calls: number and bytes per agent, bytes per project and in total, including
//! what servers ask and what was answered so far. A call counts towards the number while a
//! request to its client is open. Its own bytes count from the first such request until the call ends.
//!
//! A suspended call does not use the body budget, so that calls waiting for a human do not block
//! others. Never waits. Entry points: [`SuspendedQuota::call`] and [`CallPermit::suspend`].

use std::sync::Arc;

use gantry_engine::{
    Quota, QuotaExceeded, QuotaLimits, QuotaPermit, RequestOutcome, SuspendedBytes,
};
use gantry_model::id::{AgentName, ProjectName};
use parking_lot::Mutex;

/// Suspended calls per agent.
pub(super) const PER_AGENT: usize = 16;
/// Suspended calls per project.
const CALLS: usize = 4_096;
/// Bytes of suspended calls per agent.
pub(super) const BYTES_PER_AGENT: usize = 16 << 20;
/// Bytes of suspended calls per project.
const BYTES: usize = 64 << 20;

/// The quota of calls that wait for their clients.
#[derive(Debug)]
pub(super) struct SuspendedQuota {
    calls: Quota<AgentName>,
    bytes: Quota<AgentName>,
}

/// The bytes of one call from its first server request to its end.
#[derive(Debug)]
pub(super) struct CallPermit {
    quota: Arc<SuspendedQuota>,
    project: ProjectName,
    agent: AgentName,
    #[expect(dead_code, reason = "held for its drop")]
    bytes: QuotaPermit<AgentName>,
    open: Mutex<Open>,
}

/// The open server requests of a call, and its permit.
#[derive(Debug, Default)]
struct Open {
    questions: usize,
    place: Option<QuotaPermit<AgentName>>,
}

/// An open server request and its bytes, released when dropped.
#[derive(Debug)]
pub(super) struct SuspendedPermit {
    call: Arc<CallPermit>,
    bytes: QuotaPermit<AgentName>,
}

impl Default for SuspendedQuota {
    fn default() -> Self {
        Self {
            calls: Quota::new(QuotaLimits::shared(CALLS, PER_AGENT)),
            bytes: Quota::new(QuotaLimits::shared(BYTES, BYTES_PER_AGENT)),
        }
    }
}

impl SuspendedQuota {
    /// Takes a permit for a call of this size, or returns the exhausted quota.
    pub(super) fn call(
        self: &Arc<Self>,
        (project, agent): (&ProjectName, &AgentName),
        bytes: usize,
    ) -> Result<Arc<CallPermit>, RequestOutcome> {
        let bytes = self.bytes.take(project, agent, bytes).map_err(too_much)?;
        Ok(Arc::new(CallPermit {
            quota: Arc::clone(self),
            project: project.clone(),
            agent: agent.clone(),
            bytes,
            open: Mutex::default(),
        }))
    }
}

impl CallPermit {
    /// Takes a permit for a server request of this size, or returns the exhausted quota.
    pub(super) fn suspend(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<SuspendedPermit, RequestOutcome> {
        let (project, agent) = (&self.project, &self.agent);
        let mut open = self.open.lock();
        let place = match open.place.take() {
            Some(place) => place,
            None => {
                let taken = self.quota.calls.take(project, agent, 1);
                taken.map_err(|exceeded| RequestOutcome::TooMany {
                    limit: limit(exceeded),
                })?
            }
        };
        let bytes = self.quota.bytes.take(project, agent, bytes);
        if open.questions > 0 || bytes.is_ok() {
            open.place = Some(place);
        }
        let bytes = bytes.map_err(too_much)?;
        open.questions += 1;
        drop(open);
        Ok(SuspendedPermit {
            call: Arc::clone(self),
            bytes,
        })
    }
}

impl SuspendedPermit {
    /// Takes more bytes, or returns the exhausted quota.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), SuspendedBytes> {
        let more = self.bytes.set(self.bytes.amount() + bytes);
        more.map_err(held)
    }
}

impl Drop for SuspendedPermit {
    fn drop(&mut self) {
        let mut open = self.call.open.lock();
        open.questions -= 1;
        if open.questions == 0 {
            open.place = None;
        }
    }
}

fn limit(exceeded: QuotaExceeded) -> usize {
    match exceeded {
        QuotaExceeded::Key(limit) | QuotaExceeded::Project(limit) | QuotaExceeded::All(limit) => {
            limit
        }
    }
}

fn held(exceeded: QuotaExceeded) -> SuspendedBytes {
    match exceeded {
        QuotaExceeded::Key(limit) => SuspendedBytes::OfAgent(limit),
        QuotaExceeded::Project(limit) => SuspendedBytes::OfProject(limit),
        QuotaExceeded::All(limit) => SuspendedBytes::OfAll(limit),
    }
}

fn too_much(exceeded: QuotaExceeded) -> RequestOutcome {
    RequestOutcome::TooMuch(held(exceeded))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owner = (ProjectName, AgentName);

    fn owner(project: &str, agent: &str) -> Owner {
        (project.parse().unwrap(), agent.parse().unwrap())
    }

    fn call(
        quota: &Arc<SuspendedQuota>,
        (project, agent): &Owner,
        bytes: usize,
    ) -> Result<Arc<CallPermit>, RequestOutcome> {
        quota.call((project, agent), bytes)
    }

    fn is_empty(quota: &SuspendedQuota) -> bool {
        quota.calls.is_empty() && quota.bytes.is_empty()
    }

    #[test]
    fn an_agent_has_so_many_places_and_bytes_and_gives_them_back() {
        let quota = Arc::new(SuspendedQuota::default());
        let (one, other) = (owner("p", "one"), owner("p", "other"));
        let wait = |who: &Owner| call(&quota, who, 9).unwrap().suspend(1);
        let mut taken: Vec<_> = (0..PER_AGENT).map(|_| wait(&one)).collect();
        assert!(taken.iter().all(Result::is_ok));
        let full = wait(&one).unwrap_err();
        assert!(matches!(full, RequestOutcome::TooMany { limit: PER_AGENT }));
        assert!(wait(&other).is_ok());
        // The agent of that name in another project has its own. row 3.2
        let elsewhere = owner("q", "one");
        assert!(wait(&elsewhere).is_ok());
        drop(taken.pop());
        let much = call(&quota, &one, BYTES_PER_AGENT).unwrap_err();
        let own = SuspendedBytes::OfAgent(BYTES_PER_AGENT);
        assert!(matches!(much, RequestOutcome::TooMuch(limit) if limit == own));
        assert!(wait(&one).is_ok());
        drop(taken);
        assert!(is_empty(&quota));
    }

    #[test]
    fn a_call_counts_once_and_only_while_its_client_is_asked() {
        let quota = Arc::new(SuspendedQuota::default());
        let one = owner("p", "one");
        let calls: Vec<_> = (0..=PER_AGENT)
            .map(|_| call(&quota, &one, 9).unwrap())
            .collect();
        let mut asked: Vec<_> = calls[1..].iter().map(|call| call.suspend(1)).collect();
        assert!(asked.iter().all(Result::is_ok));
        // Further requests of a call take no additional place.
        let beside = calls[1].suspend(1).unwrap();
        assert!(calls[0].suspend(1).is_err());
        drop(asked.remove(0));
        assert!(calls[0].suspend(1).is_err(), "it still waits");
        drop(beside);
        // The call continues, and nothing is suspended.
        drop(calls[0].suspend(1).unwrap());
        drop((asked, calls));
        assert!(is_empty(&quota));
    }

    #[test]
    fn what_is_asked_and_answered_counts_until_it_is_sent_on() {
        let quota = Arc::new(SuspendedQuota::default());
        let first = call(&quota, &owner("p", "one"), 1).unwrap();
        let mut asked = first.suspend(BYTES_PER_AGENT - 2).unwrap();
        assert!(asked.add(2).is_err() && first.suspend(2).is_err());
        asked.add(1).unwrap();
        drop(asked);
        drop(first.suspend(BYTES_PER_AGENT - 1).unwrap());
        drop(first);
        // The agents of a project have a common limit, and so have all projects.
        let fill = |project: &str, count: usize| -> Vec<_> {
            let names = (0..count).map(|n| owner(project, &format!("a{n}")));
            let call = |who| call(&quota, &who, BYTES_PER_AGENT).unwrap();
            names.map(call).collect()
        };
        let all = (fill("p", 4), fill("q", 1));
        let much = call(&quota, &owner("p", "late"), 1).unwrap_err();
        let own = SuspendedBytes::OfProject(BYTES);
        assert!(matches!(much, RequestOutcome::TooMuch(limit) if limit == own));
        let much = call(&quota, &owner("q", "late"), BYTES_PER_AGENT).unwrap_err();
        assert!(matches!(
            much,
            RequestOutcome::TooMuch(SuspendedBytes::OfAll(_))
        ));
        drop(all);
        assert!(is_empty(&quota));
    }
}
