//! What a client is to be told outside of its requests, numbered, so that one whose stream was cut
//! hears the rest when it comes again.
//!
//! Bounded by what there is to tell: the same news twice is told once, and the oldest give way. Who
//! tells never waits. Entry points: [`Ring::tell`] and [`Ring::after`].

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_engine::ListMarks;
use tokio::sync::Notify;

/// The most news that are kept.
const KEPT: usize = 512;

/// Something that a client wants to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// A list has changed.
    Changed(List),
    /// A resource has changed.
    Updated(Box<str>),
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

    const fn mark(self, of: &ListMarks) -> u64 {
        match self {
            Self::Tools => of.tools,
            Self::Prompts => of.prompts,
            Self::Resources => of.resources,
        }
    }
}

/// The news of one client.
#[derive(Debug, Default)]
pub(super) struct Ring {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    news: VecDeque<(u64, News)>,
    /// Up to which the client was told.
    heard: u64,
    /// What the lists were when the last stream ended.
    lists: Option<ListMarks>,
}

impl Ring {
    /// Adds news.
    pub(super) fn tell(&self, news: News) {
        let mut state = self.lock();
        state.news.retain(|(_, known)| *known != news);
        if state.news.len() >= KEPT {
            state.news.pop_front();
        }
        state.last += 1;
        let number = state.last;
        state.news.push_back((number, news));
        drop(state);
        self.told.notify_one();
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
    pub(super) fn tell_changes(&self, before: &ListMarks, now: &ListMarks) {
        for list in List::ALL {
            if list.mark(before) != list.mark(now) || before.grants != now.grants {
                self.tell(News::Changed(list));
            }
        }
    }

    /// Notes what the lists are at the end of a stream.
    pub(super) fn leave(&self, lists: ListMarks) {
        self.lock().lists = Some(lists);
    }

    /// Adds which lists have changed since the last stream ended.
    pub(super) fn come_again(&self, now: &ListMarks) {
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
    use super::*;

    fn updated(uri: &str) -> News {
        News::Updated(uri.into())
    }

    #[test]
    fn who_comes_again_hears_the_rest_and_nothing_twice() {
        let ring = Ring::default();
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
        let ring = Ring::default();
        for n in 0..2 * KEPT {
            ring.tell(updated(&n.to_string()));
        }
        assert_eq!(ring.lock().news.len(), KEPT);
        assert_eq!(ring.after(0).unwrap().0, KEPT as u64 + 1);
    }

    #[test]
    fn lists_that_changed_meanwhile_are_told() {
        let ring = Ring::default();
        let marks = |tools, resources| ListMarks {
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
        ring.come_again(&ListMarks {
            grants,
            ..marks(6, 8)
        });
        let told = [3, 4, 5].map(|number| ring.after(number - 1).unwrap().1);
        assert_eq!(told, List::ALL.map(News::Changed));
    }
}
