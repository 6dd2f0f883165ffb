//! How two definitions differ, member by member, for people who approve a change. Bounded: a server
//! must not fill a screen or a response. Entry point: [`differences`].

use serde::{Deserialize, Serialize};

use crate::jsonrpc::{Limits, Raw, RawKind, pointer_step, validate};
use crate::naming::is_unprintable;

/// The maximum number of reported differences.
const MOST: usize = 200;
/// The maximum number of bytes of a value that are shown.
const MOST_SHOWN: usize = 4096;

/// One place in which two definitions differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Where, as a JSON pointer.
    pub path: String,
    /// What was there, as JSON; nothing if it is new.
    pub before: Option<String>,
    /// What is there now, as JSON; nothing if it has gone.
    pub after: Option<String>,
}

/// Returns how two canonical definitions differ; all of the second if there is no first.
pub fn differences(before: Option<&str>, after: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    let limits = Limits::default();
    let new = validate(after, &limits).ok();
    let old = before.and_then(|text| validate(text, &limits).ok());
    if let Some(new) = new {
        compare("", old, Some(new), &mut found);
    }
    found
}

fn compare(path: &str, old: Option<Raw<'_>>, new: Option<Raw<'_>>, found: &mut Vec<Difference>) {
    if found.len() >= MOST || old.map(Raw::text) == new.map(Raw::text) {
        return;
    }
    let is_both = |kind| {
        let is = |raw: Option<Raw<'_>>| raw.is_none_or(|raw| raw.kind() == kind);
        is(old) && is(new)
    };
    let is_pair = old.is_some() && new.is_some();
    // A whole definition is taken apart even if it has no counterpart.
    if is_both(RawKind::Object) && (is_pair || path.is_empty()) {
        let members = |raw: Option<Raw<'_>>| -> Vec<(String, String)> {
            let members = raw.map(Raw::members).into_iter().flatten();
            let text = |key: Raw<'_>| key.string().unwrap_or_default().into_owned();
            members
                .map(|member| (text(member.key), member.value.text().to_owned()))
                .collect()
        };
        let (before, after) = (members(old), members(new));
        let value = |all: &[(String, String)], key: &str| {
            let known = all.iter().find(|(known, _)| known == key);
            known.map(|(_, value)| value.clone())
        };
        let mut keys: Vec<&str> = before.iter().chain(&after).map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (old, new) = (value(&before, key), value(&after, key));
            let path = format!("{path}/{}", pointer_step(key));
            let raw =
                |text: &'_ Option<String>| text.as_deref().map(|text| Raw::trusted(text).to_buf());
            let (old, new) = (raw(&old), raw(&new));
            compare(
                &path,
                old.as_ref().map(|old| old.as_raw()),
                new.as_ref().map(|new| new.as_raw()),
                found,
            );
        }
        return;
    }
    if is_pair && is_both(RawKind::Array) {
        let items = |raw: Option<Raw<'_>>| -> Vec<String> {
            let items = raw.map(Raw::items).into_iter().flatten();
            items.map(|item| item.text().to_owned()).collect()
        };
        let (before, after) = (items(old), items(new));
        for at in 0..before.len().max(after.len()) {
            let path = format!("{path}/{at}");
            let old = before.get(at).map(|text| Raw::trusted(text));
            let new = after.get(at).map(|text| Raw::trusted(text));
            compare(&path, old, new, found);
        }
        return;
    }
    found.push(Difference {
        path: visible(path),
        before: old.map(|raw| visible(raw.text())),
        after: new.map(|raw| visible(raw.text())),
    });
}

/// Returns JSON text for display: truncated, and with invisible characters as escapes.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MOST_SHOWN));
    for character in text.chars() {
        if shown.len() >= MOST_SHOWN {
            shown.push('…');
            break;
        }
        match is_unprintable(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}
