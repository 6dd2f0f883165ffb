//! What runs in Gantry: servers, their links and lifecycles, the catalog of what they offer, who
//! may use what, and the record of every call. This file is its only public interface.
//!
//! ```text
//! Engine â Project â router â catalog (views, schemas) â guard â audit â server::handle â link â transport
//!                       â supervisor â server::runner â driver (process, remote)
//! ```
//!
//! A call goes along the upper line. The lower line owns lifecycles; no call passes through it.
//! Start at [`Engine`]; `docs/library.md` and the examples show it whole.
#![warn(missing_docs)]

mod access;
mod acts;
mod answers;
mod approvals;
mod audit;
mod catalog;
mod clock;
mod config;
mod credentials;
mod disk;
mod driver;
mod egress;
mod engine;
mod error;
mod events;
mod folder;
mod guard;
mod hooks;
mod http_client;
mod image_store;
mod known_secrets;
mod leases;
mod library;
mod limits;
mod machine;
mod native;
mod otlp;
mod pins;
mod project;
mod quota;
mod random;
mod request;
mod router;
mod schema;
mod secrets;
mod server;
mod siem;
mod supervisor;
mod suspended;
mod telemetry;
mod tokens;
mod tool;
mod traces;
mod transport;
mod view;
mod web_fetch;

pub use access::{
    AgentChange, AgentView, FILES_GROUP, FirstKeys, GrantView, GroupView, KeyChange, KeyUse,
    KeyView, MadeKey, NewAgent, NewKey, PolicyChange, SourceRefused,
};
pub use acts::Actor;
pub use answers::{AnswerBudget, AnswerPermit, AnswerPool, AnswersFull, SHORT_ANSWER};
pub use approvals::{ApproverDecision, HeldCall};
pub use audit::{
    AuditError, AuditFinding, AuditHealth, AuditPolicy, Bodies, Durability, Erased, FindingKind,
    HeadMark, JournalCheck, PublicKey, TrustedKeys, Verification, VerifyOptions, public_audit_key,
    verify as verify_audit, verify_journal,
};
pub use catalog::{Capabilities, Collision, ListRevisions, ListedTool};
pub use clock::unix_ms;
pub use config::{EngineConfig, EngineLimits, IMAGE_CHECKS, OnStartFailure, Startup, StopPolicy};
pub use credentials::{
    MasterKey, Rekeyed, SignInAnswer, SignInError, SignInLink, SignInState, SignInTrust,
    SignInView, VaultError,
};
pub use disk::{PrunedVolumes, VolumeError, VolumeView};
pub use driver::{
    DriverError, HostFact, HostReport, HostingReport, ImageReport, IsolationReport, LayerReport,
    LimitReport, LimitValue, Promise, PromiseState, Usage, probe_host,
};
pub use engine::inputs::{KeptInput, keep_inputs, kept_inputs};
pub use engine::rekey::{forget_secrets, rekey};
pub use engine::{Engine, ProjectView};
pub use error::{AdminError, CallError, CallFailure, EngineError, Forbidden, Full, Issue};
pub use events::{Batch, CallTotals, Change, FeedPosition, Listener, UnknownPosition};
pub use gantry_images as images;
pub use gantry_model as model;
pub use gantry_store::{
    ActFilter, ActOutcome, ActRow, AuditFile, CallDetails, CallFilter, CallRow, CallStatus,
    CallUsage, Check, DamageKind, ErrorKind, HoldRow, JournalDamage, Phases, ProductRow,
    RegistrationRow, RegistrationState, Store, StoreConfig, StoreConfigError, StoreError,
    ToolChangeRow, ToolVersionRow, UserSource,
};
pub use image_store::{
    ChangedTag, Images, RegistryCredentialsError, RegistryLogin, RegistryLoginError,
};
pub use library::{CallOptions, MessageError, ModelAnswer, ModelAnswers};
pub use limits::LimitExceeded;
pub use native::{NativeCall, NativeOutput, NativeTool};
pub use otlp::{Encoding as OtlpEncoding, OtlpTarget};
pub use project::Project;
pub use project::audit::NewHold;
pub use project::feed::{LogFollower, ServerLoad};
pub use project::grants::ToolFacts;
pub use project::images::PrunedImages;
pub use project::images::tags::TagCheck;
pub use project::pins::PinnedItem;
pub use project::policy::{HeldChange, TakenRegistration};
pub use project::policy_test::{PolicyReport, TestedCall};
pub use project::products::{NewProduct, ProductPlan};
pub use project::secrets::SecretChange;
pub use project::volumes::Volumes;
pub use quota::{Quota, QuotaExceeded, QuotaLimits, QuotaPermit};
pub use request::{
    Announced, CallEvent, Client, ClientIdentity, ClientResponse, Lists, Reply, Request,
    RequestLifetime, RequestOutcome, Scope, ServerRequest, ServerRequests, Surface, SuspendedBytes,
};
pub use request::{CancelReason, SessionChannel};
pub use secrets::{BindTo, SecretBinding, SecretError, SecretView};
pub use server::attempts::{Attempt, Attempts};
pub use server::catalog::UncheckedPart;
pub use server::link::BreakerView;
pub use server::logs::{LogLine, LogStream};
pub use server::pending::QueueView;
pub use server::status::ServerStatus;
pub use server::topics::{LONGEST_URI, Subscription, UpdateCallback};
pub use server::usage_history::UsageSample;
pub use siem::{SiemTarget, SyslogTarget, SyslogTransport};
pub use supervisor::Applied;
pub use telemetry::ExportHealth;
pub use tokens::{Algorithm, IssuerConfig, TokenError};
pub use traces::TracesConfig;
pub use transport::http::HttpError;
pub use view::{Health, HealthStatus, ServerView};
pub use web_fetch::{FetchError, FetchLimits, Fetched, fetch};
