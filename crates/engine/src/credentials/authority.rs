//! The exchange with a server's authorization server: discovery, client registration, authorization
//! URL, tokens. rmcp implements OAuth; this module decides what is passed to it and which addresses
//! it may reach. Stores nothing. Entry point: [`Authority::find`].

use std::sync::Arc;
use std::time::Duration;

use gantry_model::id::ServerName;
use gantry_model::spec::RemoteAuth;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Request, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, AuthorizationMetadataSource, OAuthClientConfig,
};
use rmcp::transport::{
    AuthorizationManager, ClientCredentialsConfig, CredentialStore as _, InMemoryCredentialStore,
    StoredCredentials,
};
use tokio::time::timeout;
use tracing::{debug, warn};
use url::form_urlencoded::byte_serialize;

use super::EXCHANGE_WAIT;
use super::error::{SignInError, short};
use super::http::Outbound;
use super::issuer;
use super::token_store::{Intermediary, Registration};
use crate::http_client::Route;
use crate::known_secrets::KnownSecrets;

/// The client name that authorization servers show to people.
const CLIENT_NAME: &str = "Gantry";
/// Time limit for asking a server for its scopes when the configuration names the authorization
/// server.
const ASIDE: Duration = Duration::from_secs(5);

/// The remote server that tokens are for.
#[derive(Clone)]
pub(crate) struct Target {
    /// The server's name.
    pub(crate) server: ServerName,
    /// The server's URL.
    pub(crate) url: Url,
    /// The configured kind of sign-in.
    pub(crate) auth: RemoteAuth,
    /// The HTTP route to the authorization server, limited to the addresses that the spec allows.
    pub(crate) route: Route,
    /// Who passes the requests on to the server.
    pub(crate) intermediary: Intermediary,
    /// Whether the spec allows all private addresses.
    pub(crate) private: bool,
    /// The secrets to redact in the server's messages; tokens are added before they are sent.
    pub(crate) known: Arc<KnownSecrets>,
}

impl Target {
    /// Returns the resource that tokens are requested for: the URL without its query, which may
    /// contain a secret that the authorization server must not see.
    fn resource(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }
}

/// A discovered authorization server, and the gateway's client there.
pub(super) struct Authority {
    server: ServerName,
    manager: AuthorizationManager,
    /// The HTTP client of the manager's requests, unless any address is allowed.
    outbound: Arc<Outbound>,
    /// Where the OAuth client stores its tokens; they are encrypted and stored from here.
    memory: InMemoryCredentialStore,
    metadata: AuthorizationMetadata,
    /// Whether the server is its own authorization server without metadata (2025-03-26).
    is_unpublished: bool,
}

