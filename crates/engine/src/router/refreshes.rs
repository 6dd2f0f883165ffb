//! Lists that a call has changed: the client that made the call waits briefly for the refresh before
//! it lists again.
//!
//! Only that client waits, and only for changes that the server announced before it answered; bounded
//! in time and number. Entry points: [`Refreshes::note`] and [`Refreshes::done`].

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gantry_model::id::AgentName;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::server::link::Link;

/// How long to wait for lists; longer than the minimum interval of refreshes.
const WAIT: Duration = Duration::from_millis(1500);
/// The most clients with remembered refreshes.
const MOST: usize = 1024;

/// A client of an agent: of a session, or one without.
type Client = (AgentName, Option<u128>);

/// The refreshes that clients wait for.
#[derive(Default)]
pub(crate) struct Refreshes(Mutex<HashMap<Client, Vec<Refresh>>>);

struct Refresh {
    link: Weak<Link>,
    /// The last change that the server announced.
    change: u64,
    until: Instant,
}

impl Refreshes {
    /// Remembers the list changes that a server announced before it answered a client's call.
    pub(super) fn note(&self, agent: &AgentName, session: Option<u128>, link: &Arc<Link>) {
        let Some(change) = link.lists.unlisted() else {
            return;
        };
        let now = Instant::now();
        let refresh = Refresh {
            link: Arc::downgrade(link),
            change,
            until: now + WAIT,
        };
        let mut clients = self.0.lock();
        if clients.len() >= MOST {
            clients.retain(|_, refreshes| refreshes.iter().any(|refresh| refresh.until > now));
        }
        let client = (agent.clone(), session);
        if clients.len() < MOST || clients.contains_key(&client) {
            let refreshes = clients.entry(client).or_default();
            refreshes.retain(|known| !known.link.ptr_eq(&refresh.link));
            refreshes.push(refresh);
        }
    }

    /// Waits until the catalog includes the changes caused by a client's calls.
    pub(super) async fn done(&self, agent: &AgentName, session: Option<u128>) {
        let refreshes = {
            let mut clients = self.0.lock();
            match clients.is_empty() {
                true => None,
                false => clients.remove(&(agent.clone(), session)),
            }
        };
        for refresh in refreshes.into_iter().flatten() {
            if let Some(link) = refresh.link.upgrade() {
                // A change that is not included in time comes with the next list.
                drop(timeout_at(refresh.until, link.lists.listed(refresh.change)).await);
            }
        }
    }
}
