//! The resources that clients want to hear of: who listens to what, by server.
//!
//! Whoever listens holds a [`Subscription`]; with the last one of a resource the server is told that
//! nobody does. What a server's link must know is kept up to date by `keep`, so that a server that
//! was started anew is subscribed to anew. Nothing here waits under its lock.

mod keep;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_model::id::ServerName;
use tokio::sync::{Notify, watch};

pub(crate) use keep::keep;

/// The most resources of one server that are listened to.
const MOST: usize = 10_000;

/// Hears that a resource changed, by its URI; must not wait.
pub type Hearer = Arc<dyn Fn(&str) + Send + Sync>;

/// The topics of all servers, which outlive what a server is made of.
#[derive(Default)]
pub(crate) struct TopicTable(Mutex<HashMap<ServerName, Arc<Topics>>>);

impl TopicTable {
    /// Returns the topics of a server.
    pub(crate) fn of(&self, server: &ServerName) -> Arc<Topics> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(table.entry(server.clone()).or_default())
    }
}

/// What is listened to on one server.
#[derive(Default)]
pub(crate) struct Topics {
    state: Mutex<State>,
    /// Something is wanted that was not, or the other way round.
    changed: Notify,
}

#[derive(Default)]
struct State {
    topics: BTreeMap<Arc<str>, Topic>,
    next: u64,
}

struct Topic {
    hearers: Vec<(u64, Hearer)>,
    standing: watch::Sender<Standing>,
}

/// What the server says to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was not told yet.
    Wanted,
    /// It tells of changes.
    Kept,
    /// It does not, with its code and message.
    Refused(i64, Arc<str>),
}

impl Topics {
    /// Begins to listen; `None` if too much is listened to already.
    pub(crate) fn join(self: &Arc<Self>, uri: &str, hearer: Hearer) -> Option<Subscription> {
        let mut state = self.lock();
        if state.topics.len() >= MOST && !state.topics.contains_key(uri) {
            return None;
        }
        state.next += 1;
        let number = state.next;
        let uri: Arc<str> = Arc::from(uri);
        let topic = state.topics.entry(Arc::clone(&uri));
        let topic = topic.or_insert_with(|| Topic {
            hearers: Vec::new(),
            standing: watch::Sender::new(Standing::Wanted),
        });
        topic.hearers.push((number, hearer));
        let standing = topic.standing.subscribe();
        drop(state);
        self.changed.notify_one();
        Some(Subscription {
            topics: Arc::clone(self),
            uri,
            number,
            standing,
        })
    }

    fn leave(&self, uri: &str, number: u64) {
        let mut state = self.lock();
        let Some(topic) = state.topics.get_mut(uri) else {
            return;
        };
        topic.hearers.retain(|(each, _)| *each != number);
        if topic.hearers.is_empty() {
            state.topics.remove(uri);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Tells whoever listens that a resource, or one below what they listen to, has changed.
    pub(crate) fn updated(&self, uri: &str) {
        let hearers: Vec<Hearer> = {
            let state = self.lock();
            let topics = state.topics.iter();
            let concerned = topics.filter(|(topic, _)| is_within(uri, topic));
            let hearers = concerned.flat_map(|(_, topic)| &topic.hearers);
            hearers.map(|(_, hearer)| Arc::clone(hearer)).collect()
        };
        for hearer in hearers {
            hearer(uri);
        }
    }

    /// Returns what is listened to.
    fn wanted(&self) -> Vec<Arc<str>> {
        self.lock().topics.keys().cloned().collect()
    }

    /// Notes what the server says to a subscription.
    fn stands(&self, uri: &str, standing: &Standing) {
        if let Some(topic) = self.lock().topics.get(uri) {
            topic.standing.send_replace(standing.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether a resource is the one that is listened to, or below it.
fn is_within(uri: &str, topic: &str) -> bool {
    match uri.strip_prefix(topic) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || topic.ends_with('/'),
        None => false,
    }
}

/// The right to hear of a resource; ends when it is dropped.
pub struct Subscription {
    topics: Arc<Topics>,
    uri: Arc<str>,
    number: u64,
    standing: watch::Receiver<Standing>,
}

impl Subscription {
    /// Waits until the server has said what it thinks of it.
    pub(crate) async fn settled(&mut self) -> Standing {
        let settled = self
            .standing
            .wait_for(|standing| *standing != Standing::Wanted);
        settled
            .await
            .map_or(Standing::Wanted, |standing| standing.clone())
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
        self.topics.leave(&self.uri, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_listens_hears_and_only_while_it_does() {
        let topics = Arc::new(Topics::default());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearer = |name: &'static str| -> Hearer {
            let heard = Arc::clone(&heard);
            Arc::new(move |uri| heard.lock().unwrap().push(format!("{name} {uri}")))
        };
        let one = topics.join("file:///a", hearer("one")).unwrap();
        let two = topics.join("file:///a", hearer("two")).unwrap();
        let other = topics.join("file:///ab", hearer("other")).unwrap();
        topics.updated("file:///a/b");
        assert_eq!(
            *heard.lock().unwrap(),
            ["one file:///a/b", "two file:///a/b"]
        );
        drop((one, other));
        assert_eq!(topics.wanted(), [Arc::from("file:///a")]);
        topics.updated("file:///a");
        assert_eq!(heard.lock().unwrap().len(), 3);
        drop(two);
        assert!(topics.wanted().is_empty());
    }
}
