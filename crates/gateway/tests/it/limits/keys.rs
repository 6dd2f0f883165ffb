//! Keys: sources, lifetime, rotation, last use.

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{done, echo, key, on_each_store, refused};
use crate::harness::{Gantry, LONG, modern};

fn listed(gantry: &Gantry, id: &str) -> Value {
    done(
        gantry,
        "GET",
        &format!("/api/v1/keys/{id}"),
        &Value::Null,
        200,
    )
}

// row 3.2, fault U3
#[test]
fn a_key_is_refused_from_an_address_that_is_in_none_of_its_ranges() {
    on_each_store(|gantry| {
        let body = json!({"kind": "agent", "sources": ["10.0.0.0/8", "2001:db8::/32"]});
        let (id, text) = key(gantry, &body);
        assert_eq!(listed(gantry, &id)["sources"], body["sources"]);
        refused(&echo(gantry, &text, "x"), 403, "auth.source");
        let params = json!({"name": "a__echo", "arguments": {"text": "x"}});
        let answer = modern(&mut gantry.connect(), &text, "/mcp", "tools/call", params);
        assert_eq!(answer.status, 403, "{}", answer.text());
        // What a client says of itself counts for nothing.
        let bearer = format!("Bearer {text}");
        for header in ["X-Forwarded-For", "X-Real-IP", "Forwarded"] {
            let value = if header == "Forwarded" {
                "for=10.1.2.3"
            } else {
                "10.1.2.3"
            };
            let headers = [("Authorization", bearer.as_str()), (header, value)];
            let mut connection = gantry.connect();
            let answer = connection.request("GET", "/api/v1/tools", &headers, b"");
            refused(&answer.unwrap(), 403, "auth.source");
        }
        let act = || {
            let acts = gantry.rest("GET", "/api/v1/acts", None).json();
            let mut acts = acts["items"].as_array().unwrap().iter().cloned();
            acts.find(|act| act["act"] == "key.use")
        };
        let recorded = eventually(LONG, || act().is_some());
        assert!(recorded.is_some(), "the refusal is on record");
        assert_eq!(act().unwrap()["target"], id);
        // From its range it works, and a change ends what it has running.
        let path = format!("/api/v1/keys/{id}");
        let here = json!({"sources": ["127.0.0.0/8", "::1"]});
        let changed = done(gantry, "PATCH", &path, &here, 200);
        assert_eq!(changed["sources"], json!(["127.0.0.0/8", "::1/128"]));
        assert_eq!(echo(gantry, &text, "x").status, 200);
        let body = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
        std::thread::scope(|scope| {
            let call = || gantry.rest_as(&text, "POST", "/api/v1/tools/call", Some(&body));
            let running = scope.spawn(call);
            gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
            let watch = Stopwatch::start();
            done(
                gantry,
                "PATCH",
                &path,
                &json!({"sources": ["10.0.0.0/8"]}),
                200,
            );
            assert_eq!(running.join().unwrap().status, 401);
            assert!(watch.elapsed().as_secs() < 2, "{:?}", watch.elapsed());
        });
        let everywhere = done(gantry, "PATCH", &path, &json!({"sources": []}), 200);
        assert_eq!(everywhere["sources"], json!([]));
        assert_eq!(echo(gantry, &text, "x").status, 200);
    });
}

#[test]
fn a_range_that_is_none_or_locks_its_maker_out_is_refused() {
    let gantry = Gantry::start(&["a"]);
    for bad in ["10.0.0.0/33", "10.1.2.3/8", "host"] {
        let body = json!({"kind": "agent", "sources": ["::1", bad]});
        let answer = gantry.rest("POST", "/api/v1/keys", Some(&body));
        refused(&answer, 422, "request.body");
        assert_eq!(answer.json()["issues"][0]["path"], "/sources/1");
    }
    let keys = done(&gantry, "GET", "/api/v1/keys", &Value::Null, 200);
    let admin = keys["items"][0]["id"].as_str().unwrap();
    assert_eq!(keys["items"][0]["kind"], "admin");
    let path = format!("/api/v1/keys/{admin}");
    let away = gantry.rest("PATCH", &path, Some(&json!({"sources": ["10.0.0.0/8"]})));
    refused(&away, 422, "request.body");
    done(
        &gantry,
        "PATCH",
        &path,
        &json!({"sources": ["127.0.0.1"]}),
        200,
    );
    let unknown = "/api/v1/keys/key_00000000000000000000000000000000";
    refused(
        &gantry.rest("PATCH", unknown, Some(&json!({}))),
        404,
        "key.unknown",
    );
    refused(
        &gantry.rest("GET", "/api/v1/keys/none", None),
        404,
        "key.unknown",
    );
}

