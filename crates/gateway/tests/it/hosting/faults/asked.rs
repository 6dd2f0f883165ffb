//! Faults C7, C8, C9, C10 and C12 with images that run: what is asked for and not given, values that look
//! like more than values, limits that cannot be held, what is reached from inside, and gVisor that is away.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gantry_testkit::image::Archive;
use serde_json::{Value, json};

use super::super::{HOSTED, IMAGE, RUNGS, Rig, SECOND, USERS};

// fault C7
#[test]
fn what_would_give_an_image_part_of_the_host_is_refused_and_links_lead_nowhere() {
    let rig = Rig::with(
        None,
        &Archive::peer(IMAGE)
            .link("data", "/etc")
            .link("up", "../../../../etc"),
    );
    for (more, field) in [
        (json!({"privileged": true}), "privileged"),
        (json!({"network": "host"}), "network"),
        (json!({"network_mode": "host"}), "network_mode"),
        (json!({"pid": "host"}), "pid"),
        (json!({"ipc": "host"}), "ipc"),
        (json!({"devices": ["/dev/kvm"]}), "devices"),
        (json!({"cap_add": ["SYS_ADMIN"]}), "cap_add"),
        (
            json!({"volumes": ["/var/run/docker.sock:/var/run/docker.sock"]}),
            "volumes/0",
        ),
        (json!({"volumes": ["/:/host"]}), "volumes/0"),
        (json!({"volumes": ["/data/../../etc"]}), "volumes/0"),
        (json!({"volumes": ["/home:/home:rw"]}), "volumes/0"),
        (json!({"volumes": ["../etc"]}), "volumes/0"),
    ] {
        let (status, answer) = rig.register("x", "auto", &more);
        assert_eq!(status, 422, "{more}: {answer:#}");
        assert!(
            answer.to_string().contains(&format!("/{field}")),
            "{more}: {answer:#}"
        );
    }
    // A volume whose place is a link in the image: it is in the server's own root, or not at all.
    let before = fs::read("/etc/passwd").unwrap();
    for rung in RUNGS {
        for (place, name) in [("/data", "data"), ("/up", "up")] {
            let server = format!("{rung}-{name}");
            let (status, answer) = rig.register(&server, rung, &json!({"volumes": [place]}));
            assert_eq!(status, 201, "{answer:#}");
            let over = |now: &Value| {
                ["ready", "failed"]
                    .iter()
                    .any(|state| now["state"] == *state)
            };
            let now = rig.gantry.wait_status(&server, 20 * SECOND, over);
            if now["state"] == "ready" {
                let script = format!("echo mine > {place}/canary-c7; cat {place}/canary-c7");
                assert_eq!(rig.shell(&server, &script), "mine", "{server}");
            } else {
                let reason = now["reason"].as_str().unwrap_or_default();
                assert!(reason.contains(place), "{server}: {reason}");
            }
            assert!(!fs::exists("/etc/canary-c7").unwrap());
        }
    }
    assert_eq!(fs::read("/etc/passwd").unwrap(), before);
}

// faults C8 and C9
#[test]
fn values_that_look_like_flags_are_values_and_limits_that_do_not_hold_are_told() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let odd = "--privileged\nLD_PRELOAD=/x.so\n$(id) ' \" ;";
            let members = json!({
                "environment": {"ODD": odd, "NEXT": "--network=host"},
                "entrypoint": [
                    "/bin/evilpeer", "--inside", "--name", "--privileged", "--version", "a\nb $(id)",
                ],
            });
            let status = rig.server(rung, rung, &members);
            let said = rig.shell(rung, "echo ${#ODD}; echo \"$NEXT\"; echo -${LD_PRELOAD:-}-");
            assert_eq!(said, format!("{}\n--network=host\n--", odd.len()), "{rung}");
            let rights = rig.shell(rung, "grep -E 'Cap(Eff|Prm|Bnd|Inh|Amb)' /proc/self/status");
            for line in rights.lines() {
                assert!(line.ends_with("0000000000000000"), "{rung}: {line}");
            }
            assert_eq!(status["hosting"]["network"], "none", "{rung}");
            // What is said of the limits is what the host can do.
            for limit in status["hosting"]["limits"].as_array().unwrap() {
                let state = limit["state"].as_str().unwrap();
                let detail = limit["detail"].as_str().unwrap();
                assert!(
                    ["enforced", "not_enforced"].contains(&state) && !detail.is_empty(),
                    "{limit}"
                );
                assert!(!rig.is_root || state == "enforced", "{rung}: {limit}");
            }
        }
    }
}

