//! A bounded queue that is fair between agents: each agent's calls in order, agents in turn. Whoever
//! fills it gives way to those who ask for less, so that nobody keeps the others out.

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

    /// Tells whether a call of the agent's would find a place.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.length < self.limit || self.greedier(agent).is_some()
    }

    /// Appends behind the agent's own calls. If the queue is full, the newest call of whoever has the
    /// most there makes room for it and is returned; the call itself is, as an error, if nobody has
    /// more than the agent would have.
    pub(crate) fn push(&mut self, agent: &AgentName, call: T) -> Result<Option<T>, T> {
        let displaced = match (self.length < self.limit, self.greedier(agent)) {
            (true, _) => None,
            (false, Some(greedy)) => self.agents[greedy].1.pop_back(),
            (false, None) => return Err(call),
        };
        self.length += usize::from(displaced.is_none());
        match self.agents.iter_mut().find(|(name, _)| name == agent) {
            Some((_, calls)) => calls.push_back(call),
            None => self
                .agents
                .push_back((agent.clone(), VecDeque::from([call]))),
        }
        Ok(displaced)
    }

    /// Returns where the agent is that has the most calls here, if it keeps at least as many as this
    /// one would have when it gives one up.
    fn greedier(&self, agent: &AgentName) -> Option<usize> {
        let lengths = self.agents.iter().map(|(_, calls)| calls.len());
        let (greedy, most) = lengths.enumerate().max_by_key(|(_, length)| *length)?;
        let mut agents = self.agents.iter();
        let own = agents.find(|(name, _)| name == agent);
        let own = own.map_or(0, |(_, calls)| calls.len());
        (most > own + 1).then_some(greedy)
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
        assert!(!queue.has_room(&b));
        assert_eq!(queue.push(&b, "b3"), Err("b3"));
        assert_eq!(queue.remove(|call| *call == "a2"), Some("a2"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "a3", "b2"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn who_fills_the_queue_gives_way_until_all_have_the_same() {
        // row 1.7, fault A5
        let agents: [AgentName; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let [a, b, c] = &agents;
        let mut queue = FairQueue::new(4);
        for call in ["a1", "a2", "a3", "a4"] {
            assert_eq!(queue.push(a, call), Ok(None));
        }
        assert!(!queue.has_room(a));
        assert_eq!(queue.push(a, "a5"), Err("a5"));
        assert!(queue.has_room(b));
        assert_eq!(queue.push(b, "b1"), Ok(Some("a4")));
        assert_eq!(queue.push(b, "b2"), Ok(Some("a3")));
        assert_eq!(queue.push(b, "b3"), Err("b3"));
        let third = queue.push(c, "c1").unwrap();
        assert!(matches!(third, Some("a2" | "b2")), "{third:?}");
        assert_eq!(queue.push(c, "c2"), Err("c2"));
        assert_eq!(queue.len(), 4);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 4);
    }
}