impl Authority {
    /// Finds a server's authorization server: the configured one, or else by the server's challenge
    /// if it sent one.
    pub(super) async fn find(
        target: &Target,
        challenge: Option<&str>,
    ) -> Result<Self, SignInError> {
        let outbound = Arc::new(Outbound::new(target.route.clone()));
        let failed = |error| SignInError::of(&target.server, error);
        let unusable = |why| SignInError::Unavailable {
            server: target.server.clone(),
            why,
        };
        let url = target.resource();
        let mut manager = if target.private {
            let client = target.route.client().await;
            let client = client.map_err(|error| unusable(error.to_string()))?;
            let mut manager = AuthorizationManager::new_allowing_private_addresses(url)
                .await
                .map_err(failed)?;
            manager.with_client(client.clone()).map_err(failed)?;
            manager
        } else {
            let outbound = Arc::clone(&outbound);
            AuthorizationManager::new_with_oauth_http_client(url, outbound)
                .await
                .map_err(failed)?
        };
        let memory = InMemoryCredentialStore::new();
        manager.set_credential_store(memory.clone());
        let late = |_elapsed| unusable(format!("it was not found within {EXCHANGE_WAIT:?}"));
        // Metadata from its own address, not from a third party.
        let published = async |issuer: &str| {
            let asking = issuer::published(&outbound, issuer);
            let published = timeout(EXCHANGE_WAIT, asking).await.map_err(late)?;
            published.map_err(|why| unusable(outbound.refusal().unwrap_or(why)))
        };
        // One time limit for all: a server may name any number of addresses.
        let finding = manager.resolve_metadata_from_challenge(challenge);
        let (metadata, is_unpublished) = if let Some(issuer) = &target.auth.issuer {
            // The server is asked only for the scopes it needs.
            match timeout(ASIDE, finding).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    debug!(server = %target.server, %error, "the server names no authorization server")
                }
                Err(_elapsed) => {
                    debug!(server = %target.server, "the server names no authorization server in time")
                }
            }
            drop(outbound.refusal());
            (published(issuer).await?, false)
        } else {
            let found = timeout(EXCHANGE_WAIT, finding).await.map_err(late)?;
            let found = found.map_err(|error| unavailable(&target.server, &outbound, &error))?;
            // Metadata that the server publishes at its own address.
            let is_own = matches!(
                found.source,
                AuthorizationMetadataSource::AuthorizationServerMetadata
                    | AuthorizationMetadataSource::LegacyEndpointFallback
            );
            if is_own {
                let is_unpublished = !found.source.is_discovered();
                (found.metadata, is_unpublished)
            } else {
                let nameless = "its metadata have no `issuer`";
                let issuer = found.metadata.issuer;
                let issuer = issuer.ok_or_else(|| unusable(nameless.to_owned()))?;
                (published(&issuer).await?, false)
            }
        };
        issuer::check(&metadata).map_err(unusable)?;
        manager.set_metadata(metadata.clone());
        Ok(Self {
            server: target.server.clone(),
            manager,
            outbound,
            memory,
            metadata,
            is_unpublished,
        })
    }

    /// Returns its issuer identifier.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.metadata.issuer.as_deref()
    }

    /// Selects the client: the configured one, else the URL of Gantry's client metadata document if
    /// it is supported, else the client registered earlier, else a newly registered one.
    pub(super) async fn enrol(
        &mut self,
        auth: &RemoteAuth,
        known: Option<Registration>,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<Registration, SignInError> {
        if !self.is_unpublished && !self.takes_pkce() {
            return Err(SignInError::Unavailable {
                server: self.server.clone(),
                why: "its metadata do not offer PKCE with `S256`".to_owned(),
            });
        }
        let made = |client_id: &str, client_secret: Option<&String>| Registration {
            issuer: self.metadata.issuer.clone(),
            client_id: client_id.to_owned(),
            client_secret: client_secret.cloned(),
            redirect_uri: redirect_uri.to_owned(),
        };
        let takes_documents = self
            .metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .is_some_and(|supported| supported == true);
        let known =
            known.filter(|known| known.redirect_uri == redirect_uri && self.is_same_issuer(known));
        let document = auth.client_metadata_url.as_deref();
        let registration = if let Some(id) = &auth.client_id {
            made(id, auth.client_secret.as_ref())
        } else if let Some(url) = document.filter(|_| takes_documents) {
            made(url, None)
        } else if let Some(known) = known.filter(|known| !known.client_id.contains("://")) {
            known
        } else {
            let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let registering = self
                .manager
                .register_client(CLIENT_NAME, redirect_uri, &scopes);
            let config = registering
                .await
                .map_err(|error| self.unavailable(&error))?;
            made(&config.client_id, config.client_secret.as_ref())
        };
        self.speak_as(&registration)?;
        Ok(registration)
    }

    /// Uses a client that was registered earlier.
    pub(super) fn speak_as(&mut self, registration: &Registration) -> Result<(), SignInError> {
        let mut config =
            OAuthClientConfig::new(&registration.client_id, &registration.redirect_uri);
        if let Some(secret) = &registration.client_secret {
            config = config.with_client_secret(secret);
        }
        self.manager
            .configure_client(config)
            .map_err(|error| self.unavailable(&error))
    }

    /// Returns the scopes to request: the configured ones, else those the server asks for, and in
    /// any case those granted earlier and those found missing since.
    pub(super) async fn scopes(&self, configured: &[String], more: &[String]) -> Vec<String> {
        let mut scopes = configured.to_vec();
        if scopes.is_empty() {
            scopes = self.manager.select_initial_scopes(&[]).await;
        }
        let offline = "offline_access".to_owned();
        let supported = self.metadata.scopes_supported.as_deref();
        let offers_offline = supported.is_some_and(|all| all.contains(&offline));
        for scope in more {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        if offers_offline && !scopes.is_empty() && !scopes.contains(&offline) {
            scopes.push(offline);
        }
        scopes
    }

    /// Returns the authorization URL for a person, and the `state` that the answer will carry.
    pub(super) async fn link(&self, scopes: &[String]) -> Result<(String, String), SignInError> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let link = self.manager.get_authorization_url(&scopes).await;
        let link = link.map_err(|error| self.unavailable(&error))?;
        let wrong = || SignInError::Unavailable {
            server: self.server.clone(),
            why: "its authorization endpoint is not a web address".to_owned(),
        };
        let url = Url::parse(&link).map_err(|_| wrong())?;
        // Only web pages are passed to a browser. fault U9
        if !matches!(url.scheme(), "https" | "http") {
            return Err(wrong());
        }
        let state = url.query_pairs().find(|(key, _)| key == "state");
        let (_, state) = state.ok_or_else(wrong)?;
        Ok((link.clone(), state.into_owned()))
    }

    /// Exchanges the code of a sign-in for tokens. The answer must come from this authorization
    /// server.
    pub(super) async fn redeem(
        &self,
        code: &str,
        state: &str,
        issuer: Option<&str>,
    ) -> Result<StoredCredentials, SignInError> {
        let exchange = self
            .manager
            .exchange_code_for_token_with_issuer(code, state, issuer);
        exchange.await.map_err(|error| self.failed(error))?;
        self.got().await
    }

    /// Refreshes tokens, as the client that they were issued to.
    pub(super) async fn renew(
        &self,
        stored: StoredCredentials,
        auth: &RemoteAuth,
    ) -> Result<StoredCredentials, Renewal> {
        let is_own_client = auth.client_id.is_none();
        let put = self.memory.save(stored).await;
        put.map_err(|error| Renewal::Failed(self.failed(error)))?;
        match self.manager.refresh_token().await {
            Ok(_) => self.got().await.map_err(Renewal::Failed),
            Err(AuthError::TokenRefreshRejected(why)) => Err(Renewal::Rejected(short(&why))),
            Err(AuthError::AuthorizationRequired) => {
                Err(Renewal::Rejected("there is no refresh token".to_owned()))
            }
            // It no longer knows the client it registered, so a refresh can never succeed.
            Err(AuthError::TokenRefreshFailed(why)) if is_own_client && is_forgotten(&why) => {
                Err(Renewal::Rejected(short(&why)))
            }
            Err(AuthError::TokenRefreshFailed(why)) => {
                let server = self.server.clone();
                let why = self.outbound.refusal().unwrap_or_else(|| short(&why));
                Err(Renewal::Failed(SignInError::Unavailable { server, why }))
            }
            Err(error) => Err(Renewal::Failed(self.failed(error))),
        }
    }

    /// Gets a token by client credentials.
    pub(super) async fn credentials(
        &mut self,
        target: &Target,
        scopes: &[String],
    ) -> Result<StoredCredentials, SignInError> {
        let auth = &target.auth;
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: auth.client_id.clone().unwrap_or_default(),
            client_secret: auth.client_secret.clone().unwrap_or_default(),
            scopes: scopes.to_vec(),
            resource: Some(target.resource().to_string()),
        };
        self.manager
            .validate_client_credentials_metadata(&config)
            .map_err(|error| self.failed(error))?;
        self.manager
            .configure_client_credentials(&config)
            .map_err(|error| self.failed(error))?;
        let exchanged = self.manager.exchange_client_credentials(&config).await;
        exchanged.map_err(|error| self.failed(error))?;
        self.got().await
    }

    /// Revokes a token if the authorization server supports it (RFC 7009). Best effort: the token
    /// is deleted here in any case.
    pub(super) async fn revoke(&self, route: &Route, client: &Registration, token: &str) {
        let identity = match route.client().await {
            Ok(identity) => identity,
            Err(error) => {
                warn!(server = %self.server, %error, "a token could not be revoked");
                return;
            }
        };
        let Some(request) = self.revocation(identity, client, token) else {
            return;
        };
        match route.execute(request).await {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => {
                let status = answer.status().as_u16();
                warn!(server = %self.server, status, "a token could not be revoked");
            }
            Err(error) => {
                warn!(server = %self.server, %error, "a token could not be revoked");
            }
        }
    }

    fn revocation(&self, identity: &Client, client: &Registration, token: &str) -> Option<Request> {
        let endpoint = self.metadata.additional_fields.get("revocation_endpoint");
        let mut request = identity.post(endpoint?.as_str()?);
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token);
        match &client.client_secret {
            Some(secret) if self.takes_basic() => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                request = request.basic_auth(encoded(&client.client_id), Some(encoded(secret)));
            }
            secret => {
                form.append_pair("client_id", &client.client_id);
                form.extend_pairs(secret.iter().map(|secret| ("client_secret", secret)));
            }
        }
        request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.finish())
            .build()
            .ok()
    }

    /// Returns the tokens that the OAuth client received.
    async fn got(&self) -> Result<StoredCredentials, SignInError> {
        let nothing = || SignInError::Unavailable {
            server: self.server.clone(),
            why: "its response has no token".to_owned(),
        };
        let stored = self.memory.load().await;
        stored.ok().flatten().ok_or_else(nothing)
    }

    /// Converts an error of the OAuth client; reports a refused address if that was the cause.
    fn failed(&self, error: AuthError) -> SignInError {
        match self.outbound.refusal() {
            Some(why) => SignInError::Unavailable {
                server: self.server.clone(),
                why,
            },
            None => SignInError::of(&self.server, error),
        }
    }

    fn unavailable(&self, error: &AuthError) -> SignInError {
        unavailable(&self.server, &self.outbound, error)
    }

    /// Returns whether a client secret is sent in a header, which is the default, or in the form.
    fn takes_basic(&self) -> bool {
        let methods = [
            "revocation_endpoint_auth_methods_supported",
            "token_endpoint_auth_methods_supported",
        ];
        let fields = &self.metadata.additional_fields;
        let said = methods
            .iter()
            .find_map(|name| fields.get(*name)?.as_array());
        said.is_none_or(|said| said.iter().any(|method| method == "client_secret_basic"))
    }

    fn takes_pkce(&self) -> bool {
        let methods = self.metadata.code_challenge_methods_supported.as_deref();
        methods.is_some_and(|methods| methods.iter().any(|method| method == "S256"))
    }

    fn is_same_issuer(&self, known: &Registration) -> bool {
        known.issuer == self.metadata.issuer
    }
}

/// Why tokens were not refreshed.
pub(super) enum Renewal {
    /// The old tokens are invalid.
    Rejected(String),
    /// The refresh may succeed later.
    Failed(SignInError),
}

/// Returns whether the authorization server reports an unknown client.
pub(super) fn is_forgotten(why: &str) -> bool {
    why.contains("invalid_client")
}

/// Returns the error for an authorization server that cannot be found, reached or used; names the
/// refused address if that was the cause.
fn unavailable(server: &ServerName, outbound: &Outbound, error: &AuthError) -> SignInError {
    let refusal = outbound.refusal();
    SignInError::Unavailable {
        server: server.clone(),
        why: refusal.unwrap_or_else(|| short(&error.to_string())),
    }
}
