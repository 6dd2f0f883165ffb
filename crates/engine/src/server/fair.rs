//! A bounded queue that is fair between agents: each agent's calls in order, agents in turn. The
//! limit is per agent, so that no agent alone keeps the others out; all agents together may queue
//! [`AGENTS`] times as much.

use std::collections::VecDeque;

use gantry_model::id::AgentName;

/// How many agents may fill their part of the queue at the same time.
const AGENTS: usize = 4;

/// Calls that wait for a lane.
pub(crate) struct FairQueue<T> {
    agents: VecDeque<(AgentName, VecDeque<T>)>,
    length: usize,
    /// How many calls of one agent may wait.
    limit: usize,
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

    /// Tells whether a call of the agent's would find a place.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        let own = self.agents.iter().find(|(name, _)| name == agent);
        own.map_or(0, |(_, calls)| calls.len()) < self.limit && self.length < self.limit * AGENTS
    }

    /// Appends behind the agent's own calls, or gives the call back if there is no place for it.
    pub(crate) fn push(&mut self, agent: &AgentName, call: T) -> Result<(), T> {
        if !self.has_room(agent) {
            return Err(call);
        }
        self.length += 1;
        match self.agents.iter_mut().find(|(name, _)| name == agent) {
            Some((_, calls)) => calls.push_back(call),
            None => self
                .agents
                .push_back((agent.clone(), VecDeque::from([call]))),
        }
        Ok(())
    }

    /// Takes the next call; its agent then goes to the back.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (agent, mut calls) = self.agents.pop_front()?;
        let call = calls.pop_front();
        if !calls.is_empty() {
            self.agents.push_back((agent, calls));
        }
        self.length -= usize::from(call.is_some());
        call
    }

    /// Takes out the one call that matches.
    pub(crate) fn remove(&mut self, matches: impl Fn(&T) -> bool) -> Option<T> {
        let (index, position) =
            self.agents
                .iter()
                .enumerate()
                .find_map(|(index, (_, calls))| {
                    calls
                        .iter()
                        .position(&matches)
                        .map(|position| (index, position))
                })?;
        let call = self.agents[index].1.remove(position);
        if self.agents[index].1.is_empty() {
            self.agents.remove(index);
        }
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
}
