//! Which files are found, which entry wins, what the values become, and what is explained of them.

use std::fs;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::{Folder, journaled, peer, servers};
use crate::harness::{Connection, Gantry, LONG, entry};

// rows 2.10, 2.17 and 2.18
#[test]
fn the_files_people_have_are_found_and_the_project_wins_as_a_whole() {
    let mut folder = Folder::new();
    let named = |description: &str| {
        let mut entry = peer();
        entry["description"] = description.into();
        entry
    };
    let mut home = json!({
        "mcpServers": {"both": named("home"), "global": named("home"), "mine": named("home")},
        "theme": "dark", "projects": {}
    });
    let shop = folder
        .at("")
        .to_string_lossy()
        .trim_end_matches('/')
        .to_owned();
    home["projects"][&shop] = json!({"mcpServers": {"mine": named("mine here")}});
    fs::write(folder.home().join(".kode.json"), home.to_string()).unwrap();
    let project = servers(&[("both", named("project")), ("kode", named("kode"))]);
    folder.write(".kode.json", &project);
    folder.write(
        ".mcprc",
        &json!({"rc": named("rc"), "mcp": named("rc")}).to_string(),
    );
    let commented = format!(
        "// with a comment\n{},\n",
        servers(&[("mcp", named("mcp"))])
    );
    folder.write(".mcp.json", commented.trim_end().trim_end_matches(','));
    let args = peer()["args"].clone();
    let own = format!(
        "[servers.own]\ncommand = {}\nargs = {args}\ndescription = \"own\"\n",
        peer()["command"]
    );
    folder.write("gantry.toml", &own);
    folder.up(&["--trust"]);
    let expected = [
        ("both", "project"),
        ("global", "home"),
        ("mine", "mine here"),
        ("rc", "rc"),
        ("mcp", "mcp"),
        ("kode", "kode"),
        ("own", "own"),
    ];
    for (name, description) in expected {
        let status = folder.wait(name, "ready");
        assert_eq!(status["description"], description, "{name}");
    }
    assert_eq!(folder.names().len(), expected.len());
}

// row 2.10
#[test]
fn named_files_are_read_instead_and_without_any_the_example_runs() {
    let mut folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("found", peer())]));
    folder.write("named.json", &servers(&[("named", peer())]));
    folder.up(&["--config", "named.json"]);
    folder.wait("named", "ready");
    assert_eq!(folder.names(), ["named"]);
    let mut other = Folder::new();
    other.write(".mcp.json", &servers(&[("found", peer())]));
    other.up(&["--no-discover"]);
    other.wait("example", "ready");
    assert_eq!(other.names(), ["example"]);
}

