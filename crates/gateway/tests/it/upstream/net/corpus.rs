//! The corpus of fault H4: addresses that nobody may be led to, the ways to write them, and the places
//! where somebody may write them. Each case is another URL at another place.

use std::net::{IpAddr, Ipv4Addr};

use super::space::PORTS;

/// Addresses that are not public, several of each kind.
pub(super) const ADDRESSES: [&str; 57] = [
    // This host, this network.
    "0.0.0.0",
    "0.1.2.3",
    "127.0.0.1",
    "127.8.8.8",
    "127.255.255.254",
    // Private.
    "10.0.0.1",
    "10.255.255.254",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.0.1",
    "192.168.255.254",
    // Link-local, and what hands out credentials of the machine itself.
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    // Shared by a carrier's customers.
    "100.64.0.1",
    "100.127.255.254",
    // For protocols, relays, benchmarks and documents.
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.254",
    "198.51.100.1",
    "203.0.113.1",
    // Many at once, kept for later, everybody.
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    // IPv6 that only carries IPv4: mapped, compatible, translated, NAT64, 6to4, Teredo.
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "2001::1",
    "2001:0:7f00:1::5",
    // Unique local, link-local, metadata, sites of old, many at once.
    "fc00::1",
    "fd12:3456:789a::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    // Thrown away, documents, benchmarks, overlays, segments.
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "2001:2::1",
    "5f00::1",
];

/// Names that lead to the machine or its cloud, and where the test's own resolver says they do.
pub(super) const NAMES: [(&str, &str); 6] = [
    ("localhost", "127.0.0.1"),
    ("localhost.", "127.0.0.1"),
    ("deep.localhost", "127.0.0.1"),
    ("metadata.google.internal", "169.254.169.254"),
    ("Metadata.Google.Internal.", "169.254.169.254"),
    ("intranet.example", "10.0.0.1"),
];

/// One URL that leads where it must not.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) url: String,
    pub(super) leads_to: IpAddr,
}

impl Case {
    /// Makes a case; its port and path are other ones for each number.
    fn new(number: usize, host: &str, leads_to: &str) -> Self {
        let port = match PORTS[number % PORTS.len()] {
            80 => String::new(),
            port => format!(":{port}"),
        };
        let path = ["/mcp", "/sse", "/a/b?c=d", "/latest/meta-data/"][number / 2 % 4];
        Self {
            url: format!("http://{host}{port}{path}"),
            leads_to: leads_to.parse().unwrap(),
        }
    }
}

/// Returns an address as the host of a URL.
fn host(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    }
}

/// Returns every address as itself.
pub(super) fn literals() -> Vec<Case> {
    let addresses = ADDRESSES.iter().enumerate();
    addresses
        .map(|(number, address)| Case::new(number, &host(address), address))
        .collect()
}

/// Returns a name for every address, which only a resolver knows.
pub(super) fn names() -> Vec<Case> {
    let addresses = ADDRESSES.iter().enumerate();
    let named = addresses.map(|(number, address)| Case::new(number, &named(number), address));
    named.collect()
}

/// Returns the name of an address of the table.
fn named(number: usize) -> String {
    format!("name{number}.example")
}

/// Returns the names that lead to the machine or its cloud.
pub(super) fn well_known() -> Vec<Case> {
    let names = NAMES.iter().enumerate();
    names
        .map(|(number, (name, address))| Case::new(number, name, address))
        .collect()
}

/// Answers for every name of the table.
pub(super) fn resolve(name: &str) -> Vec<IpAddr> {
    let known = NAMES
        .iter()
        .find(|(known, _)| known.trim_end_matches('.').eq_ignore_ascii_case(name));
    if let Some((_, address)) = known {
        return vec![address.parse().unwrap()];
    }
    let number = name
        .strip_prefix("name")
        .and_then(|rest| rest.strip_suffix(".example"));
    let number = number.and_then(|number| number.parse::<usize>().ok());
    let found = number.and_then(|number| ADDRESSES.get(number));
    found
        .map(|address| address.parse().unwrap())
        .into_iter()
        .collect()
}

/// Returns IPv4 addresses in every spelling that a URL's reader takes for them.
pub(super) fn spellings() -> Vec<Case> {
    let mut cases = Vec::new();
    for address in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1"] {
        for host in spelled(address.parse().unwrap()) {
            cases.push(Case::new(cases.len(), &host, address));
        }
    }
    cases
}

fn spelled(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let whole = u32::from(address);
    let last_two = u32::from(c) << 8 | u32::from(d);
    let last_three = u32::from(b) << 16 | last_two;
    let usual = address.to_string();
    let wide = |letter: char| match letter {
        '0'..='9' => char::from_u32(u32::from(letter) - u32::from('0') + 0xff10).unwrap(),
        letter => letter,
    };
    vec![
        whole.to_string(),
        format!("{whole:#x}"),
        format!("0X{whole:x}"),
        format!("0{whole:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.{b}.{c}.{d}"),
        format!("{a}.{last_three}"),
        format!("{a:#x}.{last_three}"),
        format!("{a}.{b}.{last_two}"),
        format!("{a}.{b}.{c}.{d:#x}"),
        usual.replace('.', "%2e"),
        format!("%3{}{}", a.to_string().as_bytes()[0] - b'0', &usual[1..]),
        usual.chars().map(wide).collect(),
        usual.replace('.', "\u{3002}"),
    ]
}

/// Returns addresses behind something that looks like another host.
pub(super) fn disguised() -> Vec<Case> {
    let mut cases = Vec::new();
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "10.0.0.1",
        "::1",
        "fd00:ec2::254",
    ] {
        for before in ["far.example", "far.example:80", "far.example%2f"] {
            let host = format!("{before}@{}", host(address));
            cases.push(Case::new(cases.len(), &host, address));
        }
    }
    cases
}
