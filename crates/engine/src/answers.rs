//! The memory of responses, from their arrival until their clients have read them.
//!
//! One pool for all, shared between agents without fixed parts: an agent may hold as much as it
//! leaves free for all others. One agent alone gets half of the pool, two get a third each, and a
//! new one always finds room. The same applies to projects as soon as two of them hold anything.
//! Long responses leave a part of that to shorter ones; short ones need no permit. Nothing here
//! waits: what does not fit is refused. Not a `Quota`, since shares depend on what others hold.
//! Entry points: [`AnswerPool::of`] and [`AnswerBudget::take`].

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use gantry_model::id::{AgentName, ProjectName};
use parking_lot::{Mutex, MutexGuard};

/// Responses up to this length need no permit.
pub const SHORT_ANSWER: usize = 16 << 10;
/// Longer responses leave an eighth of the free memory to shorter ones.
const LONG_ANSWER: usize = 256 << 10;

/// The memory for the responses of all projects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AnswerPool(Arc<PoolState>);

/// The memory for the responses of one project. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AnswerBudget {
    pool: AnswerPool,
    /// `None` for requests without a key.
    project: Option<ProjectName>,
}

#[derive(Debug)]
struct PoolState {
    bytes: usize,
    held: Mutex<HeldBytes>,
}

/// The holder of a response; requests without a key count as one holder.
type HolderKey = (Option<ProjectName>, Option<AgentName>);

#[derive(Debug, Default)]
struct HeldBytes {
    bytes: usize,
    projects: HashMap<Option<ProjectName>, usize>,
    holders: HashMap<HolderKey, usize>,
}

/// There is no room for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswersFull {
    /// Its length.
    pub bytes: usize,
    /// The bytes already held by the same agent, or by the whole project.
    pub held: usize,
    /// Whether the project, rather than the agent, holds too much.
    pub of_project: bool,
}

impl Display for AnswersFull {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (bytes, held) = (self.bytes >> 10, self.held >> 10);
        let whose = match self.of_project {
            true => "project",
            false => "agent",
        };
        write!(
            formatter,
            "no room for an answer of {bytes} KiB: answers that this {whose}'s clients have not read \
             yet take {held} KiB"
        )
    }
}

/// A response's share of the budget, released with the last clone.
#[derive(Debug, Clone, Default)]
pub struct AnswerPermit(Vec<Arc<TakenBytes>>);

#[derive(Debug)]
struct TakenBytes {
    pool: AnswerPool,
    holder: HolderKey,
    bytes: usize,
}

impl AnswerPool {
    /// Creates a pool of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(PoolState {
            bytes,
            held: Mutex::default(),
        }))
    }

    /// Returns the budget of a project.
    pub fn of(&self, project: &ProjectName) -> AnswerBudget {
        AnswerBudget {
            pool: self.clone(),
            project: Some(project.clone()),
        }
    }

    /// Returns the budget of requests without a key.
    pub fn without_key(&self) -> AnswerBudget {
        AnswerBudget {
            pool: self.clone(),
            project: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldBytes> {
        self.0.held.lock()
    }
}

impl AnswerBudget {
    /// Takes a permit for a response to an agent, or to a request without a key; a short one needs
    /// none.
    pub fn take(
        &self,
        agent: Option<&AgentName>,
        bytes: usize,
    ) -> Result<AnswerPermit, AnswersFull> {
        match bytes {
            0..=SHORT_ANSWER => Ok(AnswerPermit::default()),
            _ => self.take_all(agent, bytes),
        }
    }

    /// Takes a permit for the part of a response beyond its permit; a short rest needs none.
    pub fn cover(
        &self,
        agent: Option<&AgentName>,
        permit: &mut AnswerPermit,
        bytes: usize,
    ) -> Result<(), AnswersFull> {
        let rest = bytes.saturating_sub(permit.bytes());
        permit.join(self.take(agent, rest)?);
        Ok(())
    }

    /// Takes a permit for data of any length that waits for a client of an agent.
    pub fn take_all(
        &self,
        agent: Option<&AgentName>,
        bytes: usize,
    ) -> Result<AnswerPermit, AnswersFull> {
        let holder = (self.project.clone(), agent.cloned());
        let mut held = self.pool.lock();
        let own = held.holders.get(&holder).copied().unwrap_or_default();
        let of_project = held.projects.get(&holder.0).copied().unwrap_or_default();
        let free = self.pool.0.bytes.saturating_sub(held.bytes);
        let share = match bytes > LONG_ANSWER {
            true => free - free / 8,
            false => free,
        };
        let full = |held, of_project| AnswersFull {
            bytes,
            held,
            of_project,
        };
        if own + bytes > share {
            return Err(full(own, false));
        }
        if held.bytes > of_project && of_project + bytes > share {
            return Err(full(of_project, true));
        }
        held.bytes += bytes;
        held.projects.insert(holder.0.clone(), of_project + bytes);
        held.holders.insert(holder.clone(), own + bytes);
        drop(held);
        Ok(AnswerPermit(vec![Arc::new(TakenBytes {
            pool: self.pool.clone(),
            holder,
            bytes,
        })]))
    }
}

/// Returns bytes to a counter.
fn give<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K, bytes: usize) {
    if let Some(own) = counts.get_mut(key) {
        *own = own.saturating_sub(bytes);
        if *own == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for TakenBytes {
    fn drop(&mut self) {
        let mut held = self.pool.lock();
        held.bytes = held.bytes.saturating_sub(self.bytes);
        give(&mut held.projects, &self.holder.0, self.bytes);
        give(&mut held.holders, &self.holder, self.bytes);
    }
}

impl AnswerPermit {
    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|taken| taken.bytes).sum()
    }

    /// Adds another permit, for a response made of both.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Ties the permit to the response's bytes; it is released when they are dropped.
    pub fn tie(&self, bytes: Bytes) -> Bytes {
        match self.is_empty() {
            true => bytes,
            false => Bytes::from_owner(TiedBytes {
                bytes,
                _permit: self.clone(),
            }),
        }
    }
}

