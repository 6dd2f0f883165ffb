//! Answers whose end can be read in two ways, and heads that are none: each is refused or read in one
//! way, and nothing that follows it on its connection is ever taken for another answer. fault H11

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy};
use super::scene::Scene;
use super::{code, entry, with};
use crate::faults_client::ROOM;

/// The end of what was read as one answer: its head after the status, and all that follows.
type Framing = fn(&str) -> String;

/// Writes a body in one piece.
fn pieces(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// The name of each, what comes of the call, and what the server answers it with.
const ROWS: [(&str, Result<(), &str>, Framing); 10] = [
    ("both", Err("remote.cut"), |body| {
        format!(
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            pieces(body)
        )
    }),
    ("lengths", Err("remote.cut"), |body| {
        format!(
            "Content-Length: {}\r\nContent-Length: 5\r\n\r\n{body}",
            body.len()
        )
    }),
    ("signed", Err("remote.cut"), |body| {
        format!("Content-Length: +{}\r\n\r\n{body}", body.len())
    }),
    ("folded", Err("remote.cut"), |body| {
        format!("X: a\r\n b\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }),
    ("spaced", Err("remote.cut"), |body| {
        format!("Content-Length : {}\r\n\r\n{body}", body.len())
    }),
    ("returns", Err("remote.cut"), |body| {
        format!(
            "X: a\rContent-Length: 5\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }),
    // Lines may end so; it is one reading all the same, of a connection that is closed properly.
    ("feeds", Ok(()), |body| {
        format!(
            "Connection: close\nContent-Length: {}\n\n{body}",
            body.len()
        )
    }),
    // Only its end would end it, and it has none.
    ("uncoded", Err("call.timeout"), |body| {
        format!("Transfer-Encoding: xchunked\r\n\r\n{}", pieces(body))
    }),
    ("oversized", Err("remote.cut"), |body| {
        format!("Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{body}")
    }),
    // A second answer, which nobody has asked for.
    ("behind", Ok(()), |body| {
        let length = body.len();
        let second = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        format!("Content-Length: {length}\r\n\r\n{body}{second}")
    }),
];

/// Starts a server that answers its first call so, and then neither closes that connection nor reads
/// from it.
fn far(framing: Framing, over: &Arc<AtomicBool>) -> Peer {
    let (calls, over) = (AtomicUsize::new(0), Arc::clone(over));
    Peer::start(move |seen: &Seen| {
        if seen.method() != "tools/call" || calls.fetch_add(1, Ordering::SeqCst) > 0 {
            return legacy(seen);
        }
        let Reply::Json(answer) = legacy(seen) else {
            return Reply::Cut;
        };
        let framed = framing(&answer.to_string());
        let over = Arc::clone(&over);
        Reply::Raw(Box::new(move |to: &mut dyn Write| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
            to.write_all(format!("{head}{framed}").as_bytes())?;
            to.flush()?;
            while !over.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            Ok(())
        }))
    })
}

#[test]
fn an_answer_with_two_ends_is_refused_or_read_one_way_and_its_connection_used_no_more() {
    let over = Arc::new(AtomicBool::new(false));
    let far = ROWS.map(|(name, _, framing)| (name, far(framing, &over)));
    let calm = json!({"type": "http", "life": {"health_every": "60s"},
        "calls": {"timeout": "5s", "timeout_max": "5s"}});
    let entries: Vec<(&str, Value)> = far
        .iter()
        .map(|(name, far)| (*name, with(entry(&far.url("/mcp")), &calm)))
        .collect();
    let scene = Scene::new(&entries);
    for (name, wanted, _) in ROWS {
        let first = match wanted {
            Ok(()) => {
                let answer = scene
                    .gantry
                    .call(&format!("{name}__echo"), json!({"text": "x"}));
                assert_eq!(
                    answer["result"]["content"][0]["text"], "x",
                    "{name}: {answer}"
                );
                ("ok", None)
            }
            Err("call.timeout") => {
                scene.fails(name, "timeout", "call.timeout");
                ("timeout", Some("call.timeout"))
            }
            Err(class) => {
                let failed = scene.fails(name, "error", class);
                assert_eq!(code(&failed.error), class, "{name}");
                ("error", Some(class))
            }
        };
        // Who came next on that connection would wait for ever, or get the other's answer.
        let answer = scene
            .gantry
            .call(&format!("{name}__echo"), json!({"text": "next"}));
        assert_eq!(
            answer["result"]["content"][0]["text"], "next",
            "{name}: {answer}"
        );
        let rows = scene.gantry.audit_rows(&format!("server={name}"));
        let recorded: Vec<_> = rows
            .iter()
            .map(|row| (row["status"].as_str().unwrap(), row["code"].as_str()))
            .collect();
        assert_eq!(recorded, [first, ("ok", None)], "{name}");
        assert_eq!(scene.gantry.status(name)["restart_count"], 0, "{name}");
    }
    over.store(true, Ordering::SeqCst);
    scene.is_over(ROOM);
}
