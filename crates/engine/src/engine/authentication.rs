//! Who calls: keys and tokens of all projects, without I/O. Entry points: [`Engine::authenticate`] and
//! [`Engine::authenticate_token`].

use std::net::IpAddr;

use gantry_model::caller::Caller;
use tokio::sync::watch;

use super::Engine;
use crate::access::{SourceRefused, digest};
use crate::tokens::TokenError;

impl Engine {
    /// Returns the caller of a key of any project, without I/O.
    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        let digest = digest(key);
        let projects = self.inner.projects.load();
        let mut projects = projects.values();
        let found = projects.find_map(|project| project.access.authenticate(&digest));
        found.or_else(|| {
            // Their keys are known, so that callers get a specific error.
            let unloaded = self.inner.unloaded.load();
            let mut unloaded = unloaded.values();
            unloaded.find_map(|access| access.authenticate(&digest))
        })
    }

    /// Returns the caller of a token, if the credential is one and issuers are configured; the
    /// error says why it is refused. Without I/O.
    pub fn authenticate_token(&self, credential: &str) -> Option<Result<Caller, TokenError>> {
        let tokens = &self.inner.machine.tokens;
        if !tokens.is_token(credential) {
            return None;
        }
        let caller = tokens.verify(credential).and_then(|verified| {
            let project = self.project(&verified.project);
            let caller = project.and_then(|project| project.access.of_token(&verified));
            caller.ok_or(TokenError::NoAgent)
        });
        Some(caller)
    }

    /// Returns the required audience of tokens; that of the first issuer if they differ.
    pub fn token_audience(&self) -> Option<String> {
        let issuer = self.inner.machine.config.issuers.first()?;
        Some(issuer.audience.clone())
    }

    /// Returns the authorization servers whose tokens are accepted.
    pub fn issuers(&self) -> Vec<String> {
        self.inner.machine.tokens.issuers()
    }

    /// Returns whether the store has been unavailable for so long that a key may have been revoked
    /// on another gateway: then no key is trusted until it is back. Never for a file.
    pub fn keys_are_stale(&self) -> bool {
        self.inner.default.access.is_stale()
    }

    /// Returns the current state of a caller's key, with its current grants; `None` if it was
    /// revoked or has expired. Computes no hash.
    pub fn current(&self, caller: &Caller) -> Option<Caller> {
        self.of(caller)?.access.current(caller)
    }

    /// Notes that a caller's key is used from an address; refuses one that it may not be used from.
    pub fn enter(&self, caller: &Caller, from: Option<IpAddr>) -> Result<(), SourceRefused> {
        match self.of(caller) {
            Some(project) => project.access.enter(caller, from),
            // Who is in no open project is refused further on.
            None => Ok(()),
        }
    }

    /// Returns a counter that changes whenever keys were created, changed or ended.
    pub fn key_changes(&self) -> watch::Receiver<u64> {
        self.inner.machine.keys_changed.subscribe()
    }
}
