//! Products: shown, installed, upgraded and uninstalled, by the command line and over REST.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::{key, refused};
use crate::harness::{Gantry, LONG, on_postgresql};

const PRODUCTS: &str = "/api/v1/products";

/// A manifest with these servers, each an argument apart from the others.
fn manifest(version: &str, servers: &[(&str, &str)]) -> String {
    let argv = Evilpeer::new().argv();
    let mut text = format!("name: suite\nversion: {version}\nmcp:\n  servers:\n");
    for (name, word) in servers {
        text.push_str(&format!("    {name}:\n      command: {}\n", argv[0]));
        let args: Vec<String> = argv[1..].iter().map(|arg| json!(arg).to_string()).collect();
        text.push_str(&format!("      args: [{}]\n", args.join(", ")));
        text.push_str(&format!(
            "      profile: local\n      start: eager\n      env: {{WORD: {word}}}\n"
        ));
    }
    text
}

fn plan(gantry: &Gantry, manifest: &str) -> Value {
    let body = json!({ "manifest": manifest });
    let path = format!("{PRODUCTS}/preview");
    let answer = gantry.rest("POST", &path, Some(&body));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn install(gantry: &Gantry, manifest: &str, plan: &Value) -> crate::harness::Answer {
    let mut body = json!({"manifest": manifest, "sha256": plan["sha256"]});
    if let Some(installed) = plan.get("installed_sha256") {
        body["installed_sha256"] = installed.clone();
    }
    gantry.rest("POST", PRODUCTS, Some(&body))
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    let name = |item: &Value| item["name"].as_str().or(item.as_str()).unwrap().to_owned();
    list.map(name).collect()
}

/// Returns name, product and project of the rows of servers that belong to a product.
fn rows(gantry: &Gantry) -> Vec<(String, String, String)> {
    let rows = gantry.asked(
        "SELECT name, product_id, project_id FROM kb.project_mcp_servers \
         WHERE product_id IS NOT NULL ORDER BY name",
    );
    let row = |line: &String| {
        let mut parts = line.split('|').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        (next(), next(), next())
    };
    rows.iter().map(row).collect()
}

// rows 0.1, 0.2
#[test]
fn a_product_is_shown_installed_upgraded_and_uninstalled() {
    let gantry = Gantry::start(&["a"]);
    let first = manifest("1", &[("one", "x"), ("two", "x")]);
    let file = gantry.data().join("suite.yaml");
    std::fs::write(&file, &first).unwrap();
    let file = file.to_str().unwrap();
    // Shown in full; without a yes nothing happens.
    let shown = gantry.cli(&["product", "show", file]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("+ one") && shown.contains("+ two"),
        "{shown}"
    );
    assert!(shown.contains("\"profile\": \"local\""), "{shown}");
    assert!(!gantry.cli(&["product", "install", file]).status.success());
    let pinned = ["product", "install", file, "--yes", "--sha256", "00"];
    assert!(!gantry.cli(&pinned).status.success());
    assert!(rows(&gantry).is_empty());
    let done = gantry.cli(&["product", "install", file, "--yes"]);
    assert!(done.status.success(), "{done:?}");
    for server in ["one", "two"] {
        gantry.wait_state(server, "ready", LONG);
    }
    let stored = rows(&gantry);
    let product = stored[0].1.clone();
    let row = |name: &str| (name.to_owned(), product.clone(), "local".to_owned());
    assert_eq!(stored, [row("one"), row("two")]);
    // The plan of an upgrade tells what is added, changed, removed and kept.
    let second = manifest("2", &[("two", "y"), ("three", "x")]);
    let plan_two = plan(&gantry, &second);
    assert_eq!(names(&plan_two["added"]), ["three"], "{plan_two}");
    assert_eq!(names(&plan_two["changed"]), ["two"]);
    assert_eq!(names(&plan_two["removed"]), ["one"]);
    assert_eq!(plan_two["installed_version"], "1");
    // What is installed is what was shown.
    let mut stale = plan_two.clone();
    stale["installed_sha256"] = "00".into();
    refused(&install(&gantry, &second, &stale), 409, "product.changed");
    refused(&install(&gantry, &first, &plan_two), 409, "product.changed");
    let before = gantry.status("two");
    let done = install(&gantry, &second, &plan_two);
    assert_eq!(done.status, 200, "{}", done.text());
    gantry.wait_state("three", "ready", LONG);
    gantry.wait_status("two", LONG, |status| {
        status["state"] == "ready" && status["pid"] != before["pid"]
    });
    assert_eq!(
        gantry.rest("GET", "/api/v1/mcp/servers/one", None).status,
        404
    );
    assert_eq!(rows(&gantry), [row("three"), row("two")]);
    let again = plan(&gantry, &second);
    assert_eq!(names(&again["unchanged"]), ["two", "three"], "{again}");
    // A product's servers are the product's to change.
    let patch = json!({"timeout": "9s"});
    let answer = gantry.rest("PATCH", "/api/v1/mcp/servers/two", Some(&patch));
    refused(&answer, 409, "server.of_product");
    let answer = gantry.rest("DELETE", "/api/v1/mcp/servers/two", None);
    refused(&answer, 409, "server.of_product");
    let pid = gantry.status("two")["pid"].clone();
    let done = gantry.cli(&["product", "uninstall", "suite"]);
    assert!(done.status.success(), "{done:?}");
    assert!(super::is_gone(&pid));
    assert!(rows(&gantry).is_empty());
    let listed = gantry.rest("GET", PRODUCTS, None).json();
    assert_eq!(listed["items"], json!([]));
    let acts = gantry
        .rest("GET", "/api/v1/acts?act=product.*&outcome=done", None)
        .json();
    let acts = acts["items"].as_array().unwrap().iter();
    let changes = acts.filter(|act| act["act"] != "product.preview");
    assert_eq!(changes.count(), 3, "what was looked at is on record beside");
}

// rows 0.1, 0.2
#[test]
fn a_product_is_shown_installed_upgraded_and_uninstalled_on_postgresql() {
    on_postgresql(a_product_is_shown_installed_upgraded_and_uninstalled);
}

// row 0.2, faults G1, G8
#[test]
fn a_product_that_cannot_be_installed_whole_leaves_nothing() {
    let gantry = Gantry::start(&["a"]);
    // One of two names is taken, by a server that is not the product's.
    let taken = manifest("1", &[("fresh", "x"), ("a", "x")]);
    let body = json!({"manifest": taken});
    let answer = gantry.rest("POST", &format!("{PRODUCTS}/preview"), Some(&body));
    refused(&answer, 409, "server.exists");
    for wrong in [
        "name: x\nversion: 1\nmcp: {servers: {b: {comand: y}}}\n",
        "a: &a [1, 1]\nb: [*a, *a]\n",
        "{\"name\": \"x\", \"name\": \"y\"}",
        "name: x\n\tversion: 1\n",
    ] {
        let body = json!({ "manifest": wrong });
        let answer = gantry.rest("POST", &format!("{PRODUCTS}/preview"), Some(&body));
        refused(&answer, 422, "product.manifest");
        assert!(answer.text().contains("line "), "{}", answer.text());
    }
    // The policy holds for products, too, and a second person is asked for all of it.
    let approver = key(
        &gantry,
        "/api/v1/keys",
        &json!({"kind": "admin", "role": "approver"}),
    );
    let two = manifest("1", &[("one", "x"), ("two", "x")]);
    let set = json!({"registration.approve": ["local"]});
    assert_eq!(
        gantry.rest("PATCH", "/api/v1/settings", Some(&set)).status,
        200
    );
    let shown = plan(&gantry, &two);
    assert_eq!(shown["needs_approval"], json!(["local"]));
    let asked = install(&gantry, &two, &shown);
    assert_eq!(asked.status, 202, "{}", asked.text());
    assert!(rows(&gantry).is_empty());
    let path = format!(
        "/api/v1/registrations/{}",
        asked.json()["id"].as_str().unwrap()
    );
    let done = gantry.rest_as(&approver, "POST", &format!("{path}/approve"), None);
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(rows(&gantry).len(), 2);
    let set = json!({"registration.commands": ["npx"]});
    assert_eq!(
        gantry.rest("PATCH", "/api/v1/settings", Some(&set)).status,
        200
    );
    let other = manifest("2", &[("one", "x"), ("more", "x")]);
    let body = json!({ "manifest": other });
    let answer = gantry.rest("POST", &format!("{PRODUCTS}/preview"), Some(&body));
    refused(&answer, 403, "registration.refused");
    assert_eq!(rows(&gantry).len(), 2);
}

// row 0.2, faults G1, G8
#[test]
fn a_product_that_cannot_be_installed_whole_leaves_nothing_on_postgresql() {
    on_postgresql(a_product_that_cannot_be_installed_whole_leaves_nothing);
}

// row 0.2, fault G8
#[test]
fn what_is_looked_at_is_on_record() {
    let gantry = Gantry::start(&[]);
    let text = manifest("1", &[("one", "canary-of-a-preview-3b7e")]);
    plan(&gantry, &text);
    let acts = gantry.rest("GET", "/api/v1/acts?act=product.preview", None);
    let act = acts.json()["items"][0].take();
    assert_eq!(
        (&act["target"], &act["outcome"], &act["after"]["version"]),
        (&json!("suite"), &json!("done"), &json!("1")),
        "{act}"
    );
    assert!(!acts.text().contains("canary"), "{}", acts.text());
}

// row 0.2: of two upgrades that were planned on the same state one is carried out
#[test]
fn two_upgrades_at_once_are_one_upgrade_and_one_refusal() {
    let gantry = Gantry::start(&[]);
    let remote = |version: &str, names: &[&str]| {
        let mut text = format!("name: suite\nversion: {version}\nmcp:\n  servers:\n");
        for name in names {
            let url = format!("https://{name}.example.com/mcp");
            text.push_str(&format!("    {name}: {{url: '{url}', start: lazy}}\n"));
        }
        text
    };
    let mut installed = remote("0", &["base"]);
    let answer = install(&gantry, &installed, &plan(&gantry, &installed));
    assert_eq!(answer.status, 200, "{}", answer.text());
    for round in 1..=6 {
        let texts = ["left", "right"].map(|side| {
            let own = format!("{side}-{round}");
            remote(&format!("{round}-{side}"), &["base", &own])
        });
        let plans = texts.each_ref().map(|text| plan(&gantry, text));
        let statuses = std::thread::scope(|scope| {
            let both = [0, 1].map(|at| {
                let (gantry, texts, plans) = (&gantry, &texts, &plans);
                scope.spawn(move || install(gantry, &texts[at], &plans[at]).status)
            });
            both.map(|one| one.join().unwrap())
        });
        let mut sorted = statuses;
        sorted.sort_unstable();
        assert_eq!(sorted, [200, 409], "round {round}");
        let won = usize::from(statuses[1] == 200);
        installed.clone_from(&texts[won]);
        let shown = gantry
            .rest("GET", &format!("{PRODUCTS}/suite"), None)
            .json();
        assert_eq!(names(&shown["servers"]).len(), 2, "{shown}");
        assert_eq!(shown["sha256"], plans[won]["sha256"], "{shown}");
    }
}

// faults K4, G8
#[test]
fn a_literal_secret_of_a_manifest_is_not_kept_in_clear() {
    let gantry = Gantry::start(&["a"]);
    let secret = "canary-of-a-manifest-7d20";
    let text = manifest("1", &[("one", secret)]);
    let done = install(&gantry, &text, &plan(&gantry, &text));
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(!done.text().contains(secret), "{}", done.text());
    gantry.wait_state("one", "ready", LONG);
    let shown = gantry.rest("GET", "/api/v1/products/suite", None).text();
    assert!(shown.contains("WORD") && !shown.contains(secret), "{shown}");
    gantry.assert_not_at_rest(secret);
}

// faults K4, G8
#[test]
fn a_literal_secret_of_a_manifest_is_not_kept_in_clear_on_postgresql() {
    on_postgresql(a_literal_secret_of_a_manifest_is_not_kept_in_clear);
}
