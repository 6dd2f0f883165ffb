//! The sign-in to a remote server: part of its spec. Tokens are stored by the engine and never in a
//! spec. Entry point: [`RemoteAuth::check`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::url::check_url;
use crate::secret::REDACTED;

/// The sign-in to a remote server.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteAuth {
    /// The kind of sign-in.
    pub kind: AuthKind,
    /// The client that was manually registered with the authorization server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The authorization server of the client; the client is used with no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The URL of this gateway's client metadata document, for authorization servers that accept it
    /// as a client id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_metadata_url: Option<String>,
    /// The scopes to request; those that the server names, if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// The kind of sign-in to a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// By a person, once, if the server requires it.
    #[default]
    Auto,
    /// None: refusals by the server are final.
    None,
    /// By the gateway itself, with a client id and a secret.
    ClientCredentials,
}

/// An invalid `auth` of a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`auth.{field}` {why}")]
pub struct AuthFieldError {
    /// The member.
    pub field: &'static str,
    /// The error.
    pub why: &'static str,
}

impl RemoteAuth {
    /// Returns whether all members have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the rules that types cannot express.
    pub fn check(&self) -> Result<(), AuthFieldError> {
        let wrong = |field, why| Err(AuthFieldError { field, why });
        if self.kind == AuthKind::ClientCredentials {
            if self.client_id.is_none() {
                return wrong("client_id", "is needed for client credentials");
            }
            if self.client_secret.is_none() {
                return wrong("client_secret", "is needed for client credentials");
            }
        }
        if self.client_secret.is_some() && self.client_id.is_none() {
            return wrong("client_secret", "is of no use without `client_id`");
        }
        for (field, value) in [
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
        ] {
            if value.as_deref().is_some_and(|value| !visible(value)) {
                return wrong(field, "must be visible ASCII without blanks");
            }
        }
        if self.issuer.as_deref().is_some_and(|url| !is_issuer(url)) {
            let why = "must be an `https` URL without a query; `http` only on this machine";
            return wrong("issuer", why);
        }
        if let Some(url) = &self.client_metadata_url {
            let rest = url.strip_prefix("https://").unwrap_or_default();
            let path = rest.split_once('/').map(|(_, path)| path);
            if !visible(url) || path.is_none_or(str::is_empty) {
                return wrong("client_metadata_url", "must be an `https` URL with a path");
            }
        }
        if self.scopes.iter().any(|scope| !visible(scope)) {
            return wrong("scopes", "must be words of visible ASCII");
        }
        Ok(())
    }
}

fn visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether a text can name an authorization server (RFC 8414, section 2).
fn is_issuer(url: &str) -> bool {
    if !visible(url) || url.contains(['?', '#']) || check_url(url).is_err() {
        return false;
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or_default();
    scheme == "https" || scheme == "http" && is_loopback(authority)
}

/// Returns whether the host of an authority is this machine.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    // Unusual spellings of addresses are refused earlier.
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_local = host.strip_prefix("127.").is_some_and(is_number);
    host.eq_ignore_ascii_case("localhost") || host == "::1" || is_local
}

impl fmt::Debug for RemoteAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAuth")
            .field("kind", &self.kind)
            .field("client_id", &self.client_id)
            .field(
                "client_secret",
                &self.client_secret.as_ref().map(|_| REDACTED),
            )
            .field("issuer", &self.issuer)
            .field("client_metadata_url", &self.client_metadata_url)
            .field("scopes", &self.scopes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(json: serde_json::Value) -> RemoteAuth {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_cannot_work_is_refused_by_field() {
        let field = |json| auth(json).check().unwrap_err().field;
        let kind = "client_credentials";
        assert_eq!(field(serde_json::json!({ "kind": kind })), "client_id");
        let no_secret = serde_json::json!({"kind": kind, "client_id": "a"});
        assert_eq!(field(no_secret), "client_secret");
        let alone = serde_json::json!({"client_secret": "s"});
        assert_eq!(field(alone), "client_secret");
        for url in ["http://a/b", "https://a", "https://a/", "https://a/b c"] {
            let document = serde_json::json!({ "client_metadata_url": url });
            assert_eq!(field(document), "client_metadata_url", "{url}");
        }
        assert_eq!(field(serde_json::json!({"scopes": ["a b"]})), "scopes");
        for url in [
            "http://login.example",
            "http://127.login.example",
            "http://127.1",
            "https://a/b?c",
            "https://a/#b",
            "https://me@a",
            "ftp://a",
            "a",
        ] {
            let issuer = serde_json::json!({ "issuer": url });
            assert_eq!(field(issuer), "issuer", "{url}");
        }
        for url in [
            "https://login.example/tenant",
            "http://127.0.0.1:9/a",
            "http://[::1]:9",
        ] {
            let issuer = serde_json::json!({ "issuer": url });
            assert!(auth(issuer).check().is_ok(), "{url}");
        }
        assert!(RemoteAuth::default().check().is_ok());
        let whole = serde_json::json!({"kind": kind, "client_id": "a", "client_secret": "s",
            "issuer": "https://a", "client_metadata_url": "https://a/b.json", "scopes": ["x"]});
        assert!(auth(whole).check().is_ok());
    }

    #[test]
    fn the_secret_is_not_seen() {
        let shown = format!(
            "{:?}",
            auth(serde_json::json!({"client_id": "a", "client_secret": "hunter22"}))
        );
        assert!(!shown.contains("hunter22"), "{shown}");
        assert!(RemoteAuth::default().is_default());
    }
}
