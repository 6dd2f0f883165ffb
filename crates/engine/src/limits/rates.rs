//! Counts calls and bytes of a project's callers against the limits of the key, the agent and the
//! project. Without limits, a call only reads one pointer. Never waits: calls beyond a limit are
//! refused. Entry points: [`CallLimits::admit`] and [`LimitPermit::charge`].

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use gantry_model::caller::Caller;
use gantry_model::id::{AgentName, KeyId};
use gantry_model::limits::{Bucket, LimitOwner, Limited, RateLimits};
use parking_lot::Mutex;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The retry delay if the maximum number of concurrent calls is reached.
const WHEN_ONE_ENDS: Duration = Duration::from_secs(1);

/// A limit that a call would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitExceeded {
    /// The owner of the limit.
    pub owner: LimitOwner,
    /// The kind of the limit, and its value.
    pub what: Limited,
    /// When to try again.
    pub retry_after: Duration,
}

/// The limits of a project, its agents and their keys.
pub(crate) struct CallLimits {
    /// `None` if there are no limits.
    now: ArcSwapOption<LimitTable>,
    /// Held during a change.
    changing: Mutex<()>,
    /// The reference point of all times.
    epoch: Instant,
}

#[derive(Clone, Default)]
struct LimitTable {
    project: Option<Arc<Limiter>>,
    agents: HashMap<AgentName, Arc<Limiter>>,
    keys: HashMap<KeyId, Arc<Limiter>>,
}

/// The usage of one key, agent or project.
struct Limiter {
    limits: RateLimits,
    calls: [Option<Bucket>; 2],
    bytes: [Option<Bucket>; 2],
    /// Calls in flight; kept when the limits change.
    in_flight: Arc<AtomicU32>,
}

/// The permission to make a call, returned when it is dropped.
#[derive(Default)]
pub(crate) struct LimitPermit {
    limiters: [Option<Arc<Limiter>>; 3],
    epoch: Option<Instant>,
}

impl CallLimits {
    pub(crate) fn new() -> Self {
        Self {
            now: ArcSwapOption::empty(),
            changing: Mutex::new(()),
            epoch: Instant::now(),
        }
    }

    /// Sets the limits of the project as a whole.
    pub(crate) fn set_project(&self, limits: &RateLimits) {
        let now = self.now.load();
        let project = now.as_deref().and_then(|table| table.project.as_ref());
        if project.map_or_else(RateLimits::default, |limiter| limiter.limits) == *limits {
            return;
        }
        self.change(|table| {
            let before = table.project.take();
            table.project = Limiter::after(before.as_ref(), limits);
        });
    }

    /// Sets the limits of agents and keys; those not listed have none.
    pub(crate) fn set_callers<'a>(
        &self,
        agents: impl Iterator<Item = (&'a AgentName, &'a RateLimits)>,
        keys: impl Iterator<Item = (KeyId, &'a RateLimits)>,
    ) {
        self.change(|table| {
            table.agents = replaced(&table.agents, agents.map(|(name, of)| (name.clone(), of)));
            table.keys = replaced(&table.keys, keys);
        });
    }

    fn change(&self, make: impl FnOnce(&mut LimitTable)) {
        let _one = self.changing.lock();
        let mut table = self.now.load().as_deref().cloned().unwrap_or_default();
        make(&mut table);
        let is_limited =
            table.project.is_some() || !table.agents.is_empty() || !table.keys.is_empty();
        self.now.store(is_limited.then(|| Arc::new(table)));
    }

    /// Admits a call with this many bytes of arguments, unless it exceeds a limit.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        bytes: usize,
    ) -> Result<LimitPermit, LimitExceeded> {
        let table = self.now.load();
        let Some(table) = table.as_deref() else {
            return Ok(LimitPermit::default());
        };
        let now = self.epoch.elapsed();
        let limiters = [
            table.keys.get(&caller.key),
            table.agents.get(&caller.agent),
            table.project.as_ref(),
        ];
        let mut permit = LimitPermit {
            limiters: Default::default(),
            epoch: Some(self.epoch),
        };
        for (index, limiter) in limiters.into_iter().enumerate() {
            let Some(limiter) = limiter else { continue };
            if let Err((what, retry_after)) = limiter.enter(now) {
                permit.take_back();
                let owner = LimitOwner::ALL[index];
                return Err(LimitExceeded {
                    owner,
                    what,
                    retry_after,
                });
            }
            permit.limiters[index] = Some(Arc::clone(limiter));
        }
        permit.charge(bytes);
        Ok(permit)
    }
}

