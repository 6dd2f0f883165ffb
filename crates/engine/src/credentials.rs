//! Credentials for remote servers: the token of a sign-in, renewed before it expires, stored sealed,
//! and sent to no server but its own. A configured `Authorization` header takes precedence. Never
//! shows or logs a token. Entry points: [`Credentials::bearer`] for every request,
//! [`Credentials::refused`] when the server refused it; signing in is in `sign_in`.

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
pub use self::vault::key::{MasterKey, VaultError};
pub use self::vault::rekey::Rekeyed;
pub(crate) use self::vault::rekey::{forget_all, rekey};
pub(crate) use self::vault::{Vault, VaultScope};

use self::authority::{Authority, Renewal, is_forgotten};
use self::issuer::{Binding, BoundIssuer};
use self::session::{AuthorityDialog, SignInSession};
use self::token_store::{Registration, StoredTokens, Token};

/// How long who asks waits for a renewal, an exchange or the beginning of a sign-in; the work goes
/// on after that.
const TALK: Duration = Duration::from_secs(30);
/// How long one step of that work may take, from its own beginning: what is asked for late has as
/// much time as what is asked for at once.
const STEP: Duration = Duration::from_secs(60);

/// What is kept, by name.
const TOKENS: &str = "oauth.tokens";
const CLIENT: &str = "oauth.client";
const ISSUER: &str = "oauth.issuer";

/// What to do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Send it once more, with the token there is now.
    Now,
    /// Nothing of ours would change the answer.
    No,
}

/// The credentials of one remote server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Credentials {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    drawer: VaultScope,
    tracker: TaskTracker,
    /// Read by every request; never held across a wait.
    held: Mutex<SignInSession>,
    /// One talk with the authorization server at a time.
    turn: AsyncMutex<AuthorityDialog>,
}

/// Why a token is wanted now, although there may be one.
#[derive(Clone, Copy)]
enum TokenDemand<'a> {
    /// The one there is ends soon.
    Ending,
    /// The server refused the one there is, in these words.
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
    /// Takes up what was kept of the last sign-in, unless the server's URL is another since.
    pub(crate) async fn open(target: Target, drawer: VaultScope, tracker: TaskTracker) -> Self {
        let mut talk = AuthorityDialog::default();
        let mut held = SignInSession::default();
        if let Err(error) = talk.read(&target, &drawer).await {
            warn!(server = %target.server, %error, "the sign-in cannot be taken up");
            held.failure = Some(error.to_string());
        }
        if let (Some(kept), Some(id)) = (&mut talk.kept, &target.auth.client_id)
            && kept.client.client_id == *id
        {
            // The configuration may have another secret since.
            let secret = &target.auth.client_secret;
            kept.client.client_secret.clone_from(secret);
        }
        if talk.kept.as_ref().is_some_and(|kept| !kept.is_of(&target)) {
            info!(server = %target.server, "the server has moved: its tokens are forgotten");
            forget(&drawer, TOKENS).await;
            talk.kept = None;
        }
        target.known.learn(talk.secrets());
        if let Some(kept) = &talk.kept {
            held.take(&kept.stored);
        }
        Self {
            inner: Arc::new(Inner {
                target,
                drawer,
                tracker,
                held: Mutex::new(held),
                turn: AsyncMutex::new(talk),
            }),
        }
    }

    /// Returns the value of `Authorization` for the next request, renewed if it ends within a
    /// minute; `None` if there is nothing to show. One that is still valid is better than none.
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
        let renewing = self.talk(async move {
            let mut talk = inner.turn().await?;
            inner.renewed(&mut talk, TokenDemand::Ending).await
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
        warn!(%server, %error, "the token could not be renewed yet");
        Ok(Some(token.header))
    }

    /// Hears that the server refused a request that was sent with `used`, and tries once to get a
    /// better token: a new one after 401, one for more scopes after 403.
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
            // Somebody else was faster.
            (Some(token), _) if used != Some(&token.header) => return Ok(Retry::Now),
            (None, AuthKind::Auto) => return Err(inner.needed("nobody has signed in")),
            (Some(_), _) if wants_scope => {
                let scope = said.and_then(|said| said.scope).unwrap_or_default();
                let scope = inner.target.known.redactor().redact(&scope).into_owned();
                let is_news = inner.held().misses(&scope);
                if kind == AuthKind::Auto || !is_news {
                    return Err(inner.scope(&scope));
                }
            }
            (Some(token), _) if token.after_refusal && token.is_new() => {
                let why = "it refuses the token that was renewed a moment ago";
                return inner.give_up(used, why).await;
            }
            (Some(token), AuthKind::Auto) if !token.renewable => {
                let why = "it refuses the token, which cannot be renewed";
                return inner.give_up(used, why).await;
            }
            (Some(_) | None, AuthKind::Auto | AuthKind::ClientCredentials | AuthKind::None) => {}
        }
        let (inner, used) = (Arc::clone(inner), used.cloned());
        let challenge = challenge.map(str::to_owned);
        self.talk(async move {
            let mut talk = inner.turn().await?;
            let now = inner.held().token.as_ref().map(|now| now.header.clone());
            if now != used {
                return Ok(Retry::Now);
            }
            talk.authority = None;
            let wanted = TokenDemand::Refused(challenge.as_deref());
            inner.renewed(&mut talk, wanted).await?;
            if let Some(token) = &mut inner.held().token {
                token.after_refusal = true;
            }
            Ok(Retry::Now)
        })
        .await
    }

    /// Returns how often somebody has signed in since the gateway started.
    pub(crate) fn sign_ins(&self) -> u64 {
        self.inner.held().sign_ins
    }

    /// Hears that the server took what was shown, so that a later refusal of it is news.
    pub(crate) fn accepted(&self, used: &HeaderValue) {
        let mut held = self.inner.held();
        if let Some(token) = &mut held.token
            && token.after_refusal
            && token.header == *used
        {
            token.after_refusal = false;
        }
    }

    /// Talks with the authorization server to the end, whether or not who asked still waits: a
    /// refresh token that was used and whose successor nobody took would end the sign-in. The work
    /// begins at once; as a whole it has no bound, each of its steps has one.
    fn talk<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SignInError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, SignInError>> {
        let work = self.inner.tracker.spawn(work);
        async move {
            let done = match timeout(TALK, work).await {
                Ok(Ok(done)) => done,
                Err(_elapsed) => Err(self.inner.silent(TALK)),
                Ok(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_cancelled) => Err(self.inner.silent(TALK)),
                },
            };
            done.map_err(|error| self.inner.hidden(error))
        }
    }
}

