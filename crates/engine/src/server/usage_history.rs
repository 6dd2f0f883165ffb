//! A short history of a server's resource usage: one sample every few seconds, the oldest dropped.
//! Sampling reads a few kernel counters and never blocks.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::unix_ms;
use crate::driver::Usage;

/// How often a sample is taken.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// How many samples are kept: five minutes.
const KEPT: usize = 60;

/// The resource usage of a server at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageSample {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// CPU cores used since the previous sample, such as `0.5`.
    pub cpu_cores: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes on disk, if known.
    pub disk_bytes: Option<u64>,
}

/// The last samples of one server.
#[derive(Debug, Default)]
pub(crate) struct UsageHistory(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    kept: VecDeque<UsageSample>,
    before: Option<(Instant, Duration)>,
}

impl UsageHistory {
    /// Takes a sample; without usage, as while nothing runs, only resets the difference.
    pub(crate) fn take(&self, usage: Option<Usage>) {
        let mut samples = self.0.lock();
        let Some(usage) = usage else {
            samples.before = None;
            return;
        };
        let now = Instant::now();
        let cpu_cores = samples.before.map_or(0.0, |(at, cpu)| {
            let passed = now.saturating_duration_since(at).as_secs_f64();
            // A new instance starts at zero.
            let used = usage.cpu.saturating_sub(cpu).as_secs_f64();
            if passed > 0.0 { used / passed } else { 0.0 }
        });
        samples.before = Some((now, usage.cpu));
        if samples.kept.len() == KEPT {
            samples.kept.pop_front();
        }
        samples.kept.push_back(UsageSample {
            at_ms: unix_ms(),
            cpu_cores,
            memory_bytes: usage.memory_bytes,
            pids: usage.pids,
            disk_bytes: usage.disk_bytes,
        });
    }

    /// Returns the samples, oldest first.
    pub(crate) fn samples(&self) -> Vec<UsageSample> {
        self.0.lock().kept.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row 1.13
    #[tokio::test(start_paused = true)]
    async fn the_share_of_a_core_is_that_between_two_samples() {
        let history = UsageHistory::default();
        let usage = |cpu: u64| {
            Some(Usage {
                cpu: Duration::from_millis(cpu),
                memory_bytes: 7,
                pids: 1,
                ..Usage::default()
            })
        };
        history.take(usage(1000));
        tokio::time::advance(EVERY).await;
        history.take(usage(3500));
        let samples = history.samples();
        assert_eq!(samples[0].cpu_cores, 0.0);
        assert!((samples[1].cpu_cores - 0.5).abs() < 0.01, "{samples:?}");
        history.take(None);
        for _ in 0..2 * KEPT {
            history.take(usage(0));
        }
        assert_eq!(history.samples().len(), KEPT);
    }
}
