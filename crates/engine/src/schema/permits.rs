//! Limits how many expensive checks run at once: a few per server, so that servers do not wait for
//! each other, a limit per project, and a total that leaves blocking threads free. Entry points:
//! [`CheckPermits::of_project`] and [`Permits::run`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::SchemaMismatch;

/// Time limit of an expensive check, including queueing and parsing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Expensive checks at one time, over all projects.
const AT_ONCE: usize = 64;
/// Expensive checks of one project at one time.
const PER_PROJECT: usize = 48;

/// The permits shared by a project's servers, and those shared by all projects.
#[derive(Debug, Clone)]
pub(crate) struct CheckPermits {
    project: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Default for CheckPermits {
    fn default() -> Self {
        Self {
            project: Arc::new(Semaphore::new(PER_PROJECT)),
            all: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl CheckPermits {
    /// Returns the permits of another project, with the same total for all projects.
    pub(crate) fn of_project(&self) -> Self {
        Self {
            project: Arc::new(Semaphore::new(PER_PROJECT)),
            all: Arc::clone(&self.all),
        }
    }
}

/// One server's permits for expensive checks.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    own: Arc<Semaphore>,
    shared: CheckPermits,
}

#[cfg(test)]
impl Default for Permits {
    fn default() -> Self {
        Self::new(&CheckPermits::default())
    }
}

impl Permits {
    /// How many expensive checks of one server run at once.
    pub(crate) const AT_ONCE: u32 = 2;

    /// Creates the permits of one server in a project.
    pub(crate) fn new(shared: &CheckPermits) -> Self {
        Self {
            own: Arc::new(Semaphore::new(Self::AT_ONCE as usize)),
            shared: shared.clone(),
        }
    }

    /// Runs expensive work on a blocking thread; `None` if it does not finish in time. The work
    /// gets its deadline, so that it can stop when the caller no longer waits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<Option<T>, SchemaMismatch> {
        let until = Instant::now() + PATIENCE;
        // The server's own permit first: a task that waits for it holds no shared permit.
        let mut held = Vec::new();
        for permits in [&self.own, &self.shared.project, &self.shared.all] {
            match timeout_at(until, Arc::clone(permits).acquire_owned()).await {
                Ok(Ok(permit)) => held.push(permit),
                Ok(Err(_)) | Err(_) => return Err(SchemaMismatch::Busy),
            }
        }
        let held = move || {
            let _permits = held;
            work(until)
        };
        let worked = timeout_at(until, tokio::task::spawn_blocking(held)).await;
        Ok(worked.ok().and_then(Result::ok))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_servers_checks_never_wait_for_anothers() {
        // fault A9
        let shared = CheckPermits::default();
        let (hostile, other) = (Permits::new(&shared), Permits::new(&shared));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let stuck = (0..Permits::AT_ONCE).map(|_| {
            let (hostile, held) = (hostile.clone(), Arc::clone(&held));
            async move { hostile.run(move |_| held.lock().unwrap().recv().ok()).await }
        });
        let stuck = futures_util::future::join_all(stuck);
        let others = async {
            let refused = hostile.run(|_| ()).await;
            let answered = other.run(|_| 7).await;
            drop(release);
            (refused, answered)
        };
        let (_, (refused, answered)) = tokio::join!(stuck, others);
        assert_eq!(refused, Err(SchemaMismatch::Busy));
        assert_eq!(answered, Ok(Some(7)));
    }

    // row 3.2, fault A9
    #[tokio::test(start_paused = true)]
    async fn one_projects_checks_leave_room_for_anothers() {
        let one = CheckPermits::default();
        let other = one.of_project();
        let all = Arc::clone(&one.project).acquire_many_owned(PER_PROJECT as u32);
        let (_project, _all) = (all.await, one.all.acquire_many(PER_PROJECT as u32).await);
        assert_eq!(
            Permits::new(&one).run(|_| 7).await,
            Err(SchemaMismatch::Busy)
        );
        assert_eq!(Permits::new(&other).run(|_| 7).await, Ok(Some(7)));
    }
}
