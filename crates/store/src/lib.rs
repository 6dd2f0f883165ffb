//! What Gantry stores: servers and their hosting, keys, grants, catalogs, the audit, events and
//! leases.
//!
//! `Store` is the only entry point: a cheap handle on a SQLite file or a PostgreSQL database, with
//! the same methods and the same test suite. It decides nothing about calls or servers, and never
//! sees a plaintext secret. `row` has the values that go in and out, `sql` the statements, `store`
//! the methods, written once; `database` runs them on `sqlite` or `postgres`.
#![warn(missing_docs)]

mod act;
mod call;
mod chain;
mod clock;
mod config;
mod copy;
mod database;
mod error;
mod gateway;
mod hold;
mod hosting;
mod journal;
mod pin;
mod postgres;
mod project;
mod row;
mod sql;
mod sqlite;
mod store;

pub use act::{ActFilter, ActOutcome, ActRow, OutcomeError, StoredAct};
pub use call::{
    CallDetails, CallFilter, CallRow, CallStatus, CallUsage, Check, DetailError, ErrorKind,
    JournalPosition, Phases, StatusError, UserSource,
};
pub use chain::{
    AuditKey, Block, BlockKind, BlockKindError, ChainHead, ENTRY_BYTES, Entries, Entry, Hash,
    Place, Removed, RowOrigin, Salt, SignedBlock, act_digest, row_digest,
};
pub use clock::{ClockRecord, unix_ms};
pub use config::{PostgresUrl, StoreConfig, StoreConfigError};
pub use copy::CopiedTable;
pub use error::StoreError;
pub use gateway::{Changes, Gateway, Lease};
pub use hold::HoldRow;
pub use hosting::{HOSTED_IDS, IDS_PER_SERVER, VolumeRow, WorkspaceInstance, WorkspaceRow};
pub use journal::{DamageKind, DamageKindError, JournalDamage, JournalRun, JournalState};
pub use pin::{CatalogPins, ListedDefinition, ToolChangeRow, ToolVersionRow, UnapprovedRow};
pub use project::{ProductRow, ProjectRow, RegistrationRow, RegistrationState};
pub use row::{
    AgentRow, AgentTools, CatalogRow, GrantRow, GroupRow, KeyRow, KeyUse, SealedRow, SecretRow,
    ServerRow,
};
pub use store::Store;
pub use store::acts::{FoundAct, OpenAct};
pub use store::calls::StoredCall;
pub use store::chain::{AuditFile, AuditSnapshot, FoundCall};
pub use store::export::ExportedBlock;
