//! The stored state of a sign-in, encrypted: the tokens, bound to the URL they are for, and the
//! registered client. Entry points: [`StoredTokens`], [`Registration`] and [`Token`].

use std::path::PathBuf;
use std::time::Duration;

use gantry_model::secret::SecretText;
use gantry_model::spec::RemoteLaunch;
use reqwest::header::HeaderValue;
use rmcp::transport::StoredCredentials;
use serde::{Deserialize, Serialize};

use super::Target;
use super::issuer::is_same;
use crate::clock::unix_ms;

/// The longest token that is sent, in bytes.
const LONGEST_TOKEN: usize = 64 << 10;
/// A token that expires within this time is refreshed first.
const SOON: Duration = Duration::from_secs(60);

/// The tokens of one server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredTokens {
    /// The server's URL when they were issued; they are sent nowhere else.
    pub(super) url: String,
    /// The token response, and its issuer.
    pub(super) stored: StoredCredentials,
    /// The client that they were issued to.
    pub(super) client: Registration,
    /// Who was trusted to pass them on to the server; `None` if an earlier release stored them.
    #[serde(default)]
    pub(super) intermediary: Option<Intermediary>,
}

/// Who sees the requests to a server besides the server: its proxy, and holders of certificates of
/// an additional authority.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Intermediary {
    proxy: Option<String>,
    ca_file: Option<PathBuf>,
}

impl Intermediary {
    /// Returns the intermediary of a server.
    pub(crate) fn of(launch: &RemoteLaunch) -> Self {
        Self {
            proxy: launch.proxy.clone(),
            ca_file: launch.ca_file.clone(),
        }
    }
}

impl StoredTokens {
    /// Returns whether the tokens are for this server, from an authorization server that it may
    /// use, on the way that it had then: who may edit a server does not read them at a proxy.
    /// fault K4
    pub(super) fn is_of(&self, target: &Target) -> bool {
        let given = self.stored.issuer.as_deref();
        let wanted = target.auth.issuer.as_deref();
        let is_wanted = |wanted| given.is_some_and(|given| is_same(given, wanted));
        let known = self.intermediary.as_ref();
        self.url == target.url.as_str()
            && wanted.is_none_or(is_wanted)
            && known.is_none_or(|known| *known == target.intermediary)
    }
}

/// The client of a person's sign-in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registration {
    /// The authorization server that registered it.
    pub(super) issuer: Option<String>,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    /// Its redirect URI.
    pub(super) redirect_uri: String,
}

/// The used fields of a token response.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

impl Answer {
    fn of(stored: &StoredCredentials) -> Option<Self> {
        let answer = serde_json::to_value(stored.token_response.as_ref()?).ok()?;
        serde_json::from_value(answer).ok()
    }
}

/// A token in use.
#[derive(Clone)]
pub(super) struct Token {
    /// The value of `Authorization`.
    pub(super) header: HeaderValue,
    /// When it was received, in milliseconds since 1970.
    pub(super) received_ms: u64,
    /// Its lifetime from then on.
    pub(super) lifetime: Option<Duration>,
    /// Whether it can be refreshed without a person.
    pub(super) renewable: bool,
    /// Whether it replaced a token that the server refused.
    pub(super) after_refusal: bool,
}

impl Token {
    /// Reads the token from a stored response; `None` if there is none that can be sent.
    pub(super) fn of(stored: &StoredCredentials) -> Option<Self> {
        let answer = Answer::of(stored)?;
        let is_bearer = answer.token_type.eq_ignore_ascii_case("bearer");
        if !is_bearer || answer.access_token.len() > LONGEST_TOKEN {
            return None;
        }
        let mut header = HeaderValue::try_from(format!("Bearer {}", answer.access_token)).ok()?;
        header.set_sensitive(true);
        Some(Self {
            header,
            received_ms: stored.token_received_at.unwrap_or_default() * 1000,
            lifetime: answer.expires_in.map(Duration::from_secs),
            renewable: answer.refresh_token.is_some(),
            after_refusal: false,
        })
    }

    /// Returns when it expires, in milliseconds since 1970.
    pub(super) fn ends_ms(&self) -> Option<u64> {
        let lifetime = u64::try_from(self.lifetime?.as_millis()).unwrap_or(u64::MAX);
        Some(self.received_ms.saturating_add(lifetime))
    }

    /// Returns whether it can be sent now.
    pub(super) fn is_valid(&self) -> bool {
        self.ends_ms().is_none_or(|end| unix_ms() < end)
    }

    /// Returns whether it need not be refreshed yet. A short-lived token is used for half its
    /// lifetime.
    pub(super) fn is_fresh(&self) -> bool {
        let Some(lifetime) = self.lifetime else {
            return true;
        };
        let soon = u64::try_from(SOON.min(lifetime / 2).as_millis()).unwrap_or_default();
        self.ends_ms()
            .is_none_or(|end| unix_ms().saturating_add(soon) < end)
    }

    /// Returns whether it was received a moment ago.
    pub(super) fn is_new(&self) -> bool {
        let age = unix_ms().saturating_sub(self.received_ms);
        Duration::from_millis(age) < SOON
    }
}

/// Returns the stored refresh token, for revocation.
pub(super) fn refresh_token(stored: &StoredCredentials) -> Option<String> {
    let answer = Answer::of(stored)?;
    answer.refresh_token.or(Some(answer.access_token))
}

/// Returns all secrets of the stored tokens and of registered clients.
pub(super) fn secrets<'a>(
    stored: Option<&StoredCredentials>,
    clients: impl IntoIterator<Item = &'a Registration>,
) -> Vec<SecretText> {
    let answer = stored.and_then(Answer::of);
    let tokens = answer.map(|answer| [Some(answer.access_token), answer.refresh_token]);
    let tokens = tokens.into_iter().flatten().flatten();
    let clients = clients.into_iter();
    let clients = clients.filter_map(|client| client.client_secret.clone());
    let short_enough = |secret: &String| secret.len() <= LONGEST_TOKEN;
    let all = tokens.chain(clients).filter(short_enough);
    all.map(SecretText::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(json: serde_json::Value, received_at: u64) -> StoredCredentials {
        let response = serde_json::from_value(json).unwrap();
        StoredCredentials::new("c".into(), Some(response), Vec::new(), Some(received_at))
    }

    #[test]
    fn a_token_is_renewed_a_minute_before_its_end() {
        let now = unix_ms() / 1000;
        let answer = |life: u64| serde_json::json!({"access_token": "a", "token_type": "bearer", "expires_in": life, "refresh_token": "r"});
        let token = |life, age| Token::of(&stored(answer(life), now - age)).unwrap();
        assert!(token(3600, 0).is_fresh());
        assert!(!token(3600, 3541).is_fresh());
        assert!(token(3600, 3541).is_valid());
        assert!(!token(3600, 3601).is_valid());
        assert!(token(30, 5).is_fresh(), "a short one for half its lifetime");
        assert!(!token(30, 16).is_fresh());
        let endless = serde_json::json!({"access_token": "a", "token_type": "bearer"});
        let endless = Token::of(&stored(endless, 0)).unwrap();
        assert!(endless.is_fresh() && !endless.renewable);
        let shown = format!("{:?}", endless.header);
        assert_eq!(shown, "Sensitive", "it is never shown");
    }
}
