//! Which authorization servers and servers get clients and tokens.

use gantry_model::diagnose::Diagnose as _;

use super::*;

/// A manually registered client with a secret.
fn by_hand(peer: &AuthServer, more: serde_json::Value) -> serde_json::Value {
    let mut auth = serde_json::json!({"client_id": "by-hand", "client_secret": "s3cret-of-hand"});
    let more = more.as_object().cloned().unwrap_or_default();
    auth.as_object_mut().unwrap().extend(more);
    assert!(peer.mcp_url().starts_with("http://127.0.0."));
    auth
}

fn knows_by_hand() -> AuthOptions {
    AuthOptions {
        registration: false,
        clients: vec![("by-hand".into(), "s3cret-of-hand".into())],
        ..AuthOptions::default()
    }
}

#[tokio::test]
async fn a_configured_client_is_shown_to_no_other_authorization_server() {
    let peer = AuthServer::start(knows_by_hand());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let auth = by_hand(&peer, serde_json::json!({}));
    let credentials = place.open(&url, auth.clone()).await;
    sign_in(&credentials).await;
    peer.move_issuer();
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    // Neither now nor after a restart, although the tokens are deleted.
    for credentials in [credentials, place.open(&url, auth.clone()).await] {
        let refused = begin(&credentials).await.unwrap_err();
        assert!(matches!(refused, SignInError::Moved { .. }), "{refused}");
        let failure = credentials.view().failure.unwrap();
        assert!(failure.contains("/tenant-1"), "{failure}");
    }
    assert_eq!(peer.count("POST /tenant-1"), 0);
    // A person confirms the new authorization server.
    let credentials = place.open(&url, auth.clone()).await;
    let begun = credentials.begin(CALLBACK, SignInTrust::Anew).await;
    let brought = browse(&begun.unwrap().link).await;
    credentials.finish(brought).await.unwrap();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    // From then on the new one is trusted.
    begin(&place.open(&url, auth.clone()).await).await.unwrap();
    peer.move_issuer();
    let refused = begin(&credentials).await.unwrap_err();
    assert!(matches!(refused, SignInError::Moved { .. }), "{refused}");
    // Another client is not bound.
    let mut other = auth;
    other["client_id"] = "by-hand-2".into();
    begin(&place.open(&url, other).await).await.unwrap();
}

#[tokio::test]
async fn the_authorization_server_of_the_configuration_is_the_only_one() {
    let peer = AuthServer::start(knows_by_hand());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let issuer = peer.issuer();
    let auth = by_hand(&peer, serde_json::json!({ "issuer": issuer }));
    peer.move_issuer();
    let credentials = place.open(&url, auth.clone()).await;
    sign_in(&credentials).await;
    assert_eq!(credentials.view().issuer.as_deref(), Some(issuer.as_str()));
    assert_eq!(peer.count("POST /tenant-1"), 0);
    assert_eq!(peer.count("POST /tenant-0/token"), 1);
    // Another issuer in the configuration is another sign-in.
    let mut moved = auth;
    moved["issuer"] = peer.issuer().into();
    let moved = place.open(&url, moved).await;
    assert!(moved.bearer().await.unwrap().is_none(), "not of that one");
    sign_in(&moved).await;
    assert_eq!(peer.count("POST /tenant-1/token"), 1);
}

