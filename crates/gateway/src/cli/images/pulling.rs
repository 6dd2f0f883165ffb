//! The progress of a pull or an import: a bar on a terminal, otherwise occasional lines.
//!
//! Entry points: [`work`] for the gateway's response, [`bar`] for one step.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::client::{Client, refusal};
use crate::cli::failure::{Exit, Failure};
use crate::cli::format::{bytes, number};
use crate::cli::progress::Progress;
use crate::cli::screen::Screen;
use crate::cli::transfer::Transfer;

/// The width of a progress bar, in characters.
const BAR: u64 = 24;
/// Without a terminal, the least time between two lines, unless a layer was completed.
const QUIET: Duration = Duration::from_secs(5);

/// Sends a request that begins with a pull or an import, and shows its progress.
pub(in crate::cli) async fn work(
    client: &Client,
    path: &str,
    body: &Value,
    what: &str,
    screen: &Screen,
) -> Result<Value, Failure> {
    let accept = "text/event-stream";
    let mut answer = Transfer::open(client, Method::POST, path, accept, Some(body)).await?;
    let mut progress = Progress::new(screen);
    let mut lines = Lines::default();
    while let Some((kind, data)) = answer.event().await? {
        match kind.as_str() {
            "progress" if progress.turns() => progress.tell(&bar(what, &data)),
            "progress" if lines.is_due(&data, Instant::now()) => {
                progress.tell(&line(what, &data));
            }
            "progress" => {}
            "done" => return Ok(data),
            "failed" => {
                let status = number(&data, "/status").and_then(|code| u16::try_from(code).ok());
                let status = status.and_then(|code| StatusCode::from_u16(code).ok());
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let unknown = || Failure::new(Exit::Failed, format!("{what} could not be fetched"));
                return Err(refusal(status, &data).unwrap_or_else(unknown));
            }
            _ => {}
        }
    }
    Err(
        Failure::new(Exit::Failed, "the gateway ended before it was done")
            .hint("`gantry status` tells whether it is there"),
    )
}

/// Formats a step as one line with a bar.
fn bar(what: &str, step: &Value) -> String {
    let (done, whole) = match Step::of(step) {
        Step { total: 0, .. } => (count(step, "/layers_done"), count(step, "/layers")),
        Step {
            received, total, ..
        } => (received, total),
    };
    let filled = (done * BAR).checked_div(whole).unwrap_or_default();
    let bar: String = (0..BAR)
        .map(|at| if at < filled { '█' } else { '░' })
        .collect();
    format!("{bar} {}", line(what, step))
}

/// Formats a step as one line.
fn line(what: &str, step: &Value) -> String {
    let Step {
        done,
        layers,
        received,
        total,
    } = Step::of(step);
    let size = match total {
        0 => String::new(),
        total => format!(" {} of {}", bytes(received), bytes(total)),
    };
    format!("{done}/{layers} layers{size} {what}")
}

/// One step, as reported by the gateway.
struct Step {
    done: u64,
    layers: u64,
    received: u64,
    total: u64,
}

impl Step {
    fn of(step: &Value) -> Self {
        let total = count(step, "/total");
        Self {
            done: count(step, "/layers_done"),
            layers: count(step, "/layers"),
            received: count(step, "/received").min(total),
            total,
        }
    }
}

fn count(step: &Value, pointer: &str) -> u64 {
    number(step, pointer).unwrap_or_default()
}

/// Without a terminal, decides which steps are printed: the first, each completed layer, and one
/// after a long silence.
#[derive(Debug, Default)]
struct Lines {
    last: Option<(u64, Instant)>,
}

impl Lines {
    fn is_due(&mut self, step: &Value, now: Instant) -> bool {
        let Step { done, layers, .. } = Step::of(step);
        let is_due = match self.last {
            None => layers > 0,
            Some((known, at)) => known != done || now.duration_since(at) >= QUIET,
        };
        if is_due {
            self.last = Some((done, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bar_fills_with_what_came() {
        let half = json!({"layers_done": 1, "layers": 2, "received": 512, "total": 1024});
        assert_eq!(
            bar("x", &half),
            "████████████░░░░░░░░░░░░ 1/2 layers 512 B of 1.0 KiB x"
        );
        let import = json!({"layers_done": 0, "layers": 2, "received": 0, "total": 0});
        assert_eq!(bar("x", &import), "░░░░░░░░░░░░░░░░░░░░░░░░ 0/2 layers x");
        assert!(bar("x", &json!({})).contains("0/0"));
        // Inconsistent numbers do not overflow.
        let odd = json!({"layers_done": 9, "layers": 2, "received": 4096, "total": 1024});
        assert!(bar("x", &odd).contains("1.0 KiB of 1.0 KiB"));
    }

    #[test]
    fn lines_come_with_layers_and_now_and_then() {
        let mut lines = Lines::default();
        let began = Instant::now();
        let step = |done: u64| json!({"layers_done": done, "layers": 3, "received": 1, "total": 9});
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(
            !lines.is_due(&json!({"layers": 0}), at(0)),
            "not resolved yet"
        );
        assert!(lines.is_due(&step(0), at(0)));
        assert!(!lines.is_due(&step(0), at(1)));
        assert!(lines.is_due(&step(1), at(1)));
        assert!(!lines.is_due(&step(1), at(5)));
        assert!(lines.is_due(&step(1), at(6)));
        assert_eq!(line("x", &step(1)), "1/3 layers 1 B of 9 B x");
    }
}
