//! Sockets for the gateway, made where only the tree can: on the loopback device of its network
//! namespace. They are handed out over the control socket and not used here.
//!
//! Nothing waits: a connection is handed out while it is being made, and an answer that finds the
//! control socket full is dropped. So a stuck server or gateway cannot stop the init.

use crate::protocol::{
    KIND_SOCKET, RECORD_LEN, Record, SOCKET_COMMAND_LEN, SOCKET_LISTEN, SOCKET_VERSION_6,
};
use crate::report::{CONTROL, encode, send_now};
use crate::sys;

/// Makes the socket that a command asks for, as `Inside::request` writes it behind its first byte.
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
