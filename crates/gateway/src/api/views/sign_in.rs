//! The view of a sign-in to a remote server; of tokens only their expiry.

use gantry_engine::{SignInLink, SignInView};
use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339;

/// A pending sign-in link.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Link {
    /// The page of the authorization server.
    link: String,
    /// Until when it is valid.
    until: String,
    until_ms: u64,
}

impl Link {
    /// Shows a link.
    pub(in crate::api) fn of(link: SignInLink) -> Self {
        Self {
            link: link.link,
            until: rfc3339(link.until_ms),
            until_ms: link.until_ms,
        }
    }
}

/// The sign-in status of a server.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct SignInStatus {
    /// `not_taken`, `signed_out`, `waiting` for a user at `link`, or `signed_in`.
    state: &'static str,
    /// The pending link.
    link: Option<Link>,
    /// Who gave the tokens.
    issuer: Option<String>,
    /// What was granted.
    scopes: Vec<String>,
    /// Scopes the server requested beyond those; the next sign-in asks for them.
    missing_scopes: Vec<String>,
    /// When a user last signed in since the gateway started.
    signed_in_ms: Option<u64>,
    /// When the token expires.
    token_ends: Option<String>,
    /// Whether it is renewed automatically.
    renewable: bool,
    /// Why the last sign-in or renewal failed.
    failure: Option<String>,
}

impl SignInStatus {
    /// Shows everything but tokens.
    pub(in crate::api) fn of(view: SignInView) -> Self {
        Self {
            state: view.state.as_str(),
            link: view.link.map(Link::of),
            issuer: view.issuer,
            scopes: view.scopes,
            missing_scopes: view.missing_scopes,
            signed_in_ms: view.signed_in_ms,
            token_ends: view.token_ends_ms.map(rfc3339),
            renewable: view.renewable,
            failure: view.failure,
        }
    }
}
