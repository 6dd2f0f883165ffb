//! Tokens of an authorization server instead of keys: an issuer of ours publishes its keys on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, modern, on_postgresql};

pub(crate) struct Issuer {
    address: SocketAddr,
    key: Ed25519KeyPair,
}

impl Issuer {
    /// Publishes metadata and a key until the test ends.
    pub(crate) fn start() -> Self {
        let random = ring::rand::SystemRandom::new();
        let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let x = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.find(String::is_empty);
                let body = match first.contains("/.well-known/openid-configuration") {
                    true => json!({"issuer": format!("http://{address}"),
                                   "jwks_uri": format!("http://{address}/keys")}),
                    false => {
                        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]})
                    }
                };
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                (&stream).write_all(format!("{head}{body}").as_bytes()).ok();
            }
        });
        Self { address, key }
    }

    /// Returns what a file of issuers says of it.
    pub(crate) fn configured(&self, agents: &Value) -> String {
        let url = format!("http://{}", self.address);
        let issuer =
            json!({"url": url, "audience": "https://gantry.example/mcp", "agents": agents});
        json!({"issuers": [issuer]}).to_string()
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let mut all = json!({"iss": format!("http://{}", self.address), "aud": "https://gantry.example/mcp",
                             "azp": "app", "sub": "ada", "exp": now + 300});
        for (name, value) in claims.as_object().unwrap() {
            // Times are given relative to now.
            all[name] = match name.as_str() {
                "exp" => json!(now as i64 + value.as_i64().unwrap()),
                _ => value.clone(),
            };
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!(
            "{}.{}",
            part(&json!({"alg": "EdDSA", "kid": "one"})),
            part(&all)
        );
        let signature = self.key.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

// rows 3.2 and 3.5, faults U6 and U7
#[test]
fn a_token_of_a_configured_issuer_is_a_caller_like_a_key() {
    let issuer = Issuer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("issuers.json");
    let configured = issuer.configured(&json!({"app": "planner", "gone": "nobody"}));
    std::fs::write(&file, configured).unwrap();
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .server("b", &Evilpeer::new())
        .flags(&["--issuers", file.to_str().unwrap()])
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("b", "ready", LONG);
    gantry.agent_with("planner", &["a:*"]);
    let list = |token: &str| {
        modern(
            &mut gantry.connect(),
            token,
            "/mcp",
            "tools/list",
            json!({}),
        )
    };
    let good = issuer.token(&json!({}));
    let fetched = eventually(LONG, || list(&good).status == 200);
    assert!(fetched.is_some(), "{}", gantry.stderr());
    let listed = list(&good).message().to_string();
    assert!(
        listed.contains("a__") && !listed.contains("b__"),
        "{listed}"
    );

    // What the token is not good for.
    for (what, claims, status, code) in [
        (
            "another audience",
            json!({"aud": "https://other.example"}),
            401,
            "auth.token",
        ),
        ("expired", json!({"exp": -1}), 401, "auth.token"),
        (
            "not mapped",
            json!({"azp": "root"}),
            403,
            "auth.token_agent",
        ),
        (
            "an agent that does not exist",
            json!({"azp": "gone"}),
            403,
            "auth.token_agent",
        ),
    ] {
        let answer = list(&issuer.token(&claims));
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert!(answer.text().contains(code), "{what}: {}", answer.text());
    }
    let answer = list(&issuer.token(&json!({"aud": "https://other.example"})));
    let challenge = answer
        .header("www-authenticate")
        .unwrap_or_default()
        .to_owned();
    let metadata = "https://gantry.example/.well-known/oauth-protected-resource/mcp";
    assert!(
        challenge.contains(&format!("resource_metadata=\"{metadata}\"")),
        "{challenge}"
    );
    let nobody = gantry.connect().request("GET", "/api/v1/tools", &[], b"");
    let hint = nobody.unwrap().json()["hint"].to_string();
    assert!(
        hint.contains(metadata) && !hint.contains("no sign-in"),
        "{hint}"
    );
    let found =
        gantry
            .connect()
            .request("GET", "/.well-known/oauth-protected-resource/mcp", &[], b"");
    let found: Value = found.unwrap().json();
    assert_eq!(
        found["authorization_servers"],
        json!([format!("http://{}", issuer.address)])
    );
    assert_eq!(
        gantry.rest_as(&good, "GET", "/api/v1/agents", None).status,
        403
    );

    // The user is the token's, whatever the header says.
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}, "_meta": {"io.gantry/user-id": "eve"}});
    let called = modern(&mut gantry.connect(), &good, "/mcp", "tools/call", call).message();
    assert!(called["result"].is_object(), "{called}");
    let rows = gantry
        .rest("GET", "/api/v1/calls?agent=planner&limit=1", None)
        .json();
    let row = &rows["items"][0];
    assert_eq!(row["user"], "ada", "{rows}");

    // Its end ends what it runs, and so does the end of its agent.
    let slow = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
    let sleeping = |token: String| {
        let mut connection = gantry.connect();
        let slow = slow.clone();
        std::thread::spawn(move || {
            modern(&mut connection, &token, "/mcp", "tools/call", slow)
                .text()
                .to_owned()
        })
    };
    let brief = sleeping(issuer.token(&json!({"exp": 2})));
    let said = brief.join().unwrap();
    assert!(said.contains("auth.key_expired"), "{said}");
    let runs = || {
        let running = || {
            gantry
                .rest("GET", "/api/v1/calls?agent=planner&status=running", None)
                .json()
        };
        let began = eventually(LONG, || {
            running()["items"]
                .as_array()
                .is_some_and(|calls| !calls.is_empty())
        });
        assert!(began.is_some());
    };
    // Who is suspended gets nothing by a token either, and what it runs ends.
    let suspended = |method: &str| {
        let (path, body) = match method {
            "POST" => (
                "/api/v1/suspensions".to_owned(),
                Some(json!({"kind": "agent", "name": "planner"})),
            ),
            _ => (
                "/api/v1/suspensions?kind=agent&name=planner".to_owned(),
                None,
            ),
        };
        let answer = gantry.rest(method, &path, body.as_ref());
        assert!(answer.status < 300, "{}", answer.text());
    };
    let cut = sleeping(issuer.token(&json!({"jti": "suspended"})));
    runs();
    suspended("POST");
    let ended = tokio::time::Instant::now();
    for token in [&good, &issuer.token(&json!({"jti": "new"}))] {
        let answer = list(token);
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(
            answer.text().contains("auth.suspended"),
            "{}",
            answer.text()
        );
    }
    let said = cut.join().unwrap();
    assert!(said.contains("suspended"), "{said}");
    assert!(
        ended.elapsed() < Duration::from_secs(1),
        "{:?}",
        ended.elapsed()
    );
    suspended("DELETE");
    assert_eq!(list(&good).status, 200, "resumed with the same token");
    let cut = sleeping(issuer.token(&json!({"jti": "another"})));
    runs();
    assert_eq!(
        gantry.rest("DELETE", "/api/v1/agents/planner", None).status,
        204
    );
    let ended = tokio::time::Instant::now();
    let said = cut.join().unwrap();
    assert!(said.contains("auth.key_revoked"), "{said}");
    assert!(
        ended.elapsed() < Duration::from_secs(2),
        "{:?}",
        ended.elapsed()
    );
}

// rows 3.2 and 3.5, faults U6 and U7
#[test]
fn a_token_of_a_configured_issuer_is_a_caller_like_a_key_on_postgresql() {
    on_postgresql(a_token_of_a_configured_issuer_is_a_caller_like_a_key);
}
