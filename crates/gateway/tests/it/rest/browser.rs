//! fault U9: a web page of another origin, in a real Chromium, tries everything that a page can try on
//! a gateway of the same machine, the right keys in its hands. Nothing reaches a server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use crate::harness::{Answer, Gantry, LONG};

/// Longer than a browser needs to start on a busy machine and be through with the page.
const PATIENCE: Duration = Duration::from_secs(55);

const PAGE: &str = include_str!("attack.html");

/// Serves the attacker's page and hands on what the page reports.
fn attacker(page: String) -> (u16, std::sync::mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (reports, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (page, reports) = (page.clone(), reports.clone());
            thread::spawn(move || serve(&stream, &page, &reports));
        }
    });
    (port, received)
}

fn serve(stream: &TcpStream, page: &str, reports: &Sender<Value>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut cookie) = (String::new(), 0, String::new());
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("cookie")
        {
            value.trim().clone_into(&mut cookie);
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let text = match first.starts_with("POST /report") {
        true => {
            reports.send(serde_json::from_slice(&body).ok()?).ok()?;
            "thanks"
        }
        false if first.starts_with("GET /look") => {
            reports.send(json!({"cookie": cookie})).ok()?;
            "thanks"
        }
        false if first.starts_with("GET / ") => page,
        false => "",
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
    let mut stream = stream;
    stream.write_all(answer.as_bytes()).ok()
}

/// A browser that goes with the test.
struct Browser(Child);

impl Browser {
    fn open(folder: &Path, url: &str) -> Self {
        let mut command = Self::command(folder);
        // Keeps it open until it has reported.
        command.args(["--remote-debugging-port=0", url]);
        command.stdout(Stdio::null());
        Self(command.spawn().expect("`.ci/needs` installs chromium"))
    }

    /// Opens a page, lets its script run, and returns what the page is then.
    fn page_after(folder: &Path, url: &str) -> String {
        let mut command = Self::command(folder);
        command.args(["--virtual-time-budget=20000", "--dump-dom", url]);
        let output = command.output().expect("`.ci/needs` installs chromium");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(folder: &Path) -> Command {
        let profile = format!("--user-data-dir={}", folder.display());
        let mut command = Command::new("chromium");
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
            ])
            .args(["--host-resolver-rules=MAP evil.example 127.0.0.1"])
            .args(["--disable-popup-blocking", &profile])
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn gantry(journal: &Path) -> Gantry {
    let peer = Evilpeer::new().name("a").journal(journal);
    let gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

fn call() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "a__echo", "arguments": {"text": "x"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}})
}

// fault U9
#[test]
fn a_foreign_page_in_a_browser_reaches_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = gantry(&journal);
    let port = gantry.authority.rsplit(':').next().unwrap();
    let facts = json!({
        "here": format!("http://127.0.0.1:{port}"),
        "named": format!("http://localhost:{port}"),
        "rebound": format!("http://evil.example:{port}"),
        "agent": gantry.agent, "admin": gantry.admin, "call": call(),
    });
    let page = PAGE.replace("FACTS", &facts.to_string());
    let (attacker, reports) = attacker(page);
    for host in ["127.0.0.1", "evil.example"] {
        let profile = tempfile::tempdir().unwrap();
        let url = format!("http://{host}:{attacker}/");
        let _browser = Browser::open(profile.path(), &url);
        let report = reports.recv_timeout(PATIENCE).expect("the page reports");
        let attempts = report.as_object().unwrap();
        assert!(attempts.len() >= 24, "{report:#}");
        for (attempt, outcome) in attempts {
            // What a page may send without asking first is answered, but not to the page.
            let outcome = outcome.as_str().unwrap();
            let unread = ["refused", "opaque", "failed", "sent"];
            assert!(unread.contains(&outcome), "{attempt}: {outcome}");
            if attempt.starts_with("keyed") {
                assert_eq!(outcome, "refused", "{attempt}");
            }
        }
    }
    assert_eq!(gantry.audit_rows("").len(), 0);
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    let servers = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
    assert_eq!(servers["items"].as_array().unwrap().len(), 1);
    let keys = gantry.rest("GET", "/api/v1/keys", None).json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 2);
    assert_eq!(gantry.status("a")["state"], "ready");
    // The very call that the page tried works for who is no page.
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert!(answer["error"].is_null(), "{answer}");
    assert_eq!(Journal::read(&journal).unwrap().calls(), 1);
}

/// A page of another port of this machine that opens a link and then asks its own server something, with
/// whatever cookies the browser has for the machine.
const NEIGHBOUR: &str = "<!doctype html><script>window.open(LINK);\
    setInterval(() => fetch('/look'), 200);</script>";

