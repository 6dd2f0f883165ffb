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
