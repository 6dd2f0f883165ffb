//! Rows 1.19 and 1.20: volumes keep their content over crash, restart, removal and the gateway's end.

use gantry_testkit::image::Archive;
use serde_json::{Value, json};

use super::{HOSTED, RUNGS, Rig, SECOND, USERS};
use crate::harness::Connection;

// row 1.19
#[test]
fn a_new_volume_begins_with_what_the_image_has_there() {
    let image = Archive::peer(super::IMAGE).file("app/dist/server", b"shipped", 0o644);
    for user in USERS {
        let rig = Rig::with(user, &image);
        for rung in RUNGS {
            rig.server(rung, rung, &json!({"volumes": ["/app/dist", "/data"]}));
            let look = "cat /app/dist/server; ls /data";
            assert_eq!(rig.shell(rung, look), "shipped", "{user:?} {rung}");
            rig.shell(rung, "echo changed > /app/dist/server");
            let path = format!("/api/v1/mcp/servers/{rung}/restart");
            assert!(rig.gantry.rest("POST", &path, None).status < 300);
            rig.gantry.wait_state(rung, "ready", 20 * SECOND);
            assert_eq!(rig.shell(rung, look), "changed", "{user:?} {rung}");
        }
    }
}

// row 1.19
#[test]
fn a_new_volume_has_the_owner_and_mode_that_the_image_gives_its_folder() {
    let image = Archive::peer(super::IMAGE)
        .folder("full", 0o750)
        .file("full/file", b"", 0o644)
        .folder("data", 0o700)
        .folder("shared", 0o755)
        .owner("full", 1000)
        .owner("data", 1000)
        .config("User", json!("node"));
    for user in USERS {
        let rig = Rig::with(user, &image);
        for rung in RUNGS {
            let volumes = json!({"volumes": ["/full", "/data", "/shared", "/other"]});
            rig.server(rung, rung, &volumes);
            let own = rig.shell(rung, "id -u");
            // Otherwise only root could write there; a plain user's gateway has one id for all.
            let shared = match rig.is_root {
                true => "drwxrwxrwx 0".to_owned(),
                false => format!("drwxr-xr-x {own}"),
            };
            let seen = |folder: &str| {
                let line = rig.shell(rung, &format!("ls -ldn {folder}"));
                let words: Vec<&str> = line.split_whitespace().collect();
                format!("{} {}", words[0], words[2])
            };
            for (folder, expected) in [
                ("/full", format!("drwxr-x--- {own}")),
                ("/data", format!("drwx------ {own}")),
                ("/shared", shared),
                ("/other", format!("drwxrwxrwx {own}")),
            ] {
                assert_eq!(seen(folder), expected, "{user:?} {rung} {folder}");
            }
            let write = "chmod 750 /data; touch /full/new /shared/new /other/new && ls /full";
            assert_eq!(rig.shell(rung, write), "file\nnew", "{user:?} {rung}");
            let path = format!("/api/v1/mcp/servers/{rung}/restart");
            assert!(rig.gantry.rest("POST", &path, None).status < 300);
            rig.gantry.wait_state(rung, "ready", 20 * SECOND);
            assert_eq!(
                seen("/data"),
                format!("drwxr-x--- {own}"),
                "{user:?} {rung}"
            );
        }
    }
}

// rows 1.17 and 1.19
#[test]
fn an_image_with_more_in_a_volume_than_fits_is_refused_with_the_limit() {
    let image = Archive::peer(super::IMAGE).file("data/big", &vec![7; 40 << 20], 0o644);
    for user in USERS {
        let rig = Rig::with(user, &image);
        let limited = json!({"volumes": ["/data"], "resource_limits": {"disk": "16M"}});
        rig.register("small", "namespaces", &limited);
        let failed = |now: &Value| now["state"] == "failed";
        let status = rig.gantry.wait_status("small", 20 * SECOND, failed);
        let reason = status["reason"].as_str().unwrap();
        assert!(
            reason.contains("in volume `/data` does not fit"),
            "{reason}"
        );
        let volumes = rig.gantry.rest("GET", "/api/v1/volumes", None).json();
        assert_eq!(volumes["items"][0]["files"], 0, "{volumes:#}");
    }
}

