//! The probes of `docs/isolation.md` once more, from inside servers as the gateway runs them: without a
//! network, with egress to a named host, and with a published port. No effect outside. fault C10
//!
//! One network each in `./test`, so that all three are tried; every one on every rung in full.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use gantry_testkit::image::Archive;
use gantry_testkit::probes::{self, Kernel, World};
use gantry_testkit::proof;
use serde_json::{Value, json};

use super::{HOSTED, IMAGE, Rig, USERS};

/// How much of a program fits into one argument of a shell.
const PIECE: usize = 90 << 10;
const NETWORKS: [&str; 3] = ["none", "egress", "published"];

/// Returns the members of a registration with a network of that kind.
fn members(network: &str, port: u16) -> Value {
    let mut members = json!({
        "volumes": ["/data"], "resource_limits": {"pids": 64, "memory": "1G", "disk": "64M", "cpu": 2},
        "timeout": "4m",
    });
    match network {
        "egress" => members["network"] = json!([format!("localhost:{port}")]),
        "published" => {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            members["published_port"] = json!(free.local_addr().unwrap().port());
            members["stdio_bridge"] = json!(false);
            members["port"] = json!(8080);
            members["entrypoint"] = json!(["/bin/evilpeer", "http", "--port", "8080", "--inside"]);
        }
        _ => {}
    }
    members
}

/// Brings the program into a sandboxed command, which sees nothing of the folder where it lies.
fn bring(rig: &Rig, server: &str, program: &Path) {
    let bytes = fs::read(program).unwrap();
    for piece in bytes.chunks(PIECE) {
        let text = STANDARD.encode(piece);
        let said = rig.shell(server, &format!("echo {text} | base64 -d >> /data/probes"));
        assert_eq!(said, "", "{said}");
    }
    rig.shell(server, "chmod 755 /data/probes");
}

// faults C10 and P7
#[test]
fn from_inside_of_hosted_servers_no_probe_has_an_effect() {
    // Where no sandbox covers anything by itself.
    let built = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(built.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = probes::build(built.path());
    let image = Archive::peer(IMAGE).file("probes", &fs::read(&program).unwrap(), 0o755);
    for (turn, user) in USERS.into_iter().enumerate() {
        let rig = Rig::with(user, &image);
        for (place, rung) in HOSTED.into_iter().enumerate() {
            let all = NETWORKS.into_iter().enumerate();
            let turn = turn + place;
            let tried = all.filter(|(index, _)| proof::is_full() || index % 3 == turn % 3);
            for (_, network) in tried {
                let folder = tempfile::tempdir_in("/var/tmp").unwrap();
                let mut world = World::new(folder.path(), &program);
                let server = format!("{rung}-{network}");
                let granted = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = granted.local_addr().unwrap().port();
                rig.server(&server, rung, &members(network, port));
                let mut arguments = world.arguments();
                let kernel = match rung {
                    "gvisor" => {
                        // The limit of processes counts gVisor's own threads: it ends the guest as a whole.
                        arguments.push("-fork_many".to_owned());
                        Kernel::Own
                    }
                    _ => Kernel::Hosts,
                };
                let mut inside = "/probes";
                if rung == "process" {
                    bring(&rig, &server, &program);
                    inside = "/data/probes";
                }
                let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
                let script = format!("cd /data; {inside} {} 2>&1", words.join(" "));
                let said = rig.tool(&server, "shell", json!({"script": script}));
                let seen = probes::read(&said).unwrap_or_else(|| panic!("{server}: {said}"));
                assert!(seen.len() > 100, "{server}: {}", seen.len());
                let harm = world.judge(&seen, kernel);
                assert!(harm.is_empty(), "{server}:\n{}", harm.join("\n"));
                let path = format!("/api/v1/mcp/servers/{server}?volumes=true");
                rig.gantry.rest("DELETE", &path, None);
            }
        }
    }
}
