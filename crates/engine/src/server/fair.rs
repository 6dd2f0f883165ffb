//! A bounded queue that is fair between agents: each agent's calls in order, agents in turn.

use std::collections::VecDeque;

use gantry_model::id::AgentName;

/// Calls that wait for a lane.
pub(crate) struct FairQueue<T> {
    agents: VecDeque<(AgentName, VecDeque<T>)>,
    length: usize,
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

    pub(crate) fn is_full(&self) -> bool {
        self.length >= self.limit
    }

    /// Appends behind the agent's own calls; gives the call back if the queue is full.
    pub(crate) fn push(&mut self, agent: &AgentName, call: T) -> Result<(), T> {
        if self.is_full() {
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
    fn agents_take_turns_and_the_queue_is_bounded() {
        // row 1.7
        let (a, b): (AgentName, AgentName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut queue = FairQueue::new(5);
        for call in ["a1", "a2", "a3"] {
            queue.push(&a, call).unwrap();
        }
        queue.push(&b, "b1").unwrap();
        queue.push(&b, "b2").unwrap();
        assert_eq!(queue.push(&b, "b3"), Err("b3"));
        assert_eq!(queue.remove(|call| *call == "a2"), Some("a2"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "a3", "b2"]);
        assert_eq!(queue.len(), 0);
    }
}
