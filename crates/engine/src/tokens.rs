//! Bearer tokens of external issuers: a JWT signed by a configured authorization server, for this
//! gateway's audience, authenticates its holder in one project, as the agent that the configuration
//! maps a claim to.
//!
//! Anything doubtful is refused; before its signature is verified, only the issuer is read from a
//! token, to find its keys. Checking a token does no I/O: `keys` fetches the issuers' keys in the
//! background. Entry points: [`Tokens::verify`] and [`Tokens::run`].

mod claims;
mod jws;
mod keys;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gantry_model::caller::{KeyEnd, KeyValidity};
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::{AgentName, KeyId, ProjectName};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::clock::unix_ms;
use crate::http_client::Clients;

use self::claims::Claims;
pub use self::jws::Algorithm;
use self::jws::{PublicKey, Signed};
use self::keys::IssuerKeys;

/// The longest token that is accepted, in bytes.
const LONGEST: usize = 16 << 10;
/// How many tokens are remembered until they expire; their calls end with them.
const REMEMBERED: usize = 10_000;
/// How often expired tokens are ended.
const SWEEP: Duration = Duration::from_millis(250);

/// An authorization server whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerConfig {
    /// Its identifier, as in the claim `iss`.
    pub url: String,
    /// The required value of the claim `aud`.
    pub audience: String,
    /// The algorithms that its tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// The project that its tokens give access to.
    pub project: ProjectName,
    /// The claim that determines the agent.
    pub agent_claim: String,
    /// The agent for each value of that claim; other values are refused.
    pub agents: BTreeMap<String, AgentName>,
    /// The claim that determines the user.
    pub user_claim: String,
    /// The URL of its keys; found through its metadata if absent.
    pub jwks: Option<Url>,
    /// Whether it may be at a private address.
    pub allow_private: bool,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a JWT.
    #[error("the token is not a valid JWT: {why}")]
    Malformed {
        /// The error.
        why: &'static str,
    },
    /// Its issuer is not configured.
    #[error("the token is not from a configured issuer")]
    Issuer,
    /// Its algorithm is not allowed for the issuer.
    #[error("the token is signed with an algorithm that is not accepted from its issuer")]
    Algorithm,
    /// The issuer has not published its key.
    #[error("the token is signed with a key that its issuer has not published")]
    Key,
    /// The keys of its issuer are not known yet.
    #[error("the keys of the token's issuer are not available: {why}")]
    NoKeys {
        /// The reason.
        why: String,
    },
    /// The signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// It has expired, or has no expiry.
    #[error("the token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// Its holder is not mapped to an agent.
    #[error("the token's `{claim}` is not mapped to an agent")]
    Agent {
        /// The claim.
        claim: String,
    },
    /// The agent it is mapped to does not exist.
    #[error("the agent of the token does not exist")]
    NoAgent,
    /// Too many tokens are in use.
    #[error("too many different tokens are in use")]
    TooMany,
}

impl Diagnose for TokenError {
    fn code(&self) -> &'static str {
        match self {
            Self::Agent { .. } | Self::NoAgent => "auth.token_agent",
            Self::NoKeys { .. } | Self::TooMany => "auth.token_unavailable",
            Self::Malformed { .. }
            | Self::Issuer
            | Self::Algorithm
            | Self::Key
            | Self::Signature
            | Self::Audience
            | Self::Expired
            | Self::NotYet => "auth.token",
        }
    }

    fn fault(&self) -> Fault {
        match matches!(self, Self::NoKeys { .. } | Self::TooMany) {
            true => Fault::Gateway,
            false => Fault::Client,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Expired => Some("sign in again".to_owned()),
            Self::Agent { .. } => Some(
                "an administrator adds it to `agents` of the issuer, see docs/tokens.md".to_owned(),
            ),
            Self::Audience => Some("ask the issuer for a token for this gateway".to_owned()),
            Self::Malformed { .. }
            | Self::Issuer
            | Self::Algorithm
            | Self::Key
            | Self::NoKeys { .. }
            | Self::Signature
            | Self::NotYet
            | Self::NoAgent
            | Self::TooMany => None,
        }
    }
}

/// A token that was verified.
#[derive(Debug, Clone)]
pub(crate) struct Verified {
    /// The project it gives access to.
    pub(crate) project: ProjectName,
    /// The agent.
    pub(crate) agent: AgentName,
    /// The user on whose behalf it was issued.
    pub(crate) user: Option<Arc<str>>,
    /// Identifies issuer, holder and user, across tokens.
    pub(crate) key: KeyId,
    /// Ends when the token expires.
    pub(crate) validity: KeyValidity,
}

/// One issuer and its keys.
struct Issuer {
    config: IssuerConfig,
    keys: IssuerKeys,
}

/// A token in use.
struct InUse {
    expires_ms: u64,
    /// Which issuer made it, by its place in the list.
    issuer: usize,
    /// The key that signed it.
    signer: PublicKey,
    verified: Verified,
}

/// The tokens of all configured issuers.
pub(crate) struct Tokens {
    issuers: Vec<Issuer>,
    /// By the hash of the token.
    in_use: Mutex<HashMap<[u8; 32], InUse>>,
}

impl Tokens {
    /// Creates the state for these issuers; fetches nothing yet.
    pub(crate) fn new(issuers: Vec<IssuerConfig>) -> Self {
        let issuers = issuers.into_iter().map(|config| Issuer {
            keys: IssuerKeys::default(),
            config,
        });
        Self {
            issuers: issuers.collect(),
            in_use: Mutex::default(),
        }
    }

