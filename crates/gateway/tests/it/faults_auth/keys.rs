//! Keys: how they must be sent, where they come from, what guessing gets.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    FIRST_GUESS, LAST_GUESS, WINDOW_SECONDS, audited, guessed, refused, unharmed, went_well,
};
use crate::faults_client::{Holdings, Posted};
use crate::harness::{Gantry, LONG};

/// Describes a call on both surfaces, with a key that opens it.
fn calls(gantry: &Gantry) -> [Posted; 2] {
    let params = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let rest = Posted::new(&gantry.agent, "/api/v1/tools/call", &params);
    [Posted::stateless(&gantry.agent, "tools/call", params), rest]
}

/// Starts a gateway whose server keeps a journal.
fn with_journal(journal: &Path) -> Gantry {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

// fault U1
#[test]
fn exactly_one_key_in_exactly_one_header_opens() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal);
    let at_first = Holdings::of(&gantry);
    let key = gantry.agent.clone();
    let good = format!("Bearer {key}");
    for (posted, path) in calls(&gantry).iter().zip(["/mcp", "/api/v1/tools/call"]) {
        let none = posted.clone().without("Authorization");
        let forms = [
            ("none", none.clone(), "auth.no_key"),
            (
                "empty",
                posted.clone().header("Authorization", ""),
                "auth.scheme",
            ),
            (
                "scheme alone",
                posted.clone().header("Authorization", "Bearer"),
                "auth.no_key",
            ),
            (
                "blank",
                posted.clone().header("Authorization", "Bearer  "),
                "auth.no_key",
            ),
            (
                "bare key",
                posted.clone().header("Authorization", &key),
                "auth.scheme",
            ),
            (
                "basic",
                posted
                    .clone()
                    .header("Authorization", &format!("Basic {key}")),
                "auth.scheme",
            ),
            (
                "twice",
                posted.clone().also("Authorization", &good),
                "auth.two_keys",
            ),
            (
                "good and bad",
                posted.clone().also("Authorization", "Bearer x"),
                "auth.two_keys",
            ),
            (
                "bad and good",
                none.clone()
                    .also("Authorization", "Bearer x")
                    .also("Authorization", &good),
                "auth.two_keys",
            ),
            (
                "joined",
                posted
                    .clone()
                    .header("Authorization", &format!("{good}, {good}")),
                "auth.no_key",
            ),
            (
                "other header",
                none.clone().header("X-Api-Key", &key),
                "auth.no_key",
            ),
            (
                "cookie",
                none.clone().header("Cookie", &format!("key={key}")),
                "auth.no_key",
            ),
        ];
        for (what, posted, code) in forms {
            let answer = posted.send(&gantry);
            refused(what, &answer, 401, code);
            assert_eq!(
                answer.header("www-authenticate"),
                Some("Bearer realm=\"gantry\""),
                "{what}"
            );
        }
        for name in ["key", "api_key", "token", "access_token", "Authorization"] {
            // Even beside a good header: it stands in somebody's log by now.
            for posted in [none.clone(), posted.clone()] {
                let answer = posted.at(&format!("{path}?{name}={key}")).send(&gantry);
                refused(name, &answer, 401, "auth.key_in_url");
            }
        }
    }
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    assert_eq!(gantry.audit_rows(""), Vec::<Value>::new());
    assert!(!gantry.stderr().contains(&key), "a key is never logged");
    for posted in calls(&gantry) {
        assert_eq!(posted.send(&gantry).status, 200);
        let spelled = posted.header("Authorization", &format!("bEARER  {key}"));
        assert_eq!(spelled.send(&gantry).status, 200);
    }
    assert_eq!(Journal::read(&journal).unwrap().calls(), 4);
    let rows = ["mcp", "mcp", "rest", "rest"].map(went_well);
    audited(&gantry, &rows);
    unharmed(&gantry, &at_first);
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

