//! Limits on resources that are taken and released: in total, per project, and per key within a
//! project.
//!
//! A key alone is not unique, since two projects may have agents or servers of the same name.
//! Nothing here waits: beyond a limit the request is refused immediately. A permit releases its
//! amount when dropped. Entry points: [`Quota::take`] and [`QuotaPermit::set`].

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use gantry_model::id::ProjectName;
use parking_lot::Mutex;

/// The limits of a quota.
#[derive(Debug, Clone, Copy)]
pub struct QuotaLimits {
    /// For all projects together.
    pub all: usize,
    /// For one project.
    pub per_project: usize,
    /// For one key of a project.
    pub per_key: usize,
}

impl QuotaLimits {
    /// Returns limits by which no project takes more than three quarters of the total.
    pub const fn shared(per_project: usize, per_key: usize) -> Self {
        Self {
            all: per_project + per_project / 3,
            per_project,
            per_key,
        }
    }
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// The limit of the key.
    Key(usize),
    /// The limit of the project.
    Project(usize),
    /// The limit of all projects together.
    All(usize),
}

/// A quota by project and key. Cheap to clone.
#[derive(Debug)]
pub struct Quota<K: Eq + Hash>(Arc<QuotaState<K>>);

#[derive(Debug)]
struct QuotaState<K> {
    limits: QuotaLimits,
    taken: Mutex<TakenPermits<K>>,
}

#[derive(Debug)]
struct TakenPermits<K> {
    all: usize,
    projects: HashMap<ProjectName, OfProject<K>>,
}

#[derive(Debug)]
struct OfProject<K> {
    all: usize,
    keys: HashMap<K, usize>,
}

/// An amount that was taken, released when dropped.
#[derive(Debug)]
pub struct QuotaPermit<K: Eq + Hash> {
    quota: Quota<K>,
    project: ProjectName,
    key: K,
    amount: usize,
}

impl<K: Eq + Hash> Clone for Quota<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash + Clone> Quota<K> {
    /// Creates an unused quota.
    pub fn new(limits: QuotaLimits) -> Self {
        Self(Arc::new(QuotaState {
            limits,
            taken: Mutex::new(TakenPermits {
                all: 0,
                projects: HashMap::new(),
            }),
        }))
    }

    /// Returns an empty permit for a key of a project.
    pub fn permit(&self, project: &ProjectName, key: &K) -> QuotaPermit<K> {
        QuotaPermit {
            quota: self.clone(),
            project: project.clone(),
            key: key.clone(),
            amount: 0,
        }
    }

    /// Takes an amount for a key of a project.
    pub fn take(
        &self,
        project: &ProjectName,
        key: &K,
        amount: usize,
    ) -> Result<QuotaPermit<K>, QuotaExceeded> {
        let mut permit = self.permit(project, key);
        permit.set(amount)?;
        Ok(permit)
    }

    /// Returns whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        let taken = self.0.taken.lock();
        taken.all == 0 && taken.projects.is_empty()
    }
}

impl<K: Eq + Hash + Clone> QuotaPermit<K> {
    /// Returns its amount.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Changes the amount; if a limit would be exceeded, nothing changes.
    pub fn set(&mut self, amount: usize) -> Result<(), QuotaExceeded> {
        if amount <= self.amount {
            self.give(self.amount - amount);
            return Ok(());
        }
        let more = amount - self.amount;
        let limits = self.quota.0.limits;
        let mut taken = self.quota.0.taken.lock();
        let own = taken.projects.get(&self.project);
        let of_key = own.and_then(|own| own.keys.get(&self.key));
        let (of_project, of_key) = (own.map_or(0, |own| own.all), of_key.copied().unwrap_or(0));
        if of_key + more > limits.per_key {
            return Err(QuotaExceeded::Key(limits.per_key));
        }
        if of_project + more > limits.per_project {
            return Err(QuotaExceeded::Project(limits.per_project));
        }
        if taken.all + more > limits.all {
            return Err(QuotaExceeded::All(limits.all));
        }
        taken.all += more;
        let own = taken.projects.entry(self.project.clone());
        let own = own.or_insert_with(|| OfProject {
            all: 0,
            keys: HashMap::new(),
        });
        own.all += more;
        *own.keys.entry(self.key.clone()).or_default() += more;
        drop(taken);
        self.amount = amount;
        Ok(())
    }
}

impl<K: Eq + Hash> QuotaPermit<K> {
    fn give(&mut self, less: usize) {
        if less == 0 {
            return;
        }
        self.amount -= less;
        let mut taken = self.quota.0.taken.lock();
        taken.all = taken.all.saturating_sub(less);
        let Some(own) = taken.projects.get_mut(&self.project) else {
            return;
        };
        own.all = own.all.saturating_sub(less);
        if let Some(of_key) = own.keys.get_mut(&self.key) {
            *of_key = of_key.saturating_sub(less);
            if *of_key == 0 {
                own.keys.remove(&self.key);
            }
        }
        if own.all == 0 {
            taken.projects.remove(&self.project);
        }
    }
}

impl<K: Eq + Hash> Drop for QuotaPermit<K> {
    fn drop(&mut self) {
        self.give(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str) -> ProjectName {
        name.parse().unwrap()
    }

    // row 3.2, fault A5
    #[test]
    fn keys_of_one_name_in_two_projects_are_counted_apart() {
        let quota = Quota::new(QuotaLimits {
            all: 10,
            per_project: 6,
            per_key: 4,
        });
        let (one, other) = (project("one"), project("other"));
        let first = quota.take(&one, &"a", 4).unwrap();
        assert_eq!(quota.take(&one, &"a", 1).err(), Some(QuotaExceeded::Key(4)));
        let theirs = quota.take(&other, &"a", 4).unwrap();
        let beside = quota.take(&one, &"b", 2).unwrap();
        let full = quota.take(&one, &"c", 1).err();
        assert_eq!(full, Some(QuotaExceeded::Project(6)));
        let full = quota.take(&other, &"b", 1).err();
        assert_eq!(full, Some(QuotaExceeded::All(10)));
        assert!(quota.take(&one, &"a", 0).is_ok());
        drop((first, beside));
        assert!(quota.take(&other, &"b", 2).is_ok());
        drop(theirs);
        assert!(quota.is_empty());
    }

    #[test]
    fn a_permit_takes_more_and_gives_back() {
        let quota = Quota::new(QuotaLimits::shared(16, 8));
        let mut permit = quota.permit(&project("one"), &1);
        assert!(quota.is_empty());
        permit.set(8).unwrap();
        assert_eq!(permit.set(9), Err(QuotaExceeded::Key(8)));
        assert_eq!(permit.amount(), 8);
        permit.set(3).unwrap();
        let _other = quota.take(&project("one"), &1, 5).unwrap();
        assert!(permit.set(4).is_err());
        drop(permit);
        assert_eq!(quota.0.taken.lock().all, 5);
    }
}
