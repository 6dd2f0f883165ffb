//! Calls that were received and not yet answered. Removing a call from here decides its end, so
//! that it is either answered or cancelled, never both.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::message::Ticket;

#[derive(Default)]
pub(crate) struct Flights(Mutex<Table>);

#[derive(Default)]
struct Table {
    serial: u64,
    open: HashMap<u64, Flight>,
}

pub(crate) struct Flight {
    id: Value,
    pub(crate) nonce: Option<String>,
}

impl Flights {
    /// Enters a call and returns its number; ids may repeat, numbers do not.
    pub(crate) fn depart(&self, ticket: &Ticket) -> u64 {
        let id = serde_json::from_str(&ticket.id).unwrap_or_default();
        let mut table = self.0.lock().expect("nothing panics under this lock");
        table.serial += 1;
        let serial = table.serial;
        table.open.insert(
            serial,
            Flight {
                id,
                nonce: ticket.nonce.clone(),
            },
        );
        serial
    }

    pub(crate) fn is_open(&self, serial: u64) -> bool {
        self.0
            .lock()
            .expect("nothing panics under this lock")
            .open
            .contains_key(&serial)
    }

    /// Ends a call and returns whether it was still open.
    pub(crate) fn land(&self, serial: u64) -> bool {
        self.0
            .lock()
            .expect("nothing panics under this lock")
            .open
            .remove(&serial)
            .is_some()
    }

    /// Removes the call with this JSON-RPC id, the oldest if several have it.
    pub(crate) fn cancel(&self, id: &Value) -> Option<Flight> {
        let mut table = self.0.lock().expect("nothing panics under this lock");
        let serial = table
            .open
            .iter()
            .filter(|(_, flight)| flight.id == *id)
            .map(|(serial, _)| *serial)
            .min()?;
        table.open.remove(&serial)
    }
}
