//! How long a remote server asked not to be called: `Retry-After` of a 429 or a 503. Kept per server,
//! over all of its connections, so that a call within that time is refused without asking the server.
//! Measured on the monotonic clock; over by itself. fault H9

use std::time::{Duration, SystemTime};

use gantry_model::grant::{MethodClass, class_of};
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use super::error::HttpError;

/// The longest `Retry-After` that is honoured. fault H9
const LONGEST: Duration = Duration::from_secs(60);

/// Until when a server wants no calls (`Retry-After`).
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Mutex<Option<Limited>>);

#[derive(Debug, Clone)]
struct Limited {
    until: Instant,
    status: u16,
    origin: String,
}

impl RateLimit {
    /// Notes the `Retry-After` of a response; of several the longest counts.
    pub(super) fn note(&self, origin: &str, status: StatusCode, headers: &HeaderMap) {
        let asks = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let wait = asks.then(|| retry_after(headers)).flatten();
        let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
            return;
        };
        let until = Instant::now() + wait;
        let mut limited = self.0.lock();
        if limited.as_ref().is_none_or(|known| known.until < until) {
            *limited = Some(Limited {
                until,
                status: status.as_u16(),
                origin: origin.to_owned(),
            });
        }
    }

    /// Returns the remaining delay.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.current().map(|(left, _)| left)
    }

    /// Returns the error for a call that must not be sent now.
    pub(crate) fn refusal(&self) -> Option<HttpError> {
        self.current().map(|(left, limited)| HttpError::Limited {
            origin: limited.origin,
            status: limited.status,
            retry_after: left,
        })
    }

    /// Returns the error for a request with this method; requests that keep the connection up are
    /// let through.
    pub(crate) fn refusal_of(&self, method: &str) -> Option<HttpError> {
        match is_call(method) {
            true => self.refusal(),
            false => None,
        }
    }

    /// Clears it: a person wants the server tried now.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    fn current(&self) -> Option<(Duration, Limited)> {
        let mut kept = self.0.lock();
        let limited = kept.clone()?;
        let left = limited.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *kept = None;
            return None;
        }
        Some((left, limited))
    }
}

/// Returns whether a request is made for a caller, not by the gateway to connect, check health or
/// list.
fn is_call(method: &str) -> bool {
    match class_of(method) {
        MethodClass::Tool | MethodClass::Resource | MethodClass::Prompt => {
            !method.ends_with("/list")
        }
        MethodClass::Completion | MethodClass::Task => true,
        MethodClass::Lifecycle | MethodClass::Logging | MethodClass::Subscription => false,
        // Our response to a request of the server has no method.
        MethodClass::Unknown => !method.is_empty(),
    }
}

/// Parses `Retry-After`, seconds or a date, at most a minute.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit asks for more than is honoured anyway.
        let seconds = asked.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(LONGEST));
    }
    let at = httpdate::parse_http_date(asked).ok()?;
    // Relative to the server's `Date`, if sent: our clock may differ.
    let now = text(DATE).and_then(|now| httpdate::parse_http_date(now).ok());
    let wait = at.duration_since(now.unwrap_or_else(SystemTime::now));
    Some(wait.unwrap_or_default().min(LONGEST))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn headers(pairs: &[(reqwest::header::HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        pairs
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn seconds_and_dates_are_understood_and_capped() {
        // fault H9
        let asked = |value| retry_after(&headers(&[(RETRY_AFTER, value)]));
        assert_eq!(asked("5"), Some(5 * SECOND));
        assert_eq!(asked(" 7 "), Some(7 * SECOND));
        assert_eq!(asked("0"), Some(Duration::ZERO));
        assert_eq!(asked("86400"), Some(60 * SECOND));
        assert_eq!(asked("99999999999999999999999"), Some(60 * SECOND));
        for nonsense in ["", "soon", "-1", "1.5", "5s"] {
            assert_eq!(asked(nonsense), None, "{nonsense}");
        }
        assert_eq!(asked("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        assert_eq!(
            asked("Fri, 31 Dec 9999 23:59:59 GMT"),
            Some(60 * SECOND),
            "capped"
        );
        let dated = headers(&[
            (DATE, "Fri, 31 Dec 1999 23:59:30 GMT"),
            (RETRY_AFTER, "Fri, 31 Dec 1999 23:59:50 GMT"),
        ]);
        assert_eq!(retry_after(&dated), Some(20 * SECOND));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_counts_and_is_over_by_itself() {
        // fault H9
        let limit = RateLimit::default();
        let note = |status: u16, wait| {
            let status = StatusCode::from_u16(status).unwrap();
            limit.note("http://a", status, &headers(&[(RETRY_AFTER, wait)]));
        };
        note(500, "5");
        note(429, "0");
        assert_eq!(limit.remaining(), None);
        note(503, "10");
        note(429, "3");
        assert_eq!(limit.remaining(), Some(10 * SECOND));
        for kept in [
            "ping",
            "initialize",
            "tools/list",
            "notifications/cancelled",
            "",
        ] {
            assert!(limit.refusal_of(kept).is_none(), "{kept}");
        }
        for refused in ["tools/call", "resources/read", "prompts/get", "tasks/list"] {
            assert!(limit.refusal_of(refused).is_some(), "{refused}");
        }
        let refused = limit.refusal_of("tools/call");
        assert!(
            matches!(refused, Some(HttpError::Limited { status: 503, .. })),
            "{refused:?}"
        );
        tokio::time::advance(9 * SECOND).await;
        assert_eq!(limit.remaining(), Some(SECOND));
        tokio::time::advance(SECOND).await;
        assert_eq!(limit.remaining(), None);
        note(429, "9");
        limit.forget();
        assert_eq!(limit.remaining(), None);
    }
}
