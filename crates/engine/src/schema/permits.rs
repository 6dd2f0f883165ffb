//! How many heavy checks run at once: few for each server, so that one server's never wait for
//! another's, and not so many in all that they fill the blocking threads. Entry point: [`Permits::run`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::Unfit;

/// How long a check on a thread of its own is waited for, queueing and parsing included.
const PATIENCE: Duration = Duration::from_secs(1);
/// Heavy checks of the whole process at one time.
const AT_ONCE: usize = 64;

static ALL: Semaphore = Semaphore::const_new(AT_ONCE);

/// One server's permits for heavy checks.
#[derive(Debug, Clone)]
pub(crate) struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(Self::AT_ONCE as usize)))
    }
}

impl Permits {
    /// How many heavy checks of one server run at once.
    pub(crate) const AT_ONCE: u32 = 2;

    /// Does heavy work on a thread of its own; nothing if it does not end in time. The work is told
    /// when nobody waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<Option<T>, Unfit> {
        let until = Instant::now() + PATIENCE;
        // Its own first: who waits for that holds nothing that others need.
        let own = timeout_at(until, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(own)) = own else {
            return Err(Unfit::Busy);
        };
        let Ok(Ok(all)) = timeout_at(until, ALL.acquire()).await else {
            return Err(Unfit::Busy);
        };
        let held = move || {
            let _permits = (own, all);
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
        let (hostile, other) = (Permits::default(), Permits::default());
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
        assert_eq!(refused, Err(Unfit::Busy));
        assert_eq!(answered, Ok(Some(7)));
    }
}
