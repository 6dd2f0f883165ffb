//! A bounded queue that is fair between agents, and the lanes that each of them holds. An agent's calls
//! go in order; the next lane goes to the agent that holds the fewest, and among equals agents take
//! turns. The limit is per agent, so that no agent alone keeps the others out; all agents together may
//! queue [`AGENTS`] times as much. [`may_take`] keeps lanes free for agents that hold none.

use std::collections::VecDeque;

use gantry_model::id::AgentName;

/// How many agents may fill their part of the queue at once.
const AGENTS: usize = 4;
/// Agents that neither wait nor hold a lane are remembered up to this many, instead of being forgotten
/// after each call.
const IDLE: usize = 8;
/// At most this part of the lanes is reserved, but one at least.
const RESERVED_PART: u32 = 4;

/// Returns how many free lanes an agent that holds one already must leave to agents that hold none:
/// one for each that may come, within a quarter of all lanes. `others` is how many other agents may
/// call, `others_active` how many of them hold a lane.
fn reserved_lanes(lanes: u32, others: u32, others_active: u32) -> u32 {
    // One lane cannot be shared: there agents take turns.
    if lanes < 2 {
        return 0;
    }
    let most = (lanes / RESERVED_PART).max(1);
    others.saturating_sub(others_active).min(most)
}

/// Returns whether an agent may take one of the free lanes: one without a lane always, another if enough
/// of them stay for agents that have none. `active` agents hold a lane, `others` may call beside it.
pub(crate) fn may_take(lanes: u32, free: u32, held: u32, (others, active): (u32, u32)) -> bool {
    let others_active = active.saturating_sub(u32::from(held > 0));
    match held {
        0 => free > 0,
        _ => free > reserved_lanes(lanes, others, others_active),
    }
}

/// Calls that wait for a lane, and who holds how many.
pub(crate) struct FairQueue<T> {
    /// In the order of their turns.
    agents: VecDeque<OfAgent<T>>,
    length: usize,
    /// How many calls of one agent may wait.
    limit: usize,
}

struct OfAgent<T> {
    name: AgentName,
    /// The lanes that it holds.
    held: u32,
    waiting: VecDeque<T>,
}

impl<T> OfAgent<T> {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting.is_empty()
    }
}

