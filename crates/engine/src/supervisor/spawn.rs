//! Puts one server's runner on its way: remembers its catalog, has handle and runner made, and
//! tracks the task in which it runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gantry_model::id::ServerId;
use gantry_model::mcp::ClientCan;
use gantry_model::secret::SecretText;
use gantry_model::spec::{AuthKind, Launch, ServerSpec, Start};
use gantry_model::status::State;
use tracing::warn;

use super::Supervisor;
use crate::catalog::ServerCatalog;
use crate::credentials::{Credentials, Target};
use crate::server::begins::Begins;
use crate::server::handle::{Live, ServerHandle};
use crate::server::known::KnownSecrets;
use crate::server::listing::Listing;
use crate::server::logs::Logs;
use crate::transport::http::Way;

impl Supervisor {
    /// Starts the runner of a server and returns its handle.
    pub(super) async fn launch(
        &self,
        id: ServerId,
        spec: ServerSpec,
        created_ms: u64,
    ) -> ServerHandle {
        let spec = Arc::new(spec);
        let lazy = spec.start == Start::Lazy;
        let known = Arc::new(KnownSecrets::new(secrets(&spec)));
        let (first, live, remembered) = match spec.held() {
            Some((state, why)) => {
                let live = Live::Down(Arc::from(why), None);
                (state, live, ServerCatalog::empty())
            }
            None if lazy => {
                let remembered = self.remembered(id, &spec, &known).await;
                (State::Idle, Live::Cold, remembered)
            }
            None => {
                let remembered = self.remembered(id, &spec, &known).await;
                (State::Starting, Live::Starting, remembered)
            }
        };
        let credentials = self.credentials(id, &spec, &known).await;
        let remembered = Arc::new(remembered);
        let begins = Begins {
            id,
            created_ms,
            first,
            live,
            catalog: Arc::new(ArcSwap::new(Arc::clone(&remembered))),
            logs: Arc::new(Logs::new(Arc::clone(&known))),
            known,
            counters: Arc::default(),
            stop: self.stopping.child_token(),
            declares: ClientCan::NOTHING,
            refuses: None,
            credentials,
            topics: None,
        };
        let (handle, runner) = begins.assemble(&self.around, spec);
        runner
            .status
            .send_modify(|status| status.count(&remembered));
        let stopped = handle.stopped.clone();
        let profiles = Arc::clone(&handle.profiles);
        self.around.tracker.spawn(async move {
            runner.keep_running(lazy).await;
            profiles.close().await;
            stopped.cancel();
        });
        handle
    }

    /// Takes up what was kept of the sign-in to a remote server, unless a person's own header or the
    /// spec says that there is none.
    async fn credentials(
        &self,
        id: ServerId,
        spec: &ServerSpec,
        known: &Arc<KnownSecrets>,
    ) -> Option<Credentials> {
        let Launch::Remote(remote) = &spec.launch else {
            return None;
        };
        let is_own = |name: &String| name.eq_ignore_ascii_case("authorization");
        let is_off = remote.auth.kind == AuthKind::None || remote.headers.keys().any(is_own);
        if is_off || spec.held().is_some() {
            return None;
        }
        let way = match Way::new(&self.around.clients, remote) {
            Ok(way) => way,
            Err(error) => {
                warn!(server = %spec.name, %error, "the server cannot be signed in to");
                return None;
            }
        };
        let target = Target {
            server: spec.name.clone(),
            url: remote.url.parse().ok()?,
            auth: remote.auth.clone(),
            way,
            private: remote.allow_private,
            known: Arc::clone(known),
        };
        let drawer = self.around.vault.drawer(spec.name.clone(), id);
        let tracker = self.around.tracker.clone();
        Some(Credentials::open(target, drawer, tracker).await)
    }

    /// Returns what the server offered when it last ran, if its spec is unchanged.
    async fn remembered(
        &self,
        id: ServerId,
        spec: &ServerSpec,
        known: &KnownSecrets,
    ) -> ServerCatalog {
        match self.store.load_catalog(id).await {
            Ok(Some((fingerprint, hello, rows))) if fingerprint == spec.fingerprint() => {
                let hello = crate::server::handshake::Hello::from_json(&hello).map(Arc::new);
                let (redactor, filter) = (known.shared(), spec.tools.clone());
                // Schemas are looked at, which takes time.
                let recalling = tokio::task::spawn_blocking(move || {
                    let listing = Listing::from_rows(&rows, &redactor).filtered(&filter);
                    ServerCatalog::new(listing, hello)
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

/// What a server is given may be a secret of its own.
fn secrets(spec: &ServerSpec) -> Vec<SecretText> {
    match &spec.launch {
        Launch::Process(process) => process.secrets(),
        Launch::Remote(remote) => remote.secrets(),
    }
}