// row 2.16
#[test]
fn a_filter_leaves_tools_out_of_lists_and_calls_with_its_reason() {
    let filter = json!({"tools": {"include": ["echo", "add", "slow"], "exclude": ["s*"]}});
    let gantry = Gantry::builder()
        .server_with("a", &Evilpeer::new(), &filter)
        .start();
    let status = gantry.wait_state("a", "ready", LONG);
    let listed = gantry.mcp("tools/list", json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["a__echo", "a__add"]);
    let answer = gantry.call("a__slow", json!({"ms": 1}));
    assert!(answer["error"].is_object(), "{answer:#}");
    let excluded = status["excluded"].as_array().unwrap();
    let reason = |tool: &str| {
        let found = excluded.iter().find(|one| one["tool"] == tool);
        found.map(|one| one["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(reason("slow").unwrap(), "`tools.exclude` has `s*`");
    assert_eq!(reason("fail").unwrap(), "`tools.include` does not name it");
}

// row 4.11
#[test]
fn a_sequential_start_that_aborts_is_said_in_the_file() {
    let folder = Folder::new();
    let journal = folder.home().join("later");
    let fails = entry(&Evilpeer::new().fault("crash-start=7"));
    let quoted =
        |entry: &Value| format!("command = {}\nargs = {}\n", entry["command"], entry["args"]);
    let text = format!(
        "[gateway]\nstartup = \"sequential\"\non_start_failure = \"abort\"\n\
         [servers.first]\n{}[servers.second]\n{}",
        quoted(&fails),
        quoted(&journaled(&journal))
    );
    folder.write("own.toml", &text);
    let output = folder.run(&["up", "--port", "0", "--config", "own.toml"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let said = "error: server `first` did not start: ";
    assert!(told.lines().any(|line| line.starts_with(said)), "{told}");
    assert!(!journal.exists(), "the second was never started");
    // A flag wins over the file.
    let mut other = Folder::new();
    other.write("own.toml", &text);
    other.up(&["--config", "own.toml", "--on-start-failure", "isolate"]);
    other.wait("second", "ready");
    assert_eq!(Journal::read(&journal).unwrap().starts(), 1);
}

#[test]
fn connections_of_one_address_are_bounded_as_the_file_says() {
    let mut folder = Folder::new();
    folder.write("own.toml", "[gateway]\nconnections_per_address = 0\n");
    let wrong = folder.run(&["config", "check", "--config", "own.toml"]);
    let wrong = String::from_utf8_lossy(&[wrong.stdout, wrong.stderr].concat()).into_owned();
    assert!(wrong.contains("1 to 10,240"), "{wrong}");
    folder.write("own.toml", "[gateway]\nconnections_per_address = 2\n");
    folder.up(&["--config", "own.toml"]);
    let open = || Connection::open(&folder.authority()).unwrap();
    let health = |connection: &mut Connection| {
        let answer = connection.request("GET", "/healthz", &[], b"");
        answer.map_or(0, |answer| answer.status)
    };
    let mut held = [open(), open()];
    for connection in &mut held {
        assert_eq!(health(connection), 200);
    }
    assert_eq!(open().answer().unwrap().status, 503);
    drop(held);
    assert!(eventually(LONG, || health(&mut open()) == 200).is_some());
}

// row 2.10
#[test]
fn variables_are_filled_from_the_environment_and_folders() {
    let folder = Folder::new();
    let entry = json!({
        "command": "${HOME}/bin/${env:TOOL:-server}", "args": ["${workspaceFolder}/x", "${A%b}", "$HOME"],
        "cwd": "${workspaceFolder}"
    });
    folder.write("vars.json", &servers(&[("a", entry)]));
    let told = folder.told(&["config", "check", "--config", "vars.json"]);
    assert!(
        told.contains("`${A%b}` in `args[1]` is not a variable and is kept as written"),
        "{told}"
    );
    assert!(told.contains("1 server in 1 file, no errors"), "{told}");
}

#[test]
fn each_value_is_explained_with_its_place_and_no_secret_is_shown() {
    let folder = Folder::new();
    folder.write(
        "own.toml",
        "[gateway]\nstartup = \"sequential\"\n\n[servers.a]\ncommand = \"npx\"\n\
         args = [\"-y\", \"${HOME}\"]\nenv = { TOKEN = \"hunter2\", KEY = \"${HOME}\" }\ntimeout = \"5s\"\n",
    );
    let explain = [
        "config", "explain", "--config", "own.toml", "--audit", "disk", "--json",
    ];
    let told: Value = serde_json::from_str(&folder.told(&explain)).unwrap();
    let from = |server: usize, key: &str| {
        let values = told["items"][server]["values"].as_array().unwrap();
        let row = values.iter().find(|row| row["key"] == key).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("value"), text("from"))
    };
    let pair = |value: &str, from: &str| (value.to_owned(), from.to_owned());
    assert_eq!(from(0, "startup"), pair("\"sequential\"", "own.toml:2"));
    assert_eq!(from(0, "audit"), pair("disk", "flag --audit"));
    assert_eq!(from(0, "expose"), pair("qualified", "default"));
    assert_eq!(from(1, "command"), pair("\"npx\"", "own.toml:5"));
    let args = pair("[\"-y\", \"${HOME}\"]", "own.toml:6, variable `HOME` (set)");
    assert_eq!(from(1, "args"), args);
    assert_eq!(from(1, "env.TOKEN"), pair("(not shown)", "own.toml:7"));
    let key = pair("(not shown)", "own.toml:7, variable `HOME` (set)");
    assert_eq!(from(1, "env.KEY"), key);
    assert_eq!(from(1, "queue"), pair("256", "default"));
    assert_eq!(from(1, "timeout"), pair("\"5s\"", "own.toml:8"));
    assert!(!told.to_string().contains("hunter2"));
    let text = folder.told(&["config", "explain", "a", "--config", "own.toml"]);
    assert!(
        text.contains("own.toml:5") && !text.contains("hunter2"),
        "{text}"
    );
    let unknown = folder.run(&["config", "explain", "b", "--config", "own.toml"]);
    assert_eq!(unknown.status.code(), Some(1));
}

// row 2.17
#[test]
fn what_connect_wrote_for_a_client_is_not_started_as_a_server() {
    let mut folder = Folder::new();
    let itself = json!({"command": env!("CARGO_BIN_EXE_gantry"), "args": ["stdio"]});
    let home = servers(&[("gantry", itself), ("real", peer())]);
    fs::write(folder.home().join(".kode.json"), home).unwrap();
    folder.up(&[]);
    folder.wait("real", "ready");
    let (_, known) = folder.rest("GET", "/api/v1/mcp/servers", None);
    let names: Vec<_> = known["items"].as_array().unwrap().iter().collect();
    assert!(
        names.len() == 1 && names[0]["name"] == "real",
        "the gateway is no server of its own: {known:#}"
    );
    assert!(
        folder.log().contains("is Gantry itself, and is left out"),
        "{}",
        folder.log()
    );
}

// rows 2.10 and 2.17
#[test]
fn variables_as_gemini_writes_them_are_filled_after_the_import() {
    let mut folder = Folder::new();
    folder.variables = vec![("PROBE_VALUE", "from the environment"), ("NAME", "n")];
    let mut server = entry(&Evilpeer::new());
    let args = server["args"].as_array_mut().unwrap();
    args.extend(["--name".into(), "x-$NAME".into()]);
    server["env"] = json!({"PROBE": "$PROBE_VALUE", "PRICE": "5$"});
    fs::create_dir(folder.at(".gemini")).unwrap();
    fs::write(
        folder.at(".gemini/settings.json"),
        servers(&[("a", server)]),
    )
    .unwrap();
    folder.told(&["import", "gemini"]);
    folder.up(&["--trust"]);
    let status = folder.wait("a", "ready");
    assert_eq!(status["server_info"]["name"], "x-n", "{status:#}");
    let environment = fs::read(format!("/proc/{}/environ", status["pid"])).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(
        environment.contains("PROBE=from the environment\0"),
        "{environment}"
    );
    assert!(environment.contains("PRICE=5$\0"), "{environment}");
}

// First hour 4: the folder of the gateway counts, not the one in which `rm` is typed.
#[test]
fn rm_takes_out_what_the_gateway_reads_wherever_it_is_typed() {
    let mut folder = Folder::new();
    let shop = folder.at("");
    let shop = shop.to_string_lossy().trim_end_matches('/').to_owned();
    let of_home = folder.home().join(".kode.json");
    let mine = json!({"projects": {
        &shop: {"mcpServers": {"a": peer()}},
        "/elsewhere": {"mcpServers": {"a": peer()}},
    }});
    fs::write(&of_home, mine.to_string()).unwrap();
    let own = json!({
        "mcpServers": {"b": peer()},
        "projects": {&shop: {"mcpServers": {"b": peer()}}},
    });
    folder.write(".kode.json", &own.to_string());
    folder.up(&["--trust"]);
    folder.wait("a", "ready");
    folder.wait("b", "ready");
    let removed = |name: &str, typed_in: &str| {
        let mut command = folder.command(&["rm", name, "--yes"]);
        let output = command.current_dir(typed_in).output().unwrap();
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(!told.contains("has not applied it"), "{told}");
    };
    removed("a", &folder.home().to_string_lossy());
    let left: Value = serde_json::from_slice(&fs::read(&of_home).unwrap()).unwrap();
    assert_eq!(left["projects"][&shop]["mcpServers"]["a"], Value::Null);
    assert_eq!(
        left["projects"]["/elsewhere"],
        mine["projects"]["/elsewhere"]
    );
    assert_eq!(folder.names(), ["b"]);
    // In a folder's own file, what stands under `projects` is never read.
    removed("b", &shop);
    let left: Value = serde_json::from_slice(&fs::read(folder.at(".kode.json")).unwrap()).unwrap();
    assert_eq!(left["mcpServers"]["b"], Value::Null);
    assert_eq!(left["projects"], own["projects"]);
}