/// Counts who comes to any address of this machine.
fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let came = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&came);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (port, came)
}

// fault C10
#[test]
fn from_inside_neither_gateway_nor_host_nor_other_servers_are_reached() {
    let (port, came) = listener();
    for user in USERS {
        let rig = Rig::new(user);
        let gateway = rig.gantry.authority.rsplit(':').next().unwrap().to_owned();
        let other = json!({
            "stdio_bridge": false, "port": 8080,
            "entrypoint": ["/bin/evilpeer", "http", "--port", "8080", "--inside"],
        });
        rig.server("other", "namespaces", &other);
        for rung in HOSTED {
            rig.server(rung, rung, &json!({}));
            let get = |url: &str| {
                let script = format!("busybox wget -T 1 -qO- {url} 2>&1; echo ended $?");
                rig.shell(rung, &script)
            };
            for url in [
                format!("http://127.0.0.1:{port}/"),
                format!("http://127.0.0.1:{gateway}/healthz"),
                format!("http://localhost:{gateway}/api/v1/mcp/servers"),
                "http://127.0.0.1:8080/mcp".to_owned(),
                "http://169.254.169.254/latest/meta-data/".to_owned(),
                format!("http://10.0.0.1:{port}/"),
                "http://example.com/".to_owned(),
            ] {
                let said = get(&url);
                assert!(
                    said.contains("ended") && !said.contains("ended 0"),
                    "{rung} {url}: {said}"
                );
            }
            // No name is asked for: a question could carry what it knows.
            let said = rig.shell(rung, "cat /proc/net/route | busybox wc -l");
            assert!(said.starts_with(['0', '1']), "{rung}: {said}");
        }
        assert_eq!(came.load(Ordering::SeqCst), 0);
    }
}

/// Hides gVisor from what it runs, wherever it is installed.
const WITHOUT_GVISOR: &str = "mount --bind /dev/null \"$(command -v runsc)\" && exec setpriv --reuid=$0 --regid=$0 --clear-groups \"$@\"";

// fault C12, row 1.18
#[test]
fn without_gvisor_a_floor_refuses_and_the_choice_says_what_was_taken_instead() {
    for user in USERS {
        let becomes = user.unwrap_or(0);
        let words = [
            "unshare",
            "-m",
            "sh",
            "-c",
            WITHOUT_GVISOR,
            &becomes.to_string(),
        ];
        let rig = Rig::started(user, |builder| builder.user_under(becomes, &words));
        rig.import(&Archive::peer(IMAGE));
        let cases = [
            ("asked", "gvisor", json!({}), "provider_unavailable"),
            (
                "floor",
                "auto",
                json!({"isolation_floor": "gvisor"}),
                "isolation_floor",
            ),
        ];
        for (name, provider, members, words) in cases {
            rig.register(name, provider, &members);
            let failed = |now: &Value| now["state"] == "failed";
            let status = rig.gantry.wait_status(name, 20 * SECOND, failed);
            let reason = status["reason"].as_str().unwrap();
            assert!(reason.contains(words), "{name}: {reason}");
            assert_eq!(status["pid"], Value::Null, "{name}: {status:#}");
        }
        let status = rig.server("auto", "auto", &json!({}));
        assert_eq!(status["provider"]["name"], "namespaces", "{status:#}");
        let reason = status["provider"]["reason"].as_str().unwrap();
        assert!(
            reason.contains("gVisor") || reason.contains("runsc"),
            "{reason}"
        );
        let listed = rig.gantry.rest("GET", "/api/v1/mcp/servers", None).text();
        assert!(listed.contains("namespaces"), "{listed}");
    }
}
