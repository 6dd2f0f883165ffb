//! Hosting as REST, the command line and configuration files have it, without running an image: what is
//! taken, what is refused and how, what is shown.

use std::fs;

use serde_json::{Value, json};

use crate::config::Folder;
use crate::harness::Gantry;

const SERVERS: &str = "/api/v1/mcp/servers";

/// Returns the code and the first issue of a refusal.
fn refused(gantry: &Gantry, body: &Value) -> (u16, String) {
    let answer = gantry.rest("POST", SERVERS, Some(body));
    (answer.status, answer.text())
}

fn image(more: Value) -> Value {
    let mut body = json!({"name": "x", "image": "registry.invalid/x:1", "start": "lazy"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

// rows 1.1, 1.3, 1.14, 1.16, 1.17
#[test]
fn a_registration_is_taken_as_the_hosting_api_writes_it() {
    let gantry = Gantry::start(&[]);
    let body = json!({
        "name": "langfuse-mcp", "image": "registry.invalid/mcp-langfuse:latest", "stdio_bridge": true,
        "restart_policy": "always", "environment": {"API_KEY": "canary-9f3e1c77", "DB_URL": "x"},
        "resource_limits": {"cpu": "1", "memory": "1G"}, "volumes": ["/data"], "start": "lazy",
    });
    let made = gantry.rest("POST", SERVERS, Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(!made.text().contains("canary-9f3e1c77"), "{}", made.text());
    let status = gantry.status("langfuse-mcp");
    assert_eq!(status["image"], "registry.invalid/mcp-langfuse:latest");
    assert_eq!(status["profile"], "hosted");
    let spec = &status["spec"];
    assert_eq!(spec["env"], json!(["API_KEY", "DB_URL"]));
    assert_eq!(spec["limits"]["cpu"], 1.0);
    assert_eq!(spec["limits"]["memory"], 1 << 30);
    assert_eq!(spec["limits"]["disk"], 1 << 30);
    assert_eq!(
        (&spec["network"], &spec["stdio_bridge"]),
        (&json!("none"), &json!(true))
    );
    assert_eq!(spec["volumes"], json!(["/data"]));
    let list = gantry.rest("GET", SERVERS, None).json();
    let shown = list["items"].as_array().unwrap();
    let shown = shown.iter().find(|one| one["name"] == "langfuse-mcp");
    assert_eq!(
        shown.unwrap()["image"],
        "registry.invalid/mcp-langfuse:latest"
    );
    let patch = json!({"resource_limits": {"memory": "2G"}, "environment": {"API_KEY": null}});
    let changed = gantry.rest("PATCH", &format!("{SERVERS}/langfuse-mcp"), Some(&patch));
    assert_eq!(changed.status, 200, "{}", changed.text());
    let spec = &changed.json()["spec"];
    assert_eq!(spec["limits"]["memory"], 2_u64 << 30);
    assert_eq!(spec["limits"]["cpu"], 1.0);
    assert_eq!(spec["env"], json!(["DB_URL"]));
}

// row 1.2; faults C7, C8, G4, G6
#[test]
fn what_a_hosted_server_may_not_ask_for_is_refused_by_name() {
    let gantry = Gantry::start(&[]);
    let long = "9".repeat(400);
    for (more, path) in [
        (json!({"image": "--privileged"}), "/image"),
        (json!({"image": "${IMAGE}"}), "/image"),
        (json!({"volumes": ["/"]}), "/volumes/0"),
        (
            json!({"volumes": ["/ok", "/var/run/docker.sock:/x"]}),
            "/volumes/1",
        ),
        (json!({"volumes": ["/a/../../etc"]}), "/volumes/0"),
        (json!({"user": "--root"}), "/user"),
        (json!({"stdio_bridge": false}), "/stdio_bridge"),
        (json!({"stdio_bridge": true, "port": 80}), "/port"),
        (json!({"provider": "process"}), "/provider"),
        (json!({"provider": "runc"}), "/provider"),
        (json!({"network": ["0x7f.1:80"]}), "/network"),
        (json!({"restart_policy": "sometimes"}), "/restart_policy"),
        (
            json!({"environment": {"LD_PRELOAD": "/x.so"}}),
            "/env/LD_PRELOAD",
        ),
        (json!({"resource_limits": {"cpu": "-1"}}), "/limits/cpu"),
        (
            json!({"resource_limits": {"cpu": "NaN"}}),
            "/resource_limits/cpu",
        ),
        (
            json!({"resource_limits": {"cpu": long}}),
            "/resource_limits/cpu",
        ),
        (
            json!({"resource_limits": {"memory": "1e309G"}}),
            "/resource_limits/memory",
        ),
        (json!({"resource_limits": {"disk": 0}}), "/limits/disk"),
        (json!({"command": "x"}), "/command"),
        (json!({"privileged": true}), "/privileged"),
        (json!({"cap_add": ["ALL"]}), "/cap_add"),
    ] {
        let (status, text) = refused(&gantry, &image(more.clone()));
        assert_eq!(status, 422, "{more}: {text}");
        assert!(
            text.contains(&format!("\"{path}\"")),
            "{more}: {path} in {text}"
        );
    }
    assert_eq!(gantry.rest("GET", SERVERS, None).json()["items"], json!([]));
}

// A hosted command that could write to what decides how it is held would be out of its sandbox.
#[test]
fn no_hosted_command_can_write_to_the_data_folder_a_configuration_or_a_home() {
    let gantry = Gantry::start(&[]);
    let data = gantry.data();
    let link = data.parent().unwrap().join("link");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let paths = [
        data.clone(),
        data.join("servers"),
        data.parent().unwrap().to_owned(),
        link,
        "/".into(),
        "/root/x".into(),
    ];
    for path in paths {
        let body = json!({"name": "x", "command": "true", "cwd": path, "start": "lazy"});
        for door in [
            SERVERS.to_owned(),
            format!("{SERVERS}/preview"),
            format!("{SERVERS}/test"),
        ] {
            let answer = gantry.rest("POST", &door, Some(&body));
            assert_eq!(
                answer.status,
                422,
                "{door} {}: {}",
                path.display(),
                answer.text()
            );
            assert!(answer.text().contains("\"/cwd\""), "{}", answer.text());
        }
        let mut local = body.clone();
        local["profile"] = "local".into();
        let answer = gantry.rest("POST", &format!("{SERVERS}/preview"), Some(&local));
        assert_eq!(
            answer.status,
            200,
            "a program of the person's own: {}",
            answer.text()
        );
    }
}

#[test]
fn a_file_takes_images_and_offers_to_run_those_of_an_engine() {
    let folder = Folder::new();
    folder.write(
        "gantry.toml",
        "[servers.memory]\nimage = \"registry.invalid/memory:1\"\nvolumes = [\"/data\"]\n\
         network = [\"api.example.com:443\"]\nstart = \"lazy\"\n\n\
         [servers.engine]\ncommand = \"docker\"\nargs = [\"run\", \"-i\", \"mcp/fetch\"]\n\n\
         [servers.danger]\ncommand = \"docker\"\nargs = [\"run\", \"-v\", \"/:/host\", \"x\"]\n",
    );
    let told = folder
        .told(&["config", "check", "--config", "gantry.toml"])
        .replace('\n', " ");
    for part in [
        "the image `mcp/fetch` can be run by Gantry itself",
        "`/:/host` mounts part of this machine into the server",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
    folder.write(
        "gantry.toml",
        "[servers.both]\nimage = \"a\"\ncommand = \"x\"\n\n\
         [servers.inside]\ncommand = \"true\"\nprofile = \"hosted\"\ncwd = \".\"\n",
    );
    let checked = folder.run(&["config", "check", "--config", "gantry.toml"]);
    assert!(!checked.status.success());
    let told = [checked.stdout, checked.stderr].concat();
    let told = String::from_utf8_lossy(&told).replace('\n', " ");
    for part in [
        "`image` and `command` exclude each other",
        "configuration file",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
}

// faults C7, C8
#[test]
fn entries_of_an_engine_become_images_on_import() {
    let folder = Folder::new();
    let file = json!({"mcpServers": {
        "github": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/x/y:1"],
            "env": {"TOKEN": "${GITHUB_TOKEN}"}},
        "memory": {"command": "docker", "args": ["run", "-i", "-v", "mem:/app/dist", "mcp/memory"]},
        "host": {"command": "docker", "args": ["run", "-i", "--privileged", "mcp/all"]},
    }});
    folder.write("other.json", &file.to_string());
    let told = folder.told(&["import", "--images", "other.json"]);
    assert!(told.contains("--privileged"), "{told}");
    assert!(told.contains("added  ghcr.io/x/y:1"), "{told}");
    let written = fs::read_to_string(folder.home().join("shop/gantry.toml")).unwrap();
    for part in [
        "image = \"ghcr.io/x/y:1\"",
        "TOKEN = \"${GITHUB_TOKEN}\"",
        "image = \"mcp/memory\"",
        "volumes = [\"/app/dist\"]",
        "command = \"docker\"",
    ] {
        assert!(written.contains(part), "{part} in\n{written}");
    }
}

#[test]
fn images_and_volumes_are_listed_and_what_is_not_there_is_said() {
    let gantry = Gantry::start(&[]);
    assert_eq!(
        gantry.rest("GET", "/api/v1/images", None).json()["items"],
        json!([])
    );
    assert_eq!(
        gantry.rest("GET", "/api/v1/volumes", None).json()["items"],
        json!([])
    );
    let code = |method: &str, path: &str, body: Option<&Value>| {
        let answer = gantry.rest(method, path, body);
        let code = answer.json()["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (answer.status, code)
    };
    let is = |status: u16, code: &str| (status, code.to_owned());
    let gone = "/api/v1/images?image=busybox";
    assert_eq!(code("DELETE", gone, None), is(404, "image.absent"));
    let volume = "/api/v1/volumes?server=x&path=/data";
    assert_eq!(code("DELETE", volume, None), is(404, "volume.unknown"));
    let backup = "/api/v1/volumes/backup?server=x&path=/data";
    assert_eq!(code("GET", backup, None), is(404, "volume.unknown"));
    let wrong = json!({"image": "Not An Image"});
    assert_eq!(
        code("POST", "/api/v1/images", Some(&wrong)),
        is(400, "image.reference")
    );
    let both = json!({"image": "a", "archive": "/b"});
    assert_eq!(
        code("POST", "/api/v1/images", Some(&both)),
        is(422, "request.body")
    );
    for verb in [["images", "ls"], ["volumes", "ls"]] {
        assert!(gantry.cli(&verb).status.success());
    }
    for verb in [["images", "rm", "busybox"], ["volumes", "inspect", "x"]] {
        assert!(!gantry.cli(&verb).status.success());
    }
    let pruned = gantry.cli(&["images", "prune"]);
    assert!(String::from_utf8_lossy(&pruned.stdout).contains("nothing to remove"));
}
