//! Reads a server's stderr until it ends, so that the server never blocks on it, unless it floods:
//! then it is read no faster than [`RATE`], and only its own writes wait. fault S16

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Sustained read rate in bytes per second. Keeping a line costs more than writing it, so an
/// unpaced server could use more of our CPU time than of its own.
const RATE: u64 = 16 << 20;
/// Burst in bytes before the rate applies.
const BURST: u64 = 1 << 20;

/// Reads until the server closes its stderr; `keep` gets the bytes as they come.
pub(crate) async fn drain(mut stream: impl AsyncRead + Unpin, keep: impl Fn(&[u8])) {
    let mut buffer = vec![0; 8 * 1024];
    let mut pace = Pace::new();
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        keep(&buffer[..count]);
        if let Some(rest) = pace.read(count as u64) {
            tokio::time::sleep(rest).await;
        }
    }
}

/// A bucket that fills with time.
struct Pace {
    left: u64,
    at: Instant,
}

impl Pace {
    fn new() -> Self {
        Self {
            left: BURST,
            at: Instant::now(),
        }
    }

    /// Counts bytes that were read; returns how long to wait before the next are.
    fn read(&mut self, bytes: u64) -> Option<Duration> {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return None;
        }
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.at).as_micros();
        let gained = u64::try_from(passed * u128::from(RATE) / 1_000_000).unwrap_or(BURST);
        self.at = now;
        self.left = (self.left + gained).min(BURST).saturating_sub(bytes);
        // Empty: waits until a quarter of a burst is there again.
        (self.left == 0).then(|| Duration::from_micros(BURST / 4 * 1_000_000 / RATE))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    // fault S16
    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_at_the_rate_and_a_little_at_once() {
        let read = async |bytes: u64| {
            let (taken, begun) = (Cell::new(0), Instant::now());
            let source = tokio::io::repeat(b'x').take(bytes);
            drain(source, |chunk| taken.set(taken.get() + chunk.len() as u64)).await;
            assert_eq!(taken.get(), bytes, "nothing is lost");
            begun.elapsed()
        };
        assert_eq!(read(BURST / 2).await, Duration::ZERO);
        let long = read(8 * RATE).await.as_secs_f64();
        assert!((7.0..=9.0).contains(&long), "{long} s for 8 s");
    }
}
