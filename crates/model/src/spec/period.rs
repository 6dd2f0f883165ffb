//! Durations as people write them: `500ms`, `30s`, `2m`, `1h`; a bare number is milliseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Parses a duration; `None` if it is none.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit.trim() {
        "" | "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" | "min" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(milliseconds))
}

/// Shows a duration in the largest unit that divides it.
pub fn show(period: Duration) -> String {
    let ms = period.as_millis();
    match ms {
        0 => "0s".into(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

/// Shows a time that was measured: to a tenth of a second, which is what a reader needs of it.
pub fn about(period: Duration) -> String {
    let ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let rounded = match ms {
        0..100 => ms,
        _ => ms.saturating_add(50) / 100 * 100,
    };
    show(Duration::from_millis(rounded))
}

/// Writes a duration as `show` does.
pub fn serialize<S: Serializer>(period: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show(*period))
}

/// Reads a text as `parse` does, or a number of milliseconds.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a duration is expected, such as `500ms`, `30s` or a number of milliseconds"
    )]
    enum Written {
        Milliseconds(u64),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Milliseconds(ms) => Ok(Duration::from_millis(ms)),
        Written::Text(text) => parse(&text).ok_or_else(|| {
            let what =
                format!("`{text}` is not a duration; write for example `500ms`, `30s` or `2m`");
            serde::de::Error::custom(what)
        }),
    }
}

/// Lists of durations, such as `["5s", "15s"]`.
pub mod list {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Entry(#[serde(with = "super")] Duration);

    /// Writes each duration as `show` does.
    pub fn serialize<S: Serializer>(list: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|period| Entry(*period)))
    }

    /// Reads each entry as a single duration is read.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?;
        Ok(entries.into_iter().map(|entry| entry.0).collect())
    }
}

/// Durations that may be left out.
pub mod option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Entry(#[serde(with = "super")] Duration);

    /// Writes the duration as `show` does.
    pub fn serialize<S: Serializer>(
        period: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        period.map(Entry).serialize(serializer)
    }

    /// Reads the duration as a single one is read.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let entry = Option::<Entry>::deserialize(deserializer)?;
        Ok(entry.map(|entry| entry.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_shown_to_a_tenth_of_a_second() {
        let shown = [
            (7, "7ms"),
            (983, "1s"),
            (1_004, "1s"),
            (1_449, "1400ms"),
            (59_980, "1m"),
        ];
        for (ms, text) in shown {
            let measured = Duration::from_millis(ms) + Duration::from_nanos(857_362);
            assert_eq!(about(measured), text);
        }
    }

    #[test]
    fn durations_survive_their_text() {
        for text in ["500ms", "30s", "2m", "1h", "1500ms", "90s"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
        assert_eq!(parse("250"), Some(Duration::from_millis(250)));
        for bad in ["", "s", "1d", "-1s", "1.5s", "99999999999999999999h"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
