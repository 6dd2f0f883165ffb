//! `gantry add --from`: from a file, a URL and a registry; asked for at a terminal, or given by flags.

use std::fs;

use gantry_testkit::image::Archive;
use gantry_testkit::mcp_registry::{McpRegistryServer, RegistryMood};
use gantry_testkit::registry::{ImageRegistry, RegistryAccess};
use gantry_testkit::{Evilpeer, Kind};
use serde_json::{Value, json};

use super::{manifest, stderr, stdout};
use crate::harness::{Gantry, Programs, Terminal, needs_root};

/// A manifest that leaves much to a person.
fn asking() -> Value {
    let mut asking = manifest(
        "io.github.ann/weather",
        "1.2.3",
        "Weather \u{1b}[31mfor all",
    );
    asking["packages"][0]["packageArguments"] = json!([
        {"type": "named", "name": "--units", "isRequired": true, "choices": ["metric", "imperial"]},
        {"type": "named", "name": "--plan", "default": "free"},
    ]);
    asking["packages"][0]["environmentVariables"] = json!([
        {"name": "WEATHER_KEY", "description": "Your key", "isRequired": true, "isSecret": true},
        {"name": "LOG_LEVEL"},
    ]);
    asking
}

fn registered(gantry: &Gantry, name: &str) -> Value {
    gantry.status(name)["spec"].clone()
}

// faults C7, G8 and K4
#[test]
fn a_manifest_becomes_a_registered_server() {
    let gantry = Gantry::builder().start();
    let file = gantry.data().join("../server.json");
    let path = file.to_str().unwrap().to_owned();
    fs::write(&file, asking().to_string()).unwrap();
    let add = |more: &[&str]| {
        let mut arguments = vec![
            "add",
            "--from",
            path.as_str(),
            "--package",
            "npm",
            "--no-wait",
        ];
        arguments.extend(more);
        gantry.cli(&arguments)
    };
    // Off a terminal everything that is missing is named, and nothing is added without `--yes`.
    let missing = add(&["--yes"]);
    let said = stderr(&missing);
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--arg units=VALUE") && said.contains("--env WEATHER_KEY=VALUE"),
        "{said}"
    );
    let given = ["--arg", "units=metric", "--env", "WEATHER_KEY=s3cr3t-value"];
    let unasked = add(&given);
    assert!(
        stderr(&unasked).contains("pass --yes"),
        "{}",
        stderr(&unasked)
    );
    for (more, why) in [
        (&["--arg", "units=kelvin"][..], "one of metric, imperial"),
        (&["--arg", "nothing=1"], "no open argument"),
        (
            &["--arg", "units=metric", "--header", "A=b"],
            "only a remote server",
        ),
        (&["--package", "oci"], "cannot be used multiple times"),
    ] {
        let refused = add(&[more, &["--env", "WEATHER_KEY=s3cr3t-value", "--yes"]].concat());
        assert!(
            stderr(&refused).contains(why),
            "{more:?}: {}",
            stderr(&refused)
        );
    }
    assert!(
        gantry
            .rest("GET", "/api/v1/mcp/servers/weather", None)
            .status
            == 404
    );

    let added = add(&[&given[..], &["--env", "EXTRA=1", "--yes"]].concat());
    let shown = stdout(&added);
    assert!(added.status.success(), "{}", stderr(&added));
    for text in [
        "io.github.ann/weather 1.2.3",
        "npx -y @ann/weather@1.2.3 --units metric --plan free",
        "WEATHER_KEY",
        "--env LOG_LEVEL=VALUE",
        "Weather [31mfor all",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(
        !shown.contains("s3cr3t") && !shown.contains('\u{1b}'),
        "{shown}"
    );
    let spec = registered(&gantry, "weather");
    assert_eq!(
        spec["args"],
        json!([
            "-y",
            "@ann/weather@1.2.3",
            "--units",
            "metric",
            "--plan",
            "free"
        ])
    );
    assert_eq!(spec["env"], json!(["EXTRA", "WEATHER_KEY"]));
    // Twice is a conflict, another name is not.
    let twice = add(&[&given[..], &["--yes"]].concat());
    assert!(
        stderr(&twice).contains("exists already"),
        "{}",
        stderr(&twice)
    );
    let other = [
        &[
            "add",
            "other",
            "--from",
            &path,
            "--package",
            "npm",
            "--no-wait",
            "--yes",
        ][..],
        &given,
    ]
    .concat();
    assert!(gantry.cli(&other).status.success());

    // What cannot be used says why, and is shown whole.
    for (text, why) in [
        ("{".to_owned(), "not valid JSON"),
        (json!({"name": "x"}).to_string(), "is not a server's name"),
        (" ".repeat(2 << 20), "over 1 MiB"),
        (manifest("a.b/c", "^1", "x").to_string(), "exact version"),
    ] {
        fs::write(&file, text).unwrap();
        let refused = add(&["--yes"]);
        assert!(
            stderr(&refused).contains(why),
            "{why}: {}",
            stderr(&refused)
        );
    }
    let none = gantry.cli(&["add", "--from", "/nowhere/server.json", "--yes"]);
    assert!(stderr(&none).contains("cannot read"), "{}", stderr(&none));
    let folder = gantry.cli(&["add", "--from", "/tmp", "--yes"]);
    assert!(
        stderr(&folder).contains("not a file"),
        "{}",
        stderr(&folder)
    );
}

