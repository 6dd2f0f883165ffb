//! What happens, as it happens: the event feed, the log of a server, counts and queues. Nothing waits
//! for a listener. Entry points: [`Project::listen`] and [`Project::follow_log`].

use std::sync::Arc;

use gantry_model::id::ServerName;
use tokio::sync::watch;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Project;
use crate::events::{Batch, CallTotals, Listener};
use crate::server::logs::{LogLine, Logs};

/// How many calls a server has, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLoad {
    /// Whose calls they are.
    pub server: ServerName,
    /// Calls that were sent and are not answered yet.
    pub in_flight: usize,
    /// Calls that wait to be sent.
    pub waiting: usize,
}

impl Project {
    /// Starts to listen to what happens in the project.
    pub fn listen(&self) -> Listener {
        self.router.events.listen()
    }

    /// Returns how many calls have ended since the start; they count once their rows are stored.
    pub fn call_totals(&self) -> CallTotals {
        self.router.events.call_totals()
    }

    /// Returns a counter that moves whenever keys of the project have changed or ended.
    pub fn key_changes(&self) -> watch::Receiver<u64> {
        self.access.changes()
    }

    /// Returns how many calls each server has.
    pub fn loads(&self) -> Vec<ServerLoad> {
        let servers = self.supervisor.all();
        let loads = servers.iter().map(|handle| {
            let queue = handle.queue();
            ServerLoad {
                server: handle.name.clone(),
                in_flight: queue.in_flight,
                waiting: queue.waiting,
            }
        });
        loads.collect()
    }

    /// Returns how many records of calls are not in the database yet.
    pub fn journal_lag(&self) -> u64 {
        self.machine.audit.health().folded_lag_records
    }

    /// Starts to follow what a server writes from now on, by its name or id.
    pub fn follow_log(self: &Arc<Self>, server: &str) -> Option<LogFollower> {
        let handle = self.supervisor.find(server)?;
        let news = handle.logs.subscribe();
        let at = *news.borrow();
        Some(LogFollower {
            project: Arc::clone(self),
            server: handle.name.clone(),
            logs: Arc::clone(&handle.logs),
            news,
            at,
        })
    }

    /// Waits until the engine stops.
    pub fn stopping(&self) -> WaitForCancellationFutureOwned {
        self.machine.draining.clone().cancelled_owned()
    }
}

/// Someone who follows the log of a server, at their own pace.
pub struct LogFollower {
    project: Arc<Project>,
    server: ServerName,
    logs: Arc<Logs>,
    news: watch::Receiver<u64>,
    at: u64,
}

impl LogFollower {
    /// Returns whose log it is.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Returns the number of the next line.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Goes on from the line of this number.
    pub fn resume(&mut self, from: u64) {
        self.at = from;
    }

    /// Waits until there are more lines. Safe to drop while it waits.
    pub async fn changed(&mut self) {
        let at = self.at;
        // The sender exists as long as the log, which is held.
        drop(self.news.wait_for(|end| *end > at).await);
    }

    /// Returns the next lines, so many at most.
    pub fn read(&mut self, most: usize) -> Batch<LogLine> {
        self.logs.read(&mut self.at, most)
    }

    /// Goes on with the log of the server that has the name now, if it was replaced; to be called when
    /// the server changed.
    pub fn look_again(&mut self) {
        if let Some(handle) = self.project.supervisor.find(self.server.as_str())
            && !Arc::ptr_eq(&handle.logs, &self.logs)
        {
            self.news = handle.logs.subscribe();
            self.logs = Arc::clone(&handle.logs);
        }
    }
}
