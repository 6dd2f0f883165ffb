//! Sends records to the gateway over the control socket.

use crate::protocol::{FLAG_WHOLE, KIND_FAILED, KIND_NOTE, RECORD_LEN, Record};
use crate::sys;

/// The control socket in the init; the server process uses a copy that closes on exec.
pub(crate) const CONTROL: i32 = 0;

/// Sends one record; errors are ignored, since a closed socket is noticed elsewhere.
pub(crate) fn send(control: i32, record: Record) {
    let _ = sys::send(control, &encode(record));
}

/// Sends one record unless that would block.
pub(crate) fn send_now(control: i32, record: Record) {
    let _ = sys::send_now(control, &encode(record));
}

/// Encodes a record.
pub(crate) fn encode(record: Record) -> [u8; RECORD_LEN] {
    let mut bytes = [0; RECORD_LEN];
    bytes[0] = record.kind;
    bytes[1] = record.stage;
    bytes[4..8].copy_from_slice(&record.value.to_ne_bytes());
    bytes[8..].copy_from_slice(&record.data.to_ne_bytes());
    bytes
}

/// Reports that a protection failed.
pub(crate) fn note(control: i32, stage: u8, errno: i32, index: usize) {
    send(
        control,
        Record {
            kind: KIND_NOTE,
            stage,
            value: errno,
            data: index as u64,
        },
    );
}

/// Reports that a protection failed; exits if the job's flags make all of them mandatory.
pub(crate) fn lack(control: i32, flags: u32, stage: u8, errno: i32, index: usize) {
    if flags & FLAG_WHOLE != 0 {
        fail(control, stage, errno, index);
    }
    note(control, stage, errno, index);
}

/// Reports why the start failed, and exits.
pub(crate) fn fail(control: i32, stage: u8, errno: i32, index: usize) -> ! {
    send(
        control,
        Record {
            kind: KIND_FAILED,
            stage,
            value: errno,
            data: index as u64,
        },
    );
    sys::exit(127)
}
