//! Live data of a project: the event feed, the log of a server, counts and queues. Nothing waits
//! for a listener. Entry points: [`Project::listen`] and [`Project::follow_log`].

use std::sync::Arc;

use gantry_model::id::ServerName;
use tokio::sync::watch;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Project;
use crate::events::{Batch, CallTotals, Listener};
use crate::server::logs::{LogLine, Logs};

/// The current calls of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLoad {
    /// The server.
    pub server: ServerName,
    /// Calls that were sent and not answered yet.
    pub in_flight: usize,
    /// Calls that wait to be sent.
    pub waiting: usize,
}

impl Project {
    /// Starts listening to the project's events.
    pub fn listen(&self) -> Listener {
        self.router.events.listen()
    }

    /// Returns how many calls have ended since the start; counted once their rows are stored.
    pub fn call_totals(&self) -> CallTotals {
        self.router.events.call_totals()
    }

    /// Returns a counter that changes whenever keys of the project have changed or ended.
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

    /// Returns how many call records are not in the database yet.
    pub fn journal_lag(&self) -> u64 {
        self.machine.audit.health().folded_lag_records
    }

    /// Starts following the log of a server, by its name or id.
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

/// A follower of a server's log.
pub struct LogFollower {
    project: Arc<Project>,
    server: ServerName,
    logs: Arc<Logs>,
    news: watch::Receiver<u64>,
    at: u64,
}

impl LogFollower {
    /// Returns the server.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Returns the number of the next line.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Continues from the line with this number.
    pub fn resume(&mut self, from: u64) {
        self.at = from;
    }

    /// Waits until there are new lines. Cancel safe.
    pub async fn changed(&mut self) {
        let at = self.at;
        // The sender exists as long as the log, which is held.
        drop(self.news.wait_for(|end| *end > at).await);
    }

    /// Returns the next lines, at most `most`.
    pub fn read(&mut self, most: usize) -> Batch<LogLine> {
        self.logs.read(&mut self.at, most)
    }

    /// Continues with the log of the server that has the name now, if it was replaced; to be called
    /// after a change of the server.
    pub fn look_again(&mut self) {
        if let Some(handle) = self.project.supervisor.find(self.server.as_str())
            && !Arc::ptr_eq(&handle.logs, &self.logs)
        {
            self.news = handle.logs.subscribe();
            self.logs = Arc::clone(&handle.logs);
        }
    }
}