#[test]
fn what_is_missing_is_asked_for_at_a_terminal() {
    let gantry = Gantry::builder().start();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("server.json"), asking().to_string()).unwrap();
    let line = format!(
        "{} --data {} add --from server.json --package npm --no-wait",
        env!("CARGO_BIN_EXE_gantry"),
        gantry.data().display()
    );
    let mut terminal = Terminal::open(home.path(), home.path(), &line);
    terminal.reads("units (one of metric, imperial): ");
    terminal.types("kelvin\n");
    terminal.reads("must be one of");
    terminal.types("imperial\n");
    terminal.reads("WEATHER_KEY (Your key): ");
    terminal.types("s3cr3t-value\n");
    terminal.reads("Add it? [y/N] ");
    terminal.types("y\n");
    assert_eq!(terminal.ends(), 0, "{}", terminal.shown());
    // Never echoed, and nothing of it is shown.
    assert!(!terminal.shown().contains("s3cr3t"), "{}", terminal.shown());
    let spec = registered(&gantry, "weather");
    assert_eq!(
        spec["args"],
        json!([
            "-y",
            "@ann/weather@1.2.3",
            "--units",
            "imperial",
            "--plan",
            "free"
        ])
    );
    // Whoever says no has added nothing.
    let line = line.replace(
        "add --from",
        "add second --arg units=metric --env WEATHER_KEY=x --from",
    );
    let mut terminal = Terminal::open(home.path(), home.path(), &line);
    terminal.reads("Add it? [y/N] ");
    terminal.types("n\n");
    assert_eq!(terminal.ends(), 1);
    assert_eq!(
        gantry
            .rest("GET", "/api/v1/mcp/servers/second", None)
            .status,
        404
    );
}

