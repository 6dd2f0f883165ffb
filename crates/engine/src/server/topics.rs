//! Resource subscriptions: which client listens to which resource, by server.
//!
//! A listener holds a [`Subscription`]; when the last one of a resource is dropped, the gateway
//! unsubscribes from it. `resubscribe` keeps the server's link up to date, also after a restart.
//! The number is bounded per agent. Nothing here waits while it holds a lock.

mod resubscribe;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use gantry_model::id::{AgentName, ServerName};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

pub(crate) use resubscribe::keep;

/// The most subscribed resources of one server; the first [`ALWAYS`] of each agent do not count.
const MOST: usize = 10_000;
/// The maximum number of subscriptions of one agent on one server.
const PER_AGENT: usize = 1_000;
/// The maximum size of the URIs that an agent subscribes to, in bytes: a stateless server gets all of them in one message.
const PER_AGENT_BYTES: usize = 256 << 10;
/// Subscriptions that an agent gets regardless of others.
const ALWAYS: usize = 100;
/// The longest URI in a subscription or a change notification.
pub const LONGEST_URI: usize = 8 << 10;

/// Called with the URI of a changed resource; must not block.
pub type UpdateCallback = Arc<dyn Fn(&Arc<str>) + Send + Sync>;

type ProjectTopics = Mutex<HashMap<ServerName, Weak<Topics>>>;

/// The subscriptions of a project's servers. Those of a server live as long as it has a link or a
/// subscription, so they survive a restart.
#[derive(Default)]
pub(crate) struct TopicTable(Arc<ProjectTopics>);

impl TopicTable {
    /// Returns the subscriptions of a server.
    pub(crate) fn of(&self, server: &ServerName) -> Arc<Topics> {
        let mut table = self.0.lock();
        if let Some(known) = table.get(server).and_then(Weak::upgrade) {
            return known;
        }
        let topics = Arc::new(Topics {
            entry: Some(TableEntry {
                table: Arc::clone(&self.0),
                server: server.clone(),
            }),
            ..Topics::default()
        });
        table.insert(server.clone(), Arc::downgrade(&topics));
        topics
    }
}

/// Removes the subscriptions of a server from their table when dropped.
struct TableEntry {
    table: Arc<ProjectTopics>,
    server: ServerName,
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        // There may be a new subscription meanwhile.
        let is_over = |topics: &Weak<Topics>| topics.strong_count() == 0;
        if table.get(&self.server).is_some_and(is_over) {
            table.remove(&self.server);
        }
    }
}

/// The subscriptions at one server.
#[derive(Default)]
pub(crate) struct Topics {
    state: Mutex<TopicsState>,
    /// Notified when the set of wanted resources changes.
    changed: Notify,
    #[expect(dead_code, reason = "held for its drop")]
    entry: Option<TableEntry>,
    /// The same for any number of links.
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct TopicsState {
    topics: BTreeMap<Arc<str>, Topic>,
    /// How many subscriptions each agent has, and the bytes of their URIs.
    held: HashMap<AgentName, (usize, usize)>,
    next: u64,
}

/// Why an agent cannot subscribe to more resources of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooManyTopics {
    /// It has reached its number of subscriptions.
    Agent(usize),
    /// Their URIs would exceed the limit in bytes.
    Bytes(usize),
    /// All agents together have reached the limit.
    Server(usize),
}

impl TopicsState {
    fn check(&self, agent: &AgentName, uri: &str) -> Result<(), TooManyTopics> {
        let (held, bytes) = self.held.get(agent).copied().unwrap_or_default();
        if held >= PER_AGENT {
            return Err(TooManyTopics::Agent(PER_AGENT));
        }
        if bytes + uri.len() > PER_AGENT_BYTES {
            return Err(TooManyTopics::Bytes(PER_AGENT_BYTES));
        }
        let is_full = self.topics.len() >= MOST && !self.topics.contains_key(uri);
        match is_full && held >= ALWAYS {
            true => Err(TooManyTopics::Server(MOST)),
            false => Ok(()),
        }
    }
}

struct Topic {
    callbacks: Vec<(u64, UpdateCallback)>,
    standing: watch::Sender<SubscriptionState>,
}

