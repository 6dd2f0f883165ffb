//! Why an exchange with a gateway failed, in words that help: what libraries call it does not.
//!
//! The system's own words for its errors are kept. Entry point: [`words`].

use std::error::Error;
use std::io;

use http_body_util::LengthLimitError;

/// What a gateway means that answers 503 and nothing else.
pub(super) const NO_ROOM: &str = "the gateway has no room for another connection";
/// Nobody took the connection for as long as that may take.
pub(super) const NO_CONNECTION: &str = "no connection came about in time";
/// Nothing came for as long as an answer may take.
pub(super) const NO_ANSWER: &str = "no answer came in time";

/// Returns why an exchange failed.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    let mut link = Some(error);
    let mut found = None;
    while let Some(cause) = link {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.to_string();
        }
        if cause.is::<LengthLimitError>() {
            return "the answer is too long".to_owned();
        }
        if let Some(http) = cause.downcast_ref::<hyper::Error>() {
            found = found.or_else(|| Some(of_http(http)));
        }
        link = cause.source();
    }
    found.map_or_else(|| error.to_string(), str::to_owned)
}

fn of_http(error: &hyper::Error) -> &'static str {
    if error.is_parse() || error.is_parse_too_large() {
        "what answers there does not speak HTTP/1.1"
    } else if error.is_timeout() {
        NO_ANSWER
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        "the connection was closed before the answer was complete"
    } else if error.is_body_write_aborted() || error.is_user() {
        "the request could not be sent as a whole"
    } else {
        "the connection failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_kept_and_lengths_are_told() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(words(&refused), "Connection refused (os error 111)");
        assert_eq!(
            words(&io::Error::other(refused)),
            "Connection refused (os error 111)"
        );
        assert_eq!(words(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