impl Inner {
    /// Waits for the turn to talk, as long as somebody may wait for what comes of it: who has not
    /// begun by then has nothing to lose.
    async fn turn(&self) -> Result<AsyncMutexGuard<'_, AuthorityDialog>, SignInError> {
        let turn = timeout(TALK, self.turn.lock()).await;
        turn.map_err(|_elapsed| self.silent(TALK))
    }

    /// Bounds one step of a talk.
    async fn step<T>(
        &self,
        step: impl Future<Output = Result<T, SignInError>>,
    ) -> Result<T, SignInError> {
        let done = timeout(STEP, step).await;
        done.map_err(|_elapsed| self.silent(STEP))?
    }

    /// Gets a new token, or says what is in the way.
    async fn renewed(
        &self,
        talk: &mut AuthorityDialog,
        wanted: TokenDemand<'_>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        let current = self.held().token.clone();
        let ending = matches!(wanted, TokenDemand::Ending);
        if ending && let Some(token) = current.filter(Token::is_fresh) {
            return Ok(Some(token.header));
        }
        match self.target.auth.kind {
            AuthKind::ClientCredentials => self.exchange(talk, wanted.challenge()).await,
            AuthKind::Auto | AuthKind::None => self.refresh(talk, wanted.challenge()).await,
        }
    }

    /// Signs in as the gateway itself; the token is held in memory only.
    async fn exchange(
        &self,
        talk: &mut AuthorityDialog,
        challenge: Option<&str>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        if talk.authority.is_none() {
            let found = Authority::find(&self.target, challenge).await?;
            let bound = talk.bound(&self.target, &self.drawer).await?;
            issuer::judge(&self.target, bound, found.issuer())?;
            talk.authority = Some(found);
        }
        let Some(authority) = &mut talk.authority else {
            return Ok(None);
        };
        let more = self.held().more();
        let scopes = authority.scopes(&self.target.auth.scopes, &more).await;
        let exchanging = authority.credentials(&self.target, &scopes);
        let stored = self.step(exchanging).await?;
        if let Err(error) = self.bind(talk, stored.issuer.as_deref()).await {
            warn!(server = %self.target.server, %error, "its authorization server is not kept");
        }
        self.target
            .known
            .learn(token_store::secrets(Some(&stored), []));
        let mut held = self.held();
        let header = held.take(&stored);
        if held.granted.is_empty() {
            // Who says nothing of scopes has granted what was asked for (RFC 6749, 5.1).
            held.granted = scopes;
        }
        Ok(header)
    }

    /// Gets new tokens for old ones, from the authorization server that gave them and no other.
    async fn refresh(
        &self,
        talk: &mut AuthorityDialog,
        challenge: Option<&str>,
    ) -> Result<Option<HeaderValue>, SignInError> {
        let Some(kept) = talk.kept.clone() else {
            return Ok(None);
        };
        if talk.authority.is_none() {
            let mut found = Authority::find(&self.target, challenge).await?;
            if found.issuer() != kept.stored.issuer.as_deref() {
                let was = kept.stored.issuer.unwrap_or_default();
                let why = format!("it has moved from the authorization server `{was}` to another");
                return Err(self.lose(talk, &why).await);
            }
            found.speak_as(&kept.client)?;
            talk.authority = Some(found);
        }
        let Some(authority) = &talk.authority else {
            return Ok(None);
        };
        let renewing = authority.renew(kept.stored.clone(), &self.target.auth);
        let renewed = timeout(STEP, renewing).await;
        match renewed.unwrap_or_else(|_elapsed| Err(Renewal::Failed(self.silent(STEP)))) {
            Ok(stored) => {
                let clients = talk.client.iter().chain([&kept.client]);
                self.target
                    .known
                    .learn(token_store::secrets(Some(&stored), clients));
                // The old refresh token may be worth nothing already, so that memory comes first.
                let header = self.held().take(&stored);
                let kept = StoredTokens { stored, ..kept };
                talk.kept = Some(kept.clone());
                if let Err(error) = self.step(self.drawer.put(TOKENS, &kept)).await {
                    warn!(server = %self.target.server, %error, "renewed tokens are not kept");
                }
                Ok(header)
            }
            Err(Renewal::Rejected(why)) => {
                self.forget_client(talk, &kept.client, &why).await;
                let why = format!("the sign-in has ended: {why}");
                Err(self.lose(talk, &why).await)
            }
            Err(Renewal::Failed(error)) => Err(error),
        }
    }

    /// Remembers which authorization server the configured client was shown to.
    async fn bind(
        &self,
        talk: &mut AuthorityDialog,
        issuer: Option<&str>,
    ) -> Result<(), SignInError> {
        let bound = BoundIssuer::new(&self.target, issuer);
        if let Some(bound) = bound.filter(|bound| !talk.binding.is(bound)) {
            self.step(self.drawer.put(ISSUER, &bound)).await?;
            talk.binding = Binding::To(bound);
        }
        Ok(())
    }

    /// Forgets a client of ours that the authorization server knows nothing of, so that the next
    /// sign-in registers another.
    async fn forget_client(&self, talk: &mut AuthorityDialog, client: &Registration, why: &str) {
        let is_own = self.target.auth.client_id.is_none();
        if is_own && is_forgotten(why) && talk.client.as_ref() == Some(client) {
            talk.client = None;
            forget(&self.drawer, CLIENT).await;
        }
    }

    /// Forgets tokens that are worth nothing, and says so.
    async fn lose(&self, talk: &mut AuthorityDialog, why: &str) -> SignInError {
        let error = self.hidden(self.needed(why));
        let why = error.to_string();
        info!(server = %self.target.server, why, "the tokens are forgotten");
        talk.kept = None;
        talk.authority = None;
        // Memory first: who is cancelled while the store is slow leaves no token that is worth nothing.
        {
            let mut held = self.held();
            held.token = None;
            held.failure = Some(why);
        }
        forget(&self.drawer, TOKENS).await;
        error
    }

    /// Gives up on a token that the server refuses for good, unless there is another meanwhile.
    async fn give_up(&self, used: Option<&HeaderValue>, why: &str) -> Result<Retry, SignInError> {
        if self.target.auth.kind == AuthKind::ClientCredentials {
            let server = self.target.server.clone();
            let why = why.to_owned();
            return Err(SignInError::Refused { server, why });
        }
        let mut talk = self.turn().await?;
        let now = self.held().token.as_ref().map(|now| now.header.clone());
        if now.as_ref() != used {
            return Ok(Retry::Now);
        }
        Err(self.lose(&mut talk, why).await)
    }

    /// Takes secrets out of what others said.
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

async fn forget(drawer: &VaultScope, name: &str) {
    if let Err(error) = drawer.remove(name).await {
        let error: &dyn std::error::Error = &error;
        warn!(error, "a sealed value could not be removed");
    }
}

#[cfg(test)]
mod tests;
