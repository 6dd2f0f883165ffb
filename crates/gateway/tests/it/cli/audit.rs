//! `gantry audit`: what was administered, word for word.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{run, settings};
use crate::harness::Gantry;

#[test]
fn acts_are_shown_with_who_and_what_changed() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"name": "reader", "grant": ["a:echo"]});
    assert_eq!(
        gantry.rest("POST", "/api/v1/agents", Some(&body)).status,
        201
    );
    let path = "/api/v1/agents/reader";
    let body = json!({"grant": "all"});
    assert_eq!(gantry.rest("PATCH", path, Some(&body)).status, 200);
    for _ in 0..3 {
        assert_eq!(
            gantry.rest_as(&gantry.agent, "DELETE", path, None).status,
            403
        );
    }
    let run =
        |gantry: &Gantry, words: &[&str]| run(gantry, words).replace("127.0.0.1", "[address]");
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["audit", "acts", "--target", "reader"]), @r#"
        TIME  WHO  FROM  ACT  ON  OUTCOME  CHANGE
        [time]  operator  [address]  agent.create  reader  done  label "", grants ["a:echo"], tools {"include":[],"exclude":[]}, trusted_user_ids false, limits {}
        [time]  operator  [address]  agent.change  reader  done  grants ["a:echo"] → ["*"]
        [time]  default  [address]  agent.remove  reader  refused auth.agent_key ×3
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["audit", "acts", "--act", "agent.*", "--outcome", "refused", "-n", "1"]), @"
        TIME  WHO  FROM  ACT  ON  OUTCOME  CHANGE
        [time]  default  [address]  agent.remove  reader  refused auth.agent_key ×3
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["audit", "acts", "--actor", "nobody"]), @"
        no acts
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["audit", "acts", "--outcome", "maybe"]), @"
        --- stderr
        error: invalid value 'maybe' for '--outcome <OUTCOME>'
          [possible values: done, refused, failed, unfinished]

        For more information, try '--help'.
        --- exit 2
        ");
    });
    let shown = gantry.cli(&["audit", "acts", "--json", "--target", "reader"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["items"][1]["after"]["grants"], json!(["*"]));
    assert_eq!(shown["items"][0]["repeats"], 3);
}
