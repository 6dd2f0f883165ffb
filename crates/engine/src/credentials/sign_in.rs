//! Signing in: an authorization URL is made, the browser returns with an answer, tokens are stored.
//! An answer is accepted once, within ten minutes, and only from the authorization server that was
//! asked. Entry points: [`Credentials::begin`], [`Credentials::finish`], [`Credentials::sign_out`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::spec::AuthKind;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use tracing::info;

use super::authority::Authority;
use super::error::{SignInError, short};
use super::issuer::{self, Binding};
use super::token_store::{Registration, StoredTokens, refresh_token, secrets};
use super::{CLIENT, Credentials, EXCHANGE_WAIT, ISSUER, Inner, TOKENS, Token};
use crate::clock::unix_ms;

/// How long a link is valid.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// How many links of one server may be open at once; the oldest is dropped.
const MOST_LINKS: usize = 4;

/// A sign-in whose browser has not returned yet.
pub(super) struct PendingSignIn {
    state: String,
    link: String,
    authority: Authority,
    client: Registration,
    until: Instant,
    until_ms: u64,
}

/// A link at which a person signs in.
#[derive(Debug, Clone)]
pub struct SignInLink {
    /// The page of the authorization server.
    pub link: String,
    /// Until when an answer is accepted, in milliseconds since 1970.
    pub until_ms: u64,
}

/// Which authorization server is trusted with a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignInTrust {
    /// If a client is configured, only the one that it was used with before.
    #[default]
    Remembered,
    /// The one that the server names now, whichever it was before. A dynamically registered client
    /// is registered again.
    Anew,
}

/// The parameters that a browser brings back from the authorization server.
#[derive(Debug, Clone, Default)]
pub struct SignInAnswer {
    /// Identifies the sign-in.
    pub state: String,
    /// The authorization code, on success.
    pub code: Option<String>,
    /// The issuer of the answer (RFC 9207).
    pub issuer: Option<String>,
    /// The error code, on failure.
    pub error: Option<String>,
    /// The description of the error.
    pub error_description: Option<String>,
}

/// The state of a server's sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInState {
    /// The server uses none, or the gateway signs in with client credentials.
    NotTaken,
    /// No sign-in.
    SignedOut,
    /// A link is open and waits for a person.
    Waiting,
    /// Tokens are stored.
    SignedIn,
}

impl SignInState {
    /// Returns the state's name in all outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotTaken => "not_taken",
            Self::SignedOut => "signed_out",
            Self::Waiting => "waiting",
            Self::SignedIn => "signed_in",
        }
    }
}

/// The public state of a server's sign-in.
#[derive(Debug, Clone)]
pub struct SignInView {
    /// The state.
    pub state: SignInState,
    /// The open link.
    pub link: Option<SignInLink>,
    /// The issuer of the tokens.
    pub issuer: Option<String>,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// Scopes that the server required beyond those granted.
    pub missing_scopes: Vec<String>,
    /// When a person last signed in since the gateway started, in milliseconds since 1970.
    pub signed_in_ms: Option<u64>,
    /// When the token expires, in milliseconds since 1970.
    pub token_ends_ms: Option<u64>,
    /// Whether it is refreshed without a person.
    pub renewable: bool,
    /// Why the last sign-in or refresh failed.
    pub failure: Option<String>,
}

impl Credentials {
    /// Creates a link for a person; the answer must come to `redirect_uri`.
    pub(crate) async fn begin(
        &self,
        redirect_uri: &str,
        trust: SignInTrust,
    ) -> Result<SignInLink, SignInError> {
        let not_taken = |why| {
            let server = self.inner.target.server.clone();
            Err(SignInError::NotTaken { server, why })
        };
        match self.inner.target.auth.kind {
            AuthKind::Auto => {}
            AuthKind::None => return not_taken("its spec says `none`"),
            AuthKind::ClientCredentials => {
                return not_taken("the gateway signs in by itself, with client credentials");
            }
        }
        let (inner, redirect_uri) = (Arc::clone(&self.inner), redirect_uri.to_owned());
        self.run_exchange(async move { inner.begin(&redirect_uri, trust).await })
            .await
    }

    /// Returns whether a browser's answer belongs to a link of this server.
    pub(crate) fn awaits(&self, state: &str) -> bool {
        let held = self.inner.held();
        held.pending.iter().any(|pending| pending.is(state))
    }

