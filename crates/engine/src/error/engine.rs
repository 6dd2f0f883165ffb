//! Code, fault and hint of the engine's own errors.

use gantry_model::diagnose::{Diagnose, Fault};

use super::EngineError;

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
