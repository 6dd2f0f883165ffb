//! Credentials against a local authorization server: what is sent when, and to whom.

mod trust;

use gantry_model::id::{ProjectName, ServerId};
use gantry_model::spec::{RemoteAuth, RemoteLaunch};
use gantry_store::Store;
use gantry_testkit::{AuthOptions, AuthServer, IssuerSaid};
use reqwest::Url;
use tempfile::TempDir;

use super::*;
use crate::http_client::Route;
use crate::known_secrets::KnownSecrets;

const CALLBACK: &str = "http://127.0.0.1:9/oauth/callback";

/// A data folder and the store in it.
struct Place {
    folder: TempDir,
    store: Store,
    tracker: TaskTracker,
    /// The secrets that are redacted for the server.
    known: Arc<KnownSecrets>,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(folder.path()).await;
        Self {
            folder,
            store,
            tracker: TaskTracker::new(),
            known: Arc::default(),
        }
    }

    /// Opens the credentials of the server, as a start of the gateway does.
    async fn open(&self, url: &str, auth: serde_json::Value) -> Credentials {
        let launch = RemoteLaunch::new(url);
        let route = Route::new(&Arc::default(), &launch).unwrap();
        // Installs the TLS provider, which the tests' own clients need, too.
        route.client().await.unwrap();
        let auth: RemoteAuth = serde_json::from_value(auth).unwrap();
        auth.check().unwrap();
        let target = Target {
            server: "a".parse().unwrap(),
            url: Url::parse(url).unwrap(),
            auth,
            route,
            intermediary: super::Intermediary::of(&launch),
            private: false,
            known: Arc::clone(&self.known),
        };
        let project = ProjectName::local();
        let vault = Vault::open(self.folder.path(), project, self.store.clone(), None);
        let vault = vault.scope(target.server.clone(), ServerId::from_random(1));
        Credentials::open(target, vault, self.tracker.clone()).await
    }

    /// Returns every byte of the folder's files.
    fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.unwrap().path());
        files.flat_map(|file| read(file).unwrap()).collect()
    }
}

fn outbound() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy();
    let client = client.redirect(reqwest::redirect::Policy::none());
    client.build().unwrap()
}

/// Opens a link as a browser does and returns the parameters of its answer.
async fn browse(link: &str) -> SignInAnswer {
    let answer = outbound().get(link).send().await.unwrap();
    assert_eq!(answer.status(), 302, "{}", answer.text().await.unwrap());
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let place = Url::parse(&place).unwrap();
    let mut brought = SignInAnswer::default();
    for (name, value) in place.query_pairs() {
        let value = value.into_owned();
        match &*name {
            "state" => brought.state = value,
            "code" => brought.code = Some(value),
            "iss" => brought.issuer = Some(value),
            "error" => brought.error = Some(value),
            _ => {}
        }
    }
    brought
}

async fn begin(credentials: &Credentials) -> Result<SignInLink, SignInError> {
    credentials.begin(CALLBACK, SignInTrust::Remembered).await
}

async fn sign_in(credentials: &Credentials) {
    let begun = begin(credentials).await.unwrap();
    assert_eq!(credentials.view().link.unwrap().link, begun.link);
    let brought = browse(&begun.link).await;
    assert!(credentials.awaits(&brought.state));
    credentials.finish(brought).await.unwrap();
    assert_eq!(credentials.view().state, SignInState::SignedIn);
}

/// Calls a tool as the transport does, and returns the final status.
async fn call(credentials: &Credentials, url: &str, tool: &str) -> Result<u16, SignInError> {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}});
    let mut again = true;
    loop {
        let used = credentials.bearer().await?;
        let mut request = outbound().post(url).body(body.to_string());
        if let Some(header) = &used {
            request = request.header("authorization", header);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        if let Some(used) = used.as_ref().filter(|_| status != 401) {
            credentials.accepted(used);
        }
        if !matches!(status, 401 | 403) || !again {
            return Ok(status);
        }
        let challenge = answer.headers().get("www-authenticate");
        let challenge = challenge.map(|text| text.to_str().unwrap());
        match credentials
            .refused(used.as_ref(), status, challenge)
            .await?
        {
            Retry::Now => again = false,
            Retry::No => return Ok(status),
        }
    }
}

fn auto() -> serde_json::Value {
    serde_json::json!({})
}

