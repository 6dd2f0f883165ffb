//! Conditions of a grant on the arguments of a call: a JSON pointer, and a test of the value there.
//!
//! A condition is written as text (`/env one-of ["dev","test"]`) or as JSON (`{"at": "/env",
//! "one_of": ["dev", "test"]}`). If the value is absent or has another type than the test expects,
//! the result is [`Truth::Unknown`], and the caller decides. Entry points: [`Condition::parse`],
//! [`Condition::from_json`] and [`Condition::judge`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use regex_automata::meta;
use serde_json::{Map, Number, Value};

use super::{GrantError, shown};

/// Maximum length of a condition's JSON pointer.
const LONGEST_POINTER: usize = 512;
/// Maximum length of a condition's value, as JSON.
const LONGEST_VALUE: usize = 4096;
/// Maximum memory of a compiled pattern.
const PATTERN_BYTES: usize = 256 << 10;

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Unknown: the value is absent, or has another type than the test expects.
    Unknown,
}

impl Truth {
    /// Combines two conditions that must both hold.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        match holds {
            true => Self::Yes,
            false => Self::No,
        }
    }
}

/// A test of one value in the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    at: Box<str>,
    test: Test,
}

/// The test of a value.
#[derive(Debug, Clone)]
enum Test {
    /// It equals this value, of any type.
    Equals(Value),
    /// It is one of these.
    OneOf(Vec<Value>),
    /// It is a text with this prefix.
    Prefix(Box<str>),
    /// It is a text that the whole pattern matches.
    Pattern(WholePattern),
    /// It is a number in this range, bounds included.
    Range(Option<Number>, Option<Number>),
    /// It is absent.
    Absent,
}

/// A regular expression that must match a whole text, in linear time.
#[derive(Debug, Clone)]
struct WholePattern {
    text: Box<str>,
    compiled: meta::Regex,
}

