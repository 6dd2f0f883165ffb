//! The type and range of an option's value.

use std::time::Duration;

use serde_json::Value as Json;

use crate::spec::{period, size};

/// The maximum duration of an option.
const DAY: Duration = Duration::from_secs(86_400);

/// The type of an option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A literal text.
    Text,
    /// A text whose variables are expanded in files.
    Template,
    /// The same, never shown.
    Secret,
    /// A list of texts.
    Texts,
    /// A list of texts whose variables are expanded in files.
    Templates,
    /// Named texts whose variables are expanded in files; only the names are shown.
    Pairs,
    /// One of a few keywords, or a list of texts.
    WordOrTexts(&'static [&'static str]),
    /// One of a few keywords.
    Choice(&'static [&'static str]),
    /// An integer within a range.
    Whole(u64, u64),
    /// A number of processor cores within a range.
    Cores(f64, f64),
    /// A size in bytes within a range.
    Size(u64, u64),
    /// A duration, at least this long and at most a day.
    Period(Duration),
    /// A list of durations.
    Periods,
    /// Settings of single tools, by name.
    Tools,
}

impl Kind {
    /// Returns whether a value is within the range.
    pub fn allows(self, value: &Json) -> bool {
        let time = |value: &Json, least: Duration| {
            let time = value.as_str().and_then(period::parse);
            time.is_some_and(|time| (least..=DAY).contains(&time))
        };
        match self {
            _ if value.is_null() => true,
            Self::Whole(least, most) | Self::Size(least, most) => value
                .as_u64()
                .is_some_and(|number| (least..=most).contains(&number)),
            Self::Cores(least, most) => value
                .as_f64()
                .is_some_and(|number| (least..=most).contains(&number)),
            Self::Period(least) => time(value, least),
            Self::Tools => {
                let tools = value.as_object().into_iter().flatten();
                let mut times = tools.filter_map(|(_, tool)| tool.get("timeout"));
                times.all(|value| time(value, Duration::from_millis(1)))
            }
            Self::Flag
            | Self::Text
            | Self::Template
            | Self::Secret
            | Self::Texts
            | Self::Templates
            | Self::Pairs
            | Self::Choice(_)
            | Self::WordOrTexts(_)
            | Self::Periods => true,
        }
    }

    /// Describes the range.
    pub fn allowed(self) -> String {
        match self {
            Self::Whole(least, most) => format!("{} to {}", grouped(least), grouped(most)),
            Self::Cores(least, most) => format!("{least} to {most} cores"),
            Self::Size(least, most) => format!("{} to {}", size::show(least), size::show(most)),
            Self::Period(least) => format!("{} to {}", period::show(least), period::show(DAY)),
            Self::Tools => "a table by tool, `timeout` 1ms to 24h".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Text | Self::Template | Self::Secret => "a text".to_owned(),
            Self::Texts | Self::Templates => "a list of texts".to_owned(),
            Self::Pairs => "a table of texts".to_owned(),
            Self::Choice(names) => words(names),
            Self::WordOrTexts(names) => format!("{}, or a list of texts", words(names)),
            Self::Periods => "a list of times".to_owned(),
        }
    }
}

fn words(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Writes a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
