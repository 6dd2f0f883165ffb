//! What Gantry remembers: servers, keys, grants, catalogs, the audit, events and leases.
//!
//! `Store` is the only door: a cheap handle over SQLite, beside which PostgreSQL will stand behind
//! the same methods and the same suite of tests. It never decides anything about calls or servers,
//! and never sees a secret in clear. `row` has the values that go in and out, `sql` the statements
//! that every engine runs, `sqlite` the engine itself.
#![warn(missing_docs)]

mod act;
mod call;
mod clock;
mod error;
mod journal;
mod row;
mod sql;
mod sqlite;
mod store;

pub use act::{ActEnd, ActFilter, ActOutcome, ActRow, OutcomeError};
pub use call::{CallFilter, CallRow, CallStatus, CallUsage, FoldPosition, StatusError};
pub use clock::unix_ms;
pub use error::StoreError;
pub use journal::{DamageKind, DamageKindError, JournalDamage, JournalRun, JournalState};
pub use row::{
    AgentRow, AgentTools, CatalogRow, GrantRow, KeyRow, Principal, SealedRow, ServerRow,
};
pub use store::Store;
