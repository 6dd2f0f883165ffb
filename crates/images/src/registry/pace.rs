//! The minimum speed of a download. Only time spent waiting for the network counts: a slow local
//! disk is not the registry's fault.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Timeouts;

/// Reads bodies, and gives up when one stalls.
pub(super) struct Pace<'a> {
    timeouts: &'a Timeouts,
    stop: &'a CancellationToken,
    /// The time waited and the bytes received in the current window.
    waited: Duration,
    got: u64,
}

/// Why there is no next piece.
pub(super) enum Stalled {
    Slow { waited: Duration, got: u64 },
    Cut(reqwest::Error),
    Cancelled,
}

impl<'a> Pace<'a> {
    pub(super) fn new(timeouts: &'a Timeouts, stop: &'a CancellationToken) -> Self {
        Self {
            timeouts,
            stop,
            waited: Duration::ZERO,
            got: 0,
        }
    }

    /// Returns the next piece, or `None` at the end.
    pub(super) async fn next(&mut self, response: &mut Response) -> Result<Option<Bytes>, Stalled> {
        loop {
            let window = self.timeouts.no_progress;
            let left = window.saturating_sub(self.waited);
            let began = Instant::now();
            let waited = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Stalled::Cancelled),
                piece = response.chunk() => Some(piece),
                () = tokio::time::sleep(left) => None,
            };
            self.waited += began.elapsed();
            match waited {
                Some(piece) => {
                    let piece = piece.map_err(Stalled::Cut)?;
                    self.got += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                    return Ok(piece);
                }
                None if self.got < self.timeouts.least_bytes => {
                    let (waited, got) = (self.waited, self.got);
                    return Err(Stalled::Slow { waited, got });
                }
                None => {
                    self.waited = Duration::ZERO;
                    self.got = 0;
                }
            }
        }
    }
}
