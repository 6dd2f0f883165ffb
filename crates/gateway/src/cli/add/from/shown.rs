//! Shows in full what will be added from a manifest: command, image or URL, every argument, the
//! names of all variables and headers, and the skipped choices. Entry point: [`show`].

use gantry_model::id::ServerName;
use gantry_model::secret::hide_arguments;
use serde_json::{Map, Value};

use crate::cli::format;
use crate::cli::screen::Screen;
use crate::config::manifest::{Manifest, Offer};

/// Everything that is shown.
pub(super) struct Shown<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) name: &'a ServerName,
    pub(super) offer: &'a Offer<'a>,
    pub(super) entry: &'a Map<String, Value>,
    pub(super) skipped: &'a [String],
    pub(super) warning: Option<&'a str>,
    pub(super) screen: &'a Screen,
}

/// Members that are printed on their own lines.
const OWN: [&str; 8] = [
    "description",
    "command",
    "args",
    "image",
    "url",
    "env",
    "headers",
    "name",
];

/// Prints it.
pub(super) fn show(shown: &Shown<'_>) {
    let Shown {
        manifest,
        name,
        offer,
        entry,
        screen,
        ..
    } = shown;
    let title = format!("{} {}", manifest.name, manifest.version);
    screen.line(&screen.strong(&Screen::safe(&title)));
    let line = |label: &str, value: &str| {
        if !value.is_empty() {
            screen.line(&Screen::safe(&format!("  {label:<12} {value}")));
        }
    };
    line("title", manifest.title.as_deref().unwrap_or_default());
    line("what it is", &manifest.description);
    line("source", manifest.repository.as_deref().unwrap_or_default());
    line("website", manifest.website.as_deref().unwrap_or_default());
    line("added as", name.as_str());
    line("runs from", offer.kind.as_str());
    let text = |member: &str| {
        entry
            .get(member)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    line("image", text("image"));
    line("url", text("url"));
    let args = entry.get("args").and_then(Value::as_array);
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let mut words: Vec<String> = args.map(str::to_owned).collect();
    if let Some(command) = entry.get("command").and_then(Value::as_str) {
        words.insert(0, command.to_owned());
    }
    let label = if entry.contains_key("command") {
        "command"
    } else {
        "arguments"
    };
    let words = hide_arguments(&words, "…");
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    line(label, &quoted.join(" "));
    for (table, label) in [("env", "variables"), ("headers", "headers")] {
        let members = entry.get(table).and_then(Value::as_object);
        let names: Vec<&str> = members
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        line(label, &names.join(", "));
    }
    for (member, value) in entry.iter() {
        if !OWN.contains(&member.as_str()) {
            line(&member.replace('_', " "), &format::text(value, ""));
        }
    }
    let open: Vec<String> = offer
        .questions()
        .iter()
        .filter(|question| !question.input.is_required && question.input.default.is_none())
        .map(|question| question.slot.flag())
        .collect();
    line("optional", &open.join(", "));
    let mark = screen.doubtful("!");
    let notes = shown.warning.iter().map(|warning| (*warning).to_owned());
    let notes = notes.chain(manifest.notes.iter().cloned());
    let notes = notes.chain(offer.notes());
    let skipped = shown.skipped.iter();
    let notes = notes.chain(skipped.map(|skipped| format!("not used: {skipped}")));
    for note in notes {
        screen.line(&format!("  {mark} {}", Screen::safe(&note)));
    }
}

/// Quotes a word that a shell would split, to show where it starts and ends.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