impl Condition {
    /// Parses `POINTER TEST VALUE`, such as `/env equals "prod"`, `/count range 1..10` or `/force
    /// absent`. A value that is not JSON is a text.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let text = text.trim();
        let mut words = text.splitn(3, char::is_whitespace);
        let (at, test) = (words.next().unwrap_or_default(), words.next());
        let rest = words.next().unwrap_or_default().trim();
        let value = || serde_json::from_str(rest).unwrap_or_else(|_| Value::from(rest));
        let (name, value) = match test.unwrap_or_default() {
            "equals" if !rest.is_empty() => ("equals", value()),
            "one-of" if !rest.is_empty() => {
                let words = || {
                    rest.split(',')
                        .map(|word| Value::from(word.trim()))
                        .collect()
                };
                let list = Some(value()).filter(Value::is_array);
                ("one_of", list.unwrap_or_else(words))
            }
            // Texts, also those that look like another kind of JSON.
            "prefix" if !rest.is_empty() => ("prefix", quoted(rest)),
            "pattern" if !rest.is_empty() => ("pattern", quoted(rest)),
            "range" => ("range", range(text, rest)?),
            "absent" if rest.is_empty() => ("absent", Value::Bool(true)),
            _ => {
                let why = "a pointer, then `equals`, `one-of`, `prefix`, `pattern`, `range` or `absent`, \
                           then a value is expected";
                return Err(refused(text, why));
            }
        };
        let mut members = Map::new();
        members.insert("at".to_owned(), at.into());
        members.insert(name.to_owned(), value);
        Self::from_json(&Value::Object(members))
    }

    /// Parses the JSON form of REST and the store: `at`, and one of `equals`, `one_of`, `prefix`,
    /// `pattern`, `range` (with `min`, `max` or both) and `absent`.
    pub fn from_json(json: &Value) -> Result<Self, GrantError> {
        let text = json.to_string();
        let wrong = |why| refused(&text, why);
        if text.len() > LONGEST_VALUE {
            return Err(wrong("it is longer than 4096 bytes"));
        }
        let members = json.as_object();
        let members = members.ok_or_else(|| wrong("an object with `at` and a test is expected"))?;
        let at = members.get("at").and_then(Value::as_str);
        let at = at.ok_or_else(|| wrong("`at` must be a JSON pointer such as `/path`"))?;
        if !is_pointer(at) {
            return Err(wrong("`at` must be a JSON pointer such as `/path`"));
        }
        let mut tests = members.iter().filter(|(name, _)| *name != "at");
        let (Some((name, value)), None) = (tests.next(), tests.next()) else {
            return Err(wrong("exactly one test is expected"));
        };
        let test = match (name.as_str(), value) {
            ("equals", value) => Test::Equals(value.clone()),
            ("one_of", Value::Array(values)) if !values.is_empty() => Test::OneOf(values.clone()),
            ("one_of", _) => return Err(wrong("`one_of` takes a list of values")),
            ("prefix", Value::String(prefix)) if !prefix.is_empty() => {
                Test::Prefix(prefix.as_str().into())
            }
            ("prefix", _) => return Err(wrong("`prefix` takes a text")),
            ("pattern", Value::String(pattern)) => {
                let pattern = WholePattern::new(pattern);
                let wrong = || wrong("`pattern` takes a regular expression");
                Test::Pattern(pattern.ok_or_else(wrong)?)
            }
            ("pattern", _) => return Err(wrong("`pattern` takes a regular expression")),
            ("range", Value::Object(ends)) => {
                let test = bounds(ends);
                test.ok_or_else(|| wrong("`range` takes `min`, `max` or both, which are numbers"))?
            }
            ("range", _) => return Err(wrong("`range` takes `min`, `max` or both")),
            ("absent", Value::Bool(true)) => Test::Absent,
            ("absent", _) => return Err(wrong("`absent` takes `true`")),
            _ => {
                return Err(wrong(
                    "the tests are `equals`, `one_of`, `prefix`, `pattern`, `range` and `absent`",
                ));
            }
        };
        Ok(Self {
            at: at.into(),
            test,
        })
    }

    /// Returns the JSON form, for [`Condition::from_json`].
    pub fn to_json(&self) -> Value {
        let (name, value) = match &self.test {
            Test::Equals(value) => ("equals", value.clone()),
            Test::OneOf(values) => ("one_of", Value::Array(values.clone())),
            Test::Prefix(prefix) => ("prefix", (**prefix).into()),
            Test::Pattern(pattern) => ("pattern", (*pattern.text).into()),
            Test::Range(min, max) => {
                let ends = [("min", min), ("max", max)];
                let ends = ends
                    .into_iter()
                    .filter_map(|(name, end)| Some((name.to_owned(), Value::Number(end.clone()?))));
                ("range", Value::Object(ends.collect()))
            }
            Test::Absent => ("absent", Value::Bool(true)),
        };
        serde_json::json!({ "at": &*self.at, name: value })
    }

    /// Tests the arguments of a call.
    pub fn judge(&self, arguments: &Value) -> Truth {
        if !arguments.is_object() {
            return Truth::Unknown;
        }
        match (&self.test, arguments.pointer(&self.at)) {
            (Test::Absent, value) => value.is_none().into(),
            (_, None) => Truth::Unknown,
            (Test::Equals(wanted), Some(value)) => is_equal(wanted, value).into(),
            (Test::OneOf(wanted), Some(value)) => {
                wanted.iter().any(|wanted| is_equal(wanted, value)).into()
            }
            (Test::Prefix(prefix), Some(Value::String(value))) => {
                value.starts_with(&**prefix).into()
            }
            (Test::Pattern(pattern), Some(Value::String(value))) => {
                pattern.compiled.is_match(value).into()
            }
            (Test::Range(min, max), Some(Value::Number(value))) => {
                let above = min.as_ref().map_or(Some(true), |min| {
                    Some(compared(value, min)? != Ordering::Less)
                });
                let below = max.as_ref().map_or(Some(true), |max| {
                    Some(compared(value, max)? != Ordering::Greater)
                });
                match (above, below) {
                    (Some(above), Some(below)) => (above && below).into(),
                    _ => Truth::Unknown,
                }
            }
            (Test::Prefix(_) | Test::Pattern(_) | Test::Range(..), Some(_)) => Truth::Unknown,
        }
    }
}

