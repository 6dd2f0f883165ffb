//! Tokens that a server repeats: neither its clients nor the audit, the logs or the status get to
//! see them.

use super::*;

/// Has the server repeat the token in every way, and looks at all that came of it.
fn repeats_nothing(gantry: &Gantry, peer: &AuthServer) {
    for how in ["result", "error", "failure", "log"] {
        let answer = gantry
            .call("safe__parrot", json!({ "how": how }))
            .to_string();
        assert!(answer.contains("[redact"), "{how}: {answer}");
        for secret in peer.secrets() {
            // Not even a part of it, where what is quoted was cut.
            let beginning = &secret[..8];
            assert!(!answer.contains(beginning), "{how}: {answer}");
        }
    }
}

#[test]
fn a_token_that_the_server_repeats_is_seen_by_nobody() {
    let peer = AuthServer::start(AuthOptions {
        secrets: true,
        ..AuthOptions::default()
    });
    let gantry = Gantry::builder()
        .entry("safe", json!({"url": peer.mcp_url()}))
        .variable("GANTRY_LOG", "debug")
        .start();
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    repeats_nothing(&gantry, &peer);
    // The next one is as secret as the first.
    peer.expire_access_tokens();
    repeats_nothing(&gantry, &peer);
    assert_eq!(peer.count("POST /tenant-0/token refresh_token"), 1);
    let rows = gantry.audit_rows("server=safe");
    let rows = rows.iter().filter(|row| row["tool"] == "parrot");
    let whole = |row: &Value| {
        of(
            &gantry,
            &format!("/api/v1/calls/{}", row["id"].as_str().unwrap()),
        )
    };
    let rows: Vec<Value> = rows.map(whole).collect();
    let seen = [
        ("audit", json!(rows)),
        ("status", gantry.status("safe")),
        ("logs", of(&gantry, "/api/v1/mcp/servers/safe/logs")),
        ("events", of(&gantry, "/api/v1/mcp/servers/safe/events")),
        ("sign-in", of(&gantry, "/api/v1/mcp/servers/safe/auth")),
    ];
    assert_eq!(rows.len(), 8, "{rows:#?}");
    for (place, seen) in &seen {
        let seen = seen.to_string();
        let told = peer
            .secrets()
            .into_iter()
            .find(|secret| seen.contains(secret));
        assert_eq!(told, None, "{place}: {seen}");
    }
    for place in [&seen[0], &seen[2]] {
        let (place, seen) = place;
        assert!(seen.to_string().contains("[redacted]"), "{place}: {seen:#}");
    }
    is_nowhere_in_clear(&gantry, &peer.secrets());
}

fn of(gantry: &Gantry, path: &str) -> Value {
    gantry.rest("GET", path, None).json()
}

// fault K4: whoever may edit a server reads its token at no proxy
#[test]
fn a_token_goes_through_no_proxy_that_was_not_there_at_the_sign_in() {
    use std::io::{Read as _, Write as _};
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = start(Gantry::builder());
    let body =
        json!({"name": "safe", "url": peer.mcp_url(), "allow_private": true, "start": "eager"});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    gantry.wait_state("safe", "needs_sign_in", LONG);
    sign_in(&gantry);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let (tell, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 16 << 10];
            let read = stream.read(&mut bytes).unwrap_or_default();
            if tell
                .send(String::from_utf8_lossy(&bytes[..read]).into_owned())
                .is_err()
            {
                return;
            }
            let answer =
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            drop(stream.write_all(answer));
        }
    });
    let key = json!({"kind": "admin", "role": "admin"});
    let admin = gantry.rest("POST", "/api/v1/keys", Some(&key)).json();
    let admin = admin["key"].as_str().unwrap();
    let patch = json!({"proxy": proxy});
    let patched = gantry.rest_as(admin, "PATCH", "/api/v1/mcp/servers/safe", Some(&patch));
    assert_eq!(patched.status, 200, "{}", patched.text());
    let mut first = heard.recv_timeout(LONG).expect("it is asked");
    first.make_ascii_lowercase();
    assert!(
        first.starts_with("post http://") && !first.contains("authorization"),
        "{first}"
    );
    let status = gantry.rest("GET", "/api/v1/mcp/servers/safe/auth", None);
    assert_ne!(status.json()["state"], "signed_in", "{}", status.text());
    for rest in heard.try_iter() {
        assert!(
            !rest.to_ascii_lowercase().contains("authorization: bearer"),
            "{rest}"
        );
    }
}
