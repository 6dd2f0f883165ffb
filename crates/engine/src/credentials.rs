//! Credentials for remote servers: the access token of a sign-in, refreshed before it expires,
//! stored encrypted, and sent only to its own server. A configured `Authorization` header takes
//! precedence. Never shows or logs a token. Entry points: [`Credentials::bearer`] for every
//! request, [`Credentials::refused`] after a refusal by the server; signing in is in `sign_in`.

mod authority;
mod error;
mod http;
mod issuer;
mod session;
mod sign_in;
mod token_store;
mod vault;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::spec::AuthKind;
use parking_lot::{Mutex, MutexGuard};
use reqwest::header::HeaderValue;
use rmcp::transport::WWWAuthenticateParams;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub(crate) use self::authority::Target;
pub use self::error::SignInError;
pub use self::sign_in::{SignInAnswer, SignInLink, SignInState, SignInTrust, SignInView};
pub(crate) use self::token_store::Intermediary;
pub use self::vault::key::{MasterKey, VaultError};
pub use self::vault::rekey::Rekeyed;
pub(crate) use self::vault::rekey::{forget_all, rekey};
pub(crate) use self::vault::{Vault, VaultScope};

use self::authority::{Authority, Renewal, is_forgotten};
use self::issuer::{Binding, BoundIssuer};
use self::session::{AuthorityDialog, SignInSession};
use self::token_store::{Registration, StoredTokens, Token};

/// How long a caller waits for a token refresh, a token exchange or the start of a sign-in. The
/// work continues in the background after that.
const EXCHANGE_WAIT: Duration = Duration::from_secs(30);
/// Time limit of one step of that work, counted from the start of the step.
const STEP: Duration = Duration::from_secs(60);

/// The names of the stored values.
const TOKENS: &str = "oauth.tokens";
const CLIENT: &str = "oauth.client";
const ISSUER: &str = "oauth.issuer";

/// What to do with a request that the server refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Send it once more with the current token.
    Now,
    /// Do not retry: another token would not help.
    No,
}

/// The credentials of one remote server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Credentials {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    vault: VaultScope,
    tracker: TaskTracker,
    /// Read by every request; never held across an `await`.
    held: Mutex<SignInSession>,
    /// Allows one exchange with the authorization server at a time.
    turn: AsyncMutex<AuthorityDialog>,
}

/// Why a token is requested.
#[derive(Clone, Copy)]
enum TokenDemand<'a> {
    /// The current token expires soon.
    Ending,
    /// The server refused the current token, with this challenge.
    Refused(Option<&'a str>),
}

impl TokenDemand<'_> {
    fn challenge(&self) -> Option<&str> {
        match self {
            Self::Ending => None,
            Self::Refused(challenge) => *challenge,
        }
    }
}

impl Credentials {
    /// Loads the tokens of the last sign-in, unless the server's URL, or the way to it, has
    /// changed since.
    pub(crate) async fn open(target: Target, vault: VaultScope, tracker: TaskTracker) -> Self {
        let mut dialog = AuthorityDialog::default();
        let mut held = SignInSession::default();
        if let Err(error) = dialog.read(&target, &vault).await {
            warn!(server = %target.server, %error, "stored tokens cannot be loaded");
            held.failure = Some(error.to_string());
        }
        if let (Some(kept), Some(id)) = (&mut dialog.kept, &target.auth.client_id)
            && kept.client.client_id == *id
        {
            // The configured secret may have changed since.
            let secret = &target.auth.client_secret;
            kept.client.client_secret.clone_from(secret);
        }
        if dialog
            .kept
            .as_ref()
            .is_some_and(|kept| !kept.is_of(&target))
        {
            info!(server = %target.server, "the server's URL or the way to it has changed: its tokens are deleted");
            forget(&vault, TOKENS).await;
            dialog.kept = None;
        }
        target.known.learn(dialog.secrets());
        if let Some(kept) = &dialog.kept {
            held.take(&kept.stored);
        }
        Self {
            inner: Arc::new(Inner {
                target,
                vault,
                tracker,
                held: Mutex::new(held),
                turn: AsyncMutex::new(dialog),
            }),
        }
    }

