//! What a client is to be told outside of its requests, numbered, so that one whose stream was cut
//! hears the rest when it comes again.
//!
//! Bounded by what there is to tell: the same news twice is told once, and the oldest give way; in
//! number and bytes here, and in the bytes of all clients together by `budget`. That a list has
//! changed is never lost. Who tells never waits. Entry points: [`Ring::tell`] and [`Ring::after`].

pub(super) mod budget;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_engine::ListRevisions;
use tokio::sync::Notify;

use self::budget::Share;

/// The most news that are kept.
const KEPT: usize = 512;
/// The most bytes that they take.
const KEPT_BYTES: usize = 256 << 10;
/// What an entry takes beside its text.
const ENTRY_BYTES: usize = 96;

/// Something that a client wants to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// A list has changed.
    Changed(List),
    /// A resource has changed.
    Updated(Arc<str>),
    /// A person is through at the URL that this elicitation sent it to.
    Elicited(Arc<str>),
}

/// The notification that an elicitation is complete.
pub(super) const ELICITED: &str = "notifications/elicitation/complete";

impl News {
    /// Returns what it takes; there are never more than three lists.
    fn bytes(&self) -> usize {
        match self {
            Self::Changed(_) => 0,
            Self::Updated(text) | Self::Elicited(text) => ENTRY_BYTES + text.len(),
        }
    }
}

/// A list whose changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    pub(super) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Returns the notification of a change.
    pub(super) const fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    /// Returns how a client of the stateless era asks for it.
    pub(super) const fn wish(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }

    const fn mark(self, of: &ListRevisions) -> u64 {
        match self {
            Self::Tools => of.tools,
            Self::Prompts => of.prompts,
            Self::Resources => of.resources,
        }
    }
}

/// The news of one client.
#[derive(Debug)]
pub(super) struct Ring {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug)]
struct State {
    last: u64,
    news: VecDeque<(u64, News)>,
    /// What the news take.
    bytes: usize,
    /// Its part of what those of all clients may take.
    share: Share,
    /// Up to which the client was told.
    heard: u64,
    /// What the lists were when the last stream ended.
    lists: Option<ListRevisions>,
}

impl State {
    /// Adds news; false if there is no room for them, even without all others.
    fn add(&mut self, news: News) -> bool {
        if let Some(at) = self.news.iter().position(|(_, known)| *known == news) {
            self.remove(at);
        }
        let bytes = news.bytes();
        while self.news.len() >= KEPT
            || self.bytes + bytes > KEPT_BYTES
            || !self.share.set(self.bytes + bytes)
        {
            let is_passing = |(_, news): &(u64, News)| !matches!(news, News::Changed(_));
            let Some(oldest) = self.news.iter().position(is_passing) else {
                return false;
            };
            self.remove(oldest);
        }
        self.bytes += bytes;
        self.last += 1;
        self.news.push_back((self.last, news));
        true
    }

    fn remove(&mut self, at: usize) {
        if let Some((_, news)) = self.news.remove(at) {
            self.bytes -= news.bytes();
            self.share.set(self.bytes);
        }
    }
}

