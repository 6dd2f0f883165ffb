//! Statements over projects, suspensions and registrations that wait for a second person. Run by
//! `store::projects`.

pub(crate) const ALL_PROJECTS: &str =
    "SELECT id, coalesce(description, ''), created_at, loaded FROM kb.projects ORDER BY id";

pub(crate) const CREATE: &str = "INSERT INTO kb.projects (id, description, created_at) \
     VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";

/// Whether there are recorded calls or acts of a project; events are removed with them.
pub(crate) const HAS_RECORD: &str = "SELECT EXISTS (SELECT 1 FROM kb.mcp_tool_call_log \
     WHERE project_id = $1) OR EXISTS (SELECT 1 FROM kb.mcp_admin_log WHERE project_id = $1)";

pub(crate) const DESCRIBE: &str = "UPDATE kb.projects SET description = $2 WHERE id = $1";

pub(crate) const SET_LOADED: &str =
    "UPDATE kb.projects SET loaded = $2 WHERE id = $1 AND loaded <> $2";

/// Rows that refer to the project are deleted with it; calls, events and acts refer to its name
/// only.
pub(crate) const REMOVE: &str = "DELETE FROM kb.projects WHERE id = $1";

pub(crate) const REMOVE_VOLUMES: &str =
    "DELETE FROM kb.mcp_volumes WHERE project_id = $1 AND gateway = $2";

pub(crate) const REVISION: &str =
    "SELECT revision FROM kb.mcp_revisions WHERE project_id = '' AND kind = 'projects'";

pub(crate) const SUSPENSIONS: &str = "SELECT kind, name, reason, suspended_by, suspended_at, \
     role FROM kb.mcp_suspensions WHERE project_id = $1";

/// The first suspension is remembered.
pub(crate) const SUSPEND: &str = "INSERT INTO kb.mcp_suspensions \
     (project_id, kind, name, reason, suspended_by, suspended_at, role) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (project_id, kind, name) DO NOTHING";

/// Replaces a suspension by one of a more powerful role.
pub(crate) const SUSPEND_FIRMLY: &str = "INSERT INTO kb.mcp_suspensions \
     (project_id, kind, name, reason, suspended_by, suspended_at, role) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (project_id, kind, name) DO UPDATE \
     SET reason = excluded.reason, suspended_by = excluded.suspended_by, \
     suspended_at = excluded.suspended_at, role = excluded.role";

pub(crate) const RESUME: &str =
    "DELETE FROM kb.mcp_suspensions WHERE project_id = $1 AND kind = $2 AND name = $3";

pub(crate) const PUT_REGISTRATION: &str = "INSERT INTO kb.mcp_registrations \
     (id, project_id, act, target, request, shown, reasons, asked_key, asked_by, asked_at, state) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending')";

pub(crate) const REGISTRATIONS: &str = "SELECT id, act, target, request, shown, reasons, asked_key, \
     asked_by, asked_at, state, decided_by, decided_at FROM kb.mcp_registrations \
     WHERE project_id = $1 ORDER BY asked_at DESC, id LIMIT $2";

/// Only one decision counts. It deletes the request.
pub(crate) const DECIDE: &str = "UPDATE kb.mcp_registrations SET state = $3, decided_by = $4, \
     decided_at = $5, request = '' WHERE project_id = $1 AND id = $2 AND state = 'pending'";

/// Makes a decided change pending again whose execution failed.
pub(crate) const REOPEN: &str = "UPDATE kb.mcp_registrations SET state = 'pending', \
     decided_by = NULL, decided_at = NULL, request = $3 WHERE project_id = $1 AND id = $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    ALL_PROJECTS,
    CREATE,
    HAS_RECORD,
    DESCRIBE,
    SET_LOADED,
    REMOVE,
    REMOVE_VOLUMES,
    REVISION,
    SUSPENSIONS,
    SUSPEND,
    SUSPEND_FIRMLY,
    RESUME,
    PUT_REGISTRATION,
    REGISTRATIONS,
    DECIDE,
    REOPEN,
];