impl fmt::Display for Condition {
    /// Writes the text form, for [`Condition::parse`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.at;
        match &self.test {
            Test::Equals(value) => write!(f, "{at} equals {value}"),
            Test::OneOf(values) => write!(f, "{at} one-of {}", Value::Array(values.clone())),
            Test::Prefix(prefix) => write!(f, "{at} prefix {}", Value::from(&**prefix)),
            Test::Pattern(pattern) => write!(f, "{at} pattern {}", Value::from(&*pattern.text)),
            Test::Range(min, max) => {
                let end = |end: &Option<Number>| end.as_ref().map(Number::to_string);
                let (min, max) = (end(min).unwrap_or_default(), end(max).unwrap_or_default());
                write!(f, "{at} range {min}..{max}")
            }
            Test::Absent => write!(f, "{at} absent"),
        }
    }
}

impl WholePattern {
    fn new(text: &str) -> Option<Self> {
        // Compiled alone first: `a)|(b` must not escape the group that is added around it.
        let config = || meta::Config::new().nfa_size_limit(Some(PATTERN_BYTES));
        let build = |text: &str| meta::Builder::new().configure(config()).build(text).ok();
        build(text)?;
        Some(Self {
            text: text.into(),
            compiled: build(&format!(r"\A(?:{text})\z"))?,
        })
    }
}

impl PartialEq for Test {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Equals(one), Self::Equals(two)) => one == two,
            (Self::OneOf(one), Self::OneOf(two)) => one == two,
            (Self::Prefix(one), Self::Prefix(two)) => one == two,
            (Self::Pattern(one), Self::Pattern(two)) => one.text == two.text,
            (Self::Range(min, max), Self::Range(other_min, other_max)) => {
                (min, max) == (other_min, other_max)
            }
            (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }
}

impl Eq for Test {}

impl Hash for Test {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Equals(value) => value.to_string().hash(state),
            Self::OneOf(values) => values.len().hash(state),
            Self::Prefix(text) => text.hash(state),
            Self::Pattern(pattern) => pattern.text.hash(state),
            Self::Range(min, max) => {
                let end = |end: &Option<Number>| end.as_ref().map(Number::to_string);
                (end(min), end(max)).hash(state);
            }
            Self::Absent => {}
        }
    }
}

fn refused(text: &str, why: &'static str) -> GrantError {
    GrantError::Condition {
        text: shown(text),
        why,
    }
}

/// Parses a JSON text, or returns the words as a text.
fn quoted(rest: &str) -> Value {
    let text: Result<String, _> = serde_json::from_str(rest);
    text.unwrap_or_else(|_| rest.to_owned()).into()
}

/// Parses `MIN..MAX`; one of them may be missing.
fn range(text: &str, rest: &str) -> Result<Value, GrantError> {
    let wrong = || refused(text, "a range is written `1..10`, `1..` or `..10`");
    let (min, max) = rest.split_once("..").ok_or_else(wrong)?;
    let mut ends = Map::new();
    for (name, end) in [("min", min.trim()), ("max", max.trim())] {
        if !end.is_empty() {
            let number: Number = serde_json::from_str(end).map_err(|_| wrong())?;
            ends.insert(name.to_owned(), number.into());
        }
    }
    Ok(Value::Object(ends))
}

fn bounds(ends: &Map<String, Value>) -> Option<Test> {
    let is_known = |name: &String| name == "min" || name == "max";
    if ends.is_empty() || !ends.keys().all(is_known) {
        return None;
    }
    let end = |name| match ends.get(name) {
        Some(Value::Number(end)) => Some(Some(end.clone())),
        Some(_) => None,
        None => Some(None),
    };
    Some(Test::Range(end("min")?, end("max")?))
}

fn is_pointer(text: &str) -> bool {
    let is_escaped = |part: &str| part.starts_with(['0', '1']);
    let mut escapes = text.split('~').skip(1);
    let is_legal = text.is_empty() || text.starts_with('/');
    is_legal
        && text.len() <= LONGEST_POINTER
        && escapes.all(is_escaped)
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Compares like JSON Schema: numbers by value, members in any order.
fn is_equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => compared(one, two) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_equal(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            let mut members = one.iter();
            one.len() == two.len()
                && members.all(|(name, one)| two.get(name).is_some_and(|two| is_equal(one, two)))
        }
        _ => one == two,
    }
}

