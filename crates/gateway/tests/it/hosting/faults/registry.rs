//! Faults C4 and C6: images that a real registry does not have, does not give, or has changed; what is told,
//! and that nothing is asked in a loop.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use gantry_testkit::image::{Archive, Content};
use gantry_testkit::proof;
use gantry_testkit::registry::digest;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::super::{RUNGS, Rig, SECOND, USERS};
use super::beside_neighbour;
use crate::harness::{Answer, Connection};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// `ann` with the password `hunter2`.
const PASSWORDS: &str = "ann:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";

/// Debian's registry in a temporary folder, until it is dropped.
struct Registry {
    address: SocketAddr,
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Registry {
    /// Starts one, which may ask for a password.
    fn start(is_closed: bool) -> Self {
        for _ in 0..5 {
            let mut registry = Self::spawn(is_closed);
            let up = eventually(20 * SECOND, || {
                let has_ended = registry.process.try_wait().unwrap().is_some();
                has_ended || Connection::open(&registry.address.to_string()).is_ok()
            });
            // Somebody else may have taken the port.
            if up.is_some() && registry.process.try_wait().unwrap().is_none() {
                return registry;
            }
        }
        panic!("docker-registry does not start");
    }

    fn spawn(is_closed: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let root = folder.path().display();
        let auth = match is_closed {
            true => format!("auth:\n  htpasswd:\n    realm: test\n    path: {root}/passwords\n"),
            false => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    \
             rootdirectory: {root}/storage\nhttp:\n  addr: {address}\n{auth}"
        );
        fs::write(folder.path().join("config.yml"), config).unwrap();
        fs::write(folder.path().join("passwords"), PASSWORDS).unwrap();
        let log = || {
            fs::File::options()
                .create(true)
                .append(true)
                .open(folder.path().join("log"))
        };
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log().unwrap())
            .stderr(log().unwrap())
            .spawn();
        Self {
            address,
            process: process.expect("docker-registry is installed, see `.ci/needs`"),
            folder,
        }
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let mut connection = Connection::open(&self.address.to_string()).unwrap();
        let headers = [("Content-Type", kind)];
        let answer = connection.request(method, path, &headers, body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer
    }

    fn push_blob(&self, bytes: &[u8]) {
        let begun = self.send("POST", "/v2/team/peer/blobs/uploads/", "text/plain", b"");
        let place = begun.header("location").unwrap();
        let path = &place[place.find("/v2/").unwrap()..];
        let digest = digest(bytes);
        let path = format!("{path}&digest={digest}");
        self.send("PUT", &path, "application/octet-stream", bytes);
    }

    /// Gives it an image under a tag; returns the reference.
    fn push(&self, tag: &str, image: &Archive) -> String {
        let Content { config, layer } = image.content();
        self.push_blob(&config);
        self.push_blob(&layer);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(&config), "size": config.len()},
            "layers": [{"mediaType": LAYER, "digest": digest(&layer), "size": layer.len()}],
        });
        let path = format!("/v2/team/peer/manifests/{tag}");
        self.send("PUT", &path, MANIFEST, manifest.to_string().as_bytes());
        self.image(tag)
    }

    fn image(&self, tag: &str) -> String {
        format!("{}/team/peer:{tag}", self.address)
    }

    /// Returns how often a tag was asked for.
    fn asked(&self, tag: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let path = format!("/manifests/{tag} ");
        log.lines().filter(|line| line.contains(&path)).count()
    }
}