/// The server's response to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubscriptionState {
    /// Not sent yet.
    Wanted,
    /// Accepted: the server notifies of changes.
    Kept,
    /// Refused, with the server's code and message.
    Refused(i64, Arc<str>),
}

impl Topics {
    /// Returns whether an agent may subscribe to one more resource.
    pub(crate) fn has_room(&self, agent: &AgentName, uri: &str) -> Result<(), TooManyTopics> {
        self.state.lock().check(agent, uri)
    }

    /// Subscribes, unless a limit is reached.
    pub(crate) fn join(
        self: &Arc<Self>,
        agent: &AgentName,
        uri: &str,
        callback: UpdateCallback,
    ) -> Result<Subscription, TooManyTopics> {
        let mut state = self.state.lock();
        state.check(agent, uri)?;
        let (held, bytes) = state.held.entry(agent.clone()).or_default();
        (*held, *bytes) = (*held + 1, *bytes + uri.len());
        state.next += 1;
        let number = state.next;
        let uri: Arc<str> = Arc::from(uri);
        let topic = state.topics.entry(Arc::clone(&uri));
        let topic = topic.or_insert_with(|| Topic {
            callbacks: Vec::new(),
            standing: watch::Sender::new(SubscriptionState::Wanted),
        });
        topic.callbacks.push((number, callback));
        let standing = topic.standing.subscribe();
        drop(state);
        self.changes();
        Ok(Subscription {
            topics: Arc::clone(self),
            agent: agent.clone(),
            uri,
            number,
            standing,
            beside: None,
        })
    }

    fn changes(&self) {
        self.changed.notify_one();
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Returns whether there are no subscriptions.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().topics.is_empty()
    }

    fn leave(&self, agent: &AgentName, uri: &str, number: u64) {
        let mut state = self.state.lock();
        if let Some((held, bytes)) = state.held.get_mut(agent) {
            (*held, *bytes) = (*held - 1, *bytes - uri.len());
            if *held == 0 {
                state.held.remove(agent);
            }
        }
        let Some(topic) = state.topics.get_mut(uri) else {
            return;
        };
        topic.callbacks.retain(|(each, _)| *each != number);
        if topic.callbacks.is_empty() {
            state.topics.remove(uri);
            drop(state);
            self.changes();
        }
    }

    /// Notifies the listeners of a changed resource, or of a resource below their topic.
    pub(crate) fn updated(&self, uri: &str) {
        let callbacks: Vec<UpdateCallback> = {
            let state = self.state.lock();
            let topics = state.topics.iter();
            let concerned = topics.filter(|(topic, _)| is_within(uri, topic));
            let callbacks = concerned.flat_map(|(_, topic)| &topic.callbacks);
            callbacks
                .map(|(_, callback)| Arc::clone(callback))
                .collect()
        };
        if callbacks.is_empty() {
            return;
        }
        // One copy for all listeners.
        let uri = Arc::from(uri);
        for callback in callbacks {
            callback(&uri);
        }
    }

    /// Returns the resources that are subscribed to.
    fn wanted(&self) -> Vec<Arc<str>> {
        self.state.lock().topics.keys().cloned().collect()
    }

    /// Stores the server's response to a subscription.
    fn stands(&self, uri: &str, standing: &SubscriptionState) {
        if let Some(topic) = self.state.lock().topics.get(uri) {
            topic.standing.send_replace(standing.clone());
        }
    }
}

/// Returns whether a resource is the subscribed one, or below it.
fn is_within(uri: &str, topic: &str) -> bool {
    match uri.strip_prefix(topic) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || topic.ends_with('/'),
        None => false,
    }
}

/// A subscription to a resource; ends when dropped.
pub struct Subscription {
    topics: Arc<Topics>,
    agent: AgentName,
    uri: Arc<str>,
    number: u64,
    standing: watch::Receiver<SubscriptionState>,
    /// The same subscription at another instance of the server.
    beside: Option<Box<Self>>,
}

impl Subscription {
    /// Ties it to the same subscription at another instance of the server.
    pub(crate) fn beside(mut self, other: Self) -> Self {
        self.beside = Some(Box::new(other));
        self
    }