    /// Accepts a browser's answer: once, and in time.
    pub(crate) async fn finish(&self, answer: SignInAnswer) -> Result<(), SignInError> {
        let inner = Arc::clone(&self.inner);
        self.run_exchange(async move { inner.finish(answer).await })
            .await
    }

    /// Deletes everything about the sign-in, and revokes the tokens if possible.
    pub(crate) async fn sign_out(&self) -> Result<(), SignInError> {
        let inner = Arc::clone(&self.inner);
        self.run_exchange(async move { inner.sign_out().await })
            .await
    }

    /// Returns the public state of the sign-in.
    pub(crate) fn view(&self) -> SignInView {
        let held = self.inner.held();
        let now = Instant::now();
        let open = held.pending.iter().rev().find(|open| now < open.until);
        let is_kept = self.inner.target.auth.kind == AuthKind::Auto;
        let state = match (&held.token, open) {
            _ if !is_kept => SignInState::NotTaken,
            (Some(_), _) => SignInState::SignedIn,
            (None, Some(_)) => SignInState::Waiting,
            (None, None) => SignInState::SignedOut,
        };
        SignInView {
            state,
            link: open.map(PendingSignIn::shown),
            issuer: held.issuer.clone(),
            scopes: held.granted.clone(),
            missing_scopes: held.missing.clone(),
            signed_in_ms: held.signed_in_ms,
            token_ends_ms: held.token.as_ref().and_then(Token::ends_ms),
            renewable: held.token.as_ref().is_some_and(|token| token.renewable),
            failure: held.failure.clone(),
        }
    }
}

impl Inner {
    async fn begin(
        &self,
        redirect_uri: &str,
        trust: SignInTrust,
    ) -> Result<SignInLink, SignInError> {
        let mut dialog = self.turn().await?;
        let (challenge, more) = {
            let held = self.held();
            (held.challenge.clone(), held.more())
        };
        let auth = &self.target.auth;
        let mut authority = Authority::find(&self.target, challenge.as_deref()).await?;
        let judged = match trust {
            SignInTrust::Remembered => {
                let bound = dialog.bound(&self.target, &self.vault).await;
                bound.and_then(|bound| issuer::judge(&self.target, bound, authority.issuer()))
            }
            SignInTrust::Anew => Ok(()),
        };
        if let Err(error) = judged {
            let error = self.hidden(error);
            let mut held = self.held();
            // Older links stay open: a person may be using one of them.
            held.pending.retain(|open| Instant::now() < open.until);
            if held.pending.is_empty() {
                held.failure = Some(error.to_string());
            }
            return Err(error);
        }
        let scopes = authority.scopes(&auth.scopes, &more).await;
        let known = dialog.client.clone();
        let known = known.filter(|_| trust == SignInTrust::Remembered);
        let enrolling = authority.enrol(auth, known, redirect_uri, &scopes);
        let client = self.step(enrolling).await?;
        // Stored immediately, so that unused links do not register further clients.
        if dialog.client.as_ref() != Some(&client) {
            self.step(self.vault.put(CLIENT, &client)).await?;
            dialog.client = Some(client.clone());
            self.target.known.learn(dialog.secrets());
        }
        let (link, state) = authority.link(&scopes).await?;
        let good_for = u64::try_from(GOOD_FOR.as_millis()).unwrap_or_default();
        let pending = PendingSignIn {
            state,
            link,
            authority,
            client,
            until: Instant::now() + GOOD_FOR,
            until_ms: unix_ms().saturating_add(good_for),
        };
        let shown = pending.shown();
        let mut held = self.held();
        held.failure = None;
        held.pending.retain(|open| Instant::now() < open.until);
        if held.pending.len() >= MOST_LINKS {
            held.pending.remove(0);
        }
        held.pending.push(pending);
        Ok(shown)
    }

    async fn finish(&self, answer: SignInAnswer) -> Result<(), SignInError> {
        let pending = {
            let mut held = self.held();
            let place = held.pending.iter().position(|open| open.is(&answer.state));
            let place = place.ok_or(SignInError::Unknown)?;
            held.pending.remove(place)
        };
        if pending.until <= Instant::now() {
            return Err(SignInError::Unknown);
        }
        let done = match self.redeem(&pending, answer).await {
            Ok(kept) => self.signed_in(pending, kept).await,
            Err(error) => {
                let mut dialog = self.turn.lock().await;
                let why = error.to_string();
                self.forget_client(&mut dialog, &pending.client, &why).await;
                Err(error)
            }
        };
        let done = done.map_err(|error| self.hidden(error));
        done.inspect_err(|error| self.held().failure = Some(error.to_string()))
    }