#[tokio::test]
async fn a_person_signs_in_and_stays_so_after_a_restart() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    assert_eq!(credentials.view().state, SignInState::SignedOut);
    sign_in(&credentials).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(peer.registered(), 1, "registered by itself");
    let view = credentials.view();
    assert!(view.issuer.unwrap().ends_with("/tenant-0"));
    assert!(view.scopes.contains(&"mcp".to_owned()));
    assert!(view.renewable && view.token_ends_ms.is_some() && view.link.is_none());
    // The stored tokens are loaded again, and the files do not show them.
    let again = place.open(&url, auto()).await;
    assert_eq!(call(&again, &url, "whoami").await.unwrap(), 200);
    place.store.sync().await.unwrap();
    let kept = place.bytes();
    for secret in peer.secrets() {
        let secret = secret.as_bytes();
        let seen = kept.windows(secret.len()).any(|part| part == secret);
        assert!(!seen, "a secret is on the disk in clear");
    }
    // A second sign-in uses the client that was registered.
    sign_in(&again).await;
    assert_eq!(peer.registered(), 1);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_once_for_all() {
    let peer = AuthServer::start(AuthOptions {
        secrets: true,
        ..AuthOptions::default()
    });
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    let first = credentials.bearer().await.unwrap();
    // As if most of the token's hour were over.
    credentials.inner.held().token.as_mut().unwrap().received_ms -= 3_550_000;
    let asking = || credentials.bearer();
    let (one, two, three) = tokio::join!(asking(), asking(), asking());
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 1);
    assert!(one != first && one == two && two == three);
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    // Refresh tokens rotate; the last one is stored.
    let again = place.open(&url, auto()).await;
    again.inner.held().token.as_mut().unwrap().received_ms -= 3_610_000;
    assert_eq!(call(&again, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_lose_the_renewed_token() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    credentials.inner.held().token.as_mut().unwrap().received_ms -= 3_610_000;
    let left = timeout(Duration::ZERO, credentials.bearer()).await;
    assert!(left.is_err(), "it takes longer than no time");
    // The old refresh token is used up; the new one must have been stored.
    assert!(credentials.bearer().await.unwrap().is_some());
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 1);
}

#[tokio::test]
async fn who_waits_too_long_for_its_turn_uses_up_no_refresh_token() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    credentials.inner.held().token.as_mut().unwrap().received_ms -= 3_610_000;
    let turn = credentials.inner.turn.lock().await;
    let mut waiting = Box::pin(credentials.bearer());
    let early = timeout(Duration::from_millis(20), &mut waiting).await;
    assert!(early.is_err(), "it waits for its turn");
    tokio::time::pause();
    tokio::time::advance(EXCHANGE_WAIT + Duration::from_secs(1)).await;
    tokio::time::resume();
    let late = waiting.await.unwrap_err();
    assert!(matches!(late, SignInError::Unavailable { .. }), "{late}");
    // No background work is left that could start later.
    place.tracker.close();
    let ended = timeout(Duration::from_secs(20), place.tracker.wait()).await;
    ended.unwrap();
    drop(turn);
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 0);
    place.tracker.reopen();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_by_all_who_were_refused() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    peer.expire_access_tokens();
    let calls = (0..8).map(|_| call(&credentials, &url, "whoami"));
    let ended = futures_util::future::join_all(calls).await;
    assert!(ended.into_iter().all(|status| status.unwrap() == 200));
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 1);
}

