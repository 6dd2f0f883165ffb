//! `gantry store copy`.

use gantry_testkit::Evilpeer;
use gantry_testkit::postgres::PgDatabase;
use insta::assert_snapshot;
use serde_json::json;

use super::{run, settings};
use crate::harness::{Gantry, LONG};

// row 0.9: the audit and the registry move with the installation.
#[test]
fn an_installation_moves_to_postgresql_and_back() {
    let database = PgDatabase::new();
    let url = database.url();
    let mut gantry = Gantry::builder().start();
    let argv = Evilpeer::new().name("kept").argv();
    let body = json!({"name": "kept", "command": argv[0], "args": argv[1..], "profile": "local",
        "start": "eager", "env": {"TOKEN": "s3cret-of-kept"}});
    let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    gantry.wait_state("kept", "ready", LONG);
    gantry.call("kept__echo", json!({"text": "x"}));
    assert_eq!(gantry.audit_rows("tool=echo&status=ok").len(), 1);
    let file = gantry.data().join("gantry.db");
    let file = file.to_str().unwrap().to_owned();
    let mut settings = settings();
    settings.add_filter(r"postgres://\S+", "[database]");
    settings.add_filter(
        r"copied \d+ rows of \d+ tables",
        "copied [many] rows of [all] tables",
    );
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["store", "copy", &file, &url]), @"
        --- stderr
        error: 1 gateway uses the store that is to be copied
        hint: stop the gateways first, or say `--in-use`: what they write meanwhile is not copied. A gateway that was killed counts as running until it has been started and stopped
        --- exit 1
        ");
    });
    assert_eq!(gantry.stop(), Some(0));
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["store", "copy", &file, &url]), @"
        copied [many] rows of [all] tables from [home]/data/gantry.db to [database]
        Start gateways with `--store` and the new place; the old one is left as it is.
        --- exit 0
        ");
    });
    let again = run(&gantry, &["store", "copy", &file, &url]);
    assert!(again.contains("is not empty"), "{again}");
    let sealed = database
        .sql("SELECT count(*) FROM kb.project_mcp_servers WHERE config::text LIKE '%s3cret%'");
    assert_eq!(sealed, "0");

    // The gateway goes on where it was, and the way back is open.
    let mut moved = gantry.again_as(Gantry::builder().flags(&["--store", &url]));
    moved.wait_state("kept", "ready", LONG);
    moved.call("kept__echo", json!({"text": "x"}));
    assert_eq!(moved.audit_rows("tool=echo&status=ok").len(), 2);
    assert_eq!(moved.stop(), Some(0));
    let back = moved.data().join("back.db");
    let back = back.to_str().unwrap().to_owned();
    let copied = run(&moved, &["store", "copy", &url, &back]);
    assert!(copied.ends_with("--- exit 0"), "{copied}");
    let moved = moved.again_as(Gantry::builder().flags(&["--store", &back]));
    moved.wait_state("kept", "ready", LONG);
    assert_eq!(moved.audit_rows("tool=echo&status=ok").len(), 2);
}
