//! Formatting for terminals: tables, times, durations, JSON.

use std::path::Path;
use std::time::Duration;

pub(super) use gantry_engine::unix_ms as now_ms;
use gantry_model::naming::is_unprintable;
use gantry_model::spec::{is_shell_line, period};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::screen::Screen;

/// The minimum width of the last column.
const NARROWEST: usize = 20;

/// Formats rows as a table; cells are escaped, and the last column is wrapped to fit `width`.
pub(super) fn table(heading: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let heading: Vec<String> = heading.iter().map(|title| title.to_uppercase()).collect();
    let harmless = |row: &Vec<String>| -> Vec<String> {
        row.iter()
            .map(|cell| Screen::safe(cell).replace(['\n', '\t'], " "))
            .collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.iter().map(harmless))
        .collect();
    let rows = fitting(rows, width);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
    let room = width.saturating_sub(before).max(NARROWEST);
    let mut lines = Vec::new();
    for row in &rows {
        let Some((last, cells)) = row.split_last() else {
            continue;
        };
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        for piece in wrap(last, room) {
            line.push_str(&piece);
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(before);
        }
    }
    lines.join("\n")
}

/// Leaves out the columns in which no row has anything, if the table is too wide with them.
fn fitting(rows: Vec<Vec<String>>, width: usize) -> Vec<Vec<String>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count() + 2).max()
    };
    let whole: usize = (0..columns).filter_map(widest).sum();
    if whole <= width.saturating_add(2) {
        return rows;
    }
    let says = |column: &usize| {
        let mut cells = rows.iter().skip(1).filter_map(|row| row.get(*column));
        cells.any(|cell| !cell.is_empty())
    };
    let kept: Vec<usize> = (0..columns).filter(says).collect();
    let row = |row: &Vec<String>| -> Vec<String> {
        let cells = kept.iter().filter_map(|column| row.get(*column).cloned());
        cells.collect()
    };
    rows.iter().map(row).collect()
}

/// Wraps a text at blanks; longer words stay whole. Returns at least one line.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += more;
    }
    lines.push(line);
    lines
}

/// Joins the texts of a list.
pub(super) fn words(value: &Value, pointer: &str, between: &str) -> String {
    let words = list(value, pointer).iter().map(|word| text(word, ""));
    words.collect::<Vec<_>>().join(between)
}

/// Formats a time in UTC.
pub(super) fn time(unix_ms: u64) -> String {
    let moment = i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    moment.map_or_else(
        || "?".to_owned(),
        |moment| {
            moment
                .to_zoned(TimeZone::UTC)
                .strftime("%Y-%m-%d %H:%M:%SZ")
                .to_string()
        },
    )
}

/// Formats a number of things: `1 call`, `2 calls`.
pub(super) fn count(number: u64, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// Returns a program as the gateway finds it, which runs in another folder: a relative path becomes
/// an absolute one, a name is looked for on its `PATH`.
pub(super) fn here(program: &str) -> String {
    match program.contains('/') && !is_shell_line(program) {
        true => folder(Path::new(program)),
        false => program.to_owned(),
    }
}

/// Returns an absolute path.
pub(super) fn folder(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.components()
        .collect::<std::path::PathBuf>()
        .to_string_lossy()
        .into_owned()
}

/// Formats a time of the API like [`time`].
pub(super) fn shown_time(rfc3339: &str) -> String {
    let moment = rfc3339.parse::<Timestamp>().ok();
    let moment = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    moment.map_or_else(|| rfc3339.to_owned(), time)
}

/// Parses a duration.
pub(super) fn time_span(text: &str) -> Result<Duration, String> {
    period::parse(text).ok_or_else(|| "write for example `500ms`, `10s` or `2m`".to_owned())
}

/// Parses a time, or a duration before now, into milliseconds since 1970.
pub(super) fn moment(text: &str) -> Result<u64, String> {
    if let Some(ago) = period::parse(text).filter(|_| !text.bytes().all(|b| b.is_ascii_digit())) {
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(now_ms().saturating_sub(ago));
    }
    let time = text.parse::<Timestamp>().ok();
    let time = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    time.ok_or_else(|| "write for example `10m`, `2h` or `2026-01-31T12:00:00Z`".to_owned())
}

/// Formats a duration with two significant units at most.
pub(super) fn duration(milliseconds: f64) -> String {
    let seconds = milliseconds / 1000.0;
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Shows a number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Formats JSON over several lines, escaped for terminals.
pub(super) fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value);
    visible_json(text.expect("a JSON value is always expressible as JSON"))
}

