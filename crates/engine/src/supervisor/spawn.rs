//! Starts the runner of one server: loads its saved catalog and credentials, makes handle and runner,
//! and tracks the task.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCapabilities;
use gantry_model::spec::{AuthKind, ServerSpec, Start};
use gantry_model::status::ServerState;
use tracing::warn;

use super::Supervisor;
use crate::credentials::{Credentials, Intermediary, Target};
use crate::http_client::Route;
use crate::known_secrets::KnownSecrets;
use crate::server::assemble::InstanceParts;
use crate::server::catalog::ServerCatalog;
use crate::server::handle::{LinkState, ServerHandle};
use crate::server::listing::Listing;
use crate::server::logs::Logs;

/// Why a server that replaces another has not started yet.
const REPLACED: &str = "it was changed, and its old process is ending";

impl Supervisor {
    /// Starts the runner of a server and returns its handle. It starts nothing before the process of
    /// the server that it replaces has ended.
    pub(super) async fn launch(
        &self,
        id: ServerId,
        spec: ServerSpec,
        created_ms: u64,
        replaced: Option<&Arc<ServerHandle>>,
    ) -> Arc<ServerHandle> {
        let spec = self.held_elsewhere(id, spec).await;
        let spec = Arc::new(self.held_suspended(spec));
        let lazy = spec.start == Start::Lazy;
        let known = Arc::new(KnownSecrets::new(spec.launch.secrets()));
        let (first, live, remembered) = match spec.held() {
            Some((state, why)) => {
                let live = LinkState::Down(Arc::from(why), None);
                (state, live, ServerCatalog::empty())
            }
            None if lazy => {
                let remembered = self.remembered(id, &spec, &known).await;
                (ServerState::Idle, LinkState::Cold, remembered)
            }
            None => {
                let remembered = self.remembered(id, &spec, &known).await;
                let first = match replaced {
                    Some(_) => ServerState::Restarting,
                    None => ServerState::Starting,
                };
                (first, LinkState::Starting, remembered)
            }
        };
        let credentials = self.credentials(id, &spec, &known).await;
        let remembered = Arc::new(remembered);
        let parts = InstanceParts {
            id,
            created_ms,
            first,
            live,
            catalog: Arc::new(ArcSwap::new(Arc::clone(&remembered))),
            logs: Arc::new(Logs::new(Arc::clone(&known))),
            known,
            counters: Arc::default(),
            stop: self.stopping.child_token(),
            declares: ClientCapabilities::NOTHING,
            refuses: None,
            credentials,
            topics: None,
        };
        let (handle, mut runner) = parts.assemble(&self.context, spec);
        runner.status.send_modify(|status| {
            status.count(&remembered);
            if status.state == ServerState::Restarting {
                status.reason = Some(REPLACED.to_owned());
            }
        });
        let events = self.context.events.clone();
        let watching = events.watch_status(handle.name.clone(), handle.status.clone());
        self.context.tracker.spawn(watching);
        let stopped = handle.stopped.clone();
        let profiles = Arc::clone(&handle.profiles);
        let replaced = replaced.cloned();
        self.context.tracker.spawn(async move {
            if let Some(replaced) = replaced {
                replaced.stopped.cancelled().await;
                if !lazy {
                    // A restart that was requested meanwhile is the start that follows.
                    runner.commands.try_recv().ok();
                }
            }
            runner.keep_running(lazy).await;
            profiles.close().await;
            stopped.cancel();
        });
        handle
    }

    /// Loads the stored sign-in to a remote server, unless the spec turns it off or sets the header.
    async fn credentials(
        &self,
        id: ServerId,
        spec: &ServerSpec,
        known: &Arc<KnownSecrets>,
    ) -> Option<Credentials> {
        let remote = spec.launch.remote()?;
        let is_own = |name: &String| name.eq_ignore_ascii_case("authorization");
        let is_off = remote.auth.kind == AuthKind::None || remote.headers.keys().any(is_own);
        if is_off || spec.held().is_some() {
            return None;
        }
        let route = match Route::new(&self.context.clients, remote) {
            Ok(route) => route,
            Err(error) => {
                warn!(server = %spec.name, %error, "the server cannot be signed in to");
                return None;
            }
        };
        let target = Target {
            server: spec.name.clone(),
            url: remote.url.parse().ok()?,
            auth: remote.auth.clone(),
            route,
            intermediary: Intermediary::of(remote),
            private: remote.allow_private,
            known: Arc::clone(known),
        };
        let vault = self.context.vault.scope(spec.name.clone(), id);
        let tracker = self.context.tracker.clone();
        Some(Credentials::open(target, vault, tracker).await)
    }

    /// Returns the saved catalog, if the spec is unchanged.
    async fn remembered(
        &self,
        id: ServerId,
        spec: &ServerSpec,
        known: &KnownSecrets,
    ) -> ServerCatalog {
        match self.store.load_catalog(id).await {
            Ok(Some((fingerprint, handshake, rows))) if fingerprint == spec.fingerprint() => {
                let handshake =
                    crate::server::handshake::HandshakeInfo::from_json(&handshake).map(Arc::new);
                let (redactor, filter) = (known.shared(), spec.tools.clone());
                // Schemas are compiled, which takes time.
                let recalling = tokio::task::spawn_blocking(move || {
                    let listing = Listing::from_rows(&rows, &redactor).filtered(&filter);
                    ServerCatalog::new(listing, handshake)
                });
                let panicked = |_| ServerCatalog::empty();
                recalling.await.unwrap_or_else(panicked)
            }
            Ok(_) => ServerCatalog::empty(),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(server = %spec.name, error, "the remembered catalog cannot be read");
                ServerCatalog::empty()
            }
        }
    }
}
