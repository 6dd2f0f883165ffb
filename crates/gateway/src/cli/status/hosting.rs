//! The part of `gantry status SERVER` about a hosted server: its image, its limits, its last
//! starts.

use serde_json::Value;

use crate::cli::format::{bytes, list, number, text, time, words};

/// Returns labels and values, in the order in which they are shown.
pub(super) fn fields(server: &Value) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    let image = text(server, "/hosting/image/reference");
    let image = match image.is_empty() {
        true => text(server, "/image"),
        false => {
            let digest = text(server, "/hosting/image/digest");
            let layers = list(server, "/hosting/image/layers").len();
            let pulled = number(server, "/hosting/image/pulled_ms").map_or_else(String::new, time);
            format!("{image} {digest}, {layers} layers, pulled {pulled}")
        }
    };
    fields.push(("image", image));
    let changed = match text(server, "/hosting/image/changed/digest") {
        digest if digest.is_empty() => digest,
        digest => format!(
            "the tag is {digest} now; `gantry restart {} --pull` takes it",
            text(server, "/name")
        ),
    };
    fields.push(("changed", changed));
    fields.push((
        "provider",
        joined(server, "/provider/name", "/provider/reason"),
    ));
    let network = match list(server, "/hosting/egress") {
        [] => text(server, "/hosting/network"),
        hosts => {
            let hosts: Vec<String> = hosts.iter().map(|host| text(host, "")).collect();
            format!(
                "{} to {}",
                text(server, "/hosting/network"),
                hosts.join(", ")
            )
        }
    };
    fields.push(("network", network));
    let published = joined(server, "/hosting/published", "/hosting/published_warning");
    fields.push(("published", published));
    fields.push(("volumes", words(server, "/hosting/volumes", ", ")));
    for limit in list(server, "/hosting/limits") {
        let value = limit
            .get("value")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        let name = text(limit, "/name");
        let value = match name.as_str() {
            "memory" | "disk" => bytes(value as u64),
            "cpu" => format!("{value} cores"),
            _ => format!("{value}"),
        };
        let state = text(limit, "/state").replace('_', " ");
        let detail = text(limit, "/detail");
        fields.push((
            "limit",
            format!("{name:<8} {value:<10} {state:<13} {detail}"),
        ));
    }
    let attempts = list(server, "/attempts");
    for attempt in attempts.iter().rev().take(3).rev() {
        fields.push(("start", start(attempt)));
    }
    fields
}

/// Describes when a start began and how it ended.
pub(in crate::cli) fn start(attempt: &Value) -> String {
    let began = number(attempt, "/started_ms").map_or_else(String::new, time);
    let how = match text(attempt, "/how") {
        how if how.is_empty() && attempt["was_ready"] == true => "runs".to_owned(),
        how if how.is_empty() => "on its way".to_owned(),
        how => how,
    };
    let marks = [
        ("/oom_killed", "oom_killed"),
        ("/pids_limit_hit", "pids_limit"),
    ];
    let marks = marks
        .into_iter()
        .filter(|(pointer, _)| attempt.pointer(pointer) == Some(&Value::Bool(true)));
    let marks: String = marks.map(|(_, mark)| format!(" [{mark}]")).collect();
    format!("{} at {began}: {how}{marks}", text(attempt, "/number"))
}

fn joined(server: &Value, one: &str, other: &str) -> String {
    let parts = [text(server, one), text(server, other)];
    let filled: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    filled.join(": ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hosted_server_is_shown_with_what_holds() {
        let server = json!({
            "image": "a/b",
            "provider": {"name": "namespaces", "reason": "gVisor is not installed"},
            "hosting": {
                "image": {"reference": "a/b", "digest": "sha256:00", "layers": [{}, {}], "pulled_ms": 0},
                "network": "egress", "egress": ["x.example:443"],
                "published": "127.0.0.1:9000", "published_warning": "grants do not apply",
                "volumes": ["/data"],
                "limits": [{"name": "memory", "value": 1024.0, "state": "not_enforced", "detail": "no cgroup"}],
            },
            "attempts": [{"number": 7, "started_ms": 0, "how": "exit code 1", "oom_killed": true}],
        });
        let shown: Vec<String> = fields(&server)
            .into_iter()
            .map(|(label, value)| format!("{label}: {value}"))
            .collect();
        let shown = shown.join("\n");
        for part in [
            "image: a/b sha256:00, 2 layers",
            "provider: namespaces: gVisor is not installed",
            "network: egress to x.example:443",
            "published: 127.0.0.1:9000: grants do not apply",
            "volumes: /data",
            "limit: memory   1.0 KiB    not enforced  no cgroup",
            "exit code 1 [oom_killed]",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
    }
}
