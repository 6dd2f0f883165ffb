//! Authentication at a registry: a token from the server that the registry names, or a user name
//! and password for the registry itself.
//!
//! A token is requested for pulling this repository only, whatever scope the registry names.
//! Credentials are sent to token servers of the registry's own domain, and to those that the
//! options name.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use url::form_urlencoded::Serializer;
use url::{Host, Url};

use super::challenge::Challenge;
use super::{RegistryError, Session};
use crate::credentials::Credentials;
use crate::error::printable;

/// The largest response of a token server.
const TOKEN_BYTES: u64 = 256 << 10;
const LONGEST_TOKEN: usize = 64 << 10;

/// The `Authorization` header of each request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Authorization(HeaderValue);

impl Authorization {
    fn new(text: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    fn basic(user: &str, password: &str) -> Option<Self> {
        let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
        Self::new(&format!("Basic {pair}"))
    }

    pub(super) fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(..)")
    }
}

/// The credentials for the registry of a session.
#[derive(Debug)]
pub(super) struct SignIn {
    credentials: Option<Credentials>,
    current: Mutex<Option<Authorization>>,
    /// One task authenticates at a time; the others use its result.
    turn: tokio::sync::Mutex<()>,
}

#[derive(serde::Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl SignIn {
    pub(super) fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            current: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn current(&self) -> Option<Authorization> {
        self.current.lock().clone()
    }

    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }
}

impl Session {
    /// Answers a challenge; `shown` is the header that did not suffice.
    pub(super) async fn sign_in(
        &self,
        challenge: Challenge,
        shown: Option<Authorization>,
    ) -> Result<(), RegistryError> {
        let _turn = self.sign_in.turn.lock().await;
        if self.sign_in.current() != shown {
            return Ok(());
        }
        let authorization = match challenge {
            Challenge::Basic => self.password()?,
            Challenge::Bearer { realm, service } => {
                let token = self.token(&realm, service.as_deref()).await;
                token.map_err(|error| named(&realm, error))?
            }
        };
        *self.sign_in.current.lock() = Some(authorization);
        Ok(())
    }

    fn password(&self) -> Result<Authorization, RegistryError> {
        let refused = |why: &str| RegistryError::Unauthorized {
            shown: false,
            why: why.to_owned(),
        };
        match &self.sign_in.credentials {
            Some(Credentials::Basic { user, password }) => Authorization::basic(user, password)
                .ok_or_else(|| refused("the name or the password cannot be sent")),
            Some(Credentials::Token(_)) => Err(refused(
                "it requires a user name and a password, but only a token is configured",
            )),
            None => Err(refused("it requires a user name and a password")),
        }
    }

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<Authorization, TokenError> {
        let mut url = Url::parse(realm).map_err(|error| error.to_string())?;
        self.check_scheme(&url)?;
        let credentials = self.sign_in.credentials.as_ref();
        if credentials.is_some() && !self.may_know(&url) {
            return Err(TokenError::Why(format!(
                "it is not part of `{}`, so the credentials are not sent to it",
                self.image.registry()
            )));
        }
        let scope = format!("repository:{}:pull", self.image.repository());
        let request = match credentials {
            Some(Credentials::Token(token)) => {
                let mut form = Serializer::new(String::new());
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("service", service.unwrap_or_default());
                form.append_pair("client_id", "gantry");
                form.append_pair("scope", &scope);
                form.append_pair("refresh_token", token);
                let form_type = "application/x-www-form-urlencoded";
                let request = self.client.post(url.clone());
                request.header(CONTENT_TYPE, form_type).body(form.finish())
            }
            Some(Credentials::Basic { user, password }) => {
                add_query(&mut url, service, &scope);
                let shown = Authorization::basic(user, password);
                let shown = shown.ok_or_else(|| "the credentials cannot be sent".to_owned())?;
                self.client.get(url.clone()).header(AUTHORIZATION, shown.0)
            }
            None => {
                add_query(&mut url, service, &scope);
                self.client.get(url.clone())
            }
        };
        let response = self.send(request, &url, "the token server").await?;
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(TokenError::Registry(RegistryError::Unauthorized {
                shown: credentials.is_some(),
                why: format!("its token server answered {}", status.as_u16()),
            }));
        }
        if status != StatusCode::OK {
            return Err(TokenError::Why(format!("it answered {}", status.as_u16())));
        }
        let body = self.body(response, "the token", TOKEN_BYTES).await?;
        let answer: TokenAnswer = serde_json::from_slice(&body)
            .map_err(|_| "its answer is not the JSON of a token".to_owned())?;
        let token = answer.token.or(answer.access_token).unwrap_or_default();
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(TokenError::Why("its answer has no usable token".to_owned()));
        }
        let authorization = Authorization::new(&format!("Bearer {token}"));
        authorization.ok_or_else(|| TokenError::Why("its token cannot be sent".to_owned()))
    }

    /// Returns whether a token server may receive the credentials.
    fn may_know(&self, realm: &Url) -> bool {
        let Some(host) = realm.host() else {
            return false;
        };
        let own = self.options.token_servers.iter();
        own.map(String::as_str).any(|own| own == host.to_string())
            || self
                .base
                .host()
                .is_some_and(|base| is_one_site(&base, &host))
    }
}