    /// Returns the identifiers of the issuers, for clients that look for one.
    pub(crate) fn issuers(&self) -> Vec<String> {
        let issuers = self.issuers.iter();
        issuers.map(|issuer| issuer.config.url.clone()).collect()
    }

    /// Returns whether a bearer credential is a token of an issuer rather than one of Gantry's
    /// keys.
    pub(crate) fn is_token(&self, credential: &str) -> bool {
        // A JWT begins with an encoded `{"`.
        !self.issuers.is_empty() && credential.starts_with("eyJ")
    }

    /// Verifies a token.
    pub(crate) fn verify(&self, token: &str) -> Result<Verified, TokenError> {
        let now_ms = unix_ms();
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.in_use.lock().get(&digest)
            && now_ms < known.expires_ms
            && known.verified.validity.end_reason().is_none()
        {
            return Ok(known.verified.clone());
        }
        let fresh = self.check(token, now_ms)?;
        let mut in_use = self.in_use.lock();
        // Another request with the same token may have been faster.
        if let Some(known) = in_use.get(&digest)
            && known.verified.validity.end_reason().is_none()
        {
            return Ok(known.verified.clone());
        }
        if in_use.len() >= REMEMBERED && !in_use.contains_key(&digest) {
            return Err(TokenError::TooMany);
        }
        let verified = fresh.verified.clone();
        in_use.insert(digest, fresh);
        Ok(verified)
    }

    fn check(&self, token: &str, now_ms: u64) -> Result<InUse, TokenError> {
        if token.len() > LONGEST {
            let why = "it is too long";
            return Err(TokenError::Malformed { why });
        }
        let signed = Signed::parse(token)?;
        let claimed = signed.issuer()?;
        let mut issuers = self.issuers.iter();
        let number = issuers.position(|issuer| issuer.config.url == claimed);
        let number = number.ok_or(TokenError::Issuer)?;
        let issuer = &self.issuers[number];
        let config = &issuer.config;
        if !config.algorithms.contains(&signed.algorithm()) {
            return Err(TokenError::Algorithm);
        }
        let signer = issuer.keys.verify(&signed)?;
        let claims = Claims::read(signed.payload())?;
        let expires_ms = claims.check(&config.audience, now_ms)?;
        let unmapped = || TokenError::Agent {
            claim: config.agent_claim.clone(),
        };
        let holder = claims.text(&config.agent_claim).ok_or_else(unmapped)?;
        let agent = config.agents.get(holder).ok_or_else(unmapped)?;
        let user = claims.text(&config.user_claim);
        let verified = Verified {
            project: config.project.clone(),
            agent: agent.clone(),
            user: user.map(Arc::from),
            key: key_of([&config.url, holder, user.unwrap_or_default()]),
            validity: KeyValidity::default(),
        };
        Ok(InUse {
            expires_ms,
            issuer: number,
            signer,
            verified,
        })
    }

    /// Keeps the issuers' keys up to date and ends expired tokens, until stopped.
    pub(crate) async fn run(
        self: Arc<Self>,
        clients: Arc<Clients>,
        stop: CancellationToken,
        end_of: impl Fn(&ProjectName, &AgentName) -> Option<KeyEnd>,
    ) {
        if self.issuers.is_empty() {
            return;
        }
        let fetching = self.issuers.iter();
        let fetching = fetching.map(|issuer| issuer.keys.keep_fresh(&issuer.config, &clients));
        let fetching = futures_util::future::join_all(fetching);
        let sweeping = async {
            let mut ticks = interval(SWEEP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.sweep(unix_ms(), &end_of);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = fetching => {}
            () = sweeping => {}
        }
    }

    /// Ends what was started with tokens that have expired, whose issuer has withdrawn the key, or whose
    /// agent is gone or suspended. fault U6
    fn sweep(&self, now_ms: u64, end_of: &impl Fn(&ProjectName, &AgentName) -> Option<KeyEnd>) {
        let keys: Vec<_> = self
            .issuers
            .iter()
            .map(|issuer| issuer.keys.now())
            .collect();
        // A key that its issuer has withdrawn ends the tokens that it signed.
        let is_published = |token: &InUse| {
            let keys = keys[token.issuer].as_ref();
            keys.is_some_and(|keys| keys.contains(&token.signer))
        };
        self.in_use.lock().retain(|_, token| {
            let verified = &token.verified;
            let end = match now_ms < token.expires_ms {
                false => Some(KeyEnd::Expired),
                true if !is_published(token) => Some(KeyEnd::Revoked),
                true => end_of(&verified.project, &verified.agent),
            };
            let Some(end) = end else {
                // An ended one is checked again with its next request.
                return verified.validity.end_reason().is_none();
            };
            verified.validity.end(end);
            false
        });
    }
}

/// Returns an id for the user of a holder of tokens, stable across tokens: sessions and calls
/// belong to it, so that one user of a program has no access to those of another. fault T4
fn key_of(issuer_holder_user: [&str; 3]) -> KeyId {
    let mut hash = Sha256::new();
    for part in issuer_holder_user {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let (first, _) = hash.split_at(16);
    let first = first.try_into().expect("half of 32 bytes are 16");
    KeyId::from_random(u128::from_be_bytes(first))
}

#[cfg(test)]
mod tests;