// fault C4, rows 1.1 and 1.18
#[test]
fn an_image_that_cannot_be_had_or_run_is_told_by_its_reason_and_not_asked_for_in_a_loop() {
    let registry = Registry::start(false);
    let closed = Registry::start(true);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = nobody.local_addr().unwrap();
    drop(nobody);
    let peer = || Archive::peer("team/peer");
    let good = registry.push("good", &peer());
    let foreign = registry.push("foreign", &peer().architecture("s390x"));
    let empty = registry.push("empty", &peer().config("Entrypoint", json!([])));
    let cases = [
        (
            "missing",
            registry.image("missing"),
            "has no manifest `missing`",
        ),
        ("foreign", foreign, "s390x"),
        ("empty", empty, "names no program"),
        ("refused", closed.image("good"), "refuses access"),
        ("away", format!("{away}/team/peer:1"), "no connection to"),
    ];
    for user in proof::count(&USERS[..], &USERS[..1]) {
        let rig = Rig::new(*user);
        beside_neighbour(&rig, || {
            for (name, image, words) in &cases {
                let watch = Stopwatch::start();
                let (status, answer) = rig.register(name, "auto", &json!({"image": image}));
                assert_eq!(status, 201, "{answer:#}");
                let down = |now: &Value| {
                    ["failed", "backing_off"]
                        .iter()
                        .any(|state| now["state"] == *state)
                };
                let now = rig.gantry.wait_status(name, 20 * SECOND, down);
                assert!(
                    watch.elapsed() < 15 * SECOND,
                    "{name}: {:?}",
                    watch.elapsed()
                );
                let reason = now["reason"].as_str().unwrap_or_default();
                assert!(reason.contains(words), "{name}: {reason}");
                // It did not run: what it may do then is no reason.
                assert!(!reason.contains("no network"), "{name}: {reason}");
                let wrong = rig
                    .gantry
                    .call(&format!("{name}__echo"), json!({"text": "x"}));
                assert!(wrong["error"].is_object(), "{wrong:#}");
            }
            // What can be pulled runs on every rung.
            for rung in RUNGS {
                rig.server(rung, rung, &json!({"image": good}));
                assert_eq!(rig.tool(rung, "echo", json!({"text": "x"})), "x");
            }
        });
        assert!(
            registry.asked("missing") <= 8,
            "{}",
            registry.asked("missing")
        );
    }
}

// fault C6
#[test]
fn a_tag_that_moved_changes_nothing_until_that_is_asked_for() {
    let registry = Registry::start(false);
    let image = |text: &str| Archive::peer("team/peer").file("which", text.as_bytes(), 0o644);
    for user in proof::count(&USERS[..], &USERS[..1]) {
        let reference = registry.push("moving", &image("first"));
        let rig = Rig::new(*user);
        let status = rig.server("a", "namespaces", &json!({"image": reference}));
        let digest = status["hosting"]["image"]["digest"].clone();
        assert_eq!(rig.shell("a", "cat /which"), "first");
        registry.push("moving", &image("second"));
        let restart = |rig: &Rig| {
            let before = rig.gantry.status("a")["generation"].clone();
            let restarted = rig
                .gantry
                .rest("POST", "/api/v1/mcp/servers/a/restart", None);
            assert!(restarted.status < 300, "{}", restarted.text());
            let again = |now: &Value| now["state"] == "ready" && now["generation"] != before;
            rig.gantry.wait_status("a", 20 * SECOND, again)
        };
        let status = restart(&rig);
        assert_eq!(status["hosting"]["image"]["digest"], digest);
        assert_eq!(rig.shell("a", "cat /which"), "first");
        // Nor does a restart of the gateway change it.
        let mut rig = rig;
        assert_eq!(rig.gantry.stop(), Some(0));
        let rig = rig.again();
        rig.gantry.wait_state("a", "ready", 20 * SECOND);
        assert_eq!(rig.shell("a", "cat /which"), "first");
        let asks = json!({"pull": "always"});
        let path = "/api/v1/mcp/servers/a";
        let changed = rig.gantry.rest("PATCH", path, Some(&asks));
        assert_eq!(changed.status, 200, "{}", changed.text());
        let newer =
            |now: &Value| now["state"] == "ready" && now["hosting"]["image"]["digest"] != digest;
        rig.gantry.wait_status("a", 20 * SECOND, newer);
        assert_eq!(rig.shell("a", "cat /which"), "second");
    }
}
