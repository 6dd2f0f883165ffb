//! Pending notifications of one client, numbered, so that a client whose stream was cut can resume.
//!
//! Bounded: equal notifications are kept once and the oldest are dropped, by number and bytes here,
//! and by a quota over all clients of a key, of a project and in total, beyond a small amount per
//! client. List changes are never lost. Adding never waits. Entry points: [`NotificationLog::tell`]
//! and [`NotificationLog::after`].

use std::collections::VecDeque;
use std::sync::Arc;

use gantry_engine::{ListRevisions, Quota, QuotaLimits, QuotaPermit};
use gantry_model::id::KeyId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of notifications kept.
const KEPT: usize = 512;
/// Maximum number of bytes kept.
const KEPT_BYTES: usize = 256 << 10;
/// The cost of an entry beyond its text.
const ENTRY_BYTES: usize = 96;

/// The allowance of each client, in bytes.
const OWN: usize = 1 << 10;
/// The shared allowance of a project, and the part that one key may use.
const POOL: usize = 32 << 20;
const PER_KEY: usize = 8 << 20;

/// Creates the quota of all clients' notifications.
pub(super) fn quota() -> Quota<KeyId> {
    Quota::new(QuotaLimits::shared(POOL, PER_KEY))
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notification {
    /// A list has changed.
    Changed(List),
    /// A resource has changed.
    Updated(Arc<str>),
    /// A URL elicitation is complete.
    Elicited(Arc<str>),
}

/// The notification of a completed elicitation.
pub(super) const ELICITED: &str = "notifications/elicitation/complete";

impl Notification {
    /// Returns its size; there are at most three lists.
    fn bytes(&self) -> usize {
        match self {
            Self::Changed(_) => 0,
            Self::Updated(text) | Self::Elicited(text) => ENTRY_BYTES + text.len(),
        }
    }
}

/// A list with change notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    pub(super) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Returns its notification method.
    pub(super) const fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    /// Returns its name in a stateless-era subscription.
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

/// The notifications of one client.
#[derive(Debug)]
pub(super) struct NotificationLog {
    state: Mutex<LogState>,
    told: Notify,
}

#[derive(Debug)]
struct LogState {
    last: u64,
    news: VecDeque<(u64, Notification)>,
    /// The size of the notifications.
    bytes: usize,
    /// What it takes of the quota.
    permit: QuotaPermit<KeyId>,
    /// The last number sent to the client.
    heard: u64,
    /// The revisions of the lists when the last stream ended.
    lists: Option<ListRevisions>,
}

impl LogState {
    /// Adds a notification; false if it does not fit even alone.
    fn add(&mut self, news: Notification) -> bool {
        if let Some(at) = self.news.iter().position(|(_, known)| *known == news) {
            self.remove(at);
        }
        let bytes = news.bytes();
        while self.news.len() >= KEPT
            || self.bytes + bytes > KEPT_BYTES
            || !self.fits(self.bytes + bytes)
        {
            let is_passing =
                |(_, news): &(u64, Notification)| !matches!(news, Notification::Changed(_));
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

    /// Reserves bytes of the quota; false if exhausted.
    fn fits(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(OWN);
        // Most clients stay within their allowance.
        wanted == self.permit.amount() || self.permit.set(wanted).is_ok()
    }

    fn remove(&mut self, at: usize) {
        if let Some((_, news)) = self.news.remove(at) {
            self.bytes -= news.bytes();
            self.fits(self.bytes);
        }
    }
}

impl NotificationLog {
    /// Creates an empty log.
    pub(super) fn new(permit: QuotaPermit<KeyId>) -> Arc<Self> {
        let state = LogState {
            last: 0,
            news: VecDeque::new(),
            bytes: 0,
            permit,
            heard: 0,
            lists: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            told: Notify::new(),
        })
    }

    /// Adds a notification; dropped if it does not fit.
    pub(super) fn tell(&self, news: Notification) {
        let is_added = self.state.lock().add(news);
        match is_added {
            true => self.told.notify_one(),
            false => tracing::debug!("no room for a client's notifications"),
        }
    }

    /// Waits for a possible notification.
    pub(super) async fn wait(&self) {
        self.told.notified().await;
    }

    /// Returns the first notification after a number.
    pub(super) fn after(&self, number: u64) -> Option<(u64, Notification)> {
        let state = self.state.lock();
        let mut news = state.news.iter();
        news.find(|(each, _)| *each > number).cloned()
    }

    /// Returns where a stream starts: after the client's `Last-Event-ID` if possible, else after
    /// the last one sent.
    pub(super) fn begin(&self, heard: Option<u64>) -> u64 {
        let state = self.state.lock();
        heard
            .filter(|heard| *heard <= state.last)
            .unwrap_or(state.heard)
    }

    /// Records what was sent to the client.
    pub(super) fn heard(&self, number: u64) {
        let mut state = self.state.lock();
        state.heard = state.heard.max(number);
    }

    /// Adds list changes.
    pub(super) fn tell_changes(&self, before: &ListRevisions, now: &ListRevisions) {
        for list in List::ALL {
            if list.mark(before) != list.mark(now) || before.grants != now.grants {
                self.tell(Notification::Changed(list));
            }
        }
    }

    /// Records the revisions of the lists at the end of a stream.
    pub(super) fn leave(&self, lists: ListRevisions) {
        self.state.lock().lists = Some(lists);
    }

    /// Adds list changes since the last stream ended.
    pub(super) fn come_again(&self, now: &ListRevisions) {
        let left = self.state.lock().lists.take();
        if let Some(left) = left {
            self.tell_changes(&left, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::id::ProjectName;

    use super::*;

    fn log() -> Arc<NotificationLog> {
        NotificationLog::new(permit(&quota(), "local"))
    }

    fn permit(quota: &Quota<KeyId>, project: &str) -> QuotaPermit<KeyId> {
        let project: ProjectName = project.parse().unwrap();
        quota.permit(&project, &KeyId::from_random(1))
    }

    // row 3.2, fault A5: a busy key leaves room for the key of the same id in another project, and
    // every client has a small allowance.
    #[test]
    fn one_key_cannot_take_what_the_others_need() {
        let quota = quota();
        let fill = |project: &str| {
            let log = NotificationLog::new(permit(&quota, project));
            (0..KEPT).for_each(|n| log.tell(updated(&format!("{n:0>2000}"))));
            let state = log.state.lock();
            let (bytes, taken) = (state.bytes, state.permit.amount());
            drop(state);
            (log, bytes, taken)
        };
        let mut loud = Vec::new();
        while let (log, _, taken @ 1..) = fill("one") {
            loud.push((log, taken));
        }
        let taken: usize = loud.iter().map(|(_, taken)| taken).sum();
        assert!(taken > PER_KEY / 2 && taken <= PER_KEY, "{taken}");
        assert!(fill("one").1 <= OWN);
        assert!(fill("other").1 > OWN);
        drop(loud);
        assert!(quota.is_empty());
    }

    fn updated(uri: &str) -> Notification {
        Notification::Updated(uri.into())
    }

    #[test]
    fn who_comes_again_hears_the_rest_and_nothing_twice() {
        let log = log();
        log.tell(updated("a"));
        log.tell(updated("b"));
        log.tell(updated("a"));
        let at = log.begin(None);
        assert_eq!(log.after(at), Some((2, updated("b"))));
        log.heard(2);
        assert_eq!(log.after(log.begin(None)), Some((3, updated("a"))));
        // The client's `Last-Event-ID` takes precedence, if it is valid.
        assert_eq!(log.begin(Some(1)), 1);
        assert_eq!(log.begin(Some(41)), 2);
        assert_eq!(log.after(3), None);
    }

    #[test]
    fn a_storm_takes_no_more_room_than_there_is() {
        let log = log();
        for n in 0..2 * KEPT {
            log.tell(updated(&n.to_string()));
        }
        assert_eq!(log.state.lock().news.len(), KEPT);
        assert_eq!(log.after(0).unwrap().0, KEPT as u64 + 1);
    }

    // fault A5
    #[test]
    fn long_news_take_no_more_bytes_than_there_are() {
        let log = log();
        log.tell(Notification::Changed(List::Tools));
        for n in 0..KEPT {
            log.tell(updated(&format!("{n}{}", "x".repeat(8 << 10))));
        }
        let state = log.state.lock();
        let bytes: usize = state.news.iter().map(|(_, news)| news.bytes()).sum();
        assert_eq!(state.bytes, bytes);
        assert!((KEPT_BYTES - (9 << 10)..=KEPT_BYTES).contains(&bytes));
        assert_eq!(
            state.news[0].1,
            Notification::Changed(List::Tools),
            "never lost"
        );
        let newest = state.news.back().unwrap();
        assert!(matches!(&newest.1, Notification::Updated(uri) if uri.starts_with("511x")));
    }

    #[test]
    fn lists_that_changed_meanwhile_are_told() {
        let log = log();
        let marks = |tools, resources| ListRevisions {
            tools,
            prompts: 1,
            resources,
            grants: 1,
        };
        log.come_again(&marks(5, 7));
        assert_eq!(log.after(0), None);
        log.leave(marks(5, 7));
        log.come_again(&marks(6, 8));
        assert_eq!(log.after(0), Some((1, Notification::Changed(List::Tools))));
        assert_eq!(
            log.after(1),
            Some((2, Notification::Changed(List::Resources)))
        );
        assert_eq!(log.after(2), None);
        log.leave(marks(6, 8));
        log.come_again(&marks(6, 8));
        assert_eq!(log.after(2), None, "what is the same is not told");
        let grants = 2;
        log.leave(marks(6, 8));
        log.come_again(&ListRevisions {
            grants,
            ..marks(6, 8)
        });
        let told = [3, 4, 5].map(|number| log.after(number - 1).unwrap().1);
        assert_eq!(told, List::ALL.map(Notification::Changed));
    }
}
