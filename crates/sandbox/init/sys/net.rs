//! The system calls for sockets that the init creates in the tree's network namespace.

use super::{EINPROGRESS, MSG_DONTWAIT, MSG_NOSIGNAL, O_CLOEXEC, Result, call, close, nr};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const SOCK_STREAM: usize = 1;
const SOCK_NONBLOCK: usize = 0o4000;
const SOL_SOCKET: usize = 1;
const SO_REUSEADDR: usize = 2;

/// A loopback address in the kernel's format: `sockaddr_in` or `sockaddr_in6`.
struct Loopback {
    bytes: [u8; 28],
    length: usize,
    family: u16,
}

impl Loopback {
    fn new(version_6: bool, port: u16) -> Self {
        let mut bytes = [0; 28];
        let family = if version_6 { AF_INET6 } else { AF_INET };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        if version_6 {
            // After four bytes of flow information: 15 zeros and a one.
            bytes[23] = 1;
        } else {
            bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
        }
        Self {
            bytes,
            length: if version_6 { 28 } else { 16 },
            family,
        }
    }

    /// Opens a nonblocking socket of this family.
    fn socket(&self) -> Result<i32> {
        let kind = SOCK_STREAM | SOCK_NONBLOCK | O_CLOEXEC as usize;
        call(nr::SOCKET, &[self.family as usize, kind, 0]).map(|fd| fd as i32)
    }

    fn with(&self, number: usize, socket: i32) -> Result<usize> {
        let at = self.bytes.as_ptr() as usize;
        call(number, &[socket as usize, at, self.length])
    }
}

/// Starts connecting to a port of the loopback device. The result is read from the socket.
pub(crate) fn connect_loopback(version_6: bool, port: u16) -> Result<i32> {
    let address = Loopback::new(version_6, port);
    let socket = address.socket()?;
    match address.with(nr::CONNECT, socket) {
        Ok(_) | Err(EINPROGRESS) => Ok(socket),
        Err(errno) => {
            close(socket);
            Err(errno)
        }
    }
}

/// Listens on a port of the loopback device.
pub(crate) fn listen_loopback(version_6: bool, port: u16) -> Result<i32> {
    const BACKLOG: usize = 128;
    let address = Loopback::new(version_6, port);
    let socket = address.socket()?;
    let one = 1i32;
    let option = &raw const one as usize;
    // Best effort: without it a port stays in use for a minute after the last listener.
    let _ = call(
        nr::SETSOCKOPT,
        &[socket as usize, SOL_SOCKET, SO_REUSEADDR, option, 4],
    );
    let listening = address
        .with(nr::BIND, socket)
        .and_then(|_| call(nr::LISTEN, &[socket as usize, BACKLOG]));
    match listening {
        Ok(_) => Ok(socket),
        Err(errno) => {
            close(socket);
            Err(errno)
        }
    }
}

/// Sends bytes with one attached descriptor; never blocks.
pub(crate) fn send_descriptor(socket: i32, bytes: &[u8], descriptor: i32) -> Result<usize> {
    let vector = [bytes.as_ptr() as u64, bytes.len() as u64];
    // struct cmsghdr: u64 length, i32 level (SOL_SOCKET), i32 type (SCM_RIGHTS), then the data.
    let control = [20u64, 1 | (1 << 32), u64::from(descriptor as u32)];
    // struct msghdr: name, name length, iov, iov count, control, control length, flags.
    let header = [
        0,
        0,
        vector.as_ptr() as u64,
        1,
        control.as_ptr() as u64,
        size_of_val(&control) as u64,
        0,
    ];
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    call(
        nr::SENDMSG,
        &[socket as usize, header.as_ptr() as usize, flags],
    )
}

/// Brings the network device `lo` up.
pub(crate) fn raise_loopback() -> Result<usize> {
    const SOCK_DGRAM_CLOEXEC: usize = 2 | O_CLOEXEC as usize;
    const SIOCSIFFLAGS: usize = 0x8914;
    let socket = call(nr::SOCKET, &[AF_INET as usize, SOCK_DGRAM_CLOEXEC, 0])?;
    // struct ifreq: 16 bytes of name, then the flags IFF_UP | IFF_RUNNING.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = 0x41;
    let outcome = call(
        nr::IOCTL,
        &[socket, SIOCSIFFLAGS, request.as_ptr() as usize],
    );
    close(socket as i32);
    outcome
}
