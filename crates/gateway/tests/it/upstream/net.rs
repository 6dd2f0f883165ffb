//! Where a gateway connects to: a corpus of addresses and names in a network of its own, with no way
//! out, which holds the forbidden addresses itself and counts every connection. fault H4

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::harness::{PROGRAM, needs_root};

/// Addresses that nobody may be led to without their being named.
const FORBIDDEN: [&str; 12] = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.1.1",
    "198.18.0.1",
    "fd00:ec2::254",
    "fc00::1",
    "fe80::1",
];

/// Runs a script as root in a network and a file system of its own.
fn own_network(script: &str, folder: &Path) -> String {
    needs_root();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-euc", script, "sh"])
        .arg(PROGRAM)
        .arg(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

#[test]
fn no_name_and_no_spelling_leads_to_a_private_address() {
    // fault H4
    let home = tempfile::tempdir().unwrap();
    let mut hosts = String::from("127.0.0.1 localhost\n");
    let mut servers = Map::new();
    let quick = json!({"start": "eager", "life": {"handshake": "2s", "probe": "200ms"},
        "reconnect": {"failures": 1, "away": "60s"}});
    let add = |servers: &mut Map<String, Value>, url: String| {
        let mut entry = quick.clone();
        entry["url"] = url.into();
        let name = format!("s{}", servers.len());
        servers.insert(name, entry);
    };
    for (number, address) in FORBIDDEN.iter().enumerate() {
        let name = format!("name{number}.example");
        hosts.push_str(&format!("{address} {name}\n"));
        // Several ports and paths each: what counts is where they lead.
        for path in ["/mcp", "/sse", "/a/b?c=d"] {
            for port in [":80", ":8080", ""] {
                add(&mut servers, format!("http://{name}{port}{path}"));
            }
        }
    }
    // Literals that their own URL names, but which only an explicit word may name.
    for host in [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "0.0.0.0",
        "[::]",
        "[fd00:ec2::254]",
    ] {
        add(&mut servers, format!("http://{host}:8080/mcp"));
    }
    let count = servers.len();
    assert!(count >= 115, "{count}");
    std::fs::write(home.path().join("hosts"), hosts).unwrap();
    let config = json!({"mcpServers": servers}).to_string();
    std::fs::write(home.path().join("mcp.json"), config).unwrap();
    let held: String = FORBIDDEN
        .iter()
        .filter(|address| !address.starts_with("127.") && !address.starts_with("fe80"))
        .map(|address| {
            format!(
                "ip addr add {address}/{} dev lo\n",
                if address.contains(':') { 128 } else { 32 }
            )
        })
        .collect();
    let script = format!(
        r#"
        program=$1 home=$2
        mount --bind "$home/hosts" /etc/hosts
        ip link set lo up
        {held}
        # Whatever is connected to, on any port, is in the books of this network's kernel.
        opened() {{ awk '/^Tcp:/ {{ n = $6 }} END {{ print n }}' /proc/net/snmp; }}
        before=$(opened)
        "$program" up --port 0 --data "$home/data" --config "$home/mcp.json" >"$home/out" 2>"$home/err" &
        pid=$!
        tries=0
        while [ "$(grep -c 'event="start_failed"' "$home/err")" -lt {count} ] && [ $tries -lt 400 ]; do
            tries=$((tries + 1)); sleep 0.1
        done
        after=$(opened)
        "$program" --data "$home/data" status --json >"$home/status.json"
        kill $pid
        wait $pid || true
        echo "$before $after"
        cat "$home/status.json"
        "#
    );
    let text = own_network(&script, home.path());
    let (opened, text) = text.split_once('\n').unwrap();
    let (before, after) = opened.split_once(' ').unwrap();
    assert_eq!(before, after, "connections were opened");
    let status: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let items = status["items"].as_array().unwrap();
    assert_eq!(items.len(), count);
    for item in items {
        let reason = item["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("no public address"),
            "{} at {}: {reason}",
            item["name"],
            item["url"]
        );
    }
}

#[test]
fn a_private_address_that_is_allowed_is_reached() {
    // fault H4
    let far = super::peer::Peer::start(super::peer::legacy);
    let named = super::entry(&format!("http://localhost:{}/mcp", far.address.port()));
    let gantry = super::gateway(named).start();
    gantry.wait_state(super::FAR, "ready", crate::harness::LONG);
    assert_eq!(super::echo(&gantry, "x"), Ok("x".to_owned()));
}