// fault U2
#[test]
fn a_project_bounds_the_lifetime_of_its_keys() {
    on_each_store(|gantry| {
        let set = gantry.cli(&["project", "set", "local", "keys.max_lifetime=1h"]);
        assert!(set.status.success(), "{set:?}");
        let settings = done(gantry, "GET", "/api/v1/settings", &Value::Null, 200);
        let settings = settings["items"].as_array().unwrap();
        let ours = settings
            .iter()
            .find(|one| one["name"] == "keys.max_lifetime");
        assert_eq!(ours.unwrap()["value"], "1h");
        let long = json!({"kind": "agent", "expires_in": "2h"});
        let answer = gantry.rest("POST", "/api/v1/keys", Some(&long));
        refused(&answer, 422, "key.lifetime");
        for body in [json!({"kind": "agent"}), json!({"kind": "admin"})] {
            let (id, _) = key(gantry, &body);
            let made = listed(gantry, &id);
            let lasts = made["expires_ms"].as_u64().unwrap() - made["created_ms"].as_u64().unwrap();
            assert!((3_590_000..=3_610_000).contains(&lasts), "{lasts}");
        }
        // It holds for keys from then on, and for those that are rotated.
        let (id, _) = key(gantry, &json!({"kind": "agent", "expires_in": "30m"}));
        done(
            gantry,
            "PATCH",
            "/api/v1/settings",
            &json!({"keys.max_lifetime": "10m"}),
            200,
        );
        let path = format!("/api/v1/keys/{id}/rotate");
        let rotated = done(gantry, "POST", &path, &Value::Null, 201);
        let made = listed(gantry, rotated["id"].as_str().unwrap());
        let lasts = made["expires_ms"].as_u64().unwrap() - made["created_ms"].as_u64().unwrap();
        assert!((590_000..=610_000).contains(&lasts), "{lasts}");
        done(
            gantry,
            "PATCH",
            "/api/v1/settings",
            &json!({"keys.max_lifetime": null}),
            200,
        );
        let (id, _) = key(gantry, &json!({"kind": "agent"}));
        assert!(listed(gantry, &id)["expires_ms"].is_null());
    });
}

// fault U6
#[test]
fn a_rotated_key_goes_on_beside_its_successor_and_then_ends() {
    on_each_store(|gantry| {
        let body = json!({"kind": "agent", "label": "laptop", "sources": ["127.0.0.0/8"],
            "limits": {"calls_per_minute": 50}});
        let (id, text) = key(gantry, &body);
        let ran = gantry.cli(&["key", "rotate", &id, "--overlap", "2s", "--json"]);
        assert!(ran.status.success(), "{ran:?}");
        let made: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let next = made["key"].as_str().unwrap();
        assert_eq!(made["replaces"]["id"], id);
        for key in [text.as_str(), next] {
            assert_eq!(echo(gantry, key, "x").status, 200);
        }
        let (new, old) = (
            listed(gantry, made["id"].as_str().unwrap()),
            listed(gantry, &id),
        );
        for member in ["agent", "label", "sources", "limits", "kind"] {
            assert_eq!(new[member], old[member], "{member}");
        }
        assert_eq!(
            (&new["replaces"], &old["replaced_by"]),
            (&old["id"], &new["id"])
        );
        assert!(
            new["expires_ms"].is_null(),
            "it has the lifetime of the old one"
        );
        let path = format!("/api/v1/keys/{id}/rotate");
        refused(&gantry.rest("POST", &path, None), 409, "key.rotated");
        // What the old key has running ends with it.
        let body = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
        let answer = gantry.rest_as(&text, "POST", "/api/v1/tools/call", Some(&body));
        refused(&answer, 401, "auth.key_expired");
        assert_eq!(echo(gantry, &text, "x").status, 401);
        assert_eq!(echo(gantry, next, "x").status, 200);
        refused(&gantry.rest("POST", &path, None), 404, "key.unknown");
        let acts = gantry.rest("GET", "/api/v1/acts", None).json();
        let mut acts = acts["items"].as_array().unwrap().iter();
        let act = acts.find(|act| act["act"] == "key.rotate" && act["outcome"] == "done");
        let act = act.unwrap();
        assert_eq!(act["target"], made["id"], "{act:#}");
        assert_eq!(act["after"]["replaces"], id, "{act:#}");
        assert!(!act.to_string().contains(next), "no key is on record");
    });
}

#[test]
fn the_last_admin_key_that_does_not_end_is_rotated_into_one_that_does_not_end() {
    let gantry = Gantry::start(&[]);
    let keys = done(&gantry, "GET", "/api/v1/keys", &Value::Null, 200);
    let admin = keys["items"][0]["id"].as_str().unwrap();
    let path = format!("/api/v1/keys/{admin}/rotate");
    done(
        &gantry,
        "PATCH",
        "/api/v1/settings",
        &json!({"keys.max_lifetime": "1h"}),
        200,
    );
    refused(&gantry.rest("POST", &path, None), 409, "key.last_admin");
    done(
        &gantry,
        "PATCH",
        "/api/v1/settings",
        &json!({"keys.max_lifetime": null}),
        200,
    );
    let made = done(&gantry, "POST", &path, &json!({"overlap": "0s"}), 201);
    assert_eq!(made["role"], "installation");
    let next = made["key"].as_str().unwrap();
    assert_eq!(gantry.rest("GET", "/api/v1/keys", None).status, 401);
    assert_eq!(
        gantry.rest_as(next, "GET", "/api/v1/keys", None).status,
        200
    );
}

#[test]
fn the_last_use_of_a_key_is_shown_and_survives_a_restart() {
    let mut gantry = Gantry::start(&["a"]);
    let (id, text) = key(&gantry, &json!({"kind": "agent"}));
    assert!(listed(&gantry, &id)["last_used_ms"].is_null());
    for _ in 0..3 {
        assert_eq!(echo(&gantry, &text, "x").status, 200);
    }
    let used = listed(&gantry, &id);
    let made_ms = used["created_ms"].as_u64().unwrap();
    assert!(
        used["last_used_ms"].as_u64().unwrap() >= made_ms,
        "{used:#}"
    );
    assert_eq!(used["last_used_from"], "127.0.0.1");
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again();
    let again = listed(&gantry, &id);
    assert_eq!(again["last_used_ms"], used["last_used_ms"]);
    assert_eq!(again["last_used_from"], "127.0.0.1");
    let shown = gantry.cli(&["key", "ls"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let row = shown.lines().find(|line| line.starts_with(&id)).unwrap();
    assert!(row.contains("127.0.0.1"), "{shown}");
}