    /// Returns the value of `Authorization` for the next request, refreshed if it expires within a
    /// minute; `None` if there is no token. If the refresh fails, a token that is still valid is
    /// used.
    pub(crate) async fn bearer(&self) -> Result<Option<HeaderValue>, SignInError> {
        let kind = self.inner.target.auth.kind;
        if kind == AuthKind::None {
            return Ok(None);
        }
        match &self.inner.held().token {
            Some(token) if token.is_fresh() => return Ok(Some(token.header.clone())),
            None if kind == AuthKind::Auto => return Ok(None),
            Some(_) | None => {}
        }
        let inner = Arc::clone(&self.inner);
        let renewing = self.run_exchange(async move {
            let mut dialog = inner.turn().await?;
            inner.renewed(&mut dialog, TokenDemand::Ending).await
        });
        let error = match renewing.await {
            Err(error) if !error.needs_person() => error,
            renewed => return renewed,
        };
        let current = self.inner.held().token.clone();
        let Some(token) = current.filter(Token::is_valid) else {
            return Err(error);
        };
        let server = &self.inner.target.server;
        warn!(%server, %error, "the token could not be refreshed yet");
        Ok(Some(token.header))
    }

    /// Handles a refusal of a request that was sent with `used`: tries once to get a new token
    /// after 401, or one for more scopes after 403.
    pub(crate) async fn refused(
        &self,
        used: Option<&HeaderValue>,
        status: u16,
        challenge: Option<&str>,
    ) -> Result<Retry, SignInError> {
        let inner = &self.inner;
        let kind = inner.target.auth.kind;
        let said = challenge.map(|text| WWWAuthenticateParams::parse(text, &inner.target.url));
        let wants_scope = said
            .as_ref()
            .is_some_and(|said| said.is_insufficient_scope());
        if kind == AuthKind::None || (status != 401 && !wants_scope) {
            return Ok(Retry::No);
        }
        let token = {
            let mut held = inner.held();
            held.challenge = challenge.map(str::to_owned);
            held.token.clone()
        };
        match (&token, kind) {
            // Another request has already replaced the token.
            (Some(token), _) if used != Some(&token.header) => return Ok(Retry::Now),
            (None, AuthKind::Auto) => return Err(inner.needed("no one has signed in yet")),
            (Some(_), _) if wants_scope => {
                let scope = said.and_then(|said| said.scope).unwrap_or_default();
                let scope = inner.target.known.redactor().redact(&scope).into_owned();
                let is_news = inner.held().misses(&scope);
                if kind == AuthKind::Auto || !is_news {
                    return Err(inner.scope(&scope));
                }
            }
            (Some(token), _) if token.after_refusal && token.is_new() => {
                let why = "it refuses a token that was just refreshed";
                return inner.give_up(used, why).await;
            }
            (Some(token), AuthKind::Auto) if !token.renewable => {
                let why = "it refuses the token, which cannot be refreshed";
                return inner.give_up(used, why).await;
            }
            (Some(_) | None, AuthKind::Auto | AuthKind::ClientCredentials | AuthKind::None) => {}
        }
        let (inner, used) = (Arc::clone(inner), used.cloned());
        let challenge = challenge.map(str::to_owned);
        self.run_exchange(async move {
            let mut dialog = inner.turn().await?;
            let now = inner.held().token.as_ref().map(|now| now.header.clone());
            if now != used {
                return Ok(Retry::Now);
            }
            dialog.authority = None;
            let wanted = TokenDemand::Refused(challenge.as_deref());
            inner.renewed(&mut dialog, wanted).await?;
            if let Some(token) = &mut inner.held().token {
                token.after_refusal = true;
            }
            Ok(Retry::Now)
        })
        .await
    }

    /// Returns how many sign-ins were completed since the gateway started.
    pub(crate) fn sign_ins(&self) -> u64 {
        self.inner.held().sign_ins
    }

    /// Records that the server accepted this token, so that a later refusal counts as the first
    /// one.
    pub(crate) fn accepted(&self, used: &HeaderValue) {
        let mut held = self.inner.held();
        if let Some(token) = &mut held.token
            && token.after_refusal
            && token.header == *used
        {
            token.after_refusal = false;
        }
    }