/// Compares two numbers exactly, also an integer with a floating-point number.
fn compared(one: &Number, two: &Number) -> Option<Ordering> {
    let integer = |number: &Number| {
        let whole = number.as_i64().map(i128::from);
        whole
            .or_else(|| number.as_u64().map(i128::from))
            .or_else(|| {
                let value = number.as_f64()?;
                let is_whole = value.fract() == 0.0 && value.abs() < 1e30;
                is_whole.then_some(value as i128)
            })
    };
    match (integer(one), integer(two)) {
        (Some(one), Some(two)) => Some(one.cmp(&two)),
        _ => one.as_f64()?.partial_cmp(&two.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(condition: &str, arguments: Value) -> Truth {
        let parsed = Condition::parse(condition).unwrap();
        // The text form is parsed to the same condition.
        assert_eq!(Condition::parse(&parsed.to_string()).unwrap(), parsed);
        assert_eq!(Condition::from_json(&parsed.to_json()).unwrap(), parsed);
        parsed.judge(&arguments)
    }

    // row 3.2
    #[test]
    fn each_test_tells_yes_no_and_when_it_cannot_tell() {
        use Truth::{No, Unknown, Yes};
        for (condition, arguments, expected) in [
            (r#"/env equals "prod""#, json!({"env": "prod"}), Yes),
            ("/env equals prod", json!({"env": "prod"}), Yes),
            ("/env equals prod", json!({"env": "prod "}), No),
            ("/env equals prod", json!({"env": 1}), No),
            ("/env equals prod", json!({}), Unknown),
            ("/env equals null", json!({"env": null}), Yes),
            ("/n equals 1", json!({"n": 1.0}), Yes),
            ("/n equals 1", json!({"n": "1"}), No),
            (
                "/n equals 9007199254740993",
                json!({"n": 9_007_199_254_740_992_u64}),
                No,
            ),
            (
                r#"/o equals {"a":1,"b":[2]}"#,
                json!({"o": {"b": [2.0], "a": 1}}),
                Yes,
            ),
            ("/env one-of dev, test", json!({"env": "test"}), Yes),
            (r#"/env one-of ["dev",1]"#, json!({"env": 1}), Yes),
            ("/env one-of dev,test", json!({"env": "prod"}), No),
            ("/path prefix /srv/", json!({"path": "/srv/a"}), Yes),
            ("/path prefix /srv/", json!({"path": "/srv"}), No),
            ("/path prefix /srv/", json!({"path": ["/srv/"]}), Unknown),
            ("/id prefix 12", json!({"id": "123"}), Yes),
            ("/name pattern [a-z]+", json!({"name": "abc"}), Yes),
            ("/name pattern [a-z]+", json!({"name": "abc\n"}), No),
            ("/name pattern [a-z]+", json!({"name": "1abc"}), No),
            ("/name pattern a|b", json!({"name": "ax"}), No),
            ("/name pattern a|b", json!({"name": "xb"}), No),
            ("/name pattern [a-z]+", json!({"name": 1}), Unknown),
            ("/n range 1..10", json!({"n": 10}), Yes),
            ("/n range 1..10", json!({"n": 10.5}), No),
            ("/n range 1..", json!({"n": 1e300}), Yes),
            ("/n range ..0", json!({"n": 0.001}), No),
            ("/n range 1..10", json!({"n": "5"}), Unknown),
            ("/force absent", json!({}), Yes),
            ("/force absent", json!({"force": null}), No),
            ("/a/0/b~1c equals 1", json!({"a": [{"b/c": 1}]}), Yes),
        ] {
            assert_eq!(
                judged(condition, arguments.clone()),
                expected,
                "{condition} {arguments}"
            );
        }
        assert_eq!(judged("/force absent", json!([])), Unknown);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for bad in [
            "",
            "/x",
            "x equals 1",
            "/x equals",
            "/x is 1",
            "/x range 1",
            "/x range ..",
            "/x range a..b",
            "/x pattern (",
            "/x pattern a)|(b",
            "/x absent 1",
            "/x~2 equals 1",
            "/x one-of []",
        ] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
        let huge = format!("/x pattern {}", "(a{1000}){1000}");
        assert!(Condition::parse(&huge).is_err());
        for bad in [
            json!([]),
            json!({"at": "/x"}),
            json!({"equals": 1}),
            json!({"at": "/x", "equals": 1, "absent": true}),
            json!({"at": "/x", "absent": false}),
            json!({"at": "/x", "prefix": 1}),
            json!({"at": "/x", "range": {"from": 1}}),
            json!({"at": "/x", "range": {"min": "1"}}),
        ] {
            assert!(Condition::from_json(&bad).is_err(), "{bad}");
        }
    }
}
