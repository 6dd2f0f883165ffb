//! Log lines for a user at a terminal, next to the rows of `gantry up`: a mark, the server, the
//! message; no time, level or module.
//!
//! Events that the start screen shows as rows are not logged again; a server that repeatedly fails
//! to start for the same reason is logged once. Entry point: [`TidyLines`].

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::super::screen::Screen;

/// The module that logs server events, which the rows show too.
const LIFECYCLE: &str = "gantry_engine::events";

/// Maximum number of servers whose last failure is remembered.
const MOST_FAILURES: usize = 1024;

/// Formats log lines for the screen.
pub(super) struct TidyLines {
    screen: Screen,
    /// Why each server last failed to start.
    failures: Mutex<HashMap<String, String>>,
}

impl TidyLines {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            screen: screen.for_errors(),
            failures: Mutex::default(),
        }
    }

    /// Returns whether a server event is news: not already shown by a row or a line.
    fn is_news(&self, told: &LogFields) -> bool {
        let Some(server) = &told.server else {
            return true;
        };
        let mut failures = self.failures.lock();
        match told.event.as_deref() {
            // Its cause was just shown.
            Some("health_warning") => false,
            Some("start_failed") => {
                let cause = told
                    .message
                    .split("; backing off")
                    .next()
                    .unwrap_or_default();
                let cause = cause
                    .split("; restarting at once")
                    .next()
                    .unwrap_or_default();
                if failures.len() >= MOST_FAILURES {
                    failures.clear();
                }
                let before = failures.insert(server.clone(), cause.to_owned());
                before.as_deref() != Some(cause)
            }
            Some(_) | None => {
                failures.remove(server);
                true
            }
        }
    }

    fn line(&self, level: Level, told: &LogFields) -> String {
        let mark = match level {
            Level::ERROR => self.screen.bad("✗"),
            Level::WARN => self.screen.doubtful("!"),
            _ => self.screen.faint("·"),
        };
        let mut text = told.message.clone();
        if let Some(error) = &told.error {
            text = format!("{text}: {error}");
        }
        if let Some(server) = &told.server {
            text = format!("{server}  {text}");
        }
        if !told.more.is_empty() {
            text = format!("{text} ({})", told.more.join(", "));
        }
        // One line each, even for multi-line messages.
        let text = Screen::safe(&text).replace('\n', " ");
        format!("  {mark} {}\n", text.trim_end())
    }
}

impl<S, N> FormatEvent<S, N> for TidyLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        let mut told = LogFields::default();
        event.record(&mut told);
        if about.target() == LIFECYCLE {
            let is_news = self.is_news(&told);
            if !is_news || self.screen.output().is_held() {
                return Ok(());
            }
        }
        writer.write_str(&self.line(*about.level(), &told))
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct LogFields {
    message: String,
    server: Option<String>,
    error: Option<String>,
    event: Option<String>,
    more: Vec<String>,
}

impl LogFields {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "server" => self.server = Some(value),
            "error" => self.error = Some(value),
            // The message already says so.
            "event" => self.event = Some(value),
            name => self.more.push(format!("{name} {value}")),
        }
    }
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut next = value.source();
        while let Some(source) = next {
            text = format!("{text}: {source}");
            next = source.source();
        }
        self.take(field, text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::Output;
    use crate::config::env::Environment;

    #[test]
    fn a_line_says_who_and_what() {
        let output: &'static Output = Box::leak(Box::new(Output::new()));
        let environment = Environment::default();
        let lines = TidyLines::new(Screen::new(&environment, output));
        let told = LogFields {
            message: "exit code 1;\nrestarting at once".to_owned(),
            server: Some("files".to_owned()),
            error: None,
            event: Some("exited".to_owned()),
            more: vec!["pid 7".to_owned()],
        };
        let line = lines.line(Level::WARN, &told);
        assert_eq!(line, "  ! files  exit code 1; restarting at once (pid 7)\n");
    }

    #[test]
    fn the_same_failure_is_told_once() {
        let output: &'static Output = Box::leak(Box::new(Output::new()));
        let lines = TidyLines::new(Screen::new(&Environment::default(), output));
        let is_news = |event: &str, message: &str| {
            lines.is_news(&LogFields {
                message: message.to_owned(),
                server: Some("files".to_owned()),
                error: None,
                event: Some(event.to_owned()),
                more: Vec::new(),
            })
        };
        assert!(is_news("start_failed", "not found; restarting at once"));
        assert!(!is_news(
            "start_failed",
            "not found; backing off 5s: 4 failures"
        ));
        assert!(!is_news(
            "health_warning",
            "backing off 5s: 4 failures: not found"
        ));
        assert!(is_news(
            "start_failed",
            "exit code 1; backing off 15s: 5 failures"
        ));
        assert!(is_news("exited", "exit code 1; restarting at once"));
        assert!(is_news(
            "start_failed",
            "exit code 1; backing off 15s: 5 failures"
        ));
    }
}
