//! Where log lines go: stderr, filtered by `--log` or `GANTRY_LOG`.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use super::failure::{Exit, Failure};
use super::screen::Screen;

/// Lifecycle of servers and gateway; of everything else only what is wrong.
const DEFAULT: &str = "warn,gantry=info,gantry_engine=info,gantry_sandbox=info,gantry_store=info";

/// When a person looks at the terminal, `up` itself tells what happens.
const TIDY: &str = "warn";

/// What is never logged in more detail.
const SECRETIVE: [&str; 2] = ["rmcp=warn", "h2=warn"];

/// Starts logging.
pub(super) fn start(filter: Option<&str>, screen: &Screen) -> Result<(), Failure> {
    let default = if screen.is_terminal() && io::stderr().is_terminal() {
        TIDY
    } else {
        DEFAULT
    };
    let filter = EnvFilter::builder()
        .parse(filter.unwrap_or(default))
        .map_err(|error| {
            Failure::plain(Exit::Usage, "the log filter cannot be understood", &error)
                .hint("write for example `info`, or `warn,gantry_engine=debug`")
        })?;
    // Whatever is asked for: at these levels they would write down codes and headers of sign-ins.
    let filter = SECRETIVE.iter().fold(filter, |filter, quiet| {
        filter.add_directive(quiet.parse().expect("the directives are right"))
    });
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(screen.has_colour() && io::stderr().is_terminal())
        .finish();
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| Failure::plain(Exit::Failed, "logging cannot be started", &error))
}
