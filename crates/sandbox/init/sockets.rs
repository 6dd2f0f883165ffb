//! Creates sockets for the gateway on the loopback device of the tree's network namespace. They are
//! sent over the control socket and not used here.
//!
//! Nothing blocks: a socket is sent while it still connects, and a response that does not fit the
//! control socket is dropped. So a stuck server or gateway cannot stop the init.

use crate::protocol::{
    KIND_SOCKET, RECORD_LEN, Record, SOCKET_COMMAND_LEN, SOCKET_LISTEN, SOCKET_VERSION_6,
};
use crate::report::{CONTROL, encode, send_now};
use crate::sys;

/// Handles a socket command, as `Inside::request` writes it after its first byte.
pub(crate) fn serve(command: [u8; SOCKET_COMMAND_LEN - 1]) {
    let [what, port_low, port_high, id @ ..] = command;
    let port = u16::from_le_bytes([port_low, port_high]);
    let version_6 = what & SOCKET_VERSION_6 != 0;
    let socket = if what & SOCKET_LISTEN != 0 {
        sys::listen_loopback(version_6, port)
    } else {
        sys::connect_loopback(version_6, port)
    };
    let answer = |errno| Record {
        kind: KIND_SOCKET,
        stage: 0,
        value: errno,
        data: u64::from(u32::from_le_bytes(id)),
    };
    match socket {
        Ok(socket) => {
            let bytes: [u8; RECORD_LEN] = encode(answer(0));
            let _ = sys::send_descriptor(CONTROL, &bytes, socket);
            sys::close(socket);
        }
        Err(errno) => send_now(CONTROL, answer(errno)),
    }
}
