//! Addresses for servers that a test starts itself.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net;

/// Returns an address where nobody listens, and which is nobody else's until this process ends: a
/// port that was merely free a moment ago may be somebody's the next, even that of a connection which
/// is only on its way out.
pub(crate) fn held_port() -> SocketAddr {
    static HELD: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let held = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    // With this, who listens there may share it, as long as this one does not.
    net::sockopt::set_socket_reuseaddr(&held, true).unwrap();
    net::bind(&held, &any).unwrap();
    let address = net::getsockname(&held).unwrap().try_into().unwrap();
    HELD.lock().unwrap().push(held);
    address
}