struct TiedBytes {
    bytes: Bytes,
    _permit: AnswerPermit,
}

impl AsRef<[u8]> for TiedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn agent(name: &str) -> AgentName {
        name.parse().unwrap()
    }

    fn budget(bytes: usize) -> AnswerBudget {
        AnswerPool::new(bytes).of(&ProjectName::local())
    }

    /// Takes answers of a length until there is no room for another.
    fn fill(budget: &AnswerBudget, name: &str, bytes: usize) -> Vec<AnswerPermit> {
        let agent = agent(name);
        std::iter::from_fn(|| budget.take(Some(&agent), bytes).ok()).collect()
    }

    // fault A1
    #[test]
    fn whoever_holds_much_leaves_room_for_others() {
        let budget = budget(96 * MIB);
        let first = fill(&budget, "a", 7 * MIB);
        assert_eq!(first.len(), 6);
        let full = budget.take(Some(&agent("a")), 7 * MIB).unwrap_err();
        assert_eq!(full.held, 42 * MIB);
        let told = "no room for an answer of 7168 KiB: answers that this agent's clients have not \
                    read yet take 43008 KiB";
        assert_eq!(full.to_string(), told);
        // Its own shorter answers still fit, for a while, and short ones always.
        assert!(budget.take(Some(&agent("a")), 200 << 10).is_ok());
        let medium = fill(&budget, "a", 200 << 10);
        assert!(medium.len() > 10 && budget.take(Some(&agent("a")), SHORT_ANSWER).is_ok());
        let others = ["b", "c", "d"].map(|name| fill(&budget, name, 2 * MIB).len());
        assert!(others.iter().all(|count| *count >= 1), "{others:?}");
        drop((first, medium));
        assert!(budget.pool.lock().holders.is_empty());
        assert_eq!(budget.pool.lock().bytes, 0);
    }

    // fault A1: agents of one name in two projects hold their own, and many agents of one project leave
    // room for the other.
    #[test]
    fn projects_share_as_agents_do() {
        let pool = AnswerPool::new(96 * MIB);
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        let (one, other) = (pool.of(&one), pool.of(&other));
        let _theirs = other.take(Some(&agent("a")), MIB).unwrap();
        let mut held = Vec::new();
        for n in 0..20 {
            held.extend(fill(&one, &format!("a{n}"), MIB));
        }
        // As many as it leaves free, though no agent of it holds much.
        assert!(held.len() > 40 && held.len() <= 48, "{}", held.len());
        let full = one.take(Some(&agent("b")), 7 * MIB).unwrap_err();
        assert!(full.of_project && full.to_string().contains("this project's"));
        assert!(fill(&other, "a", MIB).len() > 20);
        drop(held);
        assert_eq!(pool.lock().projects.len(), 1);
    }

    #[test]
    fn agents_come_to_the_same_share() {
        let budget = budget(90 * MIB);
        let names = ["a", "b", "c"].map(agent);
        let mut held = [0; 3];
        let mut permits = Vec::new();
        for _ in 0..1000 {
            for (name, count) in names.iter().zip(&mut held) {
                if let Ok(permit) = budget.take(Some(name), 100 << 10) {
                    permits.push(permit);
                    *count += 1;
                }
            }
        }
        let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
        assert!(most - least <= 1, "{held:?}");
        assert!(budget.take(Some(&agent("d")), 4 * MIB).is_ok());
    }

    // fault A1
    #[test]
    fn a_permit_covers_no_more_than_it_was_taken_for() {
        let budget = budget(8 * MIB);
        let agent = agent("a");
        let mut permit = budget.take(Some(&agent), MIB).unwrap();
        // An envelope is free, another answer in it is not.
        budget
            .cover(Some(&agent), &mut permit, MIB + SHORT_ANSWER)
            .unwrap();
        assert_eq!((permit.bytes(), budget.pool.lock().bytes), (MIB, MIB));
        budget.cover(Some(&agent), &mut permit, 3 * MIB).unwrap();
        assert_eq!(
            (permit.bytes(), budget.pool.lock().bytes),
            (3 * MIB, 3 * MIB)
        );
        budget.cover(Some(&agent), &mut permit, MIB).unwrap();
        let full = budget.cover(Some(&agent), &mut permit, 7 * MIB);
        let full = full.unwrap_err();
        assert_eq!((full.bytes, full.held), (4 * MIB, 3 * MIB));
        assert_eq!(permit.bytes(), 3 * MIB);
        drop(permit);
        assert_eq!(budget.pool.lock().bytes, 0);
    }

    #[test]
    fn a_permit_goes_back_with_the_last_of_its_bytes() {
        let budget = budget(8 * MIB);
        let mut permit = budget.take(None, MIB).unwrap();
        permit.join(budget.take(Some(&agent("a")), MIB).unwrap());
        let bytes = permit.tie(Bytes::from_static(b"answer"));
        let slice = bytes.slice(2..4);
        drop((permit, bytes));
        assert_eq!(
            (&slice[..], budget.pool.lock().bytes),
            (&b"sw"[..], 2 * MIB)
        );
        drop(slice);
        assert_eq!(budget.pool.lock().bytes, 0);
    }
}
