//! How long clients may keep what they read, whatever a server says.

use gantry_testkit::{Era, Evilpeer};
use serde_json::json;

use super::Older;
use crate::faults_client::Posted;
use crate::harness::{Gantry, LONG};

// fault H14
#[test]
fn nothing_is_kept_for_long_or_by_others() {
    for ttl in ["-1", "99999999999999", "\"soon\"", "1.5e300"] {
        let peer = Evilpeer::new()
            .era(Era::Modern)
            .fault(&format!("ttl={ttl}"));
        let gantry = Gantry::builder().server("a", &peer).start();
        gantry.wait_state("a", "ready", LONG);
        for (method, params) in [
            ("resources/read", json!({"uri": "test://static-text"})),
            ("tools/list", json!({})),
            ("server/discover", json!({})),
        ] {
            let answer = Posted::stateless(&gantry.agent, method, params).send(&gantry);
            let result = &answer.message()["result"];
            let kept = result["ttlMs"].as_i64().unwrap_or(-1);
            assert!((0..=300_000).contains(&kept), "{ttl} {method}: {result:#}");
            assert_eq!(result["cacheScope"], "private", "{ttl} {method}");
        }
        let older = Older::open(&gantry, "/mcp", "2025-11-25");
        let read = older.result("resources/read", json!({"uri": "test://static-text"}));
        assert!(read.get("ttlMs").is_none() && read.get("cacheScope").is_none());
    }
}
