//! The context of a request: user, session, run, step, parent call and trace.
//!
//! Read from headers or from the same keys in `_meta`, which take precedence, since the caller's
//! own library writes them per call. Texts are truncated and control characters refused. All of it
//! is claimed by the caller; whether its user id is trusted is a property of the agent. Entry
//! point: [`read`].

use std::borrow::Cow;

use gantry_model::caller::Context;
use gantry_model::era::meta::{PARENT_CALL_ID, RUN_ID, SESSION_ID, STEP, USER_ID};
use gantry_model::jsonrpc::{Raw, RawKind};
use http::{HeaderMap, HeaderName};

use super::error::Problem;

/// Maximum length, in characters.
const LONGEST: usize = 256;

/// Header and `_meta` key of each text, in the order of [`Found`].
static KEYS: [(HeaderName, &str); 5] = [
    (HeaderName::from_static("x-gantry-user-id"), USER_ID),
    (HeaderName::from_static("x-gantry-session-id"), SESSION_ID),
    (HeaderName::from_static("x-gantry-run-id"), RUN_ID),
    (HeaderName::from_static("x-gantry-step"), STEP),
    (
        HeaderName::from_static("x-gantry-parent-call-id"),
        PARENT_CALL_ID,
    ),
];
const TRACE: &str = "traceparent";
static TRACE_HEADER: HeaderName = HeaderName::from_static(TRACE);

type Found = [Option<Box<str>>; 5];

/// Reads the context of a request from its headers and the `_meta` of its params.
pub(crate) fn read(headers: &HeaderMap, meta: Option<Raw<'_>>) -> Result<Context, Problem> {
    let mut found = Found::default();
    for ((header, _), slot) in KEYS.iter().zip(&mut found) {
        if let Some(value) = headers.get(header) {
            let text = value.to_str().map_err(|_| unfit(header.as_str()))?;
            *slot = Some(fit(text, header.as_str())?);
        }
    }
    let mut trace = headers
        .get(&TRACE_HEADER)
        .and_then(|value| trace_of(value.to_str().ok()?));
    for member in meta.into_iter().flat_map(Raw::members) {
        if member.is(TRACE) {
            trace = member
                .value
                .string()
                .and_then(|text| trace_of(&text))
                .or(trace);
            continue;
        }
        for ((_, key), slot) in KEYS.iter().zip(&mut found) {
            if member.is(key) {
                *slot = Some(fit(&text_of(member.value).ok_or_else(|| unfit(key))?, key)?);
            }
        }
    }
    let [user, session, run, step, parent] = found;
    Ok(Context {
        user,
        session,
        run,
        step,
        trace,
        parent,
    })
}

fn text_of(value: Raw<'_>) -> Option<Cow<'_, str>> {
    match value.kind() {
        RawKind::String => value.string(),
        RawKind::Number => Some(Cow::Borrowed(value.text())),
        RawKind::Object | RawKind::Array | RawKind::Boolean | RawKind::Null => None,
    }
}

fn fit(text: &str, name: &str) -> Result<Box<str>, Problem> {
    if text.chars().any(char::is_control) {
        return Err(unfit(name));
    }
    let end = text
        .char_indices()
        .nth(LONGEST)
        .map_or(text.len(), |(at, _)| at);
    Ok(text[..end].into())
}

fn unfit(name: &str) -> Problem {
    Problem::new("request.context").with_detail(format!(
        "`{name}` must be a text without control characters"
    ))
}

/// Returns a valid W3C `traceparent`; with an invalid one a new trace starts.
fn trace_of(text: &str) -> Option<Box<str>> {
    let mut parts = text.split('-');
    let mut hex = |length: usize| {
        let part = parts.next()?;
        let is_hex = part
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (part.len() == length && is_hex).then_some(part)
    };
    let (version, trace, span, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_none = |part: &str| part.bytes().all(|b| b == b'0');
    let is_known = version == "00" && parts.next().is_none();
    (is_known && !is_none(trace) && !is_none(span)).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";

    fn of(headers: &[(&'static str, &str)], meta: &str) -> Result<Context, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        read(&map, Some(Raw::trusted(meta))).map_err(|problem| problem.code())
    }

    // row 3.5
    #[test]
    fn meta_wins_over_headers() {
        let headers = [
            ("x-gantry-user-id", "u1"),
            ("x-gantry-run-id", "r1"),
            (TRACE, PARENT),
        ];
        let context = of(&headers, "{}").unwrap();
        assert_eq!(
            (context.user.as_deref(), context.run.as_deref()),
            (Some("u1"), Some("r1"))
        );
        assert_eq!(context.trace.as_deref(), Some(PARENT));
        let meta =
            format!(r#"{{"io.gantry/user-id":"u2","io.gantry/step":3,"traceparent":"{OTHER}"}}"#);
        let context = of(&headers, &meta).unwrap();
        assert_eq!(
            (context.user.as_deref(), context.run.as_deref()),
            (Some("u2"), Some("r1"))
        );
        assert_eq!(
            (context.step.as_deref(), context.session.as_deref()),
            (Some("3"), None)
        );
        assert_eq!(context.trace.as_deref(), Some(OTHER));
        assert_eq!(of(&[], "{}"), Ok(Context::default()));
    }

    #[test]
    fn what_cannot_be_recorded_is_refused_and_what_is_long_is_cut() {
        assert_eq!(
            of(&[], r#"{"io.gantry/user-id":"a\nb"}"#),
            Err("request.context")
        );
        assert_eq!(
            of(&[], r#"{"io.gantry/user-id":{"a":1}}"#),
            Err("request.context")
        );
        let long = format!(r#"{{"io.gantry/user-id":"{}"}}"#, "é".repeat(300));
        assert_eq!(
            of(&[], &long).unwrap().user.unwrap().chars().count(),
            LONGEST
        );
    }

    #[test]
    fn a_malformed_trace_starts_anew() {
        for bad in [
            "",
            "00-xyz",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(&[(TRACE, bad)], "{}").unwrap().trace, None, "{bad}");
        }
        let none = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        assert_eq!(of(&[(TRACE, none)], "{}").unwrap().trace, None);
        assert_eq!(
            of(&[(TRACE, &PARENT.to_uppercase())], "{}").unwrap().trace,
            None
        );
        assert_eq!(
            of(&[(TRACE, PARENT)], r#"{"traceparent":"x"}"#)
                .unwrap()
                .trace
                .as_deref(),
            Some(PARENT)
        );
    }
}