    /// Runs an exchange with the authorization server to its end, even if the caller stops waiting:
    /// a refresh token that was used but whose successor was not stored would end the sign-in. The
    /// work starts immediately; it has no overall time limit, but each of its steps has one.
    fn run_exchange<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SignInError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, SignInError>> {
        let work = self.inner.tracker.spawn(work);
        async move {
            let done = match timeout(EXCHANGE_WAIT, work).await {
                Ok(Ok(done)) => done,
                Err(_elapsed) => Err(self.inner.silent(EXCHANGE_WAIT)),
                Ok(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_cancelled) => Err(self.inner.silent(EXCHANGE_WAIT)),
                },
            };
            done.map_err(|error| self.inner.hidden(error))
        }
    }
}

impl Inner {
    /// Waits for other exchanges to finish, no longer than a caller would wait for the result.
    /// Nothing is lost if this gives up: no request was sent yet.
    async fn turn(&self) -> Result<AsyncMutexGuard<'_, AuthorityDialog>, SignInError> {
        let turn = timeout(EXCHANGE_WAIT, self.turn.lock()).await;
        turn.map_err(|_elapsed| self.silent(EXCHANGE_WAIT))
    }

    /// Limits the time of one step of an exchange.
    async fn step<T>(
        &self,
        step: impl Future<Output = Result<T, SignInError>>,
    ) -> Result<T, SignInError> {
        let done = timeout(STEP, step).await;
        done.map_err(|_elapsed| self.silent(STEP))?
    }

    /// Gets a new token, or returns why that is not possible.
    async fn renewed(
        &self,
        dialog: &mut AuthorityDialog,
        wanted: TokenDemand<'_>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        let current = self.held().token.clone();
        let ending = matches!(wanted, TokenDemand::Ending);
        if ending && let Some(token) = current.filter(Token::is_fresh) {
            return Ok(Some(token.header));
        }
        match self.target.auth.kind {
            AuthKind::ClientCredentials => self.exchange(dialog, wanted.challenge()).await,
            AuthKind::Auto | AuthKind::None => self.refresh(dialog, wanted.challenge()).await,
        }
    }

    /// Gets a token by client credentials; it is held in memory only.
    async fn exchange(
        &self,
        dialog: &mut AuthorityDialog,
        challenge: Option<&str>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        if dialog.authority.is_none() {
            let found = Authority::find(&self.target, challenge).await?;
            let bound = dialog.bound(&self.target, &self.vault).await?;
            issuer::judge(&self.target, bound, found.issuer())?;
            dialog.authority = Some(found);
        }
        let Some(authority) = &mut dialog.authority else {
            return Ok(None);
        };
        let more = self.held().more();
        let scopes = authority.scopes(&self.target.auth.scopes, &more).await;
        let exchanging = authority.credentials(&self.target, &scopes);
        let stored = self.step(exchanging).await?;
        if let Err(error) = self.bind(dialog, stored.issuer.as_deref()).await {
            warn!(server = %self.target.server, %error, "the authorization server cannot be stored");
        }
        self.target
            .known
            .learn(token_store::secrets(Some(&stored), []));
        let mut held = self.held();
        let header = held.take(&stored);
        if held.granted.is_empty() {
            // A response without scopes grants the requested ones (RFC 6749, 5.1).
            held.granted = scopes;
        }
        Ok(header)
    }

    /// Refreshes the tokens at the authorization server that issued them, and at no other.
    async fn refresh(
        &self,
        dialog: &mut AuthorityDialog,
        challenge: Option<&str>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        let Some(kept) = dialog.kept.clone() else {
            return Ok(None);
        };
        if dialog.authority.is_none() {
            let mut found = Authority::find(&self.target, challenge).await?;
            if found.issuer() != kept.stored.issuer.as_deref() {
                let was = kept.stored.issuer.unwrap_or_default();
                let why = format!("its authorization server is no longer `{was}`");
                return Err(self.lose(dialog, &why).await);
            }
            found.speak_as(&kept.client)?;
            dialog.authority = Some(found);
        }
        let Some(authority) = &dialog.authority else {
            return Ok(None);
        };
        let renewing = authority.renew(kept.stored.clone(), &self.target.auth);
        let renewed = timeout(STEP, renewing).await;
        match renewed.unwrap_or_else(|_elapsed| Err(Renewal::Failed(self.silent(STEP)))) {
            Ok(stored) => {
                let clients = dialog.client.iter().chain([&kept.client]);
                self.target
                    .known
                    .learn(token_store::secrets(Some(&stored), clients));
                // The old refresh token may already be invalid, so update memory before the store.
                let header = self.held().take(&stored);
                let kept = StoredTokens { stored, ..kept };
                dialog.kept = Some(kept.clone());
                if let Err(error) = self.step(self.vault.put(TOKENS, &kept)).await {
                    warn!(server = %self.target.server, %error, "refreshed tokens cannot be stored");
                }
                Ok(header)
            }
            Err(Renewal::Rejected(why)) => {
                self.forget_client(dialog, &kept.client, &why).await;
                let why = format!("the sign-in has ended: {why}");
                Err(self.lose(dialog, &why).await)
            }
            Err(Renewal::Failed(error)) => Err(error),
        }
    }

    /// Remembers the first authorization server that the configured client was used with.
    async fn bind(
        &self,
        dialog: &mut AuthorityDialog,
        issuer: Option<&str>,
    ) -> Result<(), SignInError> {
        let bound = BoundIssuer::new(&self.target, issuer);
        if let Some(bound) = bound.filter(|bound| !dialog.binding.is(bound)) {
            self.step(self.vault.put(ISSUER, &bound)).await?;
            dialog.binding = Binding::To(bound);
        }
        Ok(())
    }

    /// Forgets a registered client that the authorization server does not know, so that the next
    /// sign-in registers a new one.
    async fn forget_client(&self, dialog: &mut AuthorityDialog, client: &Registration, why: &str) {
        let is_own = self.target.auth.client_id.is_none();
        if is_own && is_forgotten(why) && dialog.client.as_ref() == Some(client) {
            dialog.client = None;
            forget(&self.vault, CLIENT).await;
        }
    }

    /// Deletes invalid tokens and returns the error that reports it.
    async fn lose(&self, dialog: &mut AuthorityDialog, why: &str) -> SignInError {
        let error = self.hidden(self.needed(why));
        let why = error.to_string();
        info!(server = %self.target.server, why, "tokens deleted");
        dialog.kept = None;
        dialog.authority = None;
        // Memory before the store: if this is cancelled while the store is slow, no invalid token
        // stays in use.
        {
            let mut held = self.held();
            held.token = None;
            held.failure = Some(why);
        }
        forget(&self.vault, TOKENS).await;
        error
    }

    /// Gives up on a token that the server permanently refuses, unless it was replaced meanwhile.
    async fn give_up(&self, used: Option<&HeaderValue>, why: &str) -> Result<Retry, SignInError> {
        if self.target.auth.kind == AuthKind::ClientCredentials {
            let server = self.target.server.clone();
            let why = why.to_owned();
            return Err(SignInError::Refused { server, why });
        }
        let mut dialog = self.turn().await?;
        let now = self.held().token.as_ref().map(|now| now.header.clone());
        if now.as_ref() != used {
            return Ok(Retry::Now);
        }
        Err(self.lose(&mut dialog, why).await)
    }

    /// Redacts secrets in messages from other parties.
    fn hidden(&self, error: SignInError) -> SignInError {
        error.hidden(&self.target.known.redactor())
    }

    fn held(&self) -> MutexGuard<'_, SignInSession> {
        self.held.lock()
    }

    fn needed(&self, why: &str) -> SignInError {
        SignInError::Needed {
            server: self.target.server.clone(),
            why: why.to_owned(),
        }
    }

    fn silent(&self, within: Duration) -> SignInError {
        SignInError::Unavailable {
            server: self.target.server.clone(),
            why: format!("no answer within {within:?}"),
        }
    }

    fn scope(&self, scope: &str) -> SignInError {
        SignInError::Scope {
            server: self.target.server.clone(),
            scope: scope.to_owned(),
        }
    }
}

async fn forget(vault: &VaultScope, name: &str) {
    if let Err(error) = vault.remove(name).await {
        let error: &dyn std::error::Error = &error;
        warn!(error, "a sealed value could not be removed");
    }
}

#[cfg(test)]
mod tests;
