//! The statements, one file per noun, in the text that SQLite and PostgreSQL both take.
//!
//! They use `$1` placeholders, `ON CONFLICT`, `RETURNING`, names qualified with `kb`. What must differ
//! between databases (placeholders of generated statements, pragmas) stays in `sqlite`. Every
//! file ends with `ALL`, so that a test can prepare each statement.

pub(crate) mod acts;
pub(crate) mod agents;
pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod gateways;
pub(crate) mod grants;
pub(crate) mod hosting;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod settings;
