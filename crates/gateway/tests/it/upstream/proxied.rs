//! Far servers behind a proxy: every request goes through it with our login, which nobody else sees,
//! and a proxy that does not let us through is told of as such.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy, modern, request};
use super::sse_peer::SsePeer;
use super::{AUTHORITY, FAR, code, echo, entry, gateway, with};
use crate::harness::{Gantry, LONG, held_port};

/// The certificate of `far.example`, which is its own authority.
const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/upstream/tls/far.pem");

/// `me:proxy-pass`, as a proxy is told it.
const LOGIN: &str = "Basic bWU6cHJveHktcGFzcw==";

/// Returns the entry of a server that only the proxy can reach.
fn behind(proxy: SocketAddr, url: &str, members: &Value) -> Value {
    let through = json!({"proxy": format!("http://me:proxy-pass@{proxy}")});
    with(with(entry(url), &through), members)
}

/// Asserts that the login stands nowhere: in no status, no event, no list, no log.
fn login_is_hidden(gantry: &Gantry, proxy: SocketAddr) {
    let status = gantry.status(FAR);
    assert_eq!(status["spec"]["proxy"], format!("http://{proxy}"));
    let events = gantry.rest("GET", "/api/v1/mcp/servers/far/events", None);
    let shown = [
        status.to_string(),
        events.text(),
        String::from_utf8_lossy(&gantry.cli(&["status", FAR]).stdout).into_owned(),
        gantry.rest("GET", "/api/v1/mcp/servers", None).text(),
        gantry.rest("GET", "/api/v1/calls", None).text(),
        gantry.stderr(),
        gantry.stdout(),
    ];
    for shown in shown {
        for secret in ["proxy-pass", "bWU6cHJveHktcGFzcw"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn plain_http_goes_through_a_proxy_with_a_login() {
    // row 3.1: the proxy answers for a host that only it can reach
    let streamable = Peer::start(|seen| {
        assert!(seen.path.starts_with("http://far.example/mcp"), "{seen:?}");
        legacy(seen)
    });
    let sse = SsePeer::with(|seen| {
        assert!(seen.path.starts_with("http://far.example/"), "{seen:?}");
        None
    });
    for (proxy, kind, path) in [(&streamable, "http", "/mcp"), (&sse.peer, "sse", "/sse")] {
        let url = format!("http://far.example{path}");
        let gantry = gateway(behind(proxy.address, &url, &json!({"type": kind}))).start();
        gantry.wait_state(FAR, "ready", LONG);
        assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{kind}");
        let seen = proxy.seen();
        assert!(!seen.is_empty());
        for seen in seen {
            assert_eq!(seen.header("proxy-authorization"), Some(LOGIN), "{seen:?}");
            assert_eq!(seen.header("host"), Some("far.example"), "{seen:?}");
        }
        login_is_hidden(&gantry, proxy.address);
    }
}

/// A proxy that opens tunnels to one server, whatever host is asked for, to who has the login.
struct Tunnels {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Seen>>>,
}

impl Tunnels {
    fn to(far: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || drop(tunnel(stream, far, &noted)));
            }
        });
        Self { address, asked }
    }
}

/// Opens one tunnel and carries what goes through it.
fn tunnel(stream: TcpStream, far: SocketAddr, noted: &Mutex<Vec<Seen>>) -> io::Result<()> {
    let Some(seen) = request(&mut BufReader::new(stream.try_clone()?))? else {
        return Ok(());
    };
    noted.lock().unwrap().push(seen.clone());
    if seen.header("proxy-authorization") != Some(LOGIN) {
        return (&stream).write_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    }
    let far = TcpStream::connect(far)?;
    (&stream).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (from, to) = (stream.try_clone()?, far.try_clone()?);
    thread::spawn(move || carry(&from, &to));
    carry(&far, &stream)
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let carried = io::copy(&mut from, &mut to);
    to.shutdown(Shutdown::Both)?;
    carried.map(drop)
}

