//! Parses a query into a type, and reports unknown, repeated, missing and malformed parameters.
//!
//! The allowed values come from the served OpenAPI document, so both always agree. Entry points:
//! [`read`], then [`QueryErrors::into_problem`].

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::openapi;
use crate::config::diagnostic::meant;
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

/// Maximum number of errors reported per query.
const MOST: usize = 8;
/// What is wrong with a query.
#[derive(Debug)]
pub(super) struct QueryErrors(Vec<QueryError>);

#[derive(Debug, PartialEq, Eq)]
enum QueryError {
    /// No parameter has this name.
    Unknown(String),
    /// A parameter is repeated.
    Repeated(String),
    /// A required parameter is missing.
    Missing(String),
    /// A value of the wrong kind.
    Value { name: String, text: String },
}

/// Reads a query.
pub(super) fn read<T: DeserializeOwned>(query: &str) -> Result<T, QueryErrors> {
    let error = match parse(query) {
        Ok(asked) => return Ok(asked),
        Err(error) => error,
    };
    let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
    let mut pairs: Vec<(String, String)> = pairs.collect();
    let mut mistakes = vec![classified(&error, &pairs)];
    // Without the known errors, the rest is parsed again: all errors are reported at once.
    while mistakes.len() < MOST {
        let name = mistakes.last().map_or("", QueryError::name);
        let before = pairs.len();
        pairs.retain(|(known, _)| known != name);
        if pairs.len() == before {
            break;
        }
        let mut rest = form_urlencoded::Serializer::new(String::new());
        let rest = rest.extend_pairs(&pairs).finish();
        let Err(error) = parse::<T>(&rest) else {
            break;
        };
        let next = classified(&error, &pairs);
        if mistakes.iter().any(|known| known.name() == next.name()) {
            break;
        }
        mistakes.push(next);
    }
    Err(QueryErrors(mistakes))
}

type ParseError = serde_path_to_error::Error<serde::de::value::Error>;

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, ParseError> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs))
}

/// Classifies serde's error message.
fn classified(error: &ParseError, pairs: &[(String, String)]) -> QueryError {
    let text = error.inner().to_string();
    let named = || text.split('`').nth(1).unwrap_or_default().to_owned();
    if text.starts_with("missing field") {
        return QueryError::Missing(named());
    }
    if text.starts_with("duplicate field") {
        return QueryError::Repeated(named());
    }
    let name = error.path().to_string();
    if text.starts_with("unknown field") {
        return QueryError::Unknown(name);
    }
    let value = pairs.iter().find(|(known, _)| *known == name);
    let text = value.map(|(_, text)| text.clone()).unwrap_or_default();
    QueryError::Value { name, text }
}

impl QueryError {
    fn name(&self) -> &str {
        match self {
            Self::Unknown(name) | Self::Repeated(name) | Self::Missing(name) => name,
            Self::Value { name, .. } => name,
        }
    }

    /// Returns what is wrong.
    fn message(&self) -> String {
        let name = shown(self.name());
        match self {
            Self::Unknown(_) => format!("`{name}` is not a parameter of this path"),
            Self::Repeated(_) => format!("`{name}` is given more than once"),
            Self::Missing(_) => format!("`{name}` is missing"),
            Self::Value { text, .. } => format!("`{}` cannot be used as `{name}`", shown(text)),
        }
    }

    /// Returns what to write instead.
    fn hint(&self, parameters: &[Value]) -> Option<String> {
        match self {
            Self::Repeated(_) => Some("give it once".to_owned()),
            Self::Missing(name) => Some(format!("add `{name}=…` to the query")),
            Self::Value { name, .. } => {
                let known = parameters.iter().find(|known| known["name"] == **name);
                known.and_then(|known| allowed(&known["schema"]))
            }
            Self::Unknown(name) => {
                let names: Vec<&str> = parameters
                    .iter()
                    .filter_map(|known| known["name"].as_str())
                    .collect();
                match meant(name, names.iter().copied()) {
                    Some(near) => Some(format!("did you mean `{near}`?")),
                    None if names.is_empty() => None,
                    None => Some(format!("the parameters are `{}`", names.join("`, `"))),
                }
            }
        }
    }
}

