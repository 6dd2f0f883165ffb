//! The context of a request: user, session, run, step, parent call and trace.
//!
//! Read from headers or from the same keys in `_meta`, which take precedence, since the caller's
//! own library writes them per call. Texts are truncated and control characters refused. All of it
//! is claimed by the caller; whether its user id is trusted is a property of the agent. Entry
//! point: [`read`].

use std::borrow::Cow;

use gantry_model::caller::Context;
use gantry_model::era::meta::{self, PARENT_CALL_ID, RUN_ID, SESSION_ID, STEP, USER_ID};
use gantry_model::jsonrpc::{Raw, RawKind};
use gantry_model::trace::{TraceParent, trace_state};
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
static TRACE_PARENT: HeaderName = HeaderName::from_static(meta::TRACE_PARENT);
static TRACE_STATE: HeaderName = HeaderName::from_static(meta::TRACE_STATE);

type Found = [Option<Box<str>>; 5];

/// Reads the context of a request from its headers and the `_meta` of its params.
pub(crate) fn read(headers: &HeaderMap, of_params: Option<Raw<'_>>) -> Result<Context, Problem> {
    let mut found = Found::default();
    for ((header, _), slot) in KEYS.iter().zip(&mut found) {
        let mut values = headers.get_all(header).iter();
        if let Some(value) = values.next() {
            // A proxy may have added its own to that of its client: nobody knows which one counts.
            if values.any(|other| other != value) {
                return Err(repeated(header.as_str()));
            }
            let text = value.to_str().map_err(|_| unfit(header.as_str()))?;
            *slot = Some(fit(text, header.as_str())?);
        }
    }
    let mut place = None;
    let mut state = None;
    for member in of_params.into_iter().flat_map(Raw::members) {
        if member.is(meta::TRACE_PARENT) {
            let text = member.value.string();
            place = text.and_then(|text| TraceParent::parse(&text));
            continue;
        }
        if member.is(meta::TRACE_STATE) {
            state = member.value.string();
            continue;
        }
        for ((_, key), slot) in KEYS.iter().zip(&mut found) {
            if member.is(key) {
                *slot = Some(fit(&text_of(member.value).ok_or_else(|| unfit(key))?, key)?);
            }
        }
    }
    let (trace, trace_state) = match place {
        Some(place) => (Some(place), trace_state(state.as_deref().into_iter())),
        None => trace_of_headers(headers),
    };
    let [user, session, run, step, parent] = found;
    Ok(Context {
        user,
        session,
        run,
        step,
        trace,
        parent,
        trace_state,
    })
}

/// Reads the trace from the headers; with an invalid `traceparent`, or two of them, a new trace begins.
fn trace_of_headers(headers: &HeaderMap) -> (Option<TraceParent>, Option<Box<str>>) {
    let mut values = headers.get_all(&TRACE_PARENT).iter();
    let place = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().and_then(TraceParent::parse),
        _ => None,
    };
    if place.is_none() {
        return (None, None);
    }
    let states: Result<Vec<&str>, _> = headers
        .get_all(&TRACE_STATE)
        .iter()
        .map(|value| value.to_str())
        .collect();
    let state = states
        .ok()
        .and_then(|states| trace_state(states.into_iter()));
    (place, state)
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

fn repeated(name: &str) -> Problem {
    Problem::new("request.context").with_detail(format!(
        "`{name}` is there several times, with different values"
    ))
}

fn unfit(name: &str) -> Problem {
    Problem::new("request.context").with_detail(format!(
        "`{name}` must be a text without control characters"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";

    fn of(headers: &[(&'static str, &str)], params_meta: &str) -> Result<Context, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        read(&map, Some(Raw::trusted(params_meta))).map_err(|problem| problem.code())
    }

    // row 3.5
    #[test]
    fn meta_wins_over_headers() {
        let headers = [
            ("x-gantry-user-id", "u1"),
            ("x-gantry-run-id", "r1"),
            (meta::TRACE_PARENT, PARENT),
        ];
        let context = of(&headers, "{}").unwrap();
        assert_eq!(
            (context.user.as_deref(), context.run.as_deref()),
            (Some("u1"), Some("r1"))
        );
        assert_eq!(context.trace, TraceParent::parse(PARENT));
        let of_params =
            format!(r#"{{"io.gantry/user-id":"u2","io.gantry/step":3,"traceparent":"{OTHER}"}}"#);
        let context = of(&headers, &of_params).unwrap();
        assert_eq!(
            (context.user.as_deref(), context.run.as_deref()),
            (Some("u2"), Some("r1"))
        );
        assert_eq!(
            (context.step.as_deref(), context.session.as_deref()),
            (Some("3"), None)
        );
        assert_eq!(context.trace, TraceParent::parse(OTHER));
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

    // issue 10, security 11: whose value it is must not depend on the order of headers
    #[test]
    fn a_header_with_two_values_is_refused() {
        let mut twice = HeaderMap::new();
        twice.append("x-gantry-user-id", "alice".parse().unwrap());
        twice.append("x-gantry-user-id", "alice".parse().unwrap());
        let context = read(&twice, None).unwrap();
        assert_eq!(context.user.as_deref(), Some("alice"));
        twice.append("x-gantry-user-id", "bob".parse().unwrap());
        let refused = read(&twice, None).map_err(|problem| problem.code());
        assert_eq!(refused, Err("request.context"));
    }

    // row 3.5
    #[test]
    fn the_trace_of_meta_wins_with_its_state_and_a_malformed_one_is_none() {
        let (parent, state) = (meta::TRACE_PARENT, meta::TRACE_STATE);
        let headers = [(parent, PARENT), (state, "a=1")];
        let found = |meta: &str| {
            let context = of(&headers, meta).unwrap();
            (context.trace, context.trace_state)
        };
        let of_headers = (TraceParent::parse(PARENT), Some("a=1".into()));
        assert_eq!(found("{}"), of_headers);
        assert_eq!(
            found(r#"{"traceparent":"x","tracestate":"b=2"}"#),
            of_headers
        );
        let of_meta = format!(r#"{{"traceparent":"{OTHER}","tracestate":"b=2"}}"#);
        let place = TraceParent::parse(OTHER);
        assert_eq!(found(&of_meta), (place, Some("b=2".into())));
        let no_state = format!(r#"{{"traceparent":"{OTHER}"}}"#);
        assert_eq!(
            found(&no_state),
            (place, None),
            "never that of another trace"
        );
        let none = of(&[(parent, "00-xyz"), (state, "a=1")], "{}").unwrap();
        assert_eq!((none.trace, none.trace_state), (None, None));
        let mut twice = HeaderMap::new();
        twice.append(parent, PARENT.parse().unwrap());
        twice.append(parent, OTHER.parse().unwrap());
        assert_eq!(read(&twice, None).unwrap().trace, None);
    }
}
