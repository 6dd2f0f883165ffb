//! Where a gateway connects to: a corpus of addresses, spellings, names and places in a network of
//! its own, with no way out, whose sockets hold every address and count every connection; and names
//! that lead elsewhere from one moment to the next. fault H4

mod corpus;
mod oauth;
mod rebinding;
mod space;

use std::collections::HashSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use self::corpus::Case;
use self::space::{PUBLIC, Space};
use super::peer::{Peer, Reply, Seen, event, finish, legacy};
use crate::harness::{Gantry, LONG};

/// Where the public server is that leads elsewhere; nobody else has its port.
const FAR_PORT: u16 = 7000;

/// Answers as the corpus says, and that the public server is public.
fn resolve(name: &str) -> Vec<IpAddr> {
    match name {
        "far.example" => vec![PUBLIC.parse().unwrap()],
        name => corpus::resolve(name),
    }
}

/// Returns a URL of the public server.
fn far(path: &str) -> String {
    format!("http://far.example:{FAR_PORT}{path}")
}

/// Starts the public server.
fn far_peer(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Peer {
    let address = SocketAddr::new(PUBLIC.parse().unwrap(), FAR_PORT);
    Peer::again(address, handler)
}

/// Returns an entry that is tried once and then left alone.
fn tried_once(url: &str) -> Value {
    json!({"url": url, "start": "eager", "auth": {"kind": "none"},
        "life": {"handshake": "20s", "probe": "20s"},
        "reconnect": {"failures": 1, "away": "60s"}})
}

/// Starts a gateway with a server for each case, waits until each has been tried, and returns why it
/// failed; nobody may have been connected to but the public server, which one more server is at.
fn reasons(space: &Space, entries: Vec<Value>) -> (Gantry, Vec<String>) {
    reasons_beside(space, tried_once(&far("/control")), entries)
}

/// Does the same beside another server that must become ready.
fn reasons_beside(space: &Space, control: Value, entries: Vec<Value>) -> (Gantry, Vec<String>) {
    let reachable = space.reachable(&corpus::ADDRESSES);
    assert!(reachable.len() > 40, "only these are held: {reachable:?}");
    let count = entries.len();
    let mut gateway = Gantry::builder().entry("control", control);
    for (number, entry) in entries.into_iter().enumerate() {
        gateway = gateway.entry(&format!("s{number}"), entry);
    }
    let gantry = space.names_for(gateway).start();
    gantry.wait_state("control", "ready", LONG);
    let mut reasons = Vec::new();
    let all = eventually(3 * LONG, || {
        let list = gantry.rest("GET", "/api/v1/mcp/servers?limit=1000", None);
        let list = list.json();
        let items = list["items"].as_array().unwrap();
        let reason = |number: usize| {
            let name = format!("s{number}");
            let item = items.iter().find(|item| item["name"] == *name).unwrap();
            Some(item["reason"].as_str()?.to_owned())
        };
        reasons = (0..count).map(reason).collect();
        reasons.iter().all(Option::is_some)
    });
    let reached = space.reached();
    assert_eq!(reached, Vec::<IpAddr>::new(), "connections were made");
    assert!(all.is_some(), "{reasons:?}");
    (gantry, reasons.into_iter().flatten().collect())
}

/// Asserts that a reason is that of `remote.address`, with the address that it leads to.
fn is_address(case: &Case, reason: &str) {
    let told = format!("resolves to private address `{}`", case.leads_to);
    assert!(reason.contains(&told), "{case:?}: {reason}");
}

#[test]
fn the_corpus_is_large_and_its_cases_differ() {
    // fault H4
    let mut cases = HashSet::new();
    for (place, urls) in [
        (
            "a server's URL",
            [corpus::names(), corpus::spellings(), corpus::disguised()].concat(),
        ),
        ("a server's URL, which names it", named_in_passing()),
        ("a redirect", led_to()),
        ("an event `endpoint`", led_to()),
        ("the URL of the resource's metadata", oauth::targets()),
        ("an authorization server", oauth::targets()),
        ("a registration endpoint", oauth::encrypted_targets()),
        ("a token endpoint", oauth::encrypted_targets()),
    ] {
        for case in urls {
            assert!(
                cases.insert((place, case.url.clone())),
                "{place}: {case:?} is there twice"
            );
        }
    }
    assert!(cases.len() >= 1200, "{}", cases.len());
    let hosts: HashSet<_> = cases.iter().map(|(_, url)| url).collect();
    assert!(hosts.len() >= 190, "{}", hosts.len());
}

/// Returns the literals that not even a server's own URL names without an explicit word.
fn named_in_passing() -> Vec<Case> {
    let special = |address: IpAddr| match address {
        IpAddr::V4(address) => {
            let hands_out_credentials = ["100.100.100.200", "192.0.0.192", "168.63.129.16"];
            address.is_link_local()
                || address.octets()[0] == 0
                || hands_out_credentials.contains(&address.to_string().as_str())
        }
        IpAddr::V6(address) => {
            let carries = ["::ffff", "::7f00", "64:ff9b::", "2002:"];
            let hands_out_credentials = ["fd00:ec2::254", "fd20:ce::254", "::", "::127.0.0.1"];
            let text = address.to_string();
            address.is_unicast_link_local()
                || carries.iter().any(|start| text.starts_with(start))
                || hands_out_credentials.contains(&text.as_str())
        }
    };
    let mut cases = corpus::literals();
    cases.retain(|case| special(case.leads_to));
    assert!(cases.len() >= 20, "{}", cases.len());
    cases
}

/// Returns where a public server may lead.
fn led_to() -> Vec<Case> {
    [
        corpus::literals(),
        corpus::names(),
        corpus::well_known(),
        corpus::spellings(),
        corpus::disguised(),
    ]
    .concat()
}

#[test]
fn no_name_and_no_literal_leads_to_a_private_address() {
    // fault H4: `remote.address`
    let space = Space::enter(|asked| resolve(asked.name));
    let _far = far_peer(legacy);
    let mut cases = corpus::names();
    cases.extend(named_in_passing());
    cases.extend(corpus::well_known().split_off(2));
    let entries = cases.iter().map(|case| tried_once(&case.url)).collect();
    let (_gantry, reasons) = reasons(&space, entries);
    for (case, reason) in cases.iter().zip(&reasons) {
        is_address(case, reason);
    }
}

#[test]
fn no_spelling_and_no_disguise_is_registered() {
    // faults G7, H4: refused before there is a server
    let space = Space::enter(|asked| resolve(asked.name));
    let gantry = space.names_for(Gantry::builder()).start();
    let spellings = corpus::spellings()
        .into_iter()
        .map(|case| (case, "unusual spelling"));
    let disguised = corpus::disguised()
        .into_iter()
        .map(|case| (case, "user name or a password"));
    for (number, (case, why)) in spellings.chain(disguised).enumerate() {
        let body = json!({"name": format!("s{number}"), "url": case.url, "start": "eager"});
        let refused = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        let said = refused.json();
        assert_eq!(
            (refused.status, &said["code"]),
            (422, &json!("server.spec")),
            "{case:?}: {said}"
        );
        assert!(said.to_string().contains(why), "{case:?}: {said}");
    }
    assert_eq!(space.reached(), Vec::<IpAddr>::new());
    assert_eq!(space.asked("far.example"), 0);
}

#[test]
fn no_redirect_leads_to_a_private_address() {
    // faults H3, H4: `remote.redirect`
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = led_to();
    let targets: Vec<String> = cases.iter().map(|case| case.url.clone()).collect();
    let _far = far_peer(move |seen| match numbered(seen, "/redirect/") {
        Some(number) => {
            let status = [307, 308, 301, 302, 303][number % 5];
            Reply::Status(
                status,
                vec![("Location", targets[number].clone())],
                String::new(),
            )
        }
        None => legacy(seen),
    });
    let entry = |number: usize| tried_once(&far(&format!("/redirect/{number}")));
    let (_gantry, reasons) = reasons(&space, (0..cases.len()).map(entry).collect());
    for (case, reason) in cases.iter().zip(&reasons) {
        let told = reason.contains("redirect to `") && reason.contains("refused");
        assert!(told, "{case:?}: {reason}");
    }
}

#[test]
fn no_event_names_a_private_address_to_post_to() {
    // fault H4: `remote.redirect`, and `remote.session` for what is no place
    let space = Space::enter(|asked| resolve(asked.name));
    let cases = led_to();
    let targets: Vec<String> = cases.iter().map(|case| case.url.clone()).collect();
    let _far = far_peer(move |seen| match numbered(seen, "/endpoint/") {
        Some(number) => {
            let first = format!("event: endpoint\ndata: {}\n\n", targets[number]);
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                event(to, &first)?;
                finish(to)
            }))
        }
        None => legacy(seen),
    });
    let entry = |number: usize| {
        let mut entry = tried_once(&far(&format!("/endpoint/{number}")));
        entry["type"] = "sse".into();
        entry
    };
    let (_gantry, reasons) = reasons(&space, (0..cases.len()).map(entry).collect());
    for (case, reason) in cases.iter().zip(&reasons) {
        let told = match case.url.contains('@') {
            true => reason.contains("it names an endpoint that is not a URL"),
            false => reason.contains("` refused"),
        };
        assert!(told, "{case:?}: {reason}");
    }
}

