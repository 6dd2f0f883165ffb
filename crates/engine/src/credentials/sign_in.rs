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
use super::{CLIENT, Credentials, ISSUER, Inner, TALK, TOKENS, Token};
use crate::clock::unix_ms;

/// How long a link is good for.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// Links of one server that may be open at once; the oldest goes first.
const MOST_LINKS: usize = 4;

/// A sign-in that a browser has not come back from.
pub(super) struct PendingSignIn {
    state: String,
    link: String,
    authority: Authority,
    client: Registration,
    until: Instant,
    until_ms: u64,
}

/// A link that a person signs in at.
#[derive(Debug, Clone)]
pub struct SignInLink {
    /// The page of the authorization server.
    pub link: String,
    /// Until when its answer is taken, in milliseconds since 1970.
    pub until_ms: u64,
}

/// Which authorization server a person signs in at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignInTrust {
    /// If a client is configured, the one that it was used at before and no other.
    #[default]
    Remembered,
    /// The one that the server names now, whichever it was before; a client that was registered
    /// there is registered again.
    Anew,
}

/// What a browser brings back from the authorization server.
#[derive(Debug, Clone, Default)]
pub struct SignInAnswer {
    /// Which sign-in it belongs to.
    pub state: String,
    /// The code to exchange, if it went well.
    pub code: Option<String>,
    /// Who answers (RFC 9207).
    pub issuer: Option<String>,
    /// What went wrong, if it did not go well.
    pub error: Option<String>,
    /// The same in words.
    pub error_description: Option<String>,
}

/// Where a server's sign-in stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInState {
    /// The server takes none, or the gateway signs in by itself.
    NotTaken,
    /// Nobody has signed in.
    SignedOut,
    /// A link waits for a person.
    Waiting,
    /// There are tokens.
    SignedIn,
}

impl SignInState {
    /// Returns the state as shown everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotTaken => "not_taken",
            Self::SignedOut => "signed_out",
            Self::Waiting => "waiting",
            Self::SignedIn => "signed_in",
        }
    }
}

/// What may be shown of a server's sign-in.
#[derive(Debug, Clone)]
pub struct SignInView {
    /// Where it stands.
    pub state: SignInState,
    /// The link that waits for a person.
    pub link: Option<SignInLink>,
    /// Who gave the tokens.
    pub issuer: Option<String>,
    /// What was granted.
    pub scopes: Vec<String>,
    /// What the server wanted beyond that.
    pub missing_scopes: Vec<String>,
    /// When a person last signed in since the gateway started, in milliseconds since 1970.
    pub signed_in_ms: Option<u64>,
    /// When the token ends, in milliseconds since 1970.
    pub token_ends_ms: Option<u64>,
    /// Whether it is renewed without a person.
    pub renewable: bool,
    /// Why the last sign-in or renewal came to nothing.
    pub failure: Option<String>,
}

impl Credentials {
    /// Makes a link for a person; its answer must come to `redirect_uri`.
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
        self.talk(async move { inner.begin(&redirect_uri, trust).await })
            .await
    }

    /// Tells whether a browser's answer belongs to a link of this server.
    pub(crate) fn awaits(&self, state: &str) -> bool {
        let held = self.inner.held();
        held.pending.iter().any(|pending| pending.is(state))
    }

    /// Takes a browser's answer: once, and in time.
    pub(crate) async fn finish(&self, answer: SignInAnswer) -> Result<(), SignInError> {
        let inner = Arc::clone(&self.inner);
        self.talk(async move { inner.finish(answer).await }).await
    }

    /// Forgets everything about the sign-in, and has the tokens revoked if that can be done.
    pub(crate) async fn sign_out(&self) -> Result<(), SignInError> {
        let inner = Arc::clone(&self.inner);
        self.talk(async move { inner.sign_out().await }).await
    }

    /// Shows where the sign-in stands.
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
        let mut talk = self.turn().await?;
        let (challenge, more) = {
            let held = self.held();
            (held.challenge.clone(), held.more())
        };
        let auth = &self.target.auth;
        let mut authority = Authority::find(&self.target, challenge.as_deref()).await?;
        let judged = match trust {
            SignInTrust::Remembered => {
                let bound = talk.bound(&self.target, &self.drawer).await;
                bound.and_then(|bound| issuer::judge(&self.target, bound, authority.issuer()))
            }
            SignInTrust::Anew => Ok(()),
        };
        if let Err(error) = judged {
            let error = self.hidden(error);
            let mut held = self.held();
            // Who has a link in hand waits for what comes of that one.
            held.pending.retain(|open| Instant::now() < open.until);
            if held.pending.is_empty() {
                held.failure = Some(error.to_string());
            }
            return Err(error);
        }
        let scopes = authority.scopes(&auth.scopes, &more).await;
        let known = talk.client.clone();
        let known = known.filter(|_| trust == SignInTrust::Remembered);
        let enrolling = authority.enrol(auth, known, redirect_uri, &scopes);
        let client = self.step(enrolling).await?;
        // Kept at once: links that nobody follows must not fill the authorization server's list.
        if talk.client.as_ref() != Some(&client) {
            self.step(self.drawer.put(CLIENT, &client)).await?;
            talk.client = Some(client.clone());
            self.target.known.learn(talk.secrets());
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
                let mut talk = self.turn.lock().await;
                let why = error.to_string();
                self.forget_client(&mut talk, &pending.client, &why).await;
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
        // Even a refusal counts only from who was asked.
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
        })
    }

    /// Store first, memory second. Its turn is waited for as long as it takes: the code is used up.
    async fn signed_in(
        &self,
        pending: PendingSignIn,
        kept: StoredTokens,
    ) -> Result<(), SignInError> {
        let mut talk = self.turn.lock().await;
        let clients = talk.client.iter().chain([&kept.client]);
        self.target
            .known
            .learn(secrets(Some(&kept.stored), clients));
        // What cannot be sent must not take the place of what can.
        if Token::of(&kept.stored).is_none() {
            return Err(SignInError::Unavailable {
                server: self.target.server.clone(),
                why: "what it gave is no bearer token".to_owned(),
            });
        }
        self.bind(&mut talk, kept.stored.issuer.as_deref()).await?;
        self.step(self.drawer.put(TOKENS, &kept)).await?;
        let mut held = self.held();
        drop(held.take(&kept.stored));
        held.missing.clear();
        held.pending.clear();
        held.signed_in_ms = Some(unix_ms());
        held.sign_ins += 1;
        drop(held);
        talk.kept = Some(kept);
        talk.authority = Some(pending.authority);
        info!(server = %self.target.server, "signed in");
        Ok(())
    }

    /// Store first, memory second.
    async fn sign_out(&self) -> Result<(), SignInError> {
        let mut talk = self.turn().await?;
        for name in [TOKENS, CLIENT, ISSUER] {
            self.step(self.drawer.remove(name)).await?;
        }
        let kept = talk.kept.take();
        talk.client = None;
        talk.binding = Binding::Free;
        let authority = talk.authority.take();
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
            // A token is shown to nobody but who gave it.
            if authority.issuer() == kept.stored.issuer.as_deref() {
                let route = &self.target.route;
                authority.revoke(route, &kept.client, &token).await;
            }
            Ok::<_, SignInError>(())
        };
        // It is forgotten here, whatever the authorization server makes of it.
        drop(tokio::time::timeout(TALK / 3, revoking).await);
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