    /// Waits for the server's response.
    pub(crate) async fn settled(&mut self) -> SubscriptionState {
        let settled = self
            .standing
            .wait_for(|standing| *standing != SubscriptionState::Wanted);
        settled
            .await
            .map_or(SubscriptionState::Wanted, |standing| standing.clone())
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("uri", &self.uri)
            .finish()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.topics.leave(&self.agent, &self.uri, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentName {
        name.parse().unwrap()
    }

    fn deaf() -> UpdateCallback {
        Arc::new(|_| {})
    }

    #[test]
    fn only_who_listens_hears_and_only_while_it_does() {
        let topics = Arc::new(Topics::default());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let callback = |name: &'static str| -> UpdateCallback {
            let heard = Arc::clone(&heard);
            Arc::new(move |uri| heard.lock().push(format!("{name} {uri}")))
        };
        let join = |uri, name| topics.join(&agent("a"), uri, callback(name)).unwrap();
        let one = join("file:///a", "one");
        let two = join("file:///a", "two");
        let other = join("file:///ab", "other");
        topics.updated("file:///a/b");
        assert_eq!(*heard.lock(), ["one file:///a/b", "two file:///a/b"]);
        drop((one, other));
        assert_eq!(topics.wanted(), [Arc::from("file:///a")]);
        topics.updated("file:///a");
        assert_eq!(heard.lock().len(), 3);
        drop(two);
        assert!(topics.wanted().is_empty());
    }

    #[test]
    fn topics_leave_the_table_with_the_last_who_has_them() {
        let table = TopicTable::default();
        let name: ServerName = "one".parse().unwrap();
        let topics = table.of(&name);
        let kept = topics.join(&agent("a"), "file:///a", deaf()).unwrap();
        drop(topics);
        assert_eq!(table.of(&name).wanted().len(), 1, "a subscription keeps it");
        drop(kept);
        assert!(table.0.lock().is_empty());
        assert!(table.of(&name).wanted().is_empty());
    }

    // fault A5
    #[test]
    fn an_agent_that_listens_to_all_it_may_takes_no_place_of_another() {
        let topics = Arc::new(Topics::default());
        let (greedy, modest) = (agent("greedy"), agent("modest"));
        let join = |who: &AgentName, uri: &str| topics.join(who, uri, deaf());
        let kept: Vec<_> = (0..PER_AGENT)
            .map(|n| join(&greedy, &n.to_string()).unwrap())
            .collect();
        // Also for a resource that has other listeners.
        let refused = join(&greedy, "0").err();
        assert_eq!(refused, Some(TooManyTopics::Agent(PER_AGENT)));
        assert_eq!(
            topics.has_room(&greedy, "x"),
            Err(TooManyTopics::Agent(PER_AGENT))
        );
        assert_eq!(topics.has_room(&modest, "x"), Ok(()));
        drop(kept);
        assert!(topics.state.lock().held.is_empty());
        assert!(join(&greedy, "x").is_ok());
        let long = |n: usize| format!("{n:0>LONGEST_URI$}");
        let most = PER_AGENT_BYTES / LONGEST_URI;
        let kept: Vec<_> = (0..most)
            .map(|n| join(&greedy, &long(n)).unwrap())
            .collect();
        assert_eq!(
            join(&greedy, "x").err(),
            Some(TooManyTopics::Bytes(PER_AGENT_BYTES))
        );
        assert!(join(&modest, &long(0)).is_ok());
        drop(kept);
    }

    // fault A5
    #[test]
    fn where_all_places_are_taken_everybody_has_a_few() {
        let topics = Arc::new(Topics::default());
        let mut kept = Vec::new();
        for who in 0..MOST / PER_AGENT {
            let who = agent(&format!("a{who}"));
            let join = |n| topics.join(&who, &format!("{who} {n}"), deaf()).unwrap();
            kept.extend((0..PER_AGENT).map(join));
        }
        let late = agent("late");
        let join = |n: usize| topics.join(&late, &format!("late {n}"), deaf());
        kept.extend((0..ALWAYS).map(|n| join(n).unwrap()));
        assert_eq!(join(ALWAYS).err(), Some(TooManyTopics::Server(MOST)));
        // A resource with other listeners takes no additional room.
        assert!(topics.join(&late, "a0 0", deaf()).is_ok());
    }
}