// fault U2
#[test]
fn a_first_start_makes_keys_of_its_own_that_only_their_owner_reads() {
    let (one, other) = (Gantry::start(&["a"]), Gantry::start(&[]));
    let all = [&one.admin, &one.agent, &other.admin, &other.agent];
    for (place, key) in all.iter().enumerate() {
        assert!(!all[..place].contains(key), "keys are never alike");
        let random = key.rsplit('_').next().unwrap();
        assert!(
            key.starts_with("gantry_admin_") || key.starts_with("gantry_agent_"),
            "{key}"
        );
        let (prefix, _) = key.split_at(13);
        assert_eq!(key.len() - prefix.len(), 43, "256 bits in base64: {random}");
    }
    let data = one.data();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&data), mode(&data.join("keys"))), (0o700, 0o700));
    for name in ["keys/admin.key", "keys/agent.key"] {
        assert_eq!(mode(&data.join(name)), 0o600);
    }
    assert_eq!(
        one.call("a__echo", json!({"text": "x"}))["result"]["content"][0]["text"],
        "x"
    );
    for key in [&one.admin, &one.agent] {
        assert!(!one.stdout().contains(key.as_str()) && !one.stderr().contains(key.as_str()));
        let holders: Vec<_> = files(&data)
            .into_iter()
            .filter(|path| {
                let bytes = fs::read(path).unwrap_or_default();
                bytes
                    .windows(key.len())
                    .any(|window| window == key.as_bytes())
            })
            .collect();
        assert_eq!(
            holders.len(),
            1,
            "the key stands in its own file only: {holders:?}"
        );
    }
    // The same keys after another start, and nobody else's.
    let (admin, agent) = (one.admin.clone(), one.agent.clone());
    let mut one = one;
    one.stop();
    let one = one.again();
    assert_eq!((&one.admin, &one.agent), (&admin, &agent));
    one.wait_state("a", "ready", LONG);
    let at_first = Holdings::of(&one);
    for sample in [
        "admin",
        "changeme",
        "gantry_admin_",
        "gantry_agent_xxxx",
        "KEY",
        &other.agent,
    ] {
        let answer = one.rest_as(sample, "GET", "/api/v1/tools", None);
        refused(sample, &answer, 401, "auth.wrong_key");
    }
    audited(&one, &[went_well("mcp"), guessed("rest", FIRST_GUESS)]);
    unharmed(&one, &at_first);
}