#[tokio::test]
async fn a_refused_refresh_token_ends_the_sign_in() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    peer.expire_access_tokens();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    peer.revoke_refresh_tokens();
    peer.expire_access_tokens();
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    assert!(refused.to_string().contains("the sign-in has ended"));
    assert_eq!(credentials.view().state, SignInState::SignedOut);
    let again = place.open(&url, auto()).await;
    assert!(
        again.bearer().await.unwrap().is_none(),
        "forgotten for good"
    );
    sign_in(&again).await;
    assert_eq!(call(&again, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn more_scopes_are_asked_for_in_addition_to_those_held() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    let refused = call(&credentials, &url, "administer").await.unwrap_err();
    assert!(matches!(&refused, SignInError::Scope { scope, .. } if scope == "admin"));
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(credentials.view().missing_scopes, ["admin"]);
    sign_in(&credentials).await;
    let scopes = credentials.view().scopes;
    assert!(scopes.contains(&"mcp".to_owned()) && scopes.contains(&"admin".to_owned()));
    assert_eq!(call(&credentials, &url, "administer").await.unwrap(), 200);
    assert!(credentials.view().missing_scopes.is_empty());
}

#[tokio::test]
async fn client_credentials_need_no_person() {
    let peer = AuthServer::start(AuthOptions {
        registration: false,
        clients: vec![("machine".into(), "s3cret".into())],
        ..AuthOptions::default()
    });
    let (place, url) = (Place::new().await, peer.mcp_url());
    let auth = |secret: &str| {
        serde_json::json!({"kind": "client_credentials", "client_id": "machine",
            "client_secret": secret})
    };
    let credentials = place.open(&url, auth("s3cret")).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    // More scopes are requested without a person.
    assert_eq!(call(&credentials, &url, "administer").await.unwrap(), 200);
    peer.expire_access_tokens();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(peer.count("POST /tenant-0/token client_credentials"), 3);
    let link = begin(&credentials).await.unwrap_err();
    assert!(matches!(link, SignInError::NotTaken { .. }));
    assert_eq!(credentials.view().state, SignInState::NotTaken);
    let wrong = place.open(&url, auth("guessed")).await;
    let refused = call(&wrong, &url, "whoami").await.unwrap_err();
    assert!(matches!(refused, SignInError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_configured_client_goes_before_a_document_and_that_before_registration() {
    let document = "https://gantry.example/client.json";
    let peer = AuthServer::start(AuthOptions {
        documents: vec![document.into()],
        clients: vec![("by-hand".into(), "s3cret".into())],
        ..AuthOptions::default()
    });
    let url = peer.mcp_url();
    let by_hand = serde_json::json!({"client_id": "by-hand", "client_secret": "s3cret", "client_metadata_url": document});
    let by_document = serde_json::json!({ "client_metadata_url": document });
    for (auth, id) in [(by_hand, "by-hand"), (by_document, document)] {
        let place = Place::new().await;
        let credentials = place.open(&url, auth).await;
        let link = Url::parse(&begin(&credentials).await.unwrap().link).unwrap();
        let asked = link.query_pairs().find(|(name, _)| name == "client_id");
        assert_eq!(asked.unwrap().1, id);
        sign_in(&credentials).await;
        peer.expire_access_tokens();
        assert_eq!(
            call(&credentials, &url, "whoami").await.unwrap(),
            200,
            "{id}"
        );
    }
    assert_eq!(peer.registered(), 0);
}

#[tokio::test]
async fn an_answer_counts_only_from_who_was_asked() {
    for said in [IssuerSaid::Wrong, IssuerSaid::Nothing] {
        let peer = AuthServer::start(AuthOptions {
            issuer_said: said,
            ..AuthOptions::default()
        });
        let place = Place::new().await;
        let credentials = place.open(&peer.mcp_url(), auto()).await;
        let begun = begin(&credentials).await.unwrap();
        let brought = browse(&begun.link).await;
        let refused = credentials.finish(brought.clone()).await.unwrap_err();
        assert!(matches!(refused, SignInError::Issuer { .. }), "{refused}");
        assert_eq!(
            peer.count("POST /tenant-0/token"),
            0,
            "the code went nowhere"
        );
        assert!(credentials.view().failure.is_some());
        // After that, not even the right answer is accepted.
        let again = credentials.finish(brought).await.unwrap_err();
        assert!(matches!(again, SignInError::Unknown));
    }
}

#[tokio::test]
async fn an_answer_is_taken_once_and_no_other_is() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    let begun = begin(&credentials).await.unwrap();
    let brought = browse(&begun.link).await;
    let mut forged = brought.clone();
    forged.state = "guessed".into();
    assert!(!credentials.awaits("guessed"));
    let refused = credentials.finish(forged).await.unwrap_err();
    assert!(matches!(refused, SignInError::Unknown));
    credentials.finish(brought.clone()).await.unwrap();
    let again = credentials.finish(brought).await.unwrap_err();
    assert!(matches!(again, SignInError::Unknown));
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn a_person_may_say_no() {
    let peer = AuthServer::start(AuthOptions {
        denies: true,
        ..AuthOptions::default()
    });
    let place = Place::new().await;
    let credentials = place.open(&peer.mcp_url(), auto()).await;
    let begun = begin(&credentials).await.unwrap();
    let brought = browse(&begun.link).await;
    let refused = credentials.finish(brought).await.unwrap_err();
    assert!(refused.to_string().contains("access_denied"), "{refused}");
}

#[tokio::test]
async fn tokens_go_to_no_other_server_and_no_other_authorization_server() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    // The server now names another authorization server: the refresh token is not sent to it.
    peer.move_issuer();
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    assert!(refused.to_string().contains("is no longer"), "{refused}");
    assert_eq!(peer.count("POST /tenant-1/token"), 0);
    sign_in(&credentials).await;
    assert_eq!(peer.registered(), 2, "a client is the issuer's, too");
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    // Another URL under the same name gets no token.
    let other = AuthServer::start(AuthOptions::default());
    let moved = place.open(&other.mcp_url(), auto()).await;
    assert!(moved.bearer().await.unwrap().is_none());
    let back = place.open(&url, auto()).await;
    assert!(back.bearer().await.unwrap().is_none(), "forgotten for good");
}

#[tokio::test]
async fn signing_out_forgets_and_revokes() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    credentials.sign_out().await.unwrap();
    assert_eq!(credentials.view().state, SignInState::SignedOut);
    assert!(credentials.bearer().await.unwrap().is_none());
    assert_eq!(peer.count("POST /tenant-0/revoke"), 1);
    let again = place.open(&url, auto()).await;
    assert_eq!(again.view().state, SignInState::SignedOut);
}

#[tokio::test]
async fn a_token_that_is_still_good_outlives_its_authorization_server() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    let before = credentials.bearer().await.unwrap();
    // The token expires within a minute, and the authorization server is gone.
    credentials.inner.held().token.as_mut().unwrap().received_ms -= 3_570_000;
    drop(peer);
    let after = credentials.bearer().await.unwrap();
    assert_eq!(before, after);
    credentials.inner.held().token.as_mut().unwrap().received_ms -= 60_000;
    let gone = credentials.bearer().await.unwrap_err();
    assert!(matches!(gone, SignInError::Unavailable { .. }), "{gone}");
}