#[test]
fn https_goes_through_a_tunnel_that_learns_no_more_than_the_host() {
    // row 3.1
    let far = Peer::encrypted(include_str!("tls/far.pem"), legacy);
    let sse = SsePeer::encrypted(include_str!("tls/far.pem"));
    for (far, kind, path) in [(&far, "http", "/mcp"), (&sse.peer, "sse", "/sse")] {
        let proxy = Tunnels::to(far.address);
        let members = json!({"ca_file": CERTIFICATE, "type": kind,
            "headers": {"Authorization": "Bearer far-secret"}});
        let url = format!("https://far.example{path}");
        let gantry = gateway(behind(proxy.address, &url, &members)).start();
        gantry.wait_state(FAR, "ready", LONG);
        assert_eq!(echo(&gantry, "through"), Ok("through".to_owned()), "{kind}");
        for seen in proxy.asked.lock().unwrap().iter() {
            let asked = (seen.verb.as_str(), seen.path.as_str());
            assert_eq!(asked, ("CONNECT", "far.example:443"));
            assert_eq!(seen.header("proxy-authorization"), Some(LOGIN));
            assert_eq!(seen.header("authorization"), None, "{seen:?}");
        }
        // And the server behind it does not learn the proxy's login.
        for seen in far.seen() {
            assert_eq!(seen.header("proxy-authorization"), None, "{seen:?}");
            assert_eq!(seen.header("authorization"), Some("Bearer far-secret"));
        }
        login_is_hidden(&gantry, proxy.address);
    }
    // The certificate is the server's, not the proxy's, to show.
    let other = Peer::encrypted(include_str!("tls/other-name.pem"), legacy);
    let proxy = Tunnels::to(other.address);
    let trusting = json!({"ca_file": AUTHORITY, "type": "http"});
    let entry = behind(proxy.address, "https://far.example/mcp", &trusting);
    let told = super::bad::reason(entry);
    assert!(
        told.contains("TLS with https://far.example failed"),
        "{told}"
    );
    assert!(other.seen().is_empty());
}

#[test]
fn a_proxy_that_does_not_let_us_through_is_told_of_as_such() {
    // row 3.1
    let nobody = held_port();
    let refusing = Peer::start(|_| {
        Reply::Status(
            407,
            vec![("Proxy-Authenticate", "Basic".to_owned())],
            "no".to_owned(),
        )
    });
    let wants = "answered 407: it wants another login";
    let rows = [
        (nobody, "http://far.example", "refused the connection"),
        (nobody, "https://far.example", "refused the connection"),
        (refusing.address, "http://far.example", wants),
        (
            refusing.address,
            "https://far.example",
            "cannot be passed: tunnel error: proxy authorization required",
        ),
    ];
    for (proxy, origin, why) in rows {
        for (kind, path) in [("http", "/mcp"), ("sse", "/sse")] {
            let url = format!("{origin}{path}");
            let gantry = gateway(behind(proxy, &url, &json!({"type": kind}))).start();
            let status = gantry.wait_state(FAR, "failed", LONG);
            let told = status["reason"].as_str().unwrap();
            let expected = format!("the proxy http://{proxy} on the way to {origin} {why}");
            assert!(told.contains(&expected), "{kind}: {told}");
            login_is_hidden(&gantry, proxy);
        }
    }
    // That the server is not there behind it is not the proxy's fault.
    let without = Peer::start(|_| Reply::status(502));
    let entry = behind(
        without.address,
        "https://far.example/mcp",
        &json!({"type": "http"}),
    );
    let told = super::bad::reason(entry);
    let expected = "https://far.example cannot be reached: the proxy on the way has no way to it";
    assert!(told.contains(expected), "{told}");
}

/// Answers the same, and closes the connection after it.
fn closing(reply: Reply) -> Reply {
    match reply {
        Reply::Json(body) => {
            let headers = [
                ("Content-Type", "application/json"),
                ("Connection", "close"),
            ];
            let headers = headers.map(|(name, value)| (name, value.to_owned()));
            Reply::Status(200, headers.to_vec(), body.to_string())
        }
        other @ (Reply::Status(..)
        | Reply::Events(_)
        | Reply::Raw(_)
        | Reply::Hang
        | Reply::Cut) => other,
    }
}

#[test]
fn a_proxy_that_goes_away_fails_calls_with_a_code_of_its_own() {
    // row 3.1
    // Nothing is under way but the call, and nothing is left of what was: it is the call that finds out.
    let proxy = Peer::start(|seen| closing(modern(seen)));
    let calm = json!({"type": "http", "life": {"health_every": "60s"}});
    let gantry = gateway(behind(proxy.address, "http://far.example/mcp", &calm)).start();
    gantry.wait_state(FAR, "ready", LONG);
    assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()));
    let address = proxy.address;
    drop(proxy);
    let error = echo(&gantry, "x").unwrap_err();
    assert_eq!(code(&error), "remote.proxy", "{error}");
    let rows = gantry.audit_rows("server=far");
    let recorded = (rows.len(), &rows[1]["status"], &rows[1]["code"]);
    assert_eq!(recorded, (2, &json!("error"), &json!("remote.proxy")));
    gantry.wait_state(FAR, "disconnected", LONG);
    login_is_hidden(&gantry, address);
}
