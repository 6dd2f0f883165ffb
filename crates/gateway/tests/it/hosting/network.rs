//! Row 1.2 and the network by grant: nothing, named hosts, or a port inside that is reached through the
//! gateway.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::json;

use super::{RUNGS, Rig, SECOND, USERS};

/// Answers every connection with `pong`.
fn host() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 1024];
            drop(stream.read(&mut head));
            drop(stream.write_all(b"HTTP/1.0 200 OK\r\n\r\npong"));
        }
    });
    port
}

// row 1.18, fault C10
#[test]
fn nothing_is_reached_without_a_grant_and_only_what_is_named_with_one() {
    let (port, other) = (host(), host());
    for user in USERS {
        let rig = Rig::new(user);
        for rung in RUNGS {
            rig.server(rung, rung, &json!({}));
            let said = rig.shell(
                rung,
                &format!("wget -T 2 -qO- http://127.0.0.1:{port}/ 2>&1"),
            );
            assert!(!said.contains("pong"), "{rung}: {said}");
            let granted = format!("{rung}-net");
            let grant = json!({"network": [format!("localhost:{port}")]});
            let status = rig.server(&granted, rung, &grant);
            assert_eq!(status["hosting"]["network"], "egress");
            let wget = |to: u16| {
                format!(
                    "http_proxy=http://127.0.0.1:3128 wget -T 5 -Y on -qO- http://localhost:{to}/ 2>&1"
                )
            };
            // The variables of the environment tell a program without settings of its own.
            let env = rig.tool(&granted, "env", json!({}));
            assert!(env.contains("HTTPS_PROXY") && env.contains("GANTRY_EGRESS_LOCALHOST"));
            let plain = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc 127.0.0.1 3129";
            let said = rig.shell(&granted, plain);
            assert!(said.contains("pong"), "{rung}: {said}");
            let said = rig.shell(&granted, &wget(other));
            assert!(!said.contains("pong"), "{rung}: {said}");
            let said = rig.shell(
                &granted,
                &format!("nc -w 2 127.0.0.1 {port} < /dev/null; echo $?"),
            );
            assert!(!said.contains("pong"), "the host's own loopback: {said}");
        }
    }
}

// row 1.2
#[test]
fn an_http_server_is_reached_through_the_gateway_and_on_a_published_port() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in RUNGS {
            let published = {
                let free = TcpListener::bind("127.0.0.1:0").unwrap();
                free.local_addr().unwrap().port()
            };
            let members = json!({
                "stdio_bridge": false,
                "port": 8080,
                "published_port": published,
                "entrypoint": ["/bin/evilpeer", "http", "--port", "8080", "--inside"],
            });
            let status = rig.server(rung, rung, &members);
            assert_eq!(status["transport"], "streamable-http", "{status:#}");
            assert_eq!(rig.tool(rung, "echo", json!({"text": "x"})), "x");
            let shown = &status["hosting"];
            assert_eq!(shown["published"], format!("127.0.0.1:{published}"));
            assert!(shown["published_warning"].is_string());
            let mut direct = TcpStream::connect(("127.0.0.1", published)).unwrap();
            direct.set_read_timeout(Some(5 * SECOND)).unwrap();
            let request = "GET /mcp HTTP/1.0\r\nHost: 127.0.0.1:8080\r\n\r\n";
            direct.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 9];
            direct.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 ");
            rig.call(rung, "crash", json!({"code": 1}));
            let again = |now: &serde_json::Value| {
                now["state"] == "ready" && now["restart_count"].as_u64() >= Some(1)
            };
            rig.gantry.wait_status(rung, 20 * SECOND, again);
            assert_eq!(rig.tool(rung, "echo", json!({"text": "y"})), "y");
        }
    }
}
