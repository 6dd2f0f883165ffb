//! Content negotiation: Content-Type, Content-Encoding, Accept.
//!
//! Only JSON is accepted, so that no plain HTML form can reach a tool; responses are JSON or an
//! event stream. Entry points: `json_only` and `Accepts::of`.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};

use super::error::Problem;

/// Refuses a body that is not plain JSON (415).
pub(crate) fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let is_json = match (types.next(), types.next()) {
        (Some(value), None) => is_json(value.as_bytes()),
        _ => false,
    };
    if !is_json {
        return Err(Problem::new("http.content_type")
            .with_detail("the body must be sent as `Content-Type: application/json`"));
    }
    let encoded = headers.get_all(CONTENT_ENCODING).iter();
    if encoded
        .into_iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(
            Problem::new("http.content_encoding").with_detail("compressed bodies are not accepted")
        );
    }
    Ok(())
}

fn is_json(value: &[u8]) -> bool {
    if value == b"application/json" {
        return true;
    }
    let kind = value
        .split(|b| *b == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    kind.eq_ignore_ascii_case(b"application/json")
}

/// The response formats that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// One JSON document.
    pub(crate) json: bool,
    /// A stream of events.
    pub(crate) events: bool,
}

impl Accepts {
    /// Parses the Accept headers; none means everything.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return Self {
                json: true,
                events: true,
            };
        }
        let mut accepts = Self {
            json: false,
            events: false,
        };
        for value in values {
            if value.as_bytes() == b"application/json, text/event-stream" {
                return Self {
                    json: true,
                    events: true,
                };
            }
            for range in value.as_bytes().split(|b| *b == b',') {
                accepts.add(range);
            }
        }
        accepts
    }

    fn add(&mut self, range: &[u8]) {
        let mut parts = range.split(|b| *b == b';').map(|part| part.trim_ascii());
        let kind = parts.next().unwrap_or_default();
        if parts.any(is_refusal) {
            return;
        }
        if kind == b"*/*" {
            *self = Self {
                json: true,
                events: true,
            };
        } else if [&b"application/json"[..], b"application/*"]
            .iter()
            .any(|k| kind.eq_ignore_ascii_case(k))
        {
            self.json = true;
        } else if [&b"text/event-stream"[..], b"text/*"]
            .iter()
            .any(|k| kind.eq_ignore_ascii_case(k))
        {
            self.events = true;
        }
    }

    /// Refuses a client that accepts neither format (406).
    pub(crate) fn any(self) -> Result<Self, Problem> {
        if self.json || self.events {
            return Ok(self);
        }
        Err(Problem::new("http.accept").with_detail(
            "answers are `application/json` or `text/event-stream`; Accept allows neither",
        ))
    }
}

/// Returns whether a parameter is a quality of zero: `q=0`, `q=0.000`.
fn is_refusal(parameter: &[u8]) -> bool {
    match parameter {
        [b'q' | b'Q', b'=', b'0', rest @ ..] => rest.iter().all(|b| matches!(b, b'.' | b'0')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn headers(name: http::HeaderName, values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(name.clone(), value.parse().unwrap());
        }
        map
    }

    // fault U9, fault A7
    #[test]
    fn only_json_comes_in() {
        for good in ["application/json", "Application/JSON; charset=utf-8"] {
            assert!(json_only(&headers(CONTENT_TYPE, &[good])).is_ok(), "{good}");
        }
        for bad in ["text/plain", "application/jsonx", "", "multipart/form-data"] {
            let problem = json_only(&headers(CONTENT_TYPE, &[bad])).unwrap_err();
            assert_eq!(
                problem.status(),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{bad}"
            );
        }
        assert!(json_only(&HeaderMap::new()).is_err());
        assert!(json_only(&headers(CONTENT_TYPE, &["application/json", "text/plain"])).is_err());
    }

    // fault A3
    #[test]
    fn compressed_bodies_are_refused() {
        let mut map = headers(CONTENT_TYPE, &["application/json"]);
        map.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        assert!(json_only(&map).is_err());
    }

    // fault A7
    #[test]
    fn accept_is_read_with_its_qualities() {
        let of = |values: &[&str]| {
            let accepts = Accepts::of(&headers(ACCEPT, values));
            (accepts.json, accepts.events)
        };
        assert_eq!(
            Accepts::of(&HeaderMap::new()),
            Accepts {
                json: true,
                events: true
            }
        );
        assert_eq!(of(&["application/json, text/event-stream"]), (true, true));
        assert_eq!(of(&["text/event-stream"]), (false, true));
        assert_eq!(of(&["application/json"]), (true, false));
        assert_eq!(of(&["text/html, */*;q=0.1"]), (true, true));
        assert_eq!(
            of(&["application/*;q=0, text/event-stream;q=0.5"]),
            (false, true)
        );
        assert_eq!(of(&["application/json", "text/event-stream"]), (true, true));
        assert!(Accepts::of(&headers(ACCEPT, &["text/html"])).any().is_err());
    }
}
