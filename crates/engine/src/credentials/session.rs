//! The state of a server's sign-in while the gateway runs: what every request reads, and what is used
//! by one exchange with the authorization server at a time. Sends nothing. Entry points:
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

/// How many scopes that a server misses are noted, and how long each may be.
const MOST_MISSING: usize = 64;
const LONGEST_SCOPE: usize = 256;

/// What is known of the sign-in.
#[derive(Default)]
pub(super) struct SignInSession {
    pub(super) token: Option<Token>,
    pub(super) issuer: Option<String>,
    pub(super) granted: Vec<String>,
    /// What the server wanted beyond that.
    pub(super) missing: Vec<String>,
    /// What the server said when it last refused us.
    pub(super) challenge: Option<String>,
    pub(super) pending: Vec<PendingSignIn>,
    pub(super) signed_in_ms: Option<u64>,
    /// How often somebody has signed in.
    pub(super) sign_ins: u64,
    /// Why the last sign-in or renewal came to nothing.
    pub(super) failure: Option<String>,
}

/// What only one talk at a time uses.
#[derive(Default)]
pub(super) struct AuthorityDialog {
    pub(super) kept: Option<StoredTokens>,
    /// What the next sign-in is made with, if it still fits.
    pub(super) client: Option<Registration>,
    /// Which authorization server the configured client is shown to.
    pub(super) binding: Binding,
    /// Found once, and again after a refusal: a server may have moved to another.
    pub(super) authority: Option<Authority>,
}

impl SignInSession {
    /// Takes up tokens and returns what to send.
    pub(super) fn take(&mut self, stored: &StoredCredentials) -> Option<HeaderValue> {
        self.token = Token::of(stored);
        self.issuer.clone_from(&stored.issuer);
        self.granted.clone_from(&stored.granted_scopes);
        self.failure = None;
        Some(self.token.as_ref()?.header.clone())
    }

    /// Returns what is to be asked for beside what is needed at first: who asks for more asks for
    /// what there was, too, since tokens replace each other.
    pub(super) fn more(&self) -> Vec<String> {
        let mut more = self.missing.clone();
        if !more.is_empty() {
            more.extend(self.granted.iter().cloned());
        }
        more
    }

    /// Notes what the server wants beyond what was granted; false if that was known.
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
    /// Takes up what was kept. What cannot be read keeps nothing else from being taken up.
    pub(super) async fn read(
        &mut self,
        target: &Target,
        drawer: &VaultScope,
    ) -> Result<(), SignInError> {
        let bound = self.bound(target, drawer).await.map(drop);
        if target.auth.kind == AuthKind::Auto {
            self.kept = drawer.get(TOKENS).await?;
            self.client = drawer.get(CLIENT).await?;
        }
        bound
    }

    /// Returns which authorization server the configured client is bound to, if it is; an error if
    /// nobody can tell, since a client that was bound must not seem to be free.
    pub(super) async fn bound(
        &mut self,
        target: &Target,
        drawer: &VaultScope,
    ) -> Result<Option<&BoundIssuer>, SignInError> {
        // Nobody is held to it, so that what is sealed with a lost key is in nobody's way.
        if target.auth.client_id.is_none() || target.auth.issuer.is_some() {
            return Ok(None);
        }
        if matches!(self.binding, Binding::Unread) {
            let mut bound = drawer.get(ISSUER).await?;
            if bound.is_none() && target.auth.kind == AuthKind::Auto {
                let kept: Option<StoredTokens> = drawer.get(TOKENS).await?;
                bound = kept.and_then(|kept| BoundIssuer::of_tokens(target, &kept));
            }
            self.binding = bound.map_or(Binding::Free, Binding::To);
        }
        Ok(match &self.binding {
            Binding::To(bound) => Some(bound),
            Binding::Free | Binding::Unread => None,
        })
    }

    /// Returns everything secret of it.
    pub(super) fn secrets(&self) -> Vec<SecretText> {
        let kept = self.kept.as_ref();
        let clients = self.client.iter().chain(kept.map(|kept| &kept.client));
        token_store::secrets(kept.map(|kept| &kept.stored), clients)
    }
}
