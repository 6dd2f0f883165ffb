//! Statements over projects, agents and servers. Run by `store::servers`.

/// A project that was deleted does not come back by a write that was under way: `projects::CREATE` makes
/// one on purpose.
pub(crate) const ENSURE_PROJECT: &str = "INSERT INTO kb.projects (id, created_at) \
     SELECT CAST($1 AS TEXT), CAST($2 AS BIGINT) \
     WHERE NOT EXISTS (SELECT 1 FROM kb.projects WHERE id = $1) \
     AND NOT EXISTS (SELECT 1 FROM kb.mcp_admin_log \
     WHERE act = 'project.delete' AND target = $1 AND outcome <> 'refused') \
     ON CONFLICT (id) DO NOTHING";

pub(crate) const HAS_PROJECT: &str = "SELECT EXISTS (SELECT 1 FROM kb.projects WHERE id = $1)";

pub(crate) const PROJECTS: &str = "SELECT id FROM kb.projects ORDER BY id";

pub(crate) const ENSURE_AGENT: &str = "INSERT INTO kb.agents (project_id, id, created_at) \
     VALUES ($1, $2, $3) ON CONFLICT (project_id, id) DO NOTHING";

pub(crate) const PUT: &str = "INSERT INTO kb.project_mcp_servers \
     (id, project_id, name, description, transport, config, enabled, created_at, updated_at, \
     gateway, position) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
     (SELECT coalesce(max(position), 0) + 1 FROM kb.project_mcp_servers WHERE project_id = $2))";

/// Writes nothing if id, spec and `enabled` are unchanged. An id that another name uses is a
/// conflict, never a rename.
pub(crate) const REPLACE: &str = "INSERT INTO kb.project_mcp_servers AS old \
     (id, project_id, name, description, transport, config, enabled, created_at, updated_at, \
     gateway, position) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
     (SELECT coalesce(max(position), 0) + 1 FROM kb.project_mcp_servers WHERE project_id = $2)) \
     ON CONFLICT (project_id, name, coalesce(gateway, 0)) DO UPDATE SET id = excluded.id, \
     description = excluded.description, transport = excluded.transport, \
     config = excluded.config, enabled = excluded.enabled, updated_at = excluded.updated_at \
     WHERE old.id <> excluded.id OR old.config <> excluded.config OR old.enabled <> excluded.enabled";

pub(crate) const REMOVE: &str =
    "DELETE FROM kb.project_mcp_servers WHERE project_id = $1 AND id = $2";

/// Writes the spec of a registered server as it is sealed now.
pub(crate) const RESEAL: &str = "UPDATE kb.project_mcp_servers SET config = $2 WHERE id = $1";

/// The registered servers, and those of the files of the gateway `$2`.
pub(crate) const OF_PROJECT: &str = "SELECT id, name, config, enabled, created_at, updated_at \
     FROM kb.project_mcp_servers WHERE project_id = $1 AND coalesce(gateway, $2) = $2 ORDER BY created_at, position";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    ENSURE_PROJECT,
    HAS_PROJECT,
    PROJECTS,
    ENSURE_AGENT,
    PUT,
    REPLACE,
    RESEAL,
    REMOVE,
    OF_PROJECT,
];