/// Formats JSON in one line, escaped for terminals.
pub(super) fn compact(value: &Value) -> String {
    visible_json(value.to_string())
}

/// Escapes what a terminal must not get as JSON escapes, so that parsers read the same value.
fn visible_json(json: String) -> String {
    // Outside of strings JSON is ASCII.
    let is_kept = |letter: char| letter == '\n' || !is_unprintable(letter);
    if json.chars().all(is_kept) {
        return json;
    }
    let mut visible = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_kept(letter) {
            visible.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            visible.push_str(&format!("\\u{unit:04x}"));
        }
    }
    visible
}

/// Returns a member as text; empty if it is missing.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns a member as a number.
pub(super) fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// Returns a member as a list.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Quotes a path for a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@:".contains(letter);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_well() {
        let shown = [0.02, 1.25, 250.0, 30_000.0, 600_000.0, 86_400_000.0].map(duration);
        assert_eq!(
            shown,
            ["20 µs", "1.2 ms", "250 ms", "30.0 s", "10 min", "24 h"]
        );
        assert_eq!(
            [bytes(5), bytes(1536), bytes(5 << 20)],
            ["5 B", "1.5 KiB", "5.0 MiB"]
        );
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
    }

    #[test]
    fn moments_are_times_or_so_long_ago() {
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(1000));
        let hour_ago = moment("1h").unwrap();
        assert!(now_ms().abs_diff(hour_ago + 3_600_000) < 60_000);
        assert!(moment("12").is_err() && moment("soon").is_err());
    }

    #[test]
    fn json_is_visible_and_means_the_same() {
        let value = serde_json::json!({"a\u{9b}": "x\u{202e}\u{e0041}\u{7f}\x1b\n é 漢", "b": [1, "\u{2028}"]});
        for shown in [pretty(&value), compact(&value)] {
            let unseen = shown.chars().find(|c| *c != '\n' && is_unprintable(*c));
            assert_eq!(unseen, None, "{shown}");
            assert!(
                shown.contains("\\u009b") && shown.contains("\\udb40\\udc41"),
                "{shown}"
            );
            assert!(shown.contains("é 漢"), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn tables_are_plain_text() {
        let rows = [vec!["a".to_owned(), "\x1b[1mx\ny".to_owned()]];
        let text = table(&["name", "x"], &rows, usize::MAX);
        assert_eq!(text, "NAME  X\na     \\u{1b}[1mx y");
    }

    #[test]
    fn a_table_that_is_too_wide_leaves_out_what_no_row_says() {
        let rows = [["a", "", "b"].map(str::to_owned).to_vec()];
        let heading = ["name", "what nobody has", "last"];
        assert_eq!(table(&heading, &rows, 20), "NAME  LAST\na     b");
        assert!(table(&heading, &rows, 40).contains("WHAT NOBODY HAS"));
    }

    #[test]
    fn numbers_have_their_noun_and_programs_their_folder() {
        assert_eq!(
            [0, 1, 2].map(|n| count(n, "call")),
            ["0 calls", "1 call", "2 calls"]
        );
        assert_eq!(
            ["npx", "/bin/../x", "sh /x"].map(here),
            ["npx", "/bin/../x", "sh /x"]
        );
        assert!(here("./x").starts_with('/') && here("./x").ends_with("/x"));
        assert_eq!(shown_time("1970-01-01T00:00:01.5Z"), "1970-01-01 00:00:01Z");
    }

    #[test]
    fn a_wide_last_column_is_wrapped_under_itself() {
        let rows = [vec![
            "a".to_owned(),
            "one two three four five six".to_owned(),
        ]];
        let text = table(&["name", "what"], &rows, 28);
        assert_eq!(text, "NAME  WHAT\na     one two three four\n      five six");
        assert_eq!(wrap("aaaaaaaa b", 3), ["aaaaaaaa", "b"]);
    }
}