// fault U9
#[test]
fn a_link_signs_a_browser_in_and_its_cookie_alone_opens_nothing() {
    let gantry = Gantry::start(&["a"]);
    let link = || {
        let made = gantry.rest("POST", "/api/v1/session/codes", None).json();
        format!(
            "http://{}{}",
            gantry.authority,
            made["path"].as_str().unwrap()
        )
    };
    let profile = tempfile::tempdir().unwrap();
    let page = Browser::page_after(profile.path(), &link());
    assert!(
        page.contains("Signed in as operator (installation)"),
        "{page}"
    );
    assert!(page.contains("a: ready"), "{page}");
    // The page of another port gets the cookie of a browser that follows the link.
    let link = link();
    let (neighbour, reports) = attacker(NEIGHBOUR.replace("LINK", &json!(link).to_string()));
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{neighbour}/");
    let _browser = Browser::open(profile.path(), &url);
    let port = gantry.authority.rsplit(':').next().unwrap();
    let name = format!("gantry_{port}=");
    let cookie = loop {
        let report = reports.recv_timeout(PATIENCE).expect("the page reports");
        let cookie = report["cookie"].as_str().unwrap().to_owned();
        if cookie.contains(&name) {
            break cookie;
        }
    };
    // It opens nothing, whatever stands in the place of the token.
    let ask = |headers: &[(&str, &str)]| {
        let mut connection = gantry.connect();
        let answer = connection.request("GET", "/api/v1/mcp/servers", headers, b"");
        let answer = answer.unwrap();
        (answer.status, answer.json()["code"].clone())
    };
    let alone = ask(&[("Cookie", &cookie)]);
    assert_eq!(alone, (401, json!("auth.no_key")));
    let value = cookie.split(&name).nth(1).unwrap();
    for guess in ["", "guess", value] {
        let refused = ask(&[("Cookie", &cookie), ("X-Gantry-Session", guess)]);
        assert_eq!(refused, (401, json!("auth.session")), "{guess}");
    }
    // And the link is used up.
    let code = link.split("#code=").nth(1).unwrap();
    let origin = format!("http://{}", gantry.authority);
    let headers = [
        ("Origin", origin.as_str()),
        ("Content-Type", "application/json"),
    ];
    let body = json!({"code": code}).to_string();
    let mut connection = gantry.connect();
    let again = connection.request("POST", "/api/v1/session", &headers, body.as_bytes());
    assert_eq!(again.unwrap().json()["code"], "auth.wrong_code");
}

/// A name, the headers that a browser adds, and the status and code of the refusal.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], u16, &'a str);

/// Sends a call as a browser would, with the right key.
fn send(gantry: &Gantry, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {}", gantry.agent);
    let mut all = vec![
        ("Authorization", bearer.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "a__echo"),
    ];
    all.extend_from_slice(headers);
    if !headers.iter().any(|(name, _)| *name == "Content-Type") {
        all.push(("Content-Type", "application/json"));
    }
    let body = match path {
        "/mcp" => call(),
        _ => json!({"name": "a__echo", "arguments": {"text": "x"}}),
    };
    let mut connection = gantry.connect();
    connection
        .request(method, path, &all, body.to_string().as_bytes())
        .unwrap()
}

// fault U9
#[test]
fn what_a_browser_adds_to_a_foreign_request_is_refused_by_status() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = gantry(&journal);
    let own = format!("http://{}", gantry.authority);
    let port = gantry.authority.rsplit(':').next().unwrap();
    let (evil, evil_origin) = (
        format!("evil.example:{port}"),
        format!("http://evil.example:{port}"),
    );
    let preflight = [
        ("Origin", "http://evil.example"),
        ("Access-Control-Request-Method", "POST"),
        (
            "Access-Control-Request-Headers",
            "authorization,content-type",
        ),
    ];
    for path in ["/mcp", "/api/v1/tools/call"] {
        let cases: [Case<'_>; 8] = [
            (
                "foreign",
                &[("Origin", "http://evil.example")],
                403,
                "http.origin",
            ),
            ("null", &[("Origin", "null")], 403, "http.origin"),
            (
                "twice",
                &[("Origin", &own), ("Origin", &own)],
                403,
                "http.origin",
            ),
            (
                "mixed",
                &[("Origin", &own), ("Origin", "null")],
                403,
                "http.origin",
            ),
            (
                "other port",
                &[("Origin", "http://127.0.0.1:1")],
                403,
                "http.origin",
            ),
            (
                "rebound",
                &[("Host", &evil), ("Origin", &evil_origin)],
                403,
                "http.host",
            ),
            (
                "plain",
                &[("Content-Type", "text/plain")],
                415,
                "http.content_type",
            ),
            (
                "form",
                &[("Content-Type", "application/x-www-form-urlencoded")],
                415,
                "http.content_type",
            ),
        ];
        for (name, headers, status, code) in cases {
            let answer = send(&gantry, "POST", path, headers);
            let text = answer.text();
            assert_eq!(answer.status, status, "{path} {name}: {text}");
            assert!(text.contains(code), "{path} {name}: {text}");
        }
        let answer = send(&gantry, "OPTIONS", path, &preflight);
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        let allows = answer
            .headers
            .iter()
            .any(|(name, _)| name.starts_with("access-control-"));
        assert!(!allows, "{:?}", answer.headers);
    }
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    let answer = send(&gantry, "POST", "/mcp", &[("Origin", &own)]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(Journal::read(&journal).unwrap().calls(), 1);
}
