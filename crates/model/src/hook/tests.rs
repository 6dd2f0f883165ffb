//! The definition of a hook, its input and its answers.

use serde_json::json;

use super::*;

// fault K8
#[test]
fn a_hook_is_shown_without_its_credentials() {
    let hook = |text: &str| serde_json::from_str::<Hooks>(text);
    let hooks = hook(
        r#"{"a": {"on": "request", "url": "https://x.example/look?key=0123456789abcdefABCDEF"},
        "b": {"on": "result", "command": "/opt/look", "args": ["--token", "hunter22-hook", "--fast"]}}"#,
    );
    let shown = serde_json::to_string(&hooks.unwrap().shown()).unwrap();
    assert!(
        !shown.contains("0123456789") && !shown.contains("hunter22"),
        "{shown}"
    );
    assert!(
        shown.contains("https://x.example/look") && shown.contains("--fast"),
        "{shown}"
    );
    // What is shown is not taken for what it is.
    let again = hook(&shown).unwrap_err().to_string();
    assert!(again.contains("in full"), "{again}");
}

fn hooks(value: serde_json::Value) -> Result<Hooks, serde_json::Error> {
    serde_json::from_value(value)
}

#[test]
fn a_hook_is_a_command_or_a_url_with_a_deadline() {
    let good = hooks(json!({
        "mask": {"on": "result", "url": "https://hooks.example/x", "timeout": "500ms"},
        "check": {"on": "request", "command": "./check", "args": ["-v"], "tools": ["files:*"],
            "on_failure": "pass"},
    }))
    .unwrap();
    let names: Vec<&str> = good.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["check", "mask"]);
    let check = good.get("check").unwrap();
    assert_eq!(check.timeout, Duration::from_secs(2));
    assert!(check.sees(HookPoint::Request, "files", "read"));
    assert!(!check.sees(HookPoint::Request, "mail", "read"));
    assert!(!check.sees(HookPoint::Result, "files", "read"));
    assert!(
        good.get("mask")
            .unwrap()
            .sees(HookPoint::Result, "any", "thing")
    );
    for (hook, why) in [
        (json!({"on": "request"}), "either `command` or `url`"),
        (
            json!({"on": "request", "command": "x", "url": "http://x"}),
            "either",
        ),
        (
            json!({"on": "request", "url": "file:///etc/passwd"}),
            "not an http or https",
        ),
        (
            json!({"on": "request", "url": "https://me:you@x/"}),
            "credentials",
        ),
        (
            json!({"on": "request", "url": "https://x/", "args": ["y"]}),
            "`args`",
        ),
        (
            json!({"on": "request", "command": "x", "timeout": "31s"}),
            "`timeout`",
        ),
        (json!({"on": "never", "command": "x"}), "never"),
        (
            json!({"on": "request", "command": "x", "shell": true}),
            "shell",
        ),
    ] {
        let error = hooks(json!({ "a": hook })).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(hooks(json!({"A b": {"on": "request", "command": "x"}})).is_err());
}

#[test]
fn a_hook_is_told_all_it_needs_on_one_line() {
    let input = HookInput {
        hook: "check",
        point: HookPoint::Request,
        call: "call_1",
        project: "local",
        agent: "bot",
        user: None,
        method: "tools/call",
        server: "files",
        item: "read",
        arguments: Some(Raw::trusted("{\"path\":\n\"a\"}")),
        result: None,
    };
    assert_eq!(
        input.to_json(),
        r#"{"hook":"check","point":"request","call":"call_1","project":"local","agent":"bot","method":"tools/call","server":"files","name":"read","arguments":{"path":"a"}}"#
    );
}

// fault L8
#[test]
fn what_a_hook_answers_is_read_strictly() {
    let read = |answer: &str| HookVerdict::read(HookPoint::Request, answer.as_bytes());
    assert_eq!(read(" \n"), Ok(HookVerdict::Allow));
    assert_eq!(read(r#"{"decision":"allow"}"#), Ok(HookVerdict::Allow));
    let refused = read(r#"{"decision":"refuse","reason":"no \u001b[1mway"}"#);
    assert_eq!(
        refused,
        Ok(HookVerdict::Refuse {
            reason: "no way".to_owned()
        })
    );
    let replaced = read(r#"{"decision":"replace","arguments":{"a":1.50}}"#).unwrap();
    let HookVerdict::Replace(new) = replaced else {
        panic!("{replaced:?}")
    };
    assert_eq!(new.text(), r#"{"a":1.50}"#);
    for bad in [
        "ok",
        "{}",
        r#"{"decision":"maybe"}"#,
        r#"{"decision":"replace"}"#,
        r#"{"decision":"replace","result":{}}"#,
        r#"{"decision":"allow","decision":"refuse"}"#,
        r#"{"decision":"replace","arguments":[]}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    assert!(
        HookVerdict::read(
            HookPoint::Result,
            b"{\"decision\":\"replace\",\"result\":{}}"
        )
        .is_ok()
    );
    assert!(HookVerdict::read(HookPoint::Result, b"\xff").is_err());
}
