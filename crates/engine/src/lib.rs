//! What runs in Gantry: servers, their links and lifecycles, the catalog of what they offer, who
//! may use what, and the record of every call. This file is the library's only door.
//!
//! ```text
//! Engine ─ router ─ catalog (views, schemas) ─ guard ─ audit ─ server::handle ─ link ─ transport
//!             └ supervisor ─ server::runner ─ driver (process)
//! ```
//!
//! A call goes along the upper line. The lower line owns lifecycles; no call passes through it.
//! Start at [`Engine`]; `docs/library.md` and the examples show it whole.
#![warn(missing_docs)]

mod access;
mod acts;
mod answers;
mod audit;
mod catalog;
mod clock;
mod config;
mod credentials;
mod driver;
mod engine;
mod error;
mod events;
mod folder;
mod guard;
mod library;
mod native;
mod request;
mod router;
mod server;
mod supervisor;
mod telemetry;
mod transport;
mod view;

pub use access::{AgentChange, AgentView, FirstKeys, KeyView, NewAgent, NewKey};
pub use acts::Actor;
pub use answers::{AnswerBudget, AnswerPermit, AnswersFull, SHORT_ANSWER};
pub use audit::{AuditError, AuditHealth, AuditPolicy, Bodies, Durability};
pub use catalog::{Collision, ListedTool, UncheckedPart};
pub use config::{EngineConfig, EngineLimits, OnStartFailure, Startup, StopPolicy};
pub use credentials::{
    SignInAnswer, SignInError, SignInLink, SignInState, SignInTrust, SignInView,
};
pub use engine::Engine;
pub use error::{CallError, CallFailure, EngineError, Full, Issue};
pub use gantry_model as model;
pub use gantry_sandbox::{HostReport, Promise, Report, Usage};
pub use gantry_store::{
    ActFilter, ActOutcome, ActRow, CallFilter, CallRow, CallStatus, CallUsage, DamageKind,
    JournalDamage,
};
pub use library::{CallOptions, MessageError, ModelAnswer, ModelAnswers};
pub use native::{NativeCall, NativeOutput, NativeTool};
pub use request::{
    Announced, Ask, AskAnswer, AskedFor, Client, HeldBytes, Lasts, Lists, Reply, Request, Said,
    Scope, Speaker, Surface, Word,
};
pub use request::{CancelReason, SessionChannel};
pub use server::link::BreakerView;
pub use server::logs::{LogLine, LogStream};
pub use server::pending::QueueView;
pub use server::status::ServerStatus;
pub use server::topics::{Hearer, LONGEST_URI, Subscription};
pub use supervisor::Applied;
pub use transport::http::HttpError;
pub use view::{Capabilities, Health, HealthStatus, ListMarks, ServerView};
