//! The `--json` flag of verbs that list or change one kind of thing. Entry point: [`AsJson`].

use clap::Args;
use serde_json::Value;

use super::format::{list, pretty};
use super::screen::Screen;

/// Whether JSON is wanted.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct AsJson {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One thing, by its name.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// Its name
    pub(super) name: String,
    #[command(flatten)]
    pub(super) shown: AsJson,
}

impl AsJson {
    /// Prints a list as JSON, or as a table.
    pub(super) fn list(
        self,
        screen: &Screen,
        answer: &Value,
        heading: &[&str],
        row: impl Fn(&Value) -> Vec<String>,
    ) {
        if self.json {
            return screen.line(&pretty(answer));
        }
        let rows: Vec<Vec<String>> = list(answer, "/items").iter().map(row).collect();
        match rows.is_empty() {
            true => screen.line("none"),
            false => screen.table(heading, &rows),
        }
    }

    /// Prints a value as JSON, or a sentence.
    pub(super) fn done(self, screen: &Screen, value: &Value, said: &str) {
        if self.json {
            screen.line(&pretty(value));
        } else {
            screen.line(&Screen::safe(said));
        }
    }

    /// Returns whether JSON was requested.
    pub(super) fn is_wanted(self) -> bool {
        self.json
    }
}
