//! The engine's own errors, with code, fault and hint.

use std::path::PathBuf;

use gantry_images::ImageError;
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::grant::GrantError;
use gantry_model::id::{AgentName, NameError, ServerName};
use gantry_model::spec::SpecError;
use gantry_store::StoreError;

use super::AdminError;
use super::text::file_shown;
use crate::audit::AuditError;
use crate::credentials::SignInError;
use crate::disk::VolumeError;
use crate::driver::DriverError;
use crate::image_store::RegistryLoginError;
use crate::secrets::SecretError;

/// Why the engine could not do what an administrator asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Another gateway uses the data folder.
    #[error("data folder `{}` is in use by {holder}", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// The data folder cannot be used.
    #[error("cannot use data folder `{}`", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The data folder may be read by others.
    #[error("data folder `{}` is open to other users (mode {mode:o})", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A volume cannot be had or removed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// An image cannot be pulled, imported or removed.
    #[error(transparent)]
    Image(Box<ImageError>),
    /// Credentials of an image registry cannot be kept or read.
    #[error(transparent)]
    RegistryLogin(#[from] RegistryLoginError),
    /// The server does not run an image.
    #[error("server `{server}` runs no image")]
    NoImage {
        /// The server.
        server: ServerName,
    },
    /// The database failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The audit failed.
    #[error("the audit failed")]
    Audit(#[from] AuditError),
    /// Processes cannot be started here.
    #[error("processes cannot be started on this host")]
    Driver(#[from] DriverError),
    /// A sign-in to a remote server failed.
    #[error(transparent)]
    SignIn(#[from] SignInError),
    /// A secret cannot be set, bound, read or removed.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The spec cannot be taken as it is.
    #[error("the server cannot be registered")]
    Spec(#[from] SpecError),
    /// A name cannot be used.
    #[error("the name cannot be used")]
    Name(#[from] NameError),
    /// A server of that name exists.
    #[error("a server `{name}` exists already")]
    Conflict {
        /// The name.
        name: ServerName,
    },
    /// No such server.
    #[error("no server `{name}`")]
    UnknownServer {
        /// The name or id in the request.
        name: String,
    },
    /// The server is a file's to change.
    #[error("server `{name}` comes from {}", file_shown(.file.as_deref()))]
    OfFile {
        /// The server.
        name: ServerName,
        /// The file, if it is known.
        file: Option<PathBuf>,
    },
    /// The server is Gantry's own.
    #[error("server `{name}` is built in; it disappears when another server is configured")]
    Builtin {
        /// The server.
        name: ServerName,
    },
    /// An agent of that name exists.
    #[error("an agent `{name}` exists already")]
    AgentExists {
        /// The name.
        name: AgentName,
    },
    /// No such agent.
    #[error("no agent `{name}`")]
    UnknownAgent {
        /// The name in the request.
        name: String,
    },
    /// Nobody could administer the gateway any more.
    #[error("this would end the last admin key")]
    LastAdmin,
    /// A grant or a filter names something that cannot be.
    #[error("the grant is not valid")]
    Grant(#[from] GrantError),
    /// A native tool cannot be taken.
    #[error("native tool `{name}` cannot be registered: {why}")]
    Native {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// A server did not start, and the start was to fail then.
    #[error("server `{server}` did not start: {reason}")]
    StartFailed {
        /// The server.
        server: ServerName,
        /// Why.
        reason: String,
    },
    /// A server of a file that nobody has approved.
    #[error("server `{server}` needs approval: {reason}")]
    NeedsApproval {
        /// The server.
        server: ServerName,
        /// What to do.
        reason: String,
    },
    /// A server that its file switches off.
    #[error("server `{server}` is disabled: {reason}")]
    Disabled {
        /// The server.
        server: ServerName,
        /// Where, and what to do.
        reason: String,
    },
    /// A server whose entry in a file cannot be used.
    #[error("server `{server}` is misconfigured: {reason}")]
    Misconfigured {
        /// The server.
        server: ServerName,
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// What an administrator may not do, or got wrong.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
}

impl From<ImageError> for EngineError {
    fn from(error: ImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

impl Diagnose for EngineError {
    fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "data.locked",
            Self::Folder { .. } => "data.folder",
            Self::Open { .. } => "data.open",
            Self::Volume(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::RegistryLogin(error) => error.code(),
            Self::NoImage { .. } => "server.no_image",
            Self::Store(error) => error.code(),
            Self::Audit(error) => error.code(),
            Self::Driver(_) => "sandbox.unavailable",
            Self::Spec(_) => "server.spec",
            Self::Name(_) => "name.invalid",
            Self::Conflict { .. } => "server.exists",
            Self::UnknownServer { .. } => "server.unknown",
            Self::OfFile { .. } => "server.of_file",
            Self::Builtin { .. } => "server.builtin",
            Self::AgentExists { .. } => "agent.exists",
            Self::UnknownAgent { .. } => "agent.unknown",
            Self::LastAdmin => "key.last_admin",
            Self::Admin(error) => error.code(),
            Self::SignIn(error) => error.code(),
            Self::Secret(error) => error.code(),
            Self::Grant(error) => error.code(),
            Self::Native { .. } => "native.invalid",
            Self::StartFailed { .. } => "server.start_failed",
            Self::NeedsApproval { .. } => "server.needs_approval",
            Self::Disabled { .. } => "server.disabled",
            Self::Misconfigured { .. } => "server.misconfigured",
            Self::Stopping => "gateway.stopping",
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Spec(_)
            | Self::Name(_)
            | Self::Conflict { .. }
            | Self::UnknownServer { .. }
            | Self::OfFile { .. }
            | Self::Builtin { .. }
            | Self::AgentExists { .. }
            | Self::UnknownAgent { .. }
            | Self::LastAdmin
            | Self::Grant(_)
            | Self::Native { .. }
            | Self::NoImage { .. }
            | Self::NeedsApproval { .. }
            | Self::Disabled { .. }
            | Self::Misconfigured { .. } => Fault::Client,
            Self::StartFailed { .. } => Fault::Server,
            Self::Admin(error) => error.fault(),
            Self::Volume(error) => error.fault(),
            Self::Image(error) => error.fault(),
            Self::RegistryLogin(error) => error.fault(),
            Self::Store(error) => error.fault(),
            Self::SignIn(error) => error.fault(),
            Self::Secret(error) => error.fault(),
            Self::Locked { .. }
            | Self::Folder { .. }
            | Self::Open { .. }
            | Self::Audit(_)
            | Self::Driver(_)
            | Self::Stopping => Fault::Gateway,
        }
    }

    fn server(&self) -> Option<&str> {
        if let Self::SignIn(error) = self {
            error.server()
        } else {
            None
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Locked { .. } => Some(
                "stop that gateway first, or give this one another folder with `--data`".into(),
            ),
            Self::Folder { folder, .. } => Some(format!(
                "is `{}` there, writable, and on a disk with room?",
                folder.display()
            )),
            Self::Open { folder, .. } => Some(format!("run `chmod 700 {}`", folder.display())),
            Self::Volume(error) => error.hint(),
            Self::Image(error) => error.hint(),
            Self::RegistryLogin(error) => error.hint(),
            Self::NoImage { .. } => Some("leave `pull` out to restart it as it is".to_owned()),
            Self::Conflict { name } => Some(format!(
                "remove it first: `gantry rm {name}`, or DELETE /api/v1/mcp/servers/{name}"
            )),
            Self::OfFile { name, .. } => Some(format!(
                "change the file; a gateway that runs takes it over. `gantry rm {name}` takes it out of the file"
            )),
            Self::Builtin { .. } => Some(
                "configure a server of your own, or start with `gantry up --no-example`".into(),
            ),
            Self::AgentExists { name } => Some(format!(
                "change it: `gantry agent set {name}`, or PATCH /api/v1/agents/{name}; or remove it first: \
                 `gantry agent rm {name}`"
            )),
            Self::LastAdmin => Some(
                "make another admin key first: `gantry key new --admin`, or POST /api/v1/keys"
                    .into(),
            ),
            Self::Admin(error) => error.hint(),
            Self::Grant(error) => error.hint(),
            Self::Spec(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::SignIn(error) => error.hint(),
            Self::Secret(error) => error.hint(),
            Self::Audit(error) => error.hint(),
            Self::Driver(_)
            | Self::Name(_)
            | Self::UnknownServer { .. }
            | Self::UnknownAgent { .. }
            | Self::Native { .. }
            | Self::StartFailed { .. }
            | Self::NeedsApproval { .. }
            | Self::Disabled { .. }
            | Self::Misconfigured { .. }
            | Self::Stopping => None,
        }
    }
}