// fault U3
#[test]
fn whatever_is_not_a_valid_key_is_denied_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal);
    let at_first = Holdings::of(&gantry);
    let body = json!({"kind": "agent", "agent": "default", "label": "soon gone"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let revoked = made["key"].as_str().unwrap().to_owned();
    let opens = |key: &str| gantry.rest_as(key, "GET", "/api/v1/tools", None);
    assert_eq!(opens(&revoked).status, 200);
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    let random = "gantry_agent_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let begun = Instant::now();
    let wanted = opens(random);
    refused("never made", &wanted, 401, "auth.wrong_key");
    let key = &gantry.agent;
    let wrong = [
        ("revoked", revoked),
        ("cut", key[..key.len() - 1].to_owned()),
        ("longer", format!("{key}A")),
        ("upper case", key.to_uppercase()),
        ("of the other kind", key.replace("agent", "admin")),
        ("prefix", "gantry_agent_".to_owned()),
        ("huge", "k".repeat(12_000)),
        ("its digest", "a".repeat(64)),
    ];
    for (what, key) in wrong {
        let answer = opens(&key);
        assert_eq!(
            (answer.status, answer.text()),
            (wanted.status, wanted.text()),
            "{what}"
        );
        let challenge = "Bearer realm=\"gantry\", error=\"invalid_token\"";
        assert_eq!(answer.header("www-authenticate"), Some(challenge), "{what}");
        let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
        let answer = Posted::stateless(&key, "tools/call", call).send(&gantry);
        refused(what, &answer, 401, "auth.wrong_key");
    }
    // Bytes that are no text.
    let mut connection = gantry.connect();
    let head = format!(
        "GET /api/v1/tools HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer ",
        gantry.authority
    );
    connection
        .socket()
        .write_all(&[head.as_bytes(), b"\xff\xfe\r\n\r\n"].concat())
        .unwrap();
    refused("no text", &connection.answer().unwrap(), 401, "auth.scheme");
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    within_one_window(begun);
    assert_eq!(opens(key).status, 200);
    // Nothing was called. The 17 guesses are all counted; the first is on record.
    assert_eq!(counted(&gantry), "17");
    audited(&gantry, &[guessed("rest", FIRST_GUESS)]);
    unharmed(&gantry, &at_first);
}

/// Asserts that all wrong keys were counted together.
fn within_one_window(begun: Instant) {
    assert!(
        begun.elapsed().as_secs() < WINDOW_SECONDS - 1,
        "the machine is too slow to guess within one window"
    );
}

/// Returns how many wrong keys the figures tell.
fn counted(gantry: &Gantry) -> String {
    let figures = gantry.rest("GET", "/metrics", None).text();
    let counted = figures
        .lines()
        .find_map(|line| line.strip_prefix("gantry_auth_failures_total "));
    counted.expect("wrong keys are counted").to_owned()
}

// fault U5
#[test]
fn guessing_keys_is_limited_and_never_locks_out_who_has_one() {
    const GUESSES: usize = 200;
    const ALLOWED: usize = 20;
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    let mut connection = gantry.connect();
    let begun = Instant::now();
    let mut denied = 0;
    for guess in 0..GUESSES {
        let bearer = format!("Bearer gantry_agent_{guess:043}");
        let headers = [("Authorization", bearer.as_str())];
        let answer = connection
            .request("GET", "/api/v1/tools", &headers, b"")
            .unwrap();
        within_one_window(begun);
        if guess < ALLOWED {
            refused("guess", &answer, 401, "auth.wrong_key");
        } else {
            refused("guess", &answer, 429, "auth.attempts");
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=10).contains(&wait), "{wait}");
            denied += 1;
        }
    }
    assert_eq!(denied, GUESSES - ALLOWED);
    // On every surface it is the address that is counted.
    let answer = Posted::stateless("gantry_agent_x", "tools/list", json!({})).send(&gantry);
    refused("another surface", &answer, 429, "auth.attempts");
    let wanted = [
        FIRST_GUESS,
        LAST_GUESS,
        "200 wrong keys from 127.0.0.1 within 10s",
    ];
    // Their rows come a moment late, and before that of any later call.
    let [first, last, more] = wanted.map(|what| guessed("rest", what));
    audited(&gantry, &[first, last, more]);
    // Whoever has a key is let in all the same.
    assert_eq!(
        gantry
            .rest_as(&gantry.agent, "GET", "/api/v1/tools", None)
            .status,
        200
    );
    assert_eq!(
        gantry.call("a__echo", json!({"text": "x"}))["result"]["content"][0]["text"],
        "x"
    );
    // Every one is counted; the record gets the first, the last before 429, and every tenfold more.
    assert_eq!(counted(&gantry), (GUESSES + 1).to_string());
    let recorded = || {
        let events = gantry.rest("GET", "/api/v1/events?limit=1000", None).json();
        let events = events["items"].as_array().unwrap().clone().into_iter();
        let wrong = events.filter(|event| event["kind"] == "wrong_keys");
        let mut details: Vec<String> = wrong
            .map(|event| event["detail"].as_str().unwrap().to_owned())
            .collect();
        details.sort_by_key(String::len);
        details
    };
    assert!(
        eventually(LONG, || recorded() == wanted).is_some(),
        "{:?}",
        recorded()
    );
    // The same are rows of the audit, and lines of `gantry calls`.
    audited(&gantry, &[first, last, more, went_well("mcp")]);
    let calls = gantry.cli(&["calls", "--status", "refused"]);
    let calls = String::from_utf8_lossy(&calls.stdout).into_owned();
    let shown = calls.lines().filter(|line| line.contains("auth.wrong_key"));
    assert_eq!(shown.count(), wanted.len(), "{calls}");
    let log = gantry.stderr();
    let lines = log.lines().filter(|line| line.contains("wrong key"));
    assert_eq!(lines.count(), wanted.len(), "{log}");
    assert!(!log.contains("gantry_agent_0"), "no key is written down");
    drop(connection);
    unharmed(&gantry, &at_first);
}
