//! Parts of sentences that several errors share.

use std::path::Path;
use std::time::Duration;

use gantry_model::caller::KeyEnd;
use gantry_model::id::ServerName;

pub(super) fn file_shown(file: Option<&Path>) -> String {
    let named = |file: &Path| format!("the configuration file `{}`", file.display());
    file.map_or_else(|| "a configuration file".to_owned(), named)
}

pub(super) fn more_about(server: &ServerName) -> String {
    format!("`gantry status {server}` and `gantry logs {server}` say more")
}

pub(super) fn key_end_text(end: KeyEnd) -> &'static str {
    match end {
        KeyEnd::Revoked => "the key was revoked",
        KeyEnd::Expired => "the key has expired",
        KeyEnd::Suspended => "the agent or its project is suspended",
    }
}

pub(super) fn next_try_text(next_try: Option<Duration>) -> String {
    next_try.map_or(String::new(), |wait| {
        let seconds = wait.as_secs_f64();
        if seconds < 1.0 {
            format!("; next try in {} ms", wait.as_millis())
        } else {
            format!("; next try in {} s", seconds.round())
        }
    })
}

/// Adds a reason, if there is one.
pub(super) fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}
