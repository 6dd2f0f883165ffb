//! Log output: stderr, filtered by `--log` or `GANTRY_LOG`, written by the output thread. On a
//! terminal without a filter, log lines are part of the screen (`tidy`), without time and level.
//!
//! Repeated lines about single requests are summarised. Entry point: [`start`].

mod repeats;
mod tidy;

use std::io::{self, IsTerminal as _};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use super::failure::{Exit, Failure};
use super::output::Output;
use super::screen::Screen;

use repeats::Repeats;
use tidy::TidyLines;

/// The default filter of serving verbs: lifecycle events of servers and gateway, otherwise
/// warnings.
pub(super) const LIFECYCLE: &str =
    "warn,gantry=info,gantry_engine=info,gantry_sandbox=info,gantry_store=info";

/// The default filter of all other verbs, and on a terminal, where `up` itself shows lifecycle
/// events.
pub(super) const WARNINGS: &str = "warn";

/// Modules that never log below warnings: they would log codes and headers of sign-ins.
const SECRETIVE: [&str; 2] = ["rmcp", "h2"];

/// Starts logging, with the verb's default filter unless one is given.
pub(super) fn start(
    filter: Option<&str>,
    default: &'static str,
    screen: &Screen,
) -> Result<(), Failure> {
    let is_seen = screen.is_terminal() && io::stderr().is_terminal();
    let is_tidy = is_seen && filter.is_none();
    let default = if is_seen { WARNINGS } else { default };
    let filter = parse(filter.unwrap_or(default)).map_err(|error| {
        Failure::plain(Exit::Usage, "invalid log filter", &error)
            .hint("write for example `info`, or `warn,gantry_engine=debug`")
    })?;
    let output = screen.output();
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(Repeats::new(output));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(LogLines(output))
        .with_ansi(screen.has_colour() && io::stderr().is_terminal());
    let set = match is_tidy {
        true => {
            output.tidy();
            let lines = lines.event_format(TidyLines::new(*screen));
            tracing::subscriber::set_global_default(subscriber.with(lines))
        }
        false => tracing::subscriber::set_global_default(subscriber.with(lines)),
    };
    set.map_err(|error| Failure::plain(Exit::Failed, "logging cannot be started", &error))
}

/// Passes each line to the output thread; never waits and never fails.
#[derive(Clone, Copy)]
struct LogLines(&'static Output);

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl io::Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.log(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the requested filter, without what must never be logged.
fn parse(filter: &str) -> Result<Targets, ParseError> {
    let asked: Targets = filter.parse()?;
    let loud = asked.default_level();
    let allowed = asked
        .into_iter()
        .filter(|(target, _)| !is_secretive(target));
    let quiet = SECRETIVE.map(|target| (target.to_owned(), LevelFilter::WARN));
    Ok(Targets::new()
        .with_targets(allowed)
        .with_targets(quiet)
        .with_default(loud.unwrap_or(LevelFilter::OFF)))
}

fn is_secretive(target: &str) -> bool {
    let library = target.split("::").next();
    SECRETIVE
        .iter()
        .any(|secretive| Some(*secretive) == library)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_says_who_may_log_what() {
        let filter = parse("warn,gantry_engine=debug").unwrap();
        assert!(filter.would_enable("gantry_engine::router", &Level::DEBUG));
        assert!(!filter.would_enable("gantry_engine::router", &Level::TRACE));
        assert!(filter.would_enable("hyper", &Level::WARN));
        assert!(!filter.would_enable("hyper", &Level::INFO));
        assert!(parse("gantry=loud").is_err());
        assert!(
            !parse("gantry=info")
                .unwrap()
                .would_enable("hyper", &Level::ERROR)
        );
    }

    #[test]
    fn what_would_write_secrets_down_stays_quiet() {
        let asked = "trace,rmcp=trace,rmcp::transport::auth=trace,h2=debug";
        let filter = parse(asked).unwrap();
        for target in ["rmcp", "rmcp::transport::auth", "h2", "h2::codec"] {
            assert!(filter.would_enable(target, &Level::WARN), "{target}");
            assert!(!filter.would_enable(target, &Level::INFO), "{target}");
        }
        assert!(filter.would_enable("gantry", &Level::TRACE));
    }
}
