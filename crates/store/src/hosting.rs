//! The rows of hosted servers: their workspaces, id ranges and volumes.

use std::ops::Range;

use gantry_model::event::EventKind;
use gantry_model::id::{ProjectName, ServerId, ServerName};
use serde_json::Value;

/// How many user and group ids a hosted server owns.
pub const IDS_PER_SERVER: u32 = 65_536;

/// The id range of hosted servers, which systemd, `useradd` and container engines do not use.
pub const HOSTED_IDS: Range<u32> = 0x7000_0000..0x7fff_0000;

/// A hosted server, as in `kb.agent_workspaces`. row 1.1
#[derive(Debug, Clone, PartialEq)]
pub struct WorkspaceRow {
    /// The registered server.
    pub server: ServerId,
    /// Its name.
    pub name: ServerName,
    /// `ready`, or the state in which the server is instead.
    pub status: String,
    /// The isolation provider of its instance, once there was one.
    pub provider: Option<String>,
    /// The reference of its image; `None` for a command.
    pub image: Option<String>,
    /// The resolved digest.
    pub image_digest: Option<String>,
    /// Its last instance.
    pub instance: Option<String>,
    /// Whether messages use stdin and stdout.
    pub stdio_bridge: bool,
    /// The port inside.
    pub port: Option<u16>,
    /// After which exits it is restarted.
    pub restart_policy: String,
    /// The effective limits, as JSON.
    pub resource_limits: Value,
    /// The paths of its volumes, as JSON.
    pub volumes: Value,
}

/// A running instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceInstance {
    /// Its isolation provider.
    pub provider: String,
    /// Identifies it among all instances of the server.
    pub instance: String,
    /// The digest of its image.
    pub image_digest: Option<String>,
}

/// A volume on the disk of this gateway (`kb.mcp_volumes`). row 1.19
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRow {
    /// The project it belongs to.
    pub project: ProjectName,
    /// The name of its server, which may have been removed.
    pub server: ServerName,
    /// The path inside the server.
    pub path: String,
    /// Its name in the folder of volumes.
    pub folder: String,
    /// When it was created.
    pub created_ms: u64,
}

/// Returns the status of a workspace after an event; `None` if it does not change.
pub(crate) const fn status_after(kind: EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::Registered => "registered",
        EventKind::Starting => "starting",
        EventKind::Ready | EventKind::Recovered => "ready",
        EventKind::StartFailed => "failed",
        EventKind::Exited | EventKind::RestartRequested => "restarting",
        EventKind::BackingOff => "backing_off",
        EventKind::Disconnected => "disconnected",
        EventKind::Unresponsive => "unresponsive",
        EventKind::NeedsSignIn => "needs_sign_in",
        EventKind::Stopped => "stopped",
        EventKind::SecretsUsed
        | EventKind::SignedIn
        | EventKind::SignedOut
        | EventKind::HealthWarning
        | EventKind::CallTimeout
        | EventKind::CatalogChanged
        | EventKind::ToolsUnapproved
        | EventKind::ToolDecided
        | EventKind::SuspiciousText
        | EventKind::ApprovalAsked
        | EventKind::ApprovalDecided
        | EventKind::ImageChanged
        | EventKind::ProtocolError
        | EventKind::Removed
        | EventKind::Tested
        | EventKind::Previewed
        | EventKind::WrongKeys
        | EventKind::JournalDamaged => return None,
    })
}

/// Returns a free range, the first at or after the position that `seed` selects; `None` if all are
/// taken.
///
/// `taken` is sorted. Gateways with separate stores use different seeds, so that their servers do
/// not share ids.
pub(crate) fn free_range(taken: &[u32], seed: u64) -> Option<u32> {
    let slots = u64::from((HOSTED_IDS.end - HOSTED_IDS.start) / IDS_PER_SERVER);
    let first = seed % slots;
    let ids = (0..slots).map(|step| {
        let slot = (first + step) % slots;
        let slot = u32::try_from(slot).unwrap_or_default();
        HOSTED_IDS.start + slot * IDS_PER_SERVER
    });
    ids.into_iter().find(|id| taken.binary_search(id).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_range_is_found_until_none_is_left() {
        let first = free_range(&[], 7).unwrap();
        assert!(HOSTED_IDS.contains(&first));
        assert_eq!((first - HOSTED_IDS.start) % IDS_PER_SERVER, 0);
        assert_eq!(free_range(&[first], 7), Some(first + IDS_PER_SERVER));
        let all: Vec<u32> = HOSTED_IDS.step_by(IDS_PER_SERVER as usize).collect();
        assert_eq!(free_range(&all, 7), None);
        let last = all[all.len() - 1];
        let at_the_end = all.len() as u64 - 1;
        assert_eq!(free_range(&[], at_the_end), Some(last));
        assert_eq!(free_range(&[last], at_the_end), Some(HOSTED_IDS.start));
    }
}
