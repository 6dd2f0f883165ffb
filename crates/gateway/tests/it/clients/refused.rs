//! Files and moments in which nothing may be written, and what is said then.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::Home;
use crate::harness::Gantry;

fn keys(gantry: &Gantry) -> usize {
    let keys = gantry.rest("GET", "/api/v1/keys", None).json();
    keys["items"].as_array().unwrap().len()
}

#[test]
fn a_broken_file_is_left_alone_and_its_mistake_has_a_place() {
    // fault G1
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    let before = keys(&gantry);
    let broken = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" \"args\": [] }\n  }\n}\n";
    home.write(".cursor/mcp.json", broken);
    let file = home.at(".cursor/mcp.json");
    for arguments in [
        &["connect", "cursor"][..],
        &["import", "cursor"],
        &["connect", "--remove", "cursor"],
    ] {
        let told = home.refused(1, arguments);
        let place = format!("error: {}:4:26: expected comma", file.display());
        assert!(told.contains(&place), "{told}");
        assert!(
            told.contains("hint: fix it there; nothing was written"),
            "{told}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), broken);
    assert_eq!(home.beside(&file), ["mcp.json"]);
    assert_eq!((keys(&gantry), home.own()), (before, String::new()));

    home.write(
        ".cursor/mcp.json",
        "{\"mcpServers\": {\"a\": {}, \"a\": {}}}",
    );
    let told = home.refused(1, &["connect", "cursor"]);
    assert!(
        told.contains("mcp.json:1:26: `a` is defined twice"),
        "{told}"
    );
    home.write(".cursor/mcp.json", "{\"mcpServers\": []}");
    home.refused(1, &["connect", "cursor"]);
    home.write("shop/gantry.toml", "[servers\n");
    home.has("kode");
    let told = home.refused(1, &["import", "kode"]);
    assert!(told.contains("gantry.toml:1:9: "), "{told}");
    assert_eq!((home.own().as_str(), keys(&gantry)), ("[servers\n", before));
}

#[test]
fn a_read_only_file_stays_as_it_is() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    let before = keys(&gantry);
    let (file, text) = home.has("cursor");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let told = home.refused(1, &["connect", "cursor"]);
    assert!(
        told.contains("is read-only") && told.contains("hint: run `chmod u+w"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!((home.beside(&file).len(), keys(&gantry)), (1, before));
}

#[test]
fn a_client_that_is_not_there_is_not_made_up() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    let told = home.refused(1, &["connect", "cursor"]);
    assert!(
        told.contains("Cursor is not found: there is no folder"),
        "{told}"
    );
    assert!(!home.at(".cursor").exists());
    assert!(
        home.refused(1, &["import", "cursor"])
            .contains("no servers of Cursor are found")
    );
    assert!(
        home.refused(2, &["import", "emacs"])
            .contains("`emacs` is neither a client nor a file")
    );
    assert!(
        home.refused(2, &["connect", "emacs"])
            .contains("the clients are claude-desktop, ")
    );
    assert!(
        home.refused(2, &["connect", "cursor", "--scope", "local"])
            .contains("has no file for the scope `local`")
    );
    assert!(
        home.refused(1, &["import", "--back", "cursor"])
            .contains("there is no `")
    );
}

#[test]
fn without_a_gateway_no_key_can_be_had() {
    let data = tempfile::tempdir().unwrap();
    let home = Home::new(data.path().join("data"));
    let (file, text) = home.has("cursor");
    let told = home.refused(3, &["connect", "cursor"]);
    assert!(
        told.contains("no gateway is running") && told.contains("`--stdio`"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(file).unwrap(), text);
}

#[test]
fn another_server_of_that_name_is_not_replaced() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    let text = "{\"mcpServers\": {\"gantry\": {\"command\": \"crane\"}}}";
    home.write(".cursor/mcp.json", text);
    for arguments in [
        &["connect", "cursor"][..],
        &["connect", "--remove", "cursor"],
    ] {
        let told = home.refused(1, arguments);
        assert!(
            told.contains("is another server") && told.contains("--name NAME"),
            "{told}"
        );
    }
    assert_eq!(
        fs::read_to_string(home.at(".cursor/mcp.json")).unwrap(),
        text
    );
    home.told(&["connect", "cursor", "--name", "gantry-2"]);
}

#[test]
fn what_the_client_wrote_meanwhile_stays_and_the_key_is_taken_back() {
    // A gateway that lets the client write its file just before it gives out the key.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let data = tempfile::tempdir().unwrap();
    let home = Home::new(data.path().join("data"));
    home.write(".cursor/mcp.json", "{}");
    home.write("admin.key", "gantry_admin_x\n");
    let file = home.at(".cursor/mcp.json");
    let theirs = "{ \"mcpServers\": {}, \"theirs\": true }";
    let asked = std::thread::scope(|scope| {
        let gateway = scope.spawn(|| gateway(&listener, &file, theirs));
        let url = format!("http://{address}");
        let key = home.at("admin.key");
        let told = home.refused(
            1,
            &[
                "connect",
                "cursor",
                "--url",
                &url,
                "--key-file",
                key.to_str().unwrap(),
            ],
        );
        assert!(
            told.contains("was changed by another program meanwhile"),
            "{told}"
        );
        assert!(told.contains("hint: run the command again"), "{told}");
        gateway.join().unwrap()
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
    assert_eq!(home.beside(&file), ["mcp.json"], "nothing is left behind");
    assert_eq!(
        asked,
        [
            "GET /api/v1/keys?limit=1000",
            "POST /api/v1/keys",
            "DELETE /api/v1/keys/key_1"
        ]
    );
}

/// Answers three requests, one on each connection, and returns what was asked.
fn gateway(listener: &TcpListener, file: &Path, theirs: &str) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..3 {
        let (stream, _) = listener.accept().unwrap();
        let request = request(&stream);
        let body = match request.as_str() {
            post if post.starts_with("POST") => {
                fs::write(file, theirs).unwrap();
                json!({"id": "key_1", "key": "gantry_agent_new", "agent": "default"}).to_string()
            }
            _ => json!({"items": []}).to_string(),
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        (&stream).write_all(answer.as_bytes()).unwrap();
        asked.push(request);
    }
    asked
}

/// Reads one request and returns its method and path.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    first.rsplit_once(' ').unwrap().0.to_owned()
}
