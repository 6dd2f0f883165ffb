//! Limits on the command line, as `60/m`, `1000/h` or `10MB/m`: the flags of keys and agents, and how limits
//! are shown. Entry points: [`LimitFlags`] and [`shown`].

use clap::Args;
use serde_json::{Map, Value};

use super::failure::{Exit, Failure};

/// Flags that limit what a key or an agent may use.
#[derive(Debug, Default, Args)]
pub(super) struct LimitFlags {
    /// How many calls it may make, such as `60/m` (a minute) or `1000/h` (an hour); may be given for both
    #[arg(long, value_name = "CALLS/PERIOD")]
    rate: Vec<String>,
    /// How many bytes of arguments and results it may use, such as `10MB/m` or `1GB/h`; may be given for both
    #[arg(long, value_name = "BYTES/PERIOD")]
    bytes: Vec<String>,
    /// Limit of concurrent calls
    #[arg(long, value_name = "CALLS")]
    concurrency: Option<u32>,
}

impl LimitFlags {
    /// Returns the limits as a body has them; nothing if no flag was given.
    pub(super) fn body(&self) -> Result<Option<Value>, Failure> {
        let mut limits = Map::new();
        for text in &self.rate {
            let (number, period) = split(text, "--rate", "60/m")?;
            let number: u32 = number
                .parse()
                .map_err(|_| unusable(text, "--rate", "60/m"))?;
            limits.insert(format!("calls_per_{period}"), number.into());
        }
        for text in &self.bytes {
            let (number, period) = split(text, "--bytes", "10MB/m")?;
            let number = bytes(number).ok_or_else(|| unusable(text, "--bytes", "10MB/m"))?;
            limits.insert(format!("bytes_per_{period}"), number.into());
        }
        if let Some(calls) = self.concurrency {
            limits.insert("concurrency".to_owned(), calls.into());
        }
        Ok((!limits.is_empty()).then(|| Value::Object(limits)))
    }
}

/// The limits in a change.
#[derive(Debug, Args)]
pub(super) struct LimitChange {
    #[command(flatten)]
    limits: LimitFlags,
    /// Limit nothing
    #[arg(long, conflicts_with_all = ["rate", "bytes", "concurrency"])]
    no_limits: bool,
}

impl LimitChange {
    /// Returns the body of a change with these limits; a change of nothing is an error, which names the
    /// `verb` that shows what can be changed.
    pub(super) fn put_into(
        &self,
        mut body: Map<String, Value>,
        verb: &str,
    ) -> Result<Value, Failure> {
        let limits = self.limits.body()?;
        if let Some(limits) = limits.or_else(|| self.no_limits.then(|| Map::new().into())) {
            body.insert("limits".to_owned(), limits);
        }
        match body.is_empty() {
            false => Ok(Value::Object(body)),
            true => Err(Failure::new(Exit::Usage, "nothing to change was named")
                .hint(format!("`gantry {verb} --help` shows what can be changed"))),
        }
    }
}

fn split<'a>(text: &'a str, flag: &str, example: &str) -> Result<(&'a str, &'static str), Failure> {
    let (number, period) = text
        .split_once('/')
        .ok_or_else(|| unusable(text, flag, example))?;
    let period = match period.trim() {
        "m" | "min" | "minute" => "minute",
        "h" | "hour" => "hour",
        _ => return Err(unusable(text, flag, example)),
    };
    Ok((number.trim(), period))
}

/// Reads a number of bytes with a unit of thousands, or of 1024 with an `i`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" | "k" => 1_000,
        "MB" | "M" => 1_000_000,
        "GB" | "G" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn unusable(text: &str, flag: &str, example: &str) -> Failure {
    let message = format!("`{flag} {text}` cannot be used");
    let hint = format!("write for example `{flag} {example}`; `m` is a minute, `h` an hour");
    Failure::new(Exit::Usage, message).hint(hint)
}

/// Shows limits in one phrase; empty if there are none.
pub(super) fn shown(limits: &Value) -> String {
    let parts = [
        ("calls_per_minute", "/m"),
        ("calls_per_hour", "/h"),
        ("bytes_per_minute", " B/m"),
        ("bytes_per_hour", " B/h"),
        ("concurrency", " at once"),
    ];
    let parts = parts.iter().filter_map(|(name, unit)| {
        let number = limits.get(*name)?.as_u64()?;
        Some(format!("{number}{unit}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flags(rate: &[&str], bytes: &[&str], concurrency: Option<u32>) -> LimitFlags {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        LimitFlags {
            rate: texts(rate),
            bytes: texts(bytes),
            concurrency,
        }
    }

    #[test]
    fn limits_are_numbers_per_minute_or_hour() {
        let all = flags(&["60/m", "1000/hour"], &["10MB/min", "1GiB/h"], Some(4));
        let body = all.body().unwrap().unwrap();
        let wanted = json!({"calls_per_minute": 60, "calls_per_hour": 1000,
            "bytes_per_minute": 10_000_000, "bytes_per_hour": 1_u64 << 30, "concurrency": 4});
        assert_eq!(body, wanted);
        assert_eq!(
            shown(&body),
            "60/m, 1000/h, 10000000 B/m, 1073741824 B/h, 4 at once"
        );
        assert_eq!(flags(&[], &[], None).body().unwrap(), None);
        for bad in ["60", "60/s", "x/m", "-1/m", "/m"] {
            assert!(flags(&[bad], &[], None).body().is_err(), "{bad}");
        }
        for bad in ["10/s", "10TB/m", "MB/m"] {
            assert!(flags(&[], &[bad], None).body().is_err(), "{bad}");
        }
    }
}