/// An error of a token server.
enum TokenError {
    Registry(RegistryError),
    Why(String),
}

impl From<String> for TokenError {
    fn from(why: String) -> Self {
        Self::Why(why)
    }
}

impl From<RegistryError> for TokenError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

fn named(realm: &str, error: TokenError) -> RegistryError {
    match error {
        TokenError::Registry(error) => error,
        TokenError::Why(why) => RegistryError::Token {
            realm: printable(realm),
            why,
        },
    }
}

fn add_query(url: &mut Url, service: Option<&str>, scope: &str) {
    let mut query = url.query_pairs_mut();
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", scope);
}

/// Returns whether two hosts have one owner: they are equal, or below the same registered domain.
fn is_one_site(one: &Host<&str>, other: &Host<&str>) -> bool {
    let (Host::Domain(one), Host::Domain(other)) = (one, other) else {
        return one == other;
    };
    let labels = |name: &str| -> Vec<String> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name.split('.').rev().map(str::to_owned).collect()
    };
    let (one, other) = (labels(one), labels(other));
    let shared = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    // `co.uk` and the like are public suffixes.
    let is_country = |labels: &[String]| labels[0].len() == 2 && labels[1].len() <= 3;
    let least = match one.as_slice() {
        [_, _, ..] if is_country(&one) => 3,
        _ => 2,
    };
    one == other || shared >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_within_one_site() {
        let is_one_site = |one: &str, other: &str| {
            let host = |text: &str| Host::parse(text).unwrap();
            let borrow = |host: &Host| -> Host<String> { host.clone() };
            let (one, other) = (borrow(&host(one)), borrow(&host(other)));
            let view = |host: &'static Host| match host {
                Host::Domain(name) => Host::Domain(name.as_str()),
                Host::Ipv4(address) => Host::Ipv4(*address),
                Host::Ipv6(address) => Host::Ipv6(*address),
            };
            super::is_one_site(
                &view(Box::leak(Box::new(one))),
                &view(Box::leak(Box::new(other))),
            )
        };
        let same = [
            ("registry-1.docker.io", "auth.docker.io"),
            ("registry.gitlab.com", "gitlab.com"),
            ("ghcr.io", "ghcr.io"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("registry.firm.co.uk", "auth.firm.co.uk"),
        ];
        for (one, other) in same {
            assert!(is_one_site(one, other), "{one} {other}");
        }
        let different = [
            ("ghcr.io", "quay.io"),
            ("a.co.uk", "b.co.uk"),
            ("registry.firm.com", "firm.com.evil.net"),
            ("registry.firm.com", "evilfirm.com"),
            ("127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "localhost"),
            ("com", "example.com"),
        ];
        for (one, other) in different {
            assert!(!is_one_site(one, other), "{one} {other}");
        }
    }
}