impl QueryErrors {
    /// Describes the errors of a query, for its route.
    pub(super) fn into_problem(self, path: &str) -> Problem {
        let parameters = parameters(path);
        let told = self.0.iter().map(|mistake| {
            let message = mistake.message();
            (mistake, message, mistake.hint(&parameters))
        });
        let told: Vec<_> = told.collect();
        let details: Vec<&str> = told
            .iter()
            .map(|(_, message, _)| message.as_str())
            .collect();
        let problem = Problem::new("request.query").with_detail(details.join("; "));
        let first = told.iter().find_map(|(_, _, hint)| hint.clone());
        let issues = told.iter().map(|(mistake, message, hint)| FieldIssue {
            path: format!("/{}", shown(mistake.name())),
            message: match hint {
                Some(hint) => format!("{message}; {hint}"),
                None => message.clone(),
            },
        });
        let problem = problem.with_issues(issues.collect());
        match first {
            Some(hint) => problem.with_hint(hint),
            None => problem.with_hint("`/api/v1/docs` has every parameter of every path"),
        }
    }
}

/// Returns the documented query parameters of a route.
fn parameters(path: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(openapi::text()).unwrap_or_default();
    let methods = document["paths"][path].as_object().into_iter().flatten();
    let known = methods.filter_map(|(_, operation)| operation["parameters"].as_array());
    known
        .flatten()
        .filter(|parameter| parameter["in"] == "query")
        .cloned()
        .collect()
}

/// Describes the values that a schema allows.
fn allowed(schema: &Value) -> Option<String> {
    let words = schema["enum"].as_array();
    let words: Vec<&str> = words
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !words.is_empty() {
        return Some(format!("write one of `{}`", words.join("`, `")));
    }
    match schema["type"].as_str()? {
        "boolean" => Some("write `true` or `false`".to_owned()),
        "integer" => {
            let (least, most) = (&schema["minimum"], &schema["maximum"]);
            Some(match (least.as_u64(), most.as_u64()) {
                (Some(least), Some(most)) => {
                    format!("write a whole number from {least} to {most}")
                }
                _ => "write a whole number".to_owned(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read is looked at")]
    struct Shape {
        agent: String,
        limit: Option<u32>,
        #[serde(default)]
        count: bool,
        #[serde(alias = "since_ms")]
        since: Option<String>,
    }

    fn wrong(query: &str) -> Vec<QueryError> {
        read::<Shape>(query).map_or_else(|mistakes| mistakes.0, |_| Vec::new())
    }

    #[test]
    fn every_mistake_of_a_query_is_found() {
        let value = |name: &str, text: &str| QueryError::Value {
            name: name.into(),
            text: text.into(),
        };
        assert_eq!(wrong("agent=a&limit=3&since_ms=4"), []);
        for text in ["abc", "-1", "1.5", "", "99999999999", "+1 "] {
            let query = format!("agent=a&limit={}", text.replace('+', "%2B"));
            assert_eq!(wrong(&query), [value("limit", text)], "{text}");
        }
        assert_eq!(
            wrong("agent=a&limit=1&limit=2"),
            [QueryError::Repeated("limit".into())]
        );
        assert_eq!(
            wrong("agent=a&since=1&since_ms=2"),
            [QueryError::Repeated("since".into())]
        );
        assert_eq!(wrong(""), [QueryError::Missing("agent".into())]);
        assert_eq!(
            wrong("limit=x&count=maybe&lmit=3"),
            [
                value("limit", "x"),
                value("count", "maybe"),
                QueryError::Unknown("lmit".into()),
                QueryError::Missing("agent".into()),
            ]
        );
    }

    #[test]
    fn what_is_allowed_stands_in_the_description() {
        let told = |query: &str| {
            let mistakes = QueryErrors(wrong(query));
            let problem = mistakes.into_problem("/api/v1/calls");
            let issue = &problem.issues()[0];
            (issue.path.clone(), issue.message.clone())
        };
        let (path, message) = told("agent=a&limit=x");
        assert_eq!(path, "/limit");
        assert_eq!(
            message,
            "`x` cannot be used as `limit`; write a whole number from 1 to 1000"
        );
        assert!(
            told("agent=a&count=1")
                .1
                .ends_with("write `true` or `false`")
        );
        assert!(told("agent=a&lmit=1").1.ends_with("did you mean `limit`?"));
        assert!(
            told("agent=a&zzzzzzz=1")
                .1
                .contains("the parameters are `agent`")
        );
    }
}