impl Ring {
    /// Makes a log without news.
    pub(super) fn new(share: Share) -> Arc<Self> {
        let state = State {
            last: 0,
            news: VecDeque::new(),
            bytes: 0,
            share,
            heard: 0,
            lists: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            told: Notify::new(),
        })
    }

    /// Adds news; what there is no room for is lost.
    pub(super) fn tell(&self, news: News) {
        let is_added = self.lock().add(news);
        match is_added {
            true => self.told.notify_one(),
            false => tracing::debug!("no room for what a client is to be told"),
        }
    }

    /// Waits until there may be news.
    pub(super) async fn wait(&self) {
        self.told.notified().await;
    }

    /// Returns the first news after that number.
    pub(super) fn after(&self, number: u64) -> Option<(u64, News)> {
        let state = self.lock();
        let mut news = state.news.iter();
        news.find(|(each, _)| *each > number).cloned()
    }

    /// Returns where a stream begins: after what the client says it heard, if that can be, else
    /// after what it was told.
    pub(super) fn begin(&self, heard: Option<u64>) -> u64 {
        let state = self.lock();
        heard
            .filter(|heard| *heard <= state.last)
            .unwrap_or(state.heard)
    }

    /// Notes what the client was told.
    pub(super) fn heard(&self, number: u64) {
        let mut state = self.lock();
        state.heard = state.heard.max(number);
    }

    /// Adds which lists have changed.
    pub(super) fn tell_changes(&self, before: &ListRevisions, now: &ListRevisions) {
        for list in List::ALL {
            if list.mark(before) != list.mark(now) || before.grants != now.grants {
                self.tell(News::Changed(list));
            }
        }
    }

    /// Notes what the lists are at the end of a stream.
    pub(super) fn leave(&self, lists: ListRevisions) {
        self.lock().lists = Some(lists);
    }

    /// Adds which lists have changed since the last stream ended.
    pub(super) fn come_again(&self, now: &ListRevisions) {
        let left = self.lock().lists.take();
        if let Some(left) = left {
            self.tell_changes(&left, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::id::KeyId;

    use super::budget::Budget;
    use super::*;

    fn ring() -> Arc<Ring> {
        Ring::new(Arc::<Budget>::default().share(KeyId::from_random(1)))
    }

    fn updated(uri: &str) -> News {
        News::Updated(uri.into())
    }

    #[test]
    fn who_comes_again_hears_the_rest_and_nothing_twice() {
        let ring = ring();
        ring.tell(updated("a"));
        ring.tell(updated("b"));
        ring.tell(updated("a"));
        let at = ring.begin(None);
        assert_eq!(ring.after(at), Some((2, updated("b"))));
        ring.heard(2);
        assert_eq!(ring.after(ring.begin(None)), Some((3, updated("a"))));
        // What the client says goes before what it was sent, unless it cannot be.
        assert_eq!(ring.begin(Some(1)), 1);
        assert_eq!(ring.begin(Some(41)), 2);
        assert_eq!(ring.after(3), None);
    }

    #[test]
    fn a_storm_takes_no_more_room_than_there_is() {
        let ring = ring();
        for n in 0..2 * KEPT {
            ring.tell(updated(&n.to_string()));
        }
        assert_eq!(ring.lock().news.len(), KEPT);
        assert_eq!(ring.after(0).unwrap().0, KEPT as u64 + 1);
    }

    // fault A5
    #[test]
    fn long_news_take_no_more_bytes_than_there_are() {
        let ring = ring();
        ring.tell(News::Changed(List::Tools));
        for n in 0..KEPT {
            ring.tell(updated(&format!("{n}{}", "x".repeat(8 << 10))));
        }
        let state = ring.lock();
        let bytes: usize = state.news.iter().map(|(_, news)| news.bytes()).sum();
        assert_eq!(state.bytes, bytes);
        assert!((KEPT_BYTES - (9 << 10)..=KEPT_BYTES).contains(&bytes));
        assert_eq!(state.news[0].1, News::Changed(List::Tools), "never lost");
        let newest = state.news.back().unwrap();
        assert!(matches!(&newest.1, News::Updated(uri) if uri.starts_with("511x")));
    }

    #[test]
    fn lists_that_changed_meanwhile_are_told() {
        let ring = ring();
        let marks = |tools, resources| ListRevisions {
            tools,
            prompts: 1,
            resources,
            grants: 1,
        };
        ring.come_again(&marks(5, 7));
        assert_eq!(ring.after(0), None);
        ring.leave(marks(5, 7));
        ring.come_again(&marks(6, 8));
        assert_eq!(ring.after(0), Some((1, News::Changed(List::Tools))));
        assert_eq!(ring.after(1), Some((2, News::Changed(List::Resources))));
        assert_eq!(ring.after(2), None);
        ring.leave(marks(6, 8));
        ring.come_again(&marks(6, 8));
        assert_eq!(ring.after(2), None, "what is the same is not told");
        let grants = 2;
        ring.leave(marks(6, 8));
        ring.come_again(&ListRevisions {
            grants,
            ..revisions(6, 8)
        });
        let told = [3, 4, 5].map(|number| ring.after(number - 1).unwrap().1);
        assert_eq!(told, List::ALL.map(News::Changed));
    }
}
