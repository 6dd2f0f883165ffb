//! What waits in the TCP and UDP sockets of a tree's own network. The kernel charges a connection to
//! the tree when it is accepted, and what nobody accepts to nobody; without cgroups it charges nothing.
//! Unwatched, a tree could use up the memory that the kernel has for the network of the whole machine.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// What a socket takes besides its queues.
const SOCKET_BYTES: u64 = 4 << 10;
/// The unit of the machine's total, or more.
#[cfg(target_arch = "x86_64")]
const LARGEST_PAGE: u64 = 4 << 10;
#[cfg(not(target_arch = "x86_64"))]
const LARGEST_PAGE: u64 = 64 << 10;
/// The state of a listening socket, whose queues are counts.
const LISTENING: &str = "0A";

/// Estimates the memory of the sockets in the network of a process; beyond `most` it may be more.
pub(crate) fn bytes(pid: u32, most: u64) -> u64 {
    let of_net = |name: &str| format!("/proc/{pid}/net/{name}");
    let read = |name: &str| fs::read_to_string(of_net(name)).unwrap_or_default();
    let counts = read("sockstat");
    let of_both = |name: &str| value(&counts, "TCP:", name) + value(&counts, "UDP:", name);
    let counts_6 = read("sockstat6");
    let sockets = of_both("inuse") + value(&counts_6, "TCP6:", "inuse");
    let mut bytes = sockets * SOCKET_BYTES;
    // Of the whole machine: the table, which takes longer to read, is seldom needed.
    let all = of_both("mem") * LARGEST_PAGE;
    if all <= most {
        return bytes;
    }
    for name in ["tcp", "tcp6", "udp", "udp6"] {
        let Ok(table) = File::open(of_net(name)) else {
            continue;
        };
        for line in BufReader::new(table).lines().map_while(Result::ok) {
            if bytes > most {
                return bytes;
            }
            bytes += queued(&line);
        }
    }
    bytes
}

/// Returns a value of a line of `sockstat`, zero if there is none.
fn value(text: &str, line: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|found| found.strip_prefix(line));
    let mut words = line.unwrap_or_default().split_ascii_whitespace();
    let has = words.any(|word| word == name);
    let value = words.next().filter(|_| has);
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Returns what waits in one socket, to be sent and to be read.
fn queued(line: &str) -> u64 {
    let mut fields = line.split_ascii_whitespace().skip(3);
    if fields.next() == Some(LISTENING) {
        return 0;
    }
    let queues = fields.next().and_then(|queues| queues.split_once(':'));
    let Some((sent, received)) = queues else {
        return 0;
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
    hex(sent) + hex(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_line_of_the_table_is_read() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        let line = "   0: 0100007F:0016 0100007F:A1B2 01 00000010:00000100 00:00000000 0 0 0 1";
        let listens = line.replace(" 01 ", " 0A ");
        assert_eq!([head, line, &listens].map(queued), [0, 0x110, 0]);
        let counts =
            "sockets: used 5\nTCP: inuse 7 orphan 0 tw 1 alloc 9 mem 3\nUDP: inuse 2 mem 1";
        let found = ["inuse", "mem"].map(|name| value(counts, "TCP:", name));
        assert_eq!((found, value(counts, "TCP6:", "inuse")), ([7, 3], 0));
    }

    #[test]
    fn what_nobody_accepts_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let streams: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut stream = TcpStream::connect(to).unwrap();
                stream.write_all(&[7; 16 << 10]).unwrap();
                stream
            })
            .collect();
        let found = bytes(std::process::id(), 0);
        assert!(found > 0, "{found}");
        let found = bytes(std::process::id(), 100 << 10);
        assert!(found > 100 << 10, "{found}");
        drop(streams);
    }
}