// row 1.19
#[test]
fn a_volume_where_the_image_has_a_file_is_refused_with_what_to_do() {
    let rig = Rig::with(None, &Archive::peer(super::IMAGE));
    for rung in RUNGS {
        for (name, volume) in [("at", "/etc/passwd"), ("below", "/etc/passwd/data")] {
            let name = format!("{rung}-{name}");
            rig.register(&name, rung, &json!({"volumes": [volume]}));
            let failed = |now: &Value| now["state"] == "failed";
            let status = rig.gantry.wait_status(&name, 20 * SECOND, failed);
            let expected = format!(
                "the image has a file at `/etc/passwd`: volume `{volume}` needs a folder; name another \
                 path"
            );
            let reason = status["reason"].as_str().unwrap();
            assert!(reason.contains(&expected), "{reason}");
        }
    }
}

// rows 1.19 and 1.20, fault C13
#[test]
fn volumes_survive_crashes_restarts_and_removal() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            let members = json!({"volumes": ["/data", "/var/lib/state"]});
            rig.server(rung, rung, &members);
            let write =
                format!("echo {rung} > /data/kept; echo 2 > /var/lib/state/x; cat /data/kept");
            assert_eq!(rig.shell(rung, &write), rung);
            rig.call(rung, "crash", json!({"code": 1}));
            let again = |now: &Value| now["state"] == "ready" && now["restart_count"] == 1;
            rig.gantry.wait_status(rung, 10 * SECOND, again);
            assert_eq!(rig.shell(rung, "cat /data/kept"), rung);
            let path = format!("/api/v1/mcp/servers/{rung}");
            assert!(rig.gantry.rest("DELETE", &path, None).status < 300);
            let volumes = rig.gantry.rest("GET", "/api/v1/volumes", None).json();
            let own = volumes["items"].as_array().unwrap().iter();
            let own = own.filter(|volume| volume["server"] == rung);
            assert_eq!(own.count(), 2, "{volumes:#}");
            rig.server(rung, rung, &members);
            assert_eq!(
                rig.shell(rung, "cat /data/kept /var/lib/state/x"),
                format!("{rung}\n2")
            );
            // What is no volume is gone with the instance.
            assert_eq!(rig.shell(rung, "echo 1 > /tmp/gone; cat /tmp/gone"), "1");
            let path = format!("/api/v1/mcp/servers/{rung}/restart");
            assert!(rig.gantry.rest("POST", &path, None).status < 300);
            rig.gantry.wait_state(rung, "ready", 20 * SECOND);
            let said = rig.shell(rung, "cat /tmp/gone");
            assert!(said.contains("No such file"), "{said}");
        }
        let path = format!("/api/v1/mcp/servers/{}?volumes=true", HOSTED[0]);
        assert!(rig.gantry.rest("DELETE", &path, None).status < 300);
        let volumes = rig.gantry.rest("GET", "/api/v1/volumes", None).json();
        let gone = volumes["items"].as_array().unwrap().iter();
        assert_eq!(
            gone.filter(|volume| volume["server"] == HOSTED[0]).count(),
            0
        );
    }
}

// row 1.19, fault P9
#[test]
fn a_backup_is_no_longer_than_the_volume_and_leaves_nothing_out() {
    for user in USERS {
        let rig = Rig::with(user, &Archive::peer(super::IMAGE));
        rig.server("odd", "namespaces", &json!({"volumes": ["/data"]}));
        let make =
            "cd /data; echo kept > file; busybox mkfifo fifo; busybox ln -s /etc/shadow link;
                    dd if=/dev/zero of=holes bs=1 count=1 seek=1000000000000 2>&1; ls";
        let made = rig.shell("odd", make);
        assert!(made.ends_with("fifo\nfile\nholes\nlink"), "{made}");
        let path = "/api/v1/volumes/backup?server=odd&path=/data";
        let backup = rig.gantry.rest("GET", path, None);
        assert_eq!(backup.status, 200, "{}", backup.text());
        let text = backup.text();
        assert!(text.len() < 1 << 20, "{user:?}: {}", text.len());
        assert!(text.contains("kept") && text.contains("holes"));
        // Cut off at what the gateway cannot read; root reads everything.
        rig.shell("odd", "chmod 0 /data/file");
        let bearer = format!("Bearer {}", rig.gantry.admin);
        let headers = [("Authorization", bearer.as_str())];
        let backup = Connection::open(&rig.gantry.authority)
            .and_then(|mut connection| connection.request("GET", path, &headers, b""));
        assert_eq!(backup.is_ok(), rig.is_root);
    }
}
