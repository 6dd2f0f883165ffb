//! Manifests of real publishers, and of attackers.

use std::path::Path;

use serde_json::{Value, json};

use super::{Answers, Kind, Manifest, Slot, Wrong};

/// Returns a manifest with these packages.
fn with(packages: Value) -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ann/weather",
        "description": "Weather",
        "version": "1.2.3",
        "packages": packages,
    })
}

fn npm(more: &Value) -> Value {
    let mut package = json!({
        "registryType": "npm", "identifier": "@ann/weather", "version": "1.2.3",
        "transport": {"type": "stdio"},
    });
    for (name, value) in more.as_object().unwrap() {
        package[name] = value.clone();
    }
    package
}

fn parsed(value: &Value) -> Manifest {
    Manifest::parse(value.to_string().as_bytes()).unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

fn told(wrong: &[Wrong]) -> String {
    let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// Returns the entry of the first offer, or the error.
fn entry(value: &Value, said: &[(Slot, &str)]) -> Result<Value, String> {
    let manifest = Manifest::parse(value.to_string().as_bytes()).map_err(|wrong| told(&wrong))?;
    let offers = manifest.offers();
    let offer = offers[0].offer.as_ref().map_err(|wrong| told(wrong))?;
    let mut answers = Answers::default();
    for (slot, answer) in said {
        answers.give(slot.clone(), *answer);
    }
    let entry = offer.entry(&answers, Path::new("/home/ann"));
    entry.map(Value::Object).map_err(|wrong| told(&wrong))
}

fn arg(name: &str) -> Slot {
    Slot::Arg(name.to_owned())
}

#[test]
fn a_package_becomes_an_argument_vector() {
    let package = npm(&json!({
        "runtimeHint": "npx",
        "runtimeArguments": [{"type": "positional", "value": "-y"}, {"type": "named", "name": "--quiet", "value": ""}],
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {"type": "positional", "valueHint": "folder", "format": "filepath", "isRequired": true, "isRepeated": true},
            {"type": "named", "name": "--units", "default": "metric", "choices": ["metric", "imperial"]},
            {"type": "named", "name": "--verbose"},
            {"type": "named", "name": "--url", "value": "https://{host}/v1?a=1&b={plan}", "variables": {
                "host": {"isRequired": true}, "plan": {"default": "free"}}},
        ],
        "environmentVariables": [
            {"name": "API_KEY", "isRequired": true, "isSecret": true},
            {"name": "LOG", "default": "info"}, {"name": "PORT", "format": "number"},
        ],
    }));
    let manifest = with(json!([package]));
    let missing = entry(&manifest, &[]).unwrap_err();
    for name in ["--arg folder", "--arg host", "--env API_KEY"] {
        assert!(missing.contains(name), "{missing}");
    }
    let said = [
        (arg("folder"), "data"),
        (arg("folder"), "/srv/x y"),
        (arg("host"), "weather.example"),
        (Slot::Env("API_KEY".to_owned()), "; rm -rf ~"),
    ];
    let made = entry(&manifest, &said).unwrap();
    assert_eq!(
        made,
        json!({
            "command": "npx",
            "args": ["-y", "--quiet", "@ann/weather@1.2.3", "serve", "/home/ann/data", "/srv/x y", "--units", "metric",
                "--url", "https://weather.example/v1?a=1&b=free"],
            "env": {"API_KEY": "; rm -rf ~", "LOG": "info"},
        })
    );
    let manifest = parsed(&manifest);
    let offers = manifest.offers();
    let questions = offers[0].offer.as_ref().unwrap().questions();
    let names: Vec<&str> = questions
        .iter()
        .map(|question| question.slot.name())
        .collect();
    assert_eq!(
        names,
        [
            "folder", "host", "API_KEY", "units", "verbose", "plan", "LOG", "PORT"
        ]
    );
    assert!(questions[2].input.is_secret && questions[0].is_repeated);
}

#[test]
fn answers_must_fit() {
    let package = npm(&json!({"packageArguments": [
        {"type": "named", "name": "--units", "choices": ["a", "b"]},
        {"type": "named", "name": "--count", "format": "number"},
        {"type": "named", "name": "--fast", "format": "boolean"},
    ]}));
    let manifest = with(json!([package]));
    for (name, answer, why) in [
        ("units", "c", "one of a, b"),
        ("count", "many", "a number"),
        ("count", "NaN", "a number"),
        ("fast", "yes", "`true` or `false`"),
        ("fast", "tr\0ue", "NUL"),
    ] {
        let error = entry(&manifest, &[(arg(name), answer)]).unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
    }
    let made = entry(&manifest, &[(arg("count"), "1e3"), (arg("fast"), "true")]).unwrap();
    let args = made["args"].as_array().unwrap();
    assert_eq!(
        args[2..],
        [
            json!("--count"),
            json!("1e3"),
            json!("--fast"),
            json!("true")
        ]
    );
}

#[test]
fn python_packages_images_and_remotes_are_understood() {
    let python = json!({
        "registryType": "pypi", "identifier": "weather-mcp", "version": "0.5.0", "runtimeHint": "uvx",
        "runtimeArguments": [
            {"type": "named", "name": "--python", "value": "3.12"},
            {"type": "named", "name": "--from", "value": "weather-mcp[cli]"}, {"type": "positional", "value": "weather"}],
        "transport": {"type": "stdio"},
    });
    let made = entry(&with(json!([python])), &[]).unwrap();
    assert_eq!(
        (&made["command"], &made["args"]),
        (
            &json!("uvx"),
            &json!([
                "--python",
                "3.12",
                "--from",
                "weather-mcp[cli]==0.5.0",
                "weather"
            ])
        )
    );
    let image = json!({
        "registryType": "oci", "identifier": "ghcr.io/ann/weather:1.2.3", "runtimeHint": "docker",
        "runtimeArguments": [
            {"type": "named", "name": "-e", "value": "TOKEN={token}", "variables": {"token": {"isRequired": true, "isSecret": true}}},
            {"type": "named", "name": "-e", "value": "LOG"},
            {"type": "named", "name": "-v", "value": "cache:/data"},
            {"type": "named", "name": "-m", "value": "1g"}],
        "packageArguments": [{"type": "positional", "value": "--stdio"}],
        "environmentVariables": [{"name": "LOG", "value": "debug"}],
        "transport": {"type": "stdio"},
    });
    let made = entry(&with(json!([image])), &[(arg("token"), "t-1")]).unwrap();
    assert_eq!(
        made,
        json!({
            "image": "ghcr.io/ann/weather:1.2.3", "args": ["--stdio"], "volumes": ["/data"], "limits": {"memory": "1g"},
            "env": {"TOKEN": "t-1", "LOG": "debug"},
        })
    );
    let old = json!({
        "registryType": "oci", "registryBaseUrl": "https://ghcr.io", "identifier": "ann/weather", "version": "2.0",
        "transport": {"type": "streamable-http", "url": "http://localhost:8080/mcp"},
    });
    let made = entry(&with(json!([old])), &[]).unwrap();
    assert_eq!(made["image"], "ghcr.io/ann/weather:2.0");
    assert_eq!(
        (&made["port"], &made["http_path"]),
        (&json!(8080), &json!("/mcp"))
    );
    let mut remote = with(json!([]));
    remote["remotes"] = json!([{
        "type": "sse", "url": "https://{tenant}.example.com/sse",
        "variables": {"tenant": {"isRequired": true, "choices": ["a", "b"]}},
        "headers": [
            {"name": "Authorization", "isSecret": true, "value": "Bearer {token}", "variables": {"token": {"isRequired": true}}},
            {"name": "X-Region", "default": "eu"}],
    }]);
    let made = entry(&remote, &[(arg("tenant"), "b"), (arg("token"), "{tenant}")]).unwrap();
    assert_eq!(
        made,
        json!({
            "url": "https://b.example.com/sse", "transport": "sse",
            "headers": {"Authorization": "Bearer {tenant}", "X-Region": "eu"},
        })
    );
}

#[test]
fn the_best_comes_first_and_the_rest_says_why_not() {
    let mut manifest = with(json!([
        npm(&json!({})),
        {"registryType": "mcpb", "identifier": "https://example.com/x.mcpb", "fileSha256": "0", "transport": {"type": "stdio"}},
        {"registryType": "oci", "identifier": "ghcr.io/ann/weather:1", "transport": {"type": "stdio"}},
    ]));
    manifest["remotes"] = json!([{"type": "streamable-http", "url": "https://example.com/mcp"}]);
    let manifest = parsed(&manifest);
    let offers = manifest.offers();
    let kinds: Vec<Option<Kind>> = offers.iter().map(|offered| offered.kind).collect();
    assert_eq!(
        kinds,
        [Some(Kind::Oci), Some(Kind::Npm), Some(Kind::Remote), None]
    );
    let wrong = told(offers[3].offer.as_ref().unwrap_err());
    assert!(
        wrong.contains("`mcpb`, which Gantry does not run"),
        "{wrong}"
    );
}

#[test]
fn what_is_no_manifest_says_what_is_wrong() {
    let mut deep = String::new();
    deep.push_str(&"[".repeat(2000));
    for (text, why) in [
        ("", "not valid JSON"),
        ("[]", "must be an object"),
        (
            "{\"name\": \"a.b/c\", \"name\": \"a.b/d\"}",
            "not valid JSON",
        ),
        (deep.as_str(), "not valid JSON"),
        ("\u{0}", "not valid JSON"),
    ] {
        let wrong = told(&Manifest::parse(text.as_bytes()).unwrap_err());
        assert!(wrong.contains(why), "{text}: {wrong}");
    }
    let wrong = told(&Manifest::parse(&[0xff, 0xfe]).unwrap_err());
    assert!(wrong.contains("not UTF-8"), "{wrong}");
    let wrong = told(&Manifest::parse(&vec![b' '; 2 << 20]).unwrap_err());
    assert!(wrong.contains("over 1 MiB"), "{wrong}");
    let wrong =
        told(&Manifest::of(&json!({"packages": [{}], "remotes": 3, "title": 5})).unwrap_err());
    for place in [
        "`name` is missing",
        "`version` is missing",
        "`description` is missing",
        "`remotes` must be a list",
        "`title` must be a text",
        "`packages[0].registryType` is missing",
        "`packages[0].transport` is missing",
    ] {
        assert!(wrong.contains(place), "{place}: {wrong}");
    }
    let old = json!({"name": "a.b/c", "description": "d", "version_detail": {"version": "1"}, "packages": [{}]});
    assert!(told(&Manifest::of(&old).unwrap_err()).contains("before 2025-09"));
    // An unknown member is reported, not refused.
    let mut new = with(json!([npm(&json!({"shiny": 1}))]));
    new["postInstallInstructions"] = json!("x");
    let notes = parsed(&new).notes.join(" ");
    assert!(notes.contains("`packages[0].shiny`") && notes.contains("`postInstallInstructions`"));
    // As a registry wraps it.
    let wrapped = json!({"server": with(json!([npm(&json!({}))])), "_meta": {}});
    assert_eq!(parsed(&wrapped).name, "io.github.ann/weather");
}

// faults C7, C8
#[test]
fn hostile_packages_are_refused_by_name() {
    let argument =
        |value: &str| json!({"packageArguments": [{"type": "positional", "value": value}]});
    let runtime = |name: &str, value: &str| json!({"runtimeHint": "npx", "runtimeArguments": [{"type": "named", "name": name, "value": value}]});
    let variable =
        |name: &str, value: &str| json!({"environmentVariables": [{"name": name, "value": value}]});
    let hostile = [
        (json!({"identifier": "x; rm -rf ~"}), "name of a package"),
        (
            json!({"identifier": "--registry=http://evil"}),
            "name of a package",
        ),
        (
            json!({"identifier": "../../etc/passwd"}),
            "name of a package",
        ),
        (
            json!({"identifier": "git+ssh://evil/x"}),
            "name of a package",
        ),
        (json!({"identifier": "@a/../b"}), "name of a package"),
        (json!({"identifier": "a\u{1b}[0m"}), "control"),
        (json!({"identifier": "a".repeat(5000)}), "bytes long"),
        (json!({"version": "latest"}), "exact version"),
        (json!({"version": "^1.0.0"}), "exact version"),
        (json!({"version": "npm:evil@1"}), "exact version"),
        (json!({"version": "1.x"}), "exact version"),
        (json!({"version": null}), "`packages[0].version` is missing"),
        (json!({"registryType": "docker"}), "does not run"),
        (json!({"registryBaseUrl": "file:///etc"}), "https URL"),
        (json!({"transport": {"type": "exec"}}), "`exec`"),
        (
            json!({"transport": {"type": "sse", "url": "http://localhost:1/"}}),
            "over stdin and stdout",
        ),
        (json!({"fileSha256": "00"}), "cannot be checked"),
        (argument("`id`"), "for shells"),
        (argument("$(id)"), "for shells"),
        (argument("a; b"), "for shells"),
        (argument("a && b"), "for shells"),
        (argument("> /etc/passwd"), "for shells"),
        (argument("${HOME}"), "`${`"),
        (argument("a\nb"), "control"),
        (runtime("-c", "id"), "do not change what is run"),
        (runtime("--package", "evil"), "do not change what is run"),
        (
            runtime("--registry", "http://evil"),
            "do not change what is run",
        ),
        (
            runtime("--node-options", "--require=/tmp/x"),
            "do not change what is run",
        ),
        (runtime("----c", "id"), "not a flag"),
        (runtime("--c id", "x"), "not a flag"),
        (variable("LD_PRELOAD", "/tmp/x.so"), "decides what is run"),
        (
            variable("npm_config_registry", "http://evil"),
            "decides what is run",
        ),
        (variable("PATH", "/tmp"), "decides what is run"),
        (variable("A=B", "x"), "can be set"),
        (variable("TOKEN", "${ADMIN_KEY}"), "`${`"),
        (
            json!({"environmentVariables": [{"name": "A"}, {"name": "A"}]}),
            "twice",
        ),
        (
            json!({"packageArguments": vec![json!({"type": "positional", "value": "x"}); 300]}),
            "more than 200",
        ),
        (
            json!({"packageArguments": [{"type": "named"}]}),
            "is missing",
        ),
        (
            json!({"packageArguments": [{"type": "flag", "name": "x"}]}),
            "`flag`",
        ),
        (
            json!({"packageArguments": [{"type": "named", "name": "--a", "format": "shell"}]}),
            "`shell`",
        ),
        (
            json!({"packageArguments": {"type": "named"}}),
            "must be a list",
        ),
    ];
    for (more, why) in hostile {
        let refused = entry(&with(json!([npm(&more)])), &[]);
        let refused = refused.expect_err(&more.to_string());
        assert!(refused.contains(why), "{more}: {refused}");
    }
}

// faults C7, C8
#[test]
fn hostile_images_and_remotes_are_refused_by_name() {
    let image = |more: Value| {
        let mut package = json!({
            "registryType": "oci", "identifier": "ghcr.io/ann/x:1", "runtimeHint": "docker",
            "transport": {"type": "stdio"},
        });
        for (name, value) in more.as_object().unwrap() {
            package[name] = value.clone();
        }
        with(json!([package]))
    };
    let flag = |name: &str, value: &str| {
        image(json!({"runtimeArguments": [{"type": "named", "name": name, "value": value}]}))
    };
    let word =
        |value: &str| image(json!({"runtimeArguments": [{"type": "positional", "value": value}]}));
    for (manifest, why) in [
        (word("--privileged"), "part of this machine"),
        (flag("--cap-add", "SYS_ADMIN"), "part of this machine"),
        (flag("--network", "host"), "part of this machine"),
        (flag("--pid", "host"), "part of this machine"),
        (flag("--device", "/dev/kvm"), "part of this machine"),
        (flag("-v", "/:/host"), "part of this machine"),
        (
            flag("-v", "/var/run/docker.sock:/var/run/docker.sock"),
            "part of this machine",
        ),
        (
            flag("--mount", "type=bind,src=/,dst=/host"),
            "part of this machine",
        ),
        (flag("-p", "8080:8080"), "cannot be carried over"),
        (word("evil/other:1"), "another image"),
        (
            image(json!({"identifier": "../x"})),
            "not the name of an image",
        ),
        (
            image(json!({"identifier": "ghcr.io/Ann/X; id"})),
            "not the name of an image",
        ),
        (
            image(json!({"identifier": "-v/x"})),
            "not the name of an image",
        ),
        (
            image(json!({"fileSha256": "00"})),
            "not the digest of an image",
        ),
        (
            image(json!({"transport": {"type": "sse", "url": "http://10.0.0.1:80/"}})),
            "the image itself listens",
        ),
        (
            image(
                json!({"runtimeHint": "bash", "runtimeArguments": [{"type": "positional", "value": "-c"}]}),
            ),
            "does not understand",
        ),
    ] {
        let refused = entry(&manifest, &[]).expect_err(&manifest.to_string());
        assert!(refused.contains(why), "{manifest}: {refused}");
    }
    // A path entered by the user is checked, too.
    let mount = image(
        json!({"runtimeArguments": [{"type": "named", "name": "-v", "value": "{source}:/data",
        "variables": {"source": {"isRequired": true}}}]}),
    );
    assert!(entry(&mount, &[(arg("source"), "kept")]).is_ok());
    let refused = entry(&mount, &[(arg("source"), "/home/ann")]).unwrap_err();
    assert!(refused.contains("part of this machine"), "{refused}");
    let remote = |remote: Value| {
        let mut manifest = with(json!([]));
        manifest["remotes"] = json!([remote]);
        manifest
    };
    let sse = |url: &str| remote(json!({"type": "sse", "url": url}));
    for (manifest, why) in [
        (sse("file:///etc/passwd"), "https://"),
        (sse("https://ann:secret@example.com/"), "credentials"),
        (sse("https://example.com/${ADMIN_KEY}"), "credentials"),
        (remote(json!({"type": "stdio"})), "cannot be `stdio`"),
        (
            remote(json!({"type": "sse"})),
            "`remotes[0].url` is missing",
        ),
        (
            remote(
                json!({"type": "sse", "url": "https://e.com", "headers": [{"name": "A: b\r\nX", "value": "1"}]}),
            ),
            "control",
        ),
        (
            remote(
                json!({"type": "sse", "url": "https://e.com", "headers": [{"name": "A b", "value": "1"}]}),
            ),
            "can be set",
        ),
        (
            remote(
                json!({"type": "sse", "url": "https://e.com", "headers": [{"name": "A", "value": "${KEY}"}]}),
            ),
            "`${`",
        ),
    ] {
        let refused = entry(&manifest, &[]).expect_err(&manifest.to_string());
        assert!(refused.contains(why), "{manifest}: {refused}");
    }
}
