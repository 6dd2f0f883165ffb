//! A network of a test's own, without a way out, in which every address there is belongs to the
//! machine: whoever connects anywhere is counted by where it went. Names are answered by the test.
//!
//! The thread that enters it stays in it, with all that it starts. Entry point: [`Space::enter`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_testkit::wait::eventually;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use super::super::peer::{Peer, Reply};
use crate::harness::{Builder, needs_root};

/// A public address, which is this machine's as every other in here.
pub(super) const PUBLIC: &str = "93.184.216.34";
/// The ports that are counted at, on every address.
pub(super) const PORTS: [u16; 4] = [80, 443, 8080, 9090];

/// Where the test answers names, as `/etc/resolv.conf` says.
const RESOLVER: &str = "127.0.0.53:53";
/// Every address is local: connections end here, whatever they are meant for.
const SETUP: &str = "ip link set lo up
    ip route add local 0.0.0.0/0 dev lo
    ip -6 route add local ::/0 dev lo
    ip addr add fd00:ec2::254/128 dev lo
    echo ready
    read -r _";
/// Runs the gateway with the test's own files for names.
const NAMED: &str = r#"mount --bind "$1/hosts" /etc/hosts
    mount --bind "$1/resolv.conf" /etc/resolv.conf
    shift
    exec "$@""#;

/// A question for the addresses of a name.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    /// How often the same was asked before.
    pub(super) before: usize,
}

/// A network of the test's own.
pub(super) struct Space {
    holder: Child,
    files: TempDir,
    /// How often each name was asked for, by kind of address.
    asked: Arc<Mutex<HashMap<(String, bool), usize>>>,
    doors: Vec<Peer>,
}

impl Space {
    /// Makes a network and moves this thread into it; `answers` says where names lead.
    pub(super) fn enter(answers: impl Fn(&Asked<'_>) -> Vec<IpAddr> + Send + 'static) -> Self {
        needs_root();
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-euc", SETUP])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(holder.stdout.take().unwrap());
        let mut ready = String::new();
        said.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let network = File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(network.as_fd(), kind).unwrap();
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("hosts"), "\n").unwrap();
        let resolver = "nameserver 127.0.0.53\noptions timeout:5 attempts:2\n";
        fs::write(files.path().join("resolv.conf"), resolver).unwrap();
        let asked = Arc::default();
        answer_names(Arc::clone(&asked), answers);
        let any = |port| SocketAddr::from(([0_u16; 8], port));
        let doors = PORTS.map(|port| Peer::again(any(port), |_| Reply::status(404)));
        Self {
            holder,
            files,
            asked,
            doors: doors.into(),
        }
    }

    /// Has a gateway ask this test for names.
    pub(super) fn names_for(&self, gateway: Builder) -> Builder {
        let files = self.files.path().to_str().unwrap();
        gateway.under(&["unshare", "--mount", "sh", "-euc", NAMED, "sh", files])
    }

    /// Returns how often a name was asked for, counting IPv4 only.
    pub(super) fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.get(&(name.to_owned(), false)).copied().unwrap_or(0)
    }

    /// Returns which of these addresses can be connected to at all, here.
    pub(super) fn reachable<'a>(&self, addresses: &[&'a str]) -> Vec<&'a str> {
        let within = Duration::from_secs(1);
        let reached = |address: &&str| {
            let address = SocketAddr::new(address.parse().unwrap(), PORTS[0]);
            TcpStream::connect_timeout(&address, within).is_ok()
        };
        let found = addresses.iter().copied().filter(reached).collect();
        self.reached();
        found
    }

    /// Returns where anybody has connected to since this was asked last.
    pub(super) fn reached(&self) -> Vec<IpAddr> {
        let mark: IpAddr = PUBLIC.parse().unwrap();
        let mut reached = Vec::new();
        for (door, port) in self.doors.iter().zip(PORTS) {
            // Connections are accepted in their order: behind this one there is no earlier one.
            let own = TcpStream::connect(SocketAddr::new(mark, port)).unwrap();
            let us = own.local_addr().unwrap();
            let counted = || door.reached().iter().any(|(_, from)| *from == us);
            eventually(Duration::from_secs(5), counted).unwrap();
            let all = door.forget().into_iter().filter(|(_, from)| *from != us);
            reached.extend(all.map(|(to, _)| to));
        }
        reached
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// Answers every question, on a thread of its own, for as long as this process lives.
fn answer_names(
    asked: Arc<Mutex<HashMap<(String, bool), usize>>>,
    answers: impl Fn(&Asked<'_>) -> Vec<IpAddr> + Send + 'static,
) {
    let socket = UdpSocket::bind(RESOLVER).unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let question = &question[..length];
            let (name, after) = name_in(question);
            let wants_v6 = question[after..after + 2] == [0, 28];
            let before = {
                let mut asked = asked.lock().unwrap();
                let count = asked.entry((name.clone(), wants_v6)).or_default();
                *count += 1;
                *count - 1
            };
            let name = name.as_str();
            let mut found = answers(&Asked { name, before });
            found.retain(|address| address.is_ipv6() == wants_v6);
            drop(socket.send_to(&answer(question, after + 4, &found), from));
        }
    });
}

/// Returns the name that is asked for, and where it ends.
fn name_in(question: &[u8]) -> (String, usize) {
    let (mut name, mut at) = (Vec::new(), 12);
    while question[at] != 0 {
        let label = &question[at + 1..][..usize::from(question[at])];
        name.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += 1 + label.len();
    }
    (name.join("."), at + 1)
}

/// Writes an answer that is good for no time at all.
fn answer(question: &[u8], end: usize, addresses: &[IpAddr]) -> Vec<u8> {
    let count = u8::try_from(addresses.len()).unwrap();
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0]);
    out.extend(&question[12..end]);
    for address in addresses {
        let (kind, bytes) = match address {
            IpAddr::V4(address) => (1, address.octets().to_vec()),
            IpAddr::V6(address) => (28, address.octets().to_vec()),
        };
        let length = u8::try_from(bytes.len()).unwrap();
        out.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, length]);
        out.extend(bytes);
    }
    out
}
