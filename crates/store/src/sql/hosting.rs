//! Statements over hosted servers: their workspaces, id ranges and volumes. Run by `store::hosting`.

/// A hosted server has one row, whatever gateway runs it. The instance is kept until the image
/// changes.
pub(crate) const PUT_WORKSPACE: &str = "INSERT INTO kb.agent_workspaces AS old \
     (id, project_id, server_id, name, container_type, status, image, stdio_bridge, port, \
     restart_policy, resource_limits, volumes, created_at, updated_at) \
     VALUES ($1, $2, $1, $3, 'mcp_server', 'registered', $4, $5, $6, $7, $8, $9, $10, $10) \
     ON CONFLICT (project_id, container_type, name) DO UPDATE SET id = excluded.id, \
     server_id = excluded.server_id, image = excluded.image, stdio_bridge = excluded.stdio_bridge, \
     port = excluded.port, restart_policy = excluded.restart_policy, \
     resource_limits = excluded.resource_limits, volumes = excluded.volumes, \
     updated_at = excluded.updated_at, \
     image_digest = CASE WHEN old.image IS NOT DISTINCT FROM excluded.image THEN old.image_digest END";

pub(crate) const REMOVE_WORKSPACE: &str = "DELETE FROM kb.agent_workspaces \
     WHERE project_id = $1 AND container_type = 'mcp_server' AND name = $2";

pub(crate) const SET_STATUS: &str = "UPDATE kb.agent_workspaces SET status = $3, updated_at = $4 \
     WHERE project_id = $1 AND container_type = 'mcp_server' AND name = $2 AND status <> $3";

pub(crate) const SET_INSTANCE: &str = "UPDATE kb.agent_workspaces SET provider = $3, \
     container_id = $4, image_digest = $5, updated_at = $6 \
     WHERE project_id = $1 AND container_type = 'mcp_server' AND name = $2";

pub(crate) const WORKSPACES: &str = "SELECT server_id, name, status, provider, image, image_digest, \
     container_id, stdio_bridge, port, restart_policy, resource_limits, volumes \
     FROM kb.agent_workspaces WHERE project_id = $1 AND container_type = 'mcp_server' ORDER BY name";

pub(crate) const ID_RANGE: &str =
    "SELECT first_id FROM kb.mcp_id_ranges WHERE project_id = $1 AND server = $2";

pub(crate) const ID_RANGES: &str = "SELECT first_id FROM kb.mcp_id_ranges ORDER BY first_id";

pub(crate) const PUT_ID_RANGE: &str = "INSERT INTO kb.mcp_id_ranges \
     (project_id, server, first_id, created_at) VALUES ($1, $2, $3, $4)";

/// A released range that is requested again returns to its server.
pub(crate) const USE_ID_RANGE: &str = "UPDATE kb.mcp_id_ranges SET released_at = NULL \
     WHERE project_id = $1 AND server = $2 AND released_at IS NOT NULL";

/// Ranges with files outside their server's place are kept when the server is removed.
pub(crate) const KEEP_ID_RANGE: &str = "UPDATE kb.mcp_id_ranges SET is_kept = TRUE \
     WHERE project_id = $1 AND server = $2 AND is_kept = FALSE";

/// Only ranges without a server, and without a volume on any gateway.
pub(crate) const RELEASE_ID_RANGE: &str = "UPDATE kb.mcp_id_ranges SET released_at = $3 \
     WHERE project_id = $1 AND server = $2 AND released_at IS NULL AND is_kept = FALSE \
     AND NOT EXISTS (SELECT 1 FROM kb.mcp_volumes \
     WHERE mcp_volumes.project_id = $1 AND mcp_volumes.server = $2) \
     AND NOT EXISTS (SELECT 1 FROM kb.project_mcp_servers \
     WHERE project_mcp_servers.project_id = $1 AND project_mcp_servers.name = $2)";

pub(crate) const RELEASED_ID_RANGE: &str = "SELECT first_id FROM kb.mcp_id_ranges \
     WHERE released_at IS NOT NULL ORDER BY released_at, first_id LIMIT 1";

pub(crate) const TAKE_ID_RANGE: &str = "UPDATE kb.mcp_id_ranges SET project_id = $1, server = $2, \
     created_at = $4, released_at = NULL WHERE first_id = $3";

pub(crate) const PUT_VOLUME: &str = "INSERT INTO kb.mcp_volumes \
     (project_id, server, path, gateway, folder, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
     ON CONFLICT (project_id, server, path, gateway) DO NOTHING";

pub(crate) const VOLUMES: &str = "SELECT server, path, folder, created_at FROM kb.mcp_volumes \
     WHERE project_id = $1 AND gateway = $2 ORDER BY server, path";

pub(crate) const REMOVE_VOLUME: &str = "DELETE FROM kb.mcp_volumes \
     WHERE project_id = $1 AND server = $2 AND path = $3 AND gateway = $4";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT_WORKSPACE,
    REMOVE_WORKSPACE,
    SET_STATUS,
    SET_INSTANCE,
    WORKSPACES,
    ID_RANGE,
    ID_RANGES,
    PUT_ID_RANGE,
    USE_ID_RANGE,
    KEEP_ID_RANGE,
    RELEASE_ID_RANGE,
    RELEASED_ID_RANGE,
    TAKE_ID_RANGE,
    PUT_VOLUME,
    VOLUMES,
    REMOVE_VOLUME,
];