#[test]
fn what_a_server_shows_and_links_to_is_not_fetched() {
    // fault H4: icons, and links to resources
    let space = Space::enter(|asked| resolve(asked.name));
    let urls: Vec<String> = led_to().into_iter().map(|case| case.url).collect();
    let icons: Vec<Value> = urls.iter().map(|url| json!({"src": url})).collect();
    let links: Vec<Value> = urls
        .iter()
        .map(|url| json!({"type": "resource_link", "uri": url, "name": "link"}))
        .collect();
    let count = links.len();
    let _far = far_peer(move |seen| match seen.method() {
        "tools/list" => seen.result(json!({"tools": [{"name": "show", "icons": icons,
            "inputSchema": {"type": "object"}}]})),
        "tools/call" => seen.result(json!({"content": links})),
        _ => legacy(seen),
    });
    let gateway = Gantry::builder().entry(super::FAR, tried_once(&far("/mcp")));
    let gantry = space.names_for(gateway).start();
    gantry.wait_state(super::FAR, "ready", LONG);
    let answer = gantry.call("far__show", json!({}));
    let content = answer["result"]["content"].as_array().unwrap();
    assert_eq!(content.len(), count, "{answer}");
    assert_eq!(space.reached(), Vec::<IpAddr>::new());
}

/// Returns the number of the case that a request is about.
fn numbered(seen: &Seen, place: &str) -> Option<usize> {
    let rest = seen.path.strip_prefix(place)?;
    rest.split(['/', '?']).next()?.parse().ok()
}

#[test]
fn a_private_address_that_is_allowed_is_reached() {
    // fault H4
    let far = Peer::start(legacy);
    let named = super::entry(&format!("http://localhost:{}/mcp", far.address.port()));
    let gantry = super::gateway(named).start();
    gantry.wait_state(super::FAR, "ready", LONG);
    assert_eq!(super::echo(&gantry, "x"), Ok("x".to_owned()));
}
