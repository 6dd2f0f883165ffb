//! Deduplicates warnings and errors about single requests: the first of a kind is written at once,
//! repetitions within a while are counted and summarised in one line.
//!
//! A line is about a single request if it has an error `code` or a `call`; its kind is its place in
//! the source, its code and its server. Otherwise a full disk would log a line per refused call.
//! Entry point: [`Repeats::new`].

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::{Context, Layer};

use crate::cli::output::Output;

/// How long repetitions are counted before they are summarised.
const WHILE: Duration = Duration::from_secs(10);
/// Maximum number of kinds; beyond that every line is written.
const MOST_KINDS: usize = 200;

/// The place in the source, the code, and the server of a line.
type Kind = (Identifier, String, String);

/// Counts repeated lines.
pub(super) struct Repeats {
    output: &'static Output,
    counted: Arc<Mutex<HashMap<Kind, u64>>>,
}

impl Repeats {
    pub(super) fn new(output: &'static Output) -> Self {
        Self {
            output,
            counted: Arc::default(),
        }
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if !is_about_a_request(metadata) {
            return true;
        }
        let mut told = LogFields::default();
        event.record(&mut told);
        let kind = (metadata.callsite(), told.code.clone(), told.server.clone());
        match counted(&self.counted, &kind) {
            Seen::First => {}
            Seen::Again => return false,
            Seen::Uncounted => return true,
        }
        let counts = Arc::clone(&self.counted);
        let summary = move || {
            let more = {
                let mut counts = counts.lock();
                counts.remove(&kind).filter(|more| *more > 0)?
            };
            Some(summary(metadata, &told, more))
        };
        self.output
            .log_later(Instant::now() + WHILE, Box::new(summary));
        true
    }
}

fn is_about_a_request(metadata: &Metadata<'_>) -> bool {
    let fields = metadata.fields();
    *metadata.level() <= Level::WARN
        && (fields.field("code").is_some() || fields.field("call").is_some())
}

/// Whether a line of this kind was written recently.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    First,
    Again,
    /// Too many kinds to count.
    Uncounted,
}

fn counted(counts: &Mutex<HashMap<Kind, u64>>, kind: &Kind) -> Seen {
    let mut counts = counts.lock();
    if let Some(more) = counts.get_mut(kind) {
        *more += 1;
        return Seen::Again;
    }
    if counts.len() >= MOST_KINDS {
        return Seen::Uncounted;
    }
    counts.insert(kind.clone(), 0);
    Seen::First
}

fn summary(metadata: &Metadata<'_>, told: &LogFields, more: u64) -> String {
    let mut stamp = String::new();
    // If the time cannot be formatted, it is left out.
    SystemTime
        .format_time(&mut Writer::new(&mut stamp))
        .unwrap_or_default();
    let (level, target, message) = (metadata.level(), metadata.target(), &told.message);
    let field = |name: &str, value: &str| match value {
        "" => String::new(),
        value => format!(" {name}={value:?}"),
    };
    let (code, server) = (field("code", &told.code), field("server", &told.server));
    let seconds = WHILE.as_secs();
    format!(
        "{stamp} {level:>5} {target}: {message}{code}{server}: {more} more like this within {seconds} s\n"
    )
}

/// The fields of a line that appear in the summary.
#[derive(Default)]
struct LogFields {
    message: String,
    code: String,
    server: String,
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "code" => value.clone_into(&mut self.code),
            "message" => value.clone_into(&mut self.message),
            "server" => value.clone_into(&mut self.server),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if matches!(field.name(), "code" | "message" | "server") {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite as _;

    use super::*;

    #[test]
    fn the_first_of_a_kind_is_written_and_the_rest_is_counted() {
        let site = tracing::callsite! {
            name: "test",
            kind: tracing::metadata::Kind::EVENT,
            level: Level::ERROR,
            fields: code
        };
        let counts = Mutex::default();
        let of = |code: &str, server: &str| {
            let (code, server) = (code.to_owned(), server.to_owned());
            (site.metadata().callsite(), code, server)
        };
        let kind = |code: &str| of(code, "");
        assert_eq!(counted(&counts, &kind("a")), Seen::First);
        assert_eq!(counted(&counts, &kind("a")), Seen::Again);
        assert_eq!(counted(&counts, &kind("b")), Seen::First);
        assert_eq!(counted(&counts, &kind("a")), Seen::Again);
        assert_eq!(counts.lock()[&kind("a")], 2);
        // The same line of another server is another kind.
        assert_eq!(counted(&counts, &of("a", "one")), Seen::First);
        assert_eq!(counted(&counts, &of("a", "two")), Seen::First);
        assert_eq!(counted(&counts, &of("a", "one")), Seen::Again);
        assert!(is_about_a_request(site.metadata()));
        for number in 4..MOST_KINDS {
            assert_eq!(counted(&counts, &kind(&number.to_string())), Seen::First);
        }
        assert_eq!(counted(&counts, &kind("one more")), Seen::Uncounted);
        let mut told = LogFields {
            message: "request failed".to_owned(),
            code: "a.b".to_owned(),
            server: String::new(),
        };
        let line = summary(site.metadata(), &told, 7);
        let wanted = ": request failed code=\"a.b\": 7 more like this within 10 s\n";
        assert!(line.ends_with(wanted), "{line}");
        "one".clone_into(&mut told.server);
        let line = summary(site.metadata(), &told, 7);
        let wanted = " code=\"a.b\" server=\"one\": 7 more like this within 10 s\n";
        assert!(line.ends_with(wanted), "{line}");
    }
}
