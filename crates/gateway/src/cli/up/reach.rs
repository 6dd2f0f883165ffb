//! Waits for a database that is unreachable when the gateway starts, and reports it. Entry point:
//! [`reached`].

use std::time::Duration;

use gantry_engine::{Store, StoreConfig};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::cli::failure::{Exit, Failure};
use crate::cli::screen::Screen;

/// The interval between attempts.
const EVERY: Duration = Duration::from_secs(1);
/// The interval between messages.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Waits without a time limit until the database can be reached; `false` if the gateway is stopped
/// meanwhile. Other errors of the database fail at once.
pub(super) async fn reached(
    store: &StoreConfig,
    stop: &CancellationToken,
    screen: &Screen,
) -> Result<bool, Failure> {
    let mut said: Option<Instant> = None;
    loop {
        let error = match Store::reach(store).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_away() => error,
            Err(error) => return Err(Failure::of(Exit::Failed, &error)),
        };
        if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
            said = Some(Instant::now());
            let source = std::error::Error::source(&error);
            let why = source.map(|why| format!(": {why}")).unwrap_or_default();
            screen.error_line(&format!("waiting for the database: {error}{why}"));
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = sleep(EVERY) => {}
        }
    }
}