/// Returns the limiters for these limits, keeping the usage of unchanged ones.
fn replaced<'a, K: Eq + Hash>(
    old: &HashMap<K, Arc<Limiter>>,
    limits: impl Iterator<Item = (K, &'a RateLimits)>,
) -> HashMap<K, Arc<Limiter>> {
    let limiters = limits.filter_map(|(key, limits)| {
        let limiter = Limiter::after(old.get(&key), limits)?;
        Some((key, limiter))
    });
    limiters.collect()
}

impl Limiter {
    /// Returns the limiter for these limits, with the usage of the previous one; `None` without
    /// limits.
    fn after(before: Option<&Arc<Self>>, limits: &RateLimits) -> Option<Arc<Self>> {
        if limits.is_empty() {
            return None;
        }
        match before {
            Some(before) if before.limits == *limits => Some(Arc::clone(before)),
            before => {
                let in_flight = before.map(|before| Arc::clone(&before.in_flight));
                Some(Arc::new(Self::new(*limits, in_flight.unwrap_or_default())))
            }
        }
    }

    fn new(limits: RateLimits, in_flight: Arc<AtomicU32>) -> Self {
        let calls = [limits.calls_per_minute, limits.calls_per_hour];
        let bytes = [limits.bytes_per_minute, limits.bytes_per_hour];
        let buckets = |[minute, hour]: [Option<NonZeroU64>; 2]| {
            [
                minute.map(|limit| Bucket::new(limit, MINUTE)),
                hour.map(|limit| Bucket::new(limit, HOUR)),
            ]
        };
        Self {
            limits,
            calls: buckets(calls.map(|limit| limit.map(NonZeroU64::from))),
            bytes: buckets(bytes),
            in_flight,
        }
    }

    /// Counts a call, or returns the exceeded limit and when to retry.
    fn enter(&self, now: Duration) -> Result<(), (Limited, Duration)> {
        let most = self.limits.concurrency.map_or(u32::MAX, |most| most.get());
        let more = |calls: u32| (calls < most).then_some(calls + 1);
        let entered = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if entered.is_err() {
            return Err((Limited::Concurrency(most.into()), WHEN_ONE_ENDS));
        }
        let taken = self.take(now);
        if taken.is_err() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    fn take(&self, now: Duration) -> Result<(), (Limited, Duration)> {
        let of_bytes: [fn(u64) -> Limited; 2] = [Limited::BytesPerMinute, Limited::BytesPerHour];
        for (bucket, what) in self.bytes.iter().zip(of_bytes) {
            if let Some(bucket) = bucket {
                let wait = bucket.check(now);
                wait.map_err(|wait| (what(bucket.holds()), wait))?;
            }
        }
        let of_calls: [fn(u64) -> Limited; 2] = [Limited::CallsPerMinute, Limited::CallsPerHour];
        for (index, (bucket, what)) in self.calls.iter().zip(of_calls).enumerate() {
            if let Some(bucket) = bucket
                && let Err(wait) = bucket.take(1, now)
            {
                self.put_back(index);
                return Err((what(bucket.holds()), wait));
            }
        }
        Ok(())
    }

    /// Gives the first buckets back what a call took of them.
    fn put_back(&self, buckets: usize) {
        let taken = self.calls.iter().take(buckets).flatten();
        taken.for_each(|bucket| bucket.put_back(1));
    }
}

impl LimitPermit {
    /// Counts bytes used by the call.
    pub(crate) fn charge(&self, bytes: usize) {
        let Some(epoch) = self.epoch else { return };
        let (now, bytes) = (epoch.elapsed(), u64::try_from(bytes).unwrap_or(u64::MAX));
        let buckets = self.limiters.iter().flatten();
        for bucket in buckets.flat_map(|limiter| limiter.bytes.iter().flatten()) {
            bucket.charge(bytes, now);
        }
    }