// row 1.1, fault H4
#[test]
fn a_name_is_looked_up_and_its_image_or_remote_runs() {
    needs_root();
    let images = ImageRegistry::start(RegistryAccess::Open);
    let image = images.push("team/peer:1", &Archive::peer("peer"));
    let remote = Evilpeer::new().serve(Kind::Streamable);
    let mut both = manifest("com.example/peer", "2.0.0", "A peer");
    both["packages"] = json!([
        {"registryType": "oci", "identifier": image, "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "TOKEN", "isSecret": true, "isRequired": true}]},
    ]);
    both["remotes"] = json!([{"type": "streamable-http", "url": remote.url,
        "headers": [{"name": "X-Key", "value": "Bearer {key}", "variables": {"key": {"isRequired": true}}}]}]);
    let mut first = both.clone();
    first["version"] = json!("1.0.0");
    first["packages"] = json!([{"registryType": "mcpb", "identifier": "https://example.com/x", "transport": {"type": "stdio"}}]);
    first["remotes"] = json!([]);
    let mut gone = manifest("com.example/gone", "1.0.0", "Gone");
    gone["_meta"] = json!({"test": {"status": "deleted"}});
    let registry = McpRegistryServer::start(RegistryMood::Honest, vec![both.clone(), first, gone]);
    let programs = Programs::copied();
    let gantry = Gantry::builder().program(&programs.gantry()).start();
    let url = registry.url();
    let add = |arguments: &[&str]| {
        let common = ["add", "--registry", &url, "--yes"];
        gantry.cli(&[&common[..], arguments].concat())
    };
    // The best is the image.
    let added = add(&[
        "--from",
        "com.example/peer",
        "--env",
        "TOKEN=t",
        "--provider",
        "namespaces",
    ]);
    assert!(
        added.status.success(),
        "{}{}",
        stdout(&added),
        stderr(&added)
    );
    assert!(
        stdout(&added).contains("peer is ready"),
        "{}",
        stdout(&added)
    );
    assert!(
        stdout(&added).contains("--egress HOST:PORT"),
        "{}",
        stdout(&added)
    );
    assert_eq!(gantry.status("peer")["image"], *image);
    let added = add(&[
        "far",
        "--from",
        "com.example/peer@2.0.0",
        "--package",
        "remote",
        "--arg",
        "key=k",
    ]);
    assert!(
        stdout(&added).contains("far is ready"),
        "{}{}",
        stdout(&added),
        stderr(&added)
    );
    assert_eq!(registered(&gantry, "far")["headers"], json!(["X-Key"]));
    for (arguments, why) in [
        (
            &["--from", "com.example/none"][..],
            "no server `com.example/none`",
        ),
        (&["--from", "com.example/peer@9.9.9"], "of version `9.9.9`"),
        (&["--from", "com.example/gone"], "taken out of the registry"),
        (
            &["--from", "com.example/peer@1.0.0"],
            "`mcpb`, which Gantry does not run",
        ),
        (
            &["--from", "com.example/peer", "--package", "npm"],
            "nothing for `--package npm`",
        ),
    ] {
        let refused = add(arguments);
        assert!(
            stderr(&refused).contains(why),
            "{arguments:?}: {}",
            stderr(&refused)
        );
    }
    // A URL: the manifest as the registry has it, and one that leads inward.
    let place = format!("{url}/v0.1/servers/com.example%2Fpeer/versions/latest");
    let added = add(&[
        "web",
        "--from",
        &place,
        "--package",
        "remote",
        "--arg",
        "key=k",
    ]);
    assert!(added.status.success(), "{}", stderr(&added));
    let inward = McpRegistryServer::start(
        RegistryMood::Redirects("http://169.254.169.254/x".to_owned()),
        Vec::new(),
    );
    let refused = add(&["--from", &format!("{}/server.json", inward.url())]);
    assert!(
        stderr(&refused).contains("private address"),
        "{}",
        stderr(&refused)
    );
    let refused = add(&["--from", "http://169.254.169.254/server.json"]);
    assert!(
        stderr(&refused).contains("private address"),
        "{}",
        stderr(&refused)
    );
}

// fault G8
#[test]
fn who_is_asked_for_a_second_choice_is_told_why_it_is_not_the_first() {
    let gantry = Gantry::builder().start();
    let mut manifest = manifest("io.github.ann/weather", "1.2.3", "Weather");
    manifest["packages"] = json!([{
        "registryType": "oci",
        "identifier": "registry.example/weather:1",
        "transport": {"type": "stdio"},
        "runtimeArguments": [{"type": "positional", "value": "--privileged"}],
    }]);
    manifest["remotes"] = json!([{
        "type": "streamable-http",
        "url": "https://example.com/{tenant}/mcp",
        "variables": {"tenant": {"isRequired": true}},
    }]);
    let file = gantry.data().join("../server.json");
    fs::write(&file, manifest.to_string()).unwrap();
    let missing = gantry.cli(&[
        "add",
        "--from",
        file.to_str().unwrap(),
        "--yes",
        "--no-wait",
    ]);
    let said = stderr(&missing);
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(said.contains("--arg tenant=VALUE"), "{said}");
    assert!(
        said.contains("not used: ") && said.contains("--privileged"),
        "{said}"
    );
}