#[tokio::test]
async fn a_secret_without_a_person_stays_with_whom_it_was_shown_to_first() {
    let peer = AuthServer::start(knows_by_hand());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let auth = by_hand(&peer, serde_json::json!({"kind": "client_credentials"}));
    let credentials = place.open(&url, auth.clone()).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    peer.move_issuer();
    for credentials in [credentials, place.open(&url, auth.clone()).await] {
        let refused = call(&credentials, &url, "whoami").await.unwrap_err();
        assert!(matches!(refused, SignInError::Moved { .. }), "{refused}");
        assert!(!refused.needs_person());
    }
    assert_eq!(peer.count("POST /tenant-1/token"), 0);
    let credentials = place.open(&url, auth).await;
    credentials.sign_out().await.unwrap();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn metadata_in_the_name_of_another_count_for_nothing() {
    for auth in [
        auto(),
        serde_json::json!({"client_id": "by-hand", "client_secret": "s3cret-of-hand"}),
    ] {
        let peer = AuthServer::start(AuthOptions {
            registration: true,
            secrets: true,
            ..knows_by_hand()
        });
        let evil = AuthServer::start(AuthOptions::default());
        let (place, url) = (Place::new().await, peer.mcp_url());
        let credentials = place.open(&url, auth.clone()).await;
        sign_in(&credentials).await;
        // The server was taken over: it names a document with false claims.
        evil.pose_as(&peer.issuer());
        peer.name_issuer(&format!("http://{}/.well-known/forged", evil.authority()));
        peer.expire_access_tokens();
        assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
        let link = begin(&credentials).await.unwrap().link;
        assert!(link.starts_with(&peer.issuer()), "{link}");
        sign_in(&credentials).await;
        assert!(evil.count("GET /.well-known/forged") > 0, "it was asked");
        let told: Vec<String> = evil.requests();
        assert!(
            told.iter().all(|asked| asked.starts_with("GET ")),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn an_authorization_server_that_cannot_be_trusted_with_a_code_gets_none() {
    let wrong = [
        (
            AuthOptions {
                pkce: false,
                ..AuthOptions::default()
            },
            "PKCE",
        ),
        (
            AuthOptions {
                token_endpoint: Some("http://login.example/token".into()),
                ..AuthOptions::default()
            },
            "token endpoint",
        ),
    ];
    for (options, why) in wrong {
        let peer = AuthServer::start(options);
        let place = Place::new().await;
        let credentials = place.open(&peer.mcp_url(), auto()).await;
        let refused = begin(&credentials).await.unwrap_err();
        assert!(
            matches!(refused, SignInError::Unavailable { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(peer.registered(), 0);
    }
}

#[tokio::test]
async fn a_code_and_a_secret_go_to_no_private_address_and_the_error_says_so() {
    // fault H4
    let peer = AuthServer::start(AuthOptions {
        token_endpoint: Some("https://169.254.169.254/token".into()),
        ..knows_by_hand()
    });
    let (place, url) = (Place::new().await, peer.mcp_url());
    let auth = by_hand(&peer, serde_json::json!({}));
    let credentials = place.open(&url, auth).await;
    let begun = begin(&credentials).await.unwrap();
    let brought = browse(&begun.link).await;
    let told = "the authorization server of `a` cannot be used: `169.254.169.254` resolves to \
                private address `169.254.169.254`";
    let refused = credentials.finish(brought).await.unwrap_err();
    assert_eq!(refused.code(), "sign_in.unavailable");
    assert_eq!(refused.to_string(), told);
    let auth = by_hand(&peer, serde_json::json!({"kind": "client_credentials"}));
    let credentials = place.open(&url, auth).await;
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert_eq!(refused.code(), "sign_in.unavailable");
    assert_eq!(refused.to_string(), told);
}

#[tokio::test]
async fn an_authorization_server_is_told_no_secret_of_the_url() {
    let peer = AuthServer::start(AuthOptions::default());
    let place = Place::new().await;
    let url = format!("{}?key=s3cret-of-url", peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    let link = begin(&credentials).await.unwrap().link;
    assert!(!link.contains("s3cret-of-url"), "{link}");
    sign_in(&credentials).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn giving_up_spares_a_sign_in_that_has_just_ended() {
    let peer = AuthServer::start(AuthOptions::default());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    let old = credentials.bearer().await.unwrap().unwrap();
    credentials
        .inner
        .held()
        .token
        .as_mut()
        .unwrap()
        .after_refusal = true;
    // A request is permanently refused while another exchange runs.
    let mut dialog = credentials.inner.turn.lock().await;
    let mut refused = Box::pin(credentials.refused(Some(&old), 401, None));
    let early = timeout(Duration::from_millis(20), &mut refused).await;
    assert!(early.is_err(), "it waits for its turn");
    // Meanwhile a person has signed in again.
    let second = place.open(&url, auto()).await;
    sign_in(&second).await;
    let kept = second.inner.turn.lock().await.kept.clone().unwrap();
    credentials.inner.held().take(&kept.stored);
    dialog.kept = Some(kept);
    drop(dialog);
    assert_eq!(refused.await.unwrap(), Retry::Now);
    assert_eq!(credentials.view().state, SignInState::SignedIn);
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    let again = place.open(&url, auto()).await;
    assert_eq!(again.view().state, SignInState::SignedIn, "and is kept");
}

#[tokio::test]
async fn tokens_are_hidden_from_the_moment_they_are_known() {
    let peer = AuthServer::start(AuthOptions {
        secrets: true,
        ..AuthOptions::default()
    });
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    let hidden = |place: &Place, secret: &String| {
        let text = format!("a {secret} b");
        place.known.redactor().redact(&text) == "a [redacted] b"
    };
    let is_token = |secret: &&String| !secret.starts_with("code-");
    let given = |peer: &AuthServer| -> Vec<String> {
        let given = peer.secrets();
        given.iter().filter(is_token).cloned().collect()
    };
    assert_eq!(given(&peer).len(), 3, "a client's secret and two tokens");
    assert!(given(&peer).iter().all(|secret| hidden(&place, secret)));
    // Refreshed tokens, too, and those loaded after a restart.
    peer.expire_access_tokens();
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(given(&peer).len(), 5);
    assert!(given(&peer).iter().all(|secret| hidden(&place, secret)));
    let restarted = Place {
        known: Arc::default(),
        ..place
    };
    restarted.open(&url, auto()).await;
    let now = given(&peer);
    assert!(hidden(&restarted, &now[3]) && hidden(&restarted, &now[4]));
    assert!(hidden(&restarted, &now[0]), "the client's secret");
}

#[tokio::test]
async fn a_client_that_was_forgotten_is_registered_anew() {
    let peer = AuthServer::start(AuthOptions {
        secrets: true,
        ..AuthOptions::default()
    });
    let (place, url) = (Place::new().await, peer.mcp_url());
    let credentials = place.open(&url, auto()).await;
    sign_in(&credentials).await;
    peer.forget_clients();
    peer.expire_access_tokens();
    let refused = call(&credentials, &url, "whoami").await.unwrap_err();
    assert!(refused.needs_person(), "{refused}");
    // It is offered neither from memory nor after a restart.
    let restarted = place.open(&url, auto()).await;
    assert!(restarted.inner.turn.lock().await.client.is_none());
    sign_in(&credentials).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_whose_authorization_server_cannot_be_read_is_shown_to_nobody() {
    for kind in ["auto", "client_credentials"] {
        let peer = AuthServer::start(knows_by_hand());
        let (place, url) = (Place::new().await, peer.mcp_url());
        let auth = by_hand(&peer, serde_json::json!({ "kind": kind }));
        let is_auto = kind == "auto";
        let credentials = place.open(&url, auth.clone()).await;
        if is_auto {
            sign_in(&credentials).await;
        }
        assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
        let scope = ServerId::from_random(1).to_string();
        let project = ProjectName::local();
        let good = place.store.sealed(&project, &scope, ISSUER).await.unwrap();
        let good = good.unwrap();
        let mut bad = good.clone();
        bad.ciphertext[0] ^= 1;
        place.store.put_sealed(&bad).await.unwrap();
        peer.move_issuer();
        let credentials = place.open(&url, auth).await;
        let ask = async || match is_auto {
            true => begin(&credentials).await.map(drop),
            false => call(&credentials, &url, "whoami").await.map(drop),
        };
        let refused = ask().await.unwrap_err();
        assert!(matches!(refused, SignInError::Sealed { .. }), "{refused}");
        // It is read again; then the gateway knows that the server has moved.
        place.store.put_sealed(&good).await.unwrap();
        let refused = ask().await.unwrap_err();
        assert!(matches!(refused, SignInError::Moved { .. }), "{refused}");
        assert_eq!(peer.count("POST /tenant-1"), 0);
    }
}

#[tokio::test]
async fn metadata_without_a_name_count_for_nothing() {
    let peer = AuthServer::start(knows_by_hand());
    let evil = AuthServer::start(AuthOptions::default());
    let url = peer.mcp_url();
    evil.pose_as("");
    peer.name_issuer(&format!("http://{}/.well-known/forged", evil.authority()));
    let auth = by_hand(&peer, serde_json::json!({"kind": "client_credentials"}));
    for auth in [auto(), auth] {
        let place = Place::new().await;
        let credentials = place.open(&url, auth.clone()).await;
        let refused = match auth["kind"].is_null() {
            true => begin(&credentials).await.map(drop),
            false => call(&credentials, &url, "whoami").await.map(drop),
        };
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("no `issuer`"), "{refused}");
    }
    assert!(evil.count("GET /.well-known/forged") > 0, "it was asked");
    assert_eq!(evil.count("POST "), 0);
}

#[tokio::test]
async fn a_configured_authorization_server_needs_nothing_of_the_server() {
    let peer = AuthServer::start(knows_by_hand());
    let (place, url) = (Place::new().await, peer.mcp_url());
    let auth = by_hand(&peer, serde_json::json!({ "issuer": peer.issuer() }));
    // The server names an authorization server that cannot be reached.
    peer.name_issuer("http://10.0.0.1/login");
    let lost = place.open(&url, auto()).await;
    let refused = begin(&lost).await.unwrap_err();
    assert!(
        matches!(refused, SignInError::Unavailable { .. }),
        "{refused}"
    );
    let credentials = place.open(&url, auth).await;
    sign_in(&credentials).await;
    assert_eq!(call(&credentials, &url, "whoami").await.unwrap(), 200);
    assert_eq!(credentials.view().scopes, ["mcp", "offline_access"]);
}
