//! The state of a server's sign-in while the gateway runs: the current token, which every request
//! reads, and the exchange with the authorization server, one at a time. Sends nothing. Entry points:
//! [`SignInSession`] and [`AuthorityDialog`].

use gantry_model::secret::SecretText;
use gantry_model::spec::AuthKind;
use reqwest::header::HeaderValue;
use rmcp::transport::StoredCredentials;

use super::authority::Authority;
use super::error::SignInError;
use super::issuer::{Binding, BoundIssuer};
use super::sign_in::PendingSignIn;
use super::token_store::{self, Registration, StoredTokens, Token};
use super::{CLIENT, ISSUER, TOKENS, Target, VaultScope};

/// How many missing scopes are remembered per server, and how long each may be.
const MOST_MISSING: usize = 64;
const LONGEST_SCOPE: usize = 256;

/// The state that every request reads.
#[derive(Default)]
pub(super) struct SignInSession {
    pub(super) token: Option<Token>,
    pub(super) issuer: Option<String>,
    pub(super) granted: Vec<String>,
    /// Scopes that the server required beyond those granted.
    pub(super) missing: Vec<String>,
    /// The challenge of the server's last refusal.
    pub(super) challenge: Option<String>,
    pub(super) pending: Vec<PendingSignIn>,
    pub(super) signed_in_ms: Option<u64>,
    /// How many sign-ins were completed.
    pub(super) sign_ins: u64,
    /// Why the last sign-in or refresh failed.
    pub(super) failure: Option<String>,
}

/// The state that one exchange at a time uses.
#[derive(Default)]
pub(super) struct AuthorityDialog {
    pub(super) kept: Option<StoredTokens>,
    /// The client of the next sign-in, if it still suits.
    pub(super) client: Option<Registration>,
    /// The authorization server that the configured client is bound to.
    pub(super) binding: Binding,
    /// Found once, and again after a refusal: a server may have moved to another one.
    pub(super) authority: Option<Authority>,
}

impl SignInSession {
    /// Stores tokens in memory and returns the header to send.
    pub(super) fn take(&mut self, stored: &StoredCredentials) -> Option<HeaderValue> {
        self.token = Token::of(stored);
        self.issuer.clone_from(&stored.issuer);
        self.granted.clone_from(&stored.granted_scopes);
        self.failure = None;
        Some(self.token.as_ref()?.header.clone())
    }

    /// Returns the scopes to request besides the initial ones: those granted before, since the new
    /// token replaces the old one, and those found missing.
    pub(super) fn more(&self) -> Vec<String> {
        let mut more = self.missing.clone();
        if !more.is_empty() {
            more.extend(self.granted.iter().cloned());
        }
        more
    }

    /// Remembers a missing scope; returns false if it was already known.
    pub(super) fn misses(&mut self, scope: &str) -> bool {
        let before = self.missing.len();
        let words = scope.split_whitespace();
        for word in words.filter(|word| word.len() <= LONGEST_SCOPE) {
            let is_known = self.missing.iter().any(|known| known == word);
            if !is_known && self.missing.len() < MOST_MISSING {
                self.missing.push(word.to_owned());
            }
        }
        self.missing.len() > before
    }
}

impl AuthorityDialog {
    /// Reads the stored state. A value that cannot be read does not prevent reading the others.
    pub(super) async fn read(
        &mut self,
        target: &Target,
        vault: &VaultScope,
    ) -> Result<(), SignInError> {
        let bound = self.bound(target, vault).await.map(drop);
        if target.auth.kind == AuthKind::Auto {
            self.kept = vault.get(TOKENS).await?;
            self.client = vault.get(CLIENT).await?;
        }
        bound
    }

    /// Returns the authorization server that the configured client is bound to, if any; an error if
    /// that cannot be read, since a bound client must not be treated as unbound.
    pub(super) async fn bound(
        &mut self,
        target: &Target,
        vault: &VaultScope,
    ) -> Result<Option<&BoundIssuer>, SignInError> {
        // The binding is not used here, so a value encrypted with a lost key does no harm.
        if target.auth.client_id.is_none() || target.auth.issuer.is_some() {
            return Ok(None);
        }
        if matches!(self.binding, Binding::Unread) {
            let mut bound = vault.get(ISSUER).await?;
            if bound.is_none() && target.auth.kind == AuthKind::Auto {
                let kept: Option<StoredTokens> = vault.get(TOKENS).await?;
                bound = kept.and_then(|kept| BoundIssuer::of_tokens(target, &kept));
            }
            self.binding = bound.map_or(Binding::Free, Binding::To);
        }
        Ok(match &self.binding {
            Binding::To(bound) => Some(bound),
            Binding::Free | Binding::Unread => None,
        })
    }

    /// Returns all secrets of the sign-in.
    pub(super) fn secrets(&self) -> Vec<SecretText> {
        let kept = self.kept.as_ref();
        let clients = self.client.iter().chain(kept.map(|kept| &kept.client));
        token_store::secrets(kept.map(|kept| &kept.stored), clients)
    }
}