    async fn redeem(
        &self,
        pending: &PendingSignIn,
        answer: SignInAnswer,
    ) -> Result<StoredTokens, SignInError> {
        let refused = |why| SignInError::Refused {
            server: self.target.server.clone(),
            why,
        };
        // Even a refusal must come from the authorization server that was asked.
        if let (Some(received), Some(expected)) = (&answer.issuer, pending.authority.issuer())
            && received != expected
        {
            return Err(SignInError::Issuer {
                server: self.target.server.clone(),
                expected: expected.to_owned(),
                received: short(received),
            });
        }
        if let Some(error) = answer.error {
            let words = answer.error_description.unwrap_or_default();
            return Err(refused(short(&format!("{error} {words}"))));
        }
        let code = answer
            .code
            .ok_or_else(|| refused("the answer has no code".to_owned()))?;
        let issuer = answer.issuer.as_deref();
        let redeeming = pending.authority.redeem(&code, &answer.state, issuer);
        Ok(StoredTokens {
            url: self.target.url.to_string(),
            stored: self.step(redeeming).await?,
            client: pending.client.clone(),
            intermediary: Some(self.target.intermediary.clone()),
        })
    }

    /// Writes the store first, memory second. Waits for other exchanges without a limit: the code
    /// is already used.
    async fn signed_in(
        &self,
        pending: PendingSignIn,
        kept: StoredTokens,
    ) -> Result<(), SignInError> {
        let mut dialog = self.turn.lock().await;
        let clients = dialog.client.iter().chain([&kept.client]);
        self.target
            .known
            .learn(secrets(Some(&kept.stored), clients));
        // Unusable tokens must not replace usable ones.
        if Token::of(&kept.stored).is_none() {
            return Err(SignInError::Unavailable {
                server: self.target.server.clone(),
                why: "its response has no bearer token".to_owned(),
            });
        }
        self.bind(&mut dialog, kept.stored.issuer.as_deref())
            .await?;
        self.step(self.vault.put(TOKENS, &kept)).await?;
        let mut held = self.held();
        drop(held.take(&kept.stored));
        held.missing.clear();
        held.pending.clear();
        held.signed_in_ms = Some(unix_ms());
        held.sign_ins += 1;
        drop(held);
        dialog.kept = Some(kept);
        dialog.authority = Some(pending.authority);
        info!(server = %self.target.server, "signed in");
        Ok(())
    }

    /// Writes the store first, memory second.
    async fn sign_out(&self) -> Result<(), SignInError> {
        let mut dialog = self.turn().await?;
        for name in [TOKENS, CLIENT, ISSUER] {
            self.step(self.vault.remove(name)).await?;
        }
        let kept = dialog.kept.take();
        dialog.client = None;
        dialog.binding = Binding::Free;
        let authority = dialog.authority.take();
        {
            let mut held = self.held();
            held.token = None;
            held.issuer = None;
            held.signed_in_ms = None;
            held.granted.clear();
            held.missing.clear();
            held.pending.clear();
            held.failure = None;
        }
        info!(server = %self.target.server, "signed out");
        let token = kept.as_ref().and_then(|kept| refresh_token(&kept.stored));
        let (Some(kept), Some(token)) = (kept, token) else {
            return Ok(());
        };
        let revoking = async {
            let authority = match authority {
                Some(known) => known,
                None => Authority::find(&self.target, None).await?,
            };
            // A token is sent only to its issuer.
            if authority.issuer() == kept.stored.issuer.as_deref() {
                let route = &self.target.route;
                authority.revoke(route, &kept.client, &token).await;
            }
            Ok::<_, SignInError>(())
        };
        // It is deleted here, whether or not the revocation succeeds.
        drop(tokio::time::timeout(EXCHANGE_WAIT / 3, revoking).await);
        Ok(())
    }
}

impl PendingSignIn {
    fn is(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }

    fn shown(&self) -> SignInLink {
        SignInLink {
            link: self.link.clone(),
            until_ms: self.until_ms,
        }
    }
}