    /// Uncounts a call that another limit refuses.
    fn take_back(&self) {
        let limiters = self.limiters.iter().flatten();
        limiters.for_each(|limiter| limiter.put_back(limiter.calls.len()));
    }
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        for limiter in self.limiters.iter().flatten() {
            limiter.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::caller::KeyKind;
    use gantry_model::grant::GrantSet;
    use gantry_model::id::ProjectName;

    use super::*;

    fn caller(agent: &str, key: u128) -> Caller {
        Caller {
            project: ProjectName::local(),
            agent: agent.parse().unwrap(),
            key: KeyId::from_random(key),
            kind: KeyKind::Agent,
            grants: Arc::new(GrantSet::everything()),
            users: Default::default(),
            validity: Default::default(),
            token: None,
            authenticated_in: Default::default(),
        }
    }

    fn limits(text: &str) -> RateLimits {
        serde_json::from_str(text).unwrap()
    }

    fn set(all: &CallLimits, agents: &[(&str, &str)], keys: &[(u128, &str)]) {
        let agents: Vec<(AgentName, RateLimits)> = agents
            .iter()
            .map(|(name, text)| (name.parse().unwrap(), limits(text)))
            .collect();
        let keys: Vec<(KeyId, RateLimits)> = keys
            .iter()
            .map(|(key, text)| (KeyId::from_random(*key), limits(text)))
            .collect();
        all.set_callers(
            agents.iter().map(|(name, of)| (name, of)),
            keys.iter().map(|(key, of)| (*key, of)),
        );
    }

    fn admitted(all: &CallLimits, caller: &Caller, calls: usize) -> usize {
        (0..calls).filter(|_| all.admit(caller, 0).is_ok()).count()
    }

    // row 3.2, fault T7
    #[tokio::test(start_paused = true)]
    async fn each_limit_is_its_owners_and_the_narrowest_is_named() {
        let all = CallLimits::new();
        let (one, other) = (caller("one", 1), caller("one", 2));
        assert_eq!(admitted(&all, &one, 1000), 1000);
        set(
            &all,
            &[("one", r#"{"calls_per_minute":5}"#)],
            &[(1, r#"{"calls_per_minute":3}"#)],
        );
        assert_eq!(admitted(&all, &one, 10), 3);
        let refused = all.admit(&one, 0).err().unwrap();
        assert_eq!(
            (refused.owner, refused.what),
            (LimitOwner::Key, Limited::CallsPerMinute(3))
        );
        assert_eq!(refused.retry_after, Duration::from_secs(20));
        // A call refused by a key's limit is not counted for the agent.
        assert_eq!(admitted(&all, &other, 10), 2);
        let refused = all.admit(&other, 0).err().unwrap();
        assert_eq!(refused.owner, LimitOwner::Agent);
        assert_eq!(admitted(&all, &caller("two", 3), 100), 100);
        all.set_project(&limits(r#"{"calls_per_hour":4}"#));
        assert_eq!(admitted(&all, &caller("two", 3), 100), 4);
        let refused = all.admit(&caller("three", 4), 0).err().unwrap();
        assert_eq!(
            (refused.owner, refused.what),
            (LimitOwner::Project, Limited::CallsPerHour(4))
        );
        // Other changes keep the usage.
        set(&all, &[("one", r#"{"calls_per_minute":5}"#)], &[]);
        all.set_project(&RateLimits::default());
        assert_eq!(admitted(&all, &one, 10), 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(admitted(&all, &one, 10), 5);
        set(&all, &[], &[]);
        assert!(all.now.load().is_none(), "nothing is limited");
    }

    // fault T7
    #[tokio::test(start_paused = true)]
    async fn calls_at_once_are_counted_until_they_end() {
        let all = CallLimits::new();
        let one = caller("one", 1);
        set(
            &all,
            &[("one", r#"{"concurrency":2,"calls_per_minute":3}"#)],
            &[],
        );
        let (first, second) = (all.admit(&one, 0).ok(), all.admit(&one, 0).ok());
        assert!(first.is_some() && second.is_some());
        let refused = all.admit(&one, 0).err().unwrap();
        assert_eq!(refused.what, Limited::Concurrency(2));
        drop(first);
        // A refused call is not counted.
        let third = all.admit(&one, 0).ok();
        assert!(third.is_some());
        // A changed limit includes the calls in flight.
        set(&all, &[("one", r#"{"concurrency":3}"#)], &[]);
        let fourth = all.admit(&one, 0).ok();
        assert!(fourth.is_some() && all.admit(&one, 0).is_err());
        drop((second, third, fourth));
        assert_eq!(admitted(&all, &one, 5), 5, "none is under way");
    }

    // fault T7
    #[tokio::test(start_paused = true)]
    async fn bytes_of_arguments_and_results_are_counted() {
        let all = CallLimits::new();
        let one = caller("one", 1);
        set(&all, &[], &[(1, r#"{"bytes_per_minute":6000}"#)]);
        let permit = all.admit(&one, 1000).ok().unwrap();
        permit.charge(4000);
        // Any remaining amount admits a call of any size; the excess must be refilled first.
        all.admit(&one, 2000).ok().unwrap();
        let refused = all.admit(&one, 0).err().unwrap();
        assert_eq!(refused.what, Limited::BytesPerMinute(6000));
        assert_eq!(refused.retry_after, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(all.admit(&one, 0).is_ok());
    }
}