impl<T> FairQueue<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            agents: VecDeque::new(),
            length: 0,
            limit,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    fn of(&self, agent: &AgentName) -> Option<&OfAgent<T>> {
        self.agents.iter().find(|of| of.name == *agent)
    }

    /// Returns what is known of an agent, which from now on is known.
    fn entry(&mut self, agent: &AgentName) -> &mut OfAgent<T> {
        let known = self.agents.iter().position(|of| of.name == *agent);
        let index = known.unwrap_or_else(|| {
            if self.agents.len() >= IDLE {
                self.agents.retain(|of| !of.is_idle());
            }
            self.agents.push_back(OfAgent {
                name: agent.clone(),
                held: 0,
                waiting: VecDeque::new(),
            });
            self.agents.len() - 1
        });
        &mut self.agents[index]
    }

    /// Returns whether there is room for a call of this agent.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.waiting(agent) < self.limit && self.length < self.limit * AGENTS
    }

    /// Returns how many calls of the agent wait.
    pub(crate) fn waiting(&self, agent: &AgentName) -> usize {
        self.of(agent).map_or(0, |of| of.waiting.len())
    }

    /// Returns how many lanes the agent holds.
    pub(crate) fn held(&self, agent: &AgentName) -> u32 {
        self.of(agent).map_or(0, |of| of.held)
    }

    /// Returns how many agents hold a lane.
    pub(crate) fn active(&self) -> u32 {
        let active = self.agents.iter().filter(|of| of.held > 0).count();
        u32::try_from(active).unwrap_or(u32::MAX)
    }

    /// Notes that the agent has one lane more.
    pub(crate) fn hold(&mut self, agent: &AgentName) {
        self.entry(agent).held += 1;
    }

    /// Notes that the agent has given a lane back.
    pub(crate) fn let_go(&mut self, agent: &AgentName) {
        let of = self.agents.iter_mut().find(|of| of.name == *agent);
        if let Some(of) = of {
            of.held = of.held.saturating_sub(1);
        }
    }

    /// Appends after the agent's other calls, or returns the call if there is no room.
    pub(crate) fn push(&mut self, agent: &AgentName, call: T) -> Result<(), T> {
        if !self.has_room(agent) {
            return Err(call);
        }
        self.length += 1;
        let of = self.entry(agent);
        of.waiting.push_back(call);
        Ok(())
    }

    /// Takes the next call of the agent that holds the fewest lanes, if the number of lanes that it
    /// holds `may` have one more; that agent then goes to the back.
    pub(crate) fn pop_if(&mut self, may: impl Fn(u32) -> bool) -> Option<T> {
        let waiting = self.agents.iter().enumerate();
        let waiting = waiting.filter(|(_, of)| !of.waiting.is_empty());
        let (index, held) = waiting
            .map(|(index, of)| (index, of.held))
            .min_by_key(|(_, held)| *held)?;
        if !may(held) {
            return None;
        }
        let mut of = self.agents.remove(index)?;
        let call = of.waiting.pop_front();
        self.agents.push_back(of);
        self.length -= usize::from(call.is_some());
        call
    }

    /// Takes the next call of any agent.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Removes the first call that matches.
    pub(crate) fn remove(&mut self, matches: impl Fn(&T) -> bool) -> Option<T> {
        let call = self.agents.iter_mut().find_map(|of| {
            let position = of.waiting.iter().position(&matches)?;
            of.waiting.remove(position)
        });
        self.length -= usize::from(call.is_some());
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_take_turns() {
        // row 1.7
        let (a, b): (AgentName, AgentName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut queue = FairQueue::new(3);
        for call in ["a1", "a2", "a3"] {
            queue.push(&a, call).unwrap();
        }
        queue.push(&b, "b1").unwrap();
        queue.push(&b, "b2").unwrap();
        assert_eq!(queue.remove(|call| *call == "a2"), Some("a2"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "a3", "b2"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn an_agent_that_fills_its_part_keeps_nobody_out() {
        // row 1.7, fault A5
        let agents = ["a", "b", "c", "d", "e"].map(|name| name.parse::<AgentName>().unwrap());
        let mut queue = FairQueue::new(2);
        for agent in &agents[..AGENTS] {
            assert!(queue.has_room(agent));
            queue.push(agent, 1).unwrap();
            queue.push(agent, 2).unwrap();
            assert!(!queue.has_room(agent));
            assert_eq!(queue.push(agent, 3), Err(3));
        }
        assert_eq!(queue.push(&agents[AGENTS], 1), Err(1), "bounded in all");
        assert_eq!(queue.len(), 2 * AGENTS);
        queue.pop();
        queue.push(&agents[AGENTS], 1).unwrap();
    }

    #[test]
    fn who_holds_fewest_lanes_is_next() {
        // row 1.7
        let (a, b): (AgentName, AgentName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut queue = FairQueue::new(8);
        queue.hold(&a);
        queue.hold(&a);
        queue.hold(&b);
        for call in ["a1", "a2"] {
            queue.push(&a, call).unwrap();
        }
        queue.push(&b, "b1").unwrap();
        assert_eq!((queue.held(&a), queue.active()), (2, 2));
        assert_eq!(queue.pop_if(|held| held == 0), None, "nobody has none");
        assert_eq!(queue.pop_if(|held| held == 1), Some("b1"));
        queue.hold(&b);
        assert_eq!(queue.pop(), Some("a1"), "equals take turns");
        queue.let_go(&b);
        queue.let_go(&b);
        assert_eq!((queue.held(&b), queue.active()), (0, 1));
    }

    #[test]
    fn who_neither_waits_nor_holds_is_forgotten() {
        let mut queue = FairQueue::new(2);
        for number in 0..1000 {
            let agent: AgentName = format!("agent{number}").parse().unwrap();
            queue.push(&agent, number).unwrap();
            assert_eq!(queue.pop(), Some(number));
            queue.hold(&agent);
            queue.let_go(&agent);
        }
        assert!(queue.agents.len() <= IDLE);
    }

    #[test]
    fn lanes_are_reserved_for_agents_without_one() {
        // row 1.7
        assert_eq!(reserved_lanes(1, 5, 0), 0, "one lane cannot be shared");
        assert_eq!(reserved_lanes(32, 0, 0), 0, "nobody else may call");
        assert_eq!(reserved_lanes(2, 1, 0), 1);
        assert_eq!(reserved_lanes(2, 9, 0), 1);
        assert_eq!(reserved_lanes(32, 3, 0), 3);
        assert_eq!(reserved_lanes(32, 3, 2), 1);
        assert_eq!(reserved_lanes(32, 3, 3), 0, "all have one");
        assert_eq!(reserved_lanes(32, 100, 0), 8, "a quarter at most");
    }
}
