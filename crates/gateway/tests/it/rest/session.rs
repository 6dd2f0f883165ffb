//! Browser sessions: a code becomes a cookie and a token, and neither opens anything alone.

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{items, problem};
use crate::harness::{Answer, Connection, Gantry, LONG};

/// A browser that is signed in, as far as a gateway can tell.
struct Browser {
    origin: String,
    cookie: String,
    token: String,
}

impl Browser {
    fn request(&self, gantry: &Gantry, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let headers = [
            ("Origin", self.origin.as_str()),
            ("Cookie", &self.cookie),
            ("X-Gantry-Session", &self.token),
        ];
        send(&mut gantry.connect(), method, path, &headers, body)
    }
}

fn send(
    connection: &mut Connection,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answer {
    let mut headers = headers.to_vec();
    if body.is_some() {
        headers.push(("Content-Type", "application/json"));
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let sent = connection.request(method, path, &headers, body.as_bytes());
    sent.unwrap()
}

/// Makes a code with a key.
fn code(gantry: &Gantry, key: &str) -> String {
    let made = gantry.rest_as(key, "POST", "/api/v1/session/codes", None);
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let code = made["code"].as_str().unwrap().to_owned();
    assert_eq!(made["path"], format!("/#code={code}"));
    code
}

fn exchange(gantry: &Gantry, headers: &[(&str, &str)], body: &Value) -> Answer {
    let path = "/api/v1/session";
    send(&mut gantry.connect(), "POST", path, headers, Some(body))
}

fn signed_in(gantry: &Gantry, body: &Value) -> Browser {
    let origin = format!("http://{}", gantry.authority);
    let answer = exchange(gantry, &[("Origin", &origin)], body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let set = answer.header("set-cookie").unwrap();
    let parts: Vec<&str> = set.split("; ").collect();
    let port = gantry.authority.rsplit(':').next().unwrap();
    assert!(parts[0].starts_with(&format!("gantry_{port}=")), "{set}");
    assert_eq!(
        parts[1..],
        ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"]
    );
    let session = answer.json();
    assert!(session["expires_ms"].as_u64().unwrap() > 0);
    Browser {
        origin,
        cookie: parts[0].to_owned(),
        token: session["token"].as_str().unwrap().to_owned(),
    }
}

// fault U9
#[test]
fn a_code_signs_in_once_and_both_secrets_are_needed() {
    let gantry = Gantry::start(&["a"]);
    let code = json!({"code": code(&gantry, &gantry.admin)});
    let own = format!("http://{}", gantry.authority);
    // Only a page of the gateway may use it; to others it is as good as unused.
    for headers in [
        &[][..],
        &[("Origin", "http://127.0.0.1:1")][..],
        &[("Origin", "http://evil.example")][..],
        &[("Origin", own.as_str()), ("Sec-Fetch-Site", "same-site")][..],
        &[("Sec-Fetch-Site", "cross-site")][..],
    ] {
        let refused = exchange(&gantry, headers, &code);
        assert_eq!(
            problem(&gantry, &refused, 403),
            "http.origin",
            "{headers:?}"
        );
    }
    let browser = signed_in(&gantry, &code);
    let again = exchange(&gantry, &[("Origin", &own)], &code);
    assert_eq!(problem(&gantry, &again, 401), "auth.wrong_code");
    // A page on another port of the host can plant a cookie that comes first.
    let (name, _) = browser.cookie.split_once('=').unwrap();
    let planted = Browser {
        origin: browser.origin.clone(),
        cookie: format!("{name}=planted; {}", browser.cookie),
        token: browser.token.clone(),
    };
    let whoami = planted.request(&gantry, "GET", "/api/v1/session", None);
    assert_eq!(whoami.status, 200, "{}", whoami.text());
    // Both together are the key's holder.
    let servers = browser.request(&gantry, "GET", "/api/v1/mcp/servers", None);
    assert_eq!(items(&servers)[0]["name"], "a");
    let who = browser
        .request(&gantry, "GET", "/api/v1/session", None)
        .json();
    assert_eq!(
        (&who["role"], &who["projects"]),
        (&json!("installation"), &json!(["local"]))
    );
    // Neither alone is anybody.
    let get = |headers: &[(&str, &str)]| {
        let path = "/api/v1/mcp/servers";
        send(&mut gantry.connect(), "GET", path, headers, None)
    };
    let (cookie, token) = (browser.cookie.as_str(), browser.token.as_str());
    let alone = get(&[("Cookie", cookie)]);
    assert_eq!(problem(&gantry, &alone, 401), "auth.no_key");
    let other = signed_in(&gantry, &json!({"key": gantry.admin}));
    for headers in [
        &[("X-Gantry-Session", token)][..],
        &[("X-Gantry-Session", token), ("Cookie", &other.cookie)][..],
        &[("X-Gantry-Session", "wrong"), ("Cookie", cookie)][..],
        &[("X-Gantry-Session", cookie), ("Cookie", cookie)][..],
    ] {
        let refused = get(headers);
        assert_eq!(
            problem(&gantry, &refused, 401),
            "auth.session",
            "{headers:?}"
        );
    }
    let bearer = format!("Bearer {}", gantry.admin);
    let both = get(&[
        ("X-Gantry-Session", token),
        ("Cookie", cookie),
        ("Authorization", &bearer),
    ]);
    assert_eq!(problem(&gantry, &both, 401), "auth.two_keys");
    // A page of another port has the cookie, and would need the token.
    let foreign = get(&[
        ("X-Gantry-Session", token),
        ("Cookie", cookie),
        ("Sec-Fetch-Site", "same-site"),
    ]);
    assert_eq!(problem(&gantry, &foreign, 403), "http.origin");
    // A change needs the origin as well.
    let headers = [("X-Gantry-Session", token), ("Cookie", cookie)];
    let path = "/api/v1/mcp/servers/a/restart";
    let change = send(&mut gantry.connect(), "POST", path, &headers, None);
    assert_eq!(problem(&gantry, &change, 403), "http.origin");
    // The MCP endpoint takes keys only.
    let mcp = send(
        &mut gantry.connect(),
        "POST",
        "/mcp",
        &headers,
        Some(&json!({})),
    );
    assert_eq!(mcp.status, 401);
}

#[test]
fn what_a_session_does_is_on_record_under_its_key() {
    let gantry = Gantry::start(&["a"]);
    let browser = signed_in(&gantry, &json!({"code": code(&gantry, &gantry.admin)}));
    let made = json!({"kind": "agent", "label": "by a page"});
    let made = browser.request(&gantry, "POST", "/api/v1/keys", Some(&made));
    assert_eq!(made.status, 201, "{}", made.text());
    let out = browser.request(&gantry, "DELETE", "/api/v1/session", None);
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    let after = browser.request(&gantry, "GET", "/api/v1/session", None);
    assert_eq!(problem(&gantry, &after, 401), "auth.session");
    let keys = items(&gantry.rest("GET", "/api/v1/keys", None));
    let admin = keys.iter().find(|key| key["kind"] == "admin").unwrap();
    let acts = items(&gantry.rest("GET", "/api/v1/acts", None));
    for act in ["session.code", "session.open", "key.create", "session.end"] {
        let found = acts.iter().find(|one| one["act"] == act);
        let found = found.unwrap_or_else(|| panic!("{act}: {acts:#?}"));
        assert_eq!(found["key"], admin["id"], "{found:#}");
    }
    // An agent cannot fill the record.
    let agent = signed_in(&gantry, &json!({"code": code(&gantry, &gantry.agent)}));
    let out = agent.request(&gantry, "DELETE", "/api/v1/session", None);
    assert_eq!(out.status, 204);
    let now = items(&gantry.rest("GET", "/api/v1/acts", None));
    assert_eq!(now.len(), acts.len(), "{now:#?}");
}

// faults U4 and U6
#[test]
fn a_session_can_what_its_key_can_and_ends_with_it() {
    let gantry = Gantry::start(&["a"]);
    let agent = signed_in(&gantry, &json!({"key": gantry.agent}));
    let who = agent
        .request(&gantry, "GET", "/api/v1/session", None)
        .json();
    assert_eq!(who["role"], "agent");
    assert_eq!(
        agent.request(&gantry, "GET", "/api/v1/tools", None).status,
        200
    );
    let refused = agent.request(&gantry, "GET", "/api/v1/events/stream", None);
    assert_eq!(problem(&gantry, &refused, 403), "auth.agent_key");
    let made = gantry.rest("POST", "/api/v1/keys", Some(&json!({"kind": "admin"})));
    let made = made.json();
    let key = made["key"].as_str().unwrap();
    let unused = json!({"code": code(&gantry, key)});
    let browser = signed_in(&gantry, &json!({"code": code(&gantry, key)}));
    // A stream of it is open when the key is revoked.
    let mut stream = gantry.connect();
    let headers = [
        ("Cookie", browser.cookie.as_str()),
        ("X-Gantry-Session", &browser.token),
    ];
    stream
        .write("GET", "/api/v1/events/stream", &headers, b"")
        .unwrap();
    assert_eq!(stream.head().unwrap().status, 200);
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    let revoked = Stopwatch::start();
    while matches!(stream.chunk(), Ok(Some(_))) {}
    assert!(
        revoked.elapsed().as_millis() < 1000,
        "{:?}",
        revoked.elapsed()
    );
    let after = browser.request(&gantry, "GET", "/api/v1/session", None);
    assert_eq!(problem(&gantry, &after, 401), "auth.session");
    let own = format!("http://{}", gantry.authority);
    let late = exchange(&gantry, &[("Origin", &own)], &unused);
    assert_eq!(problem(&gantry, &late, 401), "auth.wrong_code");
}

// fault U5
#[test]
fn guessed_codes_are_counted_and_end_in_429() {
    let gantry = Gantry::start(&["a"]);
    let own = format!("http://{}", gantry.authority);
    let mut last = String::new();
    for _ in 0..21 {
        let guess = json!({"code": "guess"});
        let answer = exchange(&gantry, &[("Origin", &own)], &guess);
        last = answer.json()["code"].as_str().unwrap().to_owned();
    }
    assert_eq!(last, "auth.attempts");
    // The right one is not held up by that.
    signed_in(&gantry, &json!({"code": code(&gantry, &gantry.admin)}));
    let told = eventually(LONG, || {
        let events = items(&gantry.rest("GET", "/api/v1/events?limit=100", None));
        events.iter().any(|event| event["kind"] == "wrong_keys")
    });
    assert!(told.is_some());
    for body in [json!({}), json!({"code": "a", "key": "b"})] {
        let answer = exchange(&gantry, &[("Origin", &own)], &body);
        assert_eq!(problem(&gantry, &answer, 422), "request.body");
    }
}
