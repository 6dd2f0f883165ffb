//! The claims of a token whose signature was verified: audience, times, and texts by name.

use serde_json::{Map, Value};

use super::TokenError;

/// How much the issuer's clock may be ahead.
const SKEW_MS: u64 = 30_000;

/// The claims of a token.
pub(super) struct Claims(Map<String, Value>);

impl Claims {
    /// Reads the payload of a token.
    pub(super) fn read(payload: &[u8]) -> Result<Self, TokenError> {
        match serde_json::from_slice(payload) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            _ => Err(TokenError::Malformed {
                why: "its claims are not a JSON object",
            }),
        }
    }

    /// Checks audience and times; returns when it expires, in milliseconds since 1970.
    pub(super) fn check(&self, audience: &str, now_ms: u64) -> Result<u64, TokenError> {
        let is_for_us = match self.0.get("aud") {
            Some(Value::String(one)) => one == audience,
            Some(Value::Array(several)) => several.iter().any(|one| one == audience),
            _ => false,
        };
        if !is_for_us {
            return Err(TokenError::Audience);
        }
        // A token without an expiry is refused.
        let expires_ms = self.time("exp").ok_or(TokenError::Expired)?;
        if now_ms >= expires_ms {
            return Err(TokenError::Expired);
        }
        let is_early = |name: &str| match self.0.contains_key(name) {
            true => self.time(name).is_none_or(|at_ms| now_ms + SKEW_MS < at_ms),
            false => false,
        };
        match is_early("nbf") || is_early("iat") {
            true => Err(TokenError::NotYet),
            false => Ok(expires_ms),
        }
    }

    /// Returns a claim that is a text of reasonable length.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?.as_str()?;
        let fits = !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control);
        fits.then_some(text)
    }

    /// Returns a time in milliseconds; it may be written with a fraction.
    fn time(&self, name: &str) -> Option<u64> {
        let value = self.0.get(name)?;
        let seconds = value.as_u64().or_else(|| {
            let seconds = value.as_f64()?;
            let fits = seconds.is_finite() && (0.0..1e12).contains(&seconds);
            fits.then_some(seconds as u64)
        })?;
        seconds.checked_mul(1000)
    }
}
