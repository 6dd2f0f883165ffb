//! The OAuth metadata for clients (RFC 9728): the resource that tokens are for, and the
//! authorization servers that issue them.
//!
//! Taken from the configuration, never from a request's headers. Entry point:
//! [`ProtectedResource::of`].

use gantry_engine::Engine;
use serde_json::{Value, json};

/// The well-known path of the metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The gateway as a resource that tokens are issued for.
#[derive(Debug, Clone)]
pub(crate) struct ProtectedResource {
    /// The audience of tokens, by convention the URL of the MCP endpoint.
    audience: String,
    issuers: Vec<String>,
}

impl ProtectedResource {
    /// Reads it from the configuration; `None` if no tokens are accepted.
    pub(crate) fn of(engine: &Engine) -> Option<Self> {
        let audience = engine.token_audience()?;
        let issuers = engine.issuers();
        Some(Self { audience, issuers })
    }

    /// Returns the URL of the metadata; a path alone if the audience is not a URL.
    pub(crate) fn metadata_url(&self) -> String {
        match url::Url::parse(&self.audience) {
            Ok(url) if url.has_host() => {
                let path = url.path().trim_end_matches('/');
                format!("{}{WELL_KNOWN}{path}", url.origin().ascii_serialization())
            }
            Ok(_) | Err(_) => WELL_KNOWN.to_owned(),
        }
    }

    /// Returns the metadata.
    pub(crate) fn metadata(&self) -> Value {
        json!({
            "resource": self.audience,
            "resource_name": "Gantry",
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
        })
    }
}
