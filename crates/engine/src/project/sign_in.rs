//! Signing in to remote servers, for administrators: the link, the browser's answer, signing out.
//! `credentials` stores and sends the tokens. Entry points: `Project::begin_sign_in` and
//! `Project::finish_sign_in`.

use std::sync::Arc;

use gantry_model::event::EventKind;
use gantry_model::id::ServerName;
use gantry_model::status::ServerState;

use super::Project;
use crate::acts::{Actor, Draft};
use crate::credentials::{
    Credentials, SignInAnswer, SignInError, SignInLink, SignInState, SignInTrust, SignInView,
};
use crate::error::EngineError;
use crate::server::handle::{RunnerCommand, ServerHandle};

impl Project {
    /// Creates a link at which a person signs in to a remote server; the browser's answer must come
    /// to `redirect_uri`.
    pub async fn begin_sign_in(
        &self,
        by: impl Into<Actor>,
        server: &str,
        redirect_uri: &str,
        trust: SignInTrust,
    ) -> Result<SignInLink, EngineError> {
        let by = by.into();
        self.admit()?;
        let handle = self.of_sign_in(server)?;
        let credentials = taken(&handle)?;
        let detail = match trust {
            SignInTrust::Remembered => "",
            SignInTrust::Anew => "at whichever authorization server it names",
        };
        let draft = Draft::new("server.sign_in", handle.name.as_str()).detail(detail);
        let act = self.acts.begin(&by, draft).await?;
        let begun = credentials.begin(redirect_uri, trust).await;
        act.end(&begun).await;
        Ok(begun?)
    }

    /// Accepts a browser's answer, once, and starts a server that waited for it.
    pub(crate) async fn finish_sign_in(
        &self,
        by: impl Into<Actor>,
        answer: SignInAnswer,
    ) -> Result<ServerName, EngineError> {
        let by = by.into();
        self.admit()?;
        let handle = self.awaiting(&answer.state).ok_or(SignInError::Unknown)?;
        let draft = Draft::new("server.signed_in", handle.name.as_str());
        let act = self.acts.begin(&by, draft).await?;
        let finished = taken(&handle)?.finish(answer).await;
        act.end(&finished).await;
        finished?;
        let what = "signed in";
        let events = &self.router.events;
        events.report(&handle.name, EventKind::SignedIn, what);
        let waits = matches!(
            handle.status.borrow().state,
            ServerState::NeedsSignIn
                | ServerState::Starting
                | ServerState::Failed
                | ServerState::BackingOff
                | ServerState::Disconnected
        );
        if waits {
            // Additional instances that waited are started again when needed, too.
            handle.profiles.end_all();
            // A pending command is equal to this one.
            handle
                .commands
                .try_send(RunnerCommand::Restart)
                .unwrap_or_default();
        }
        Ok(handle.name.clone())
    }

    /// Returns whether a server waits for the answer of this sign-in.
    pub(crate) fn awaits_sign_in(&self, state: &str) -> bool {
        self.awaiting(state).is_some()
    }

    fn awaiting(&self, state: &str) -> Option<Arc<ServerHandle>> {
        let awaits = |handle: &Arc<ServerHandle>| {
            let credentials = handle.credentials.as_ref();
            credentials.is_some_and(|credentials| credentials.awaits(state))
        };
        self.supervisor.all().into_iter().find(awaits)
    }

    /// Returns the state of a server's sign-in.
    pub fn sign_in(&self, server: &str) -> Result<SignInView, EngineError> {
        let handle = self.of_sign_in(server)?;
        Ok(handle
            .credentials
            .as_ref()
            .map_or_else(nothing, Credentials::view))
    }

    /// Deletes a server's tokens, and revokes them if possible.
    pub async fn sign_out(&self, by: impl Into<Actor>, server: &str) -> Result<(), EngineError> {
        let by = by.into();
        let handle = self.of_sign_in(server)?;
        let credentials = taken(&handle)?;
        let draft = Draft::new("server.sign_out", handle.name.as_str());
        let act = self.acts.begin(&by, draft).await?;
        let ended = credentials.sign_out().await;
        act.end(&ended).await;
        ended?;
        let events = &self.router.events;
        events.report(&handle.name, EventKind::SignedOut, "signed out");
        Ok(())
    }

    fn of_sign_in(&self, server: &str) -> Result<Arc<ServerHandle>, EngineError> {
        let found = self.supervisor.find(server);
        found.ok_or_else(|| EngineError::UnknownServer {
            name: server.to_owned(),
        })
    }
}

fn taken(handle: &ServerHandle) -> Result<&Credentials, SignInError> {
    let not_taken = || SignInError::NotTaken {
        server: handle.name.clone(),
        why: "it is not remote, or has an `Authorization` header of its own",
    };
    handle.credentials.as_ref().ok_or_else(not_taken)
}

fn nothing() -> SignInView {
    SignInView {
        state: SignInState::NotTaken,
        link: None,
        issuer: None,
        scopes: Vec::new(),
        missing_scopes: Vec::new(),
        signed_in_ms: None,
        token_ends_ms: None,
        renewable: false,
        failure: None,
    }
}
