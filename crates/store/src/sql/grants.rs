//! Statements over grants, their uses and groups of servers. Run by `store::grants`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_bindings \
     (project_id, id, principal_kind, principal, effect, server, item, alias, conditions, created_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// The same grant of the same principal, with any alias.
pub(crate) const FIND: &str = "SELECT id FROM kb.mcp_bindings \
     WHERE project_id = $1 AND principal_kind = $2 AND principal = $3 AND effect = $4 \
     AND server = $5 AND item = $6 AND conditions IS NOT DISTINCT FROM $7";

pub(crate) const SET_ALIAS: &str = "UPDATE kb.mcp_bindings SET alias = $3 \
     WHERE project_id = $1 AND id = $2 AND alias IS DISTINCT FROM $3";

pub(crate) const OF_PROJECT: &str = "SELECT grants.principal_kind, grants.principal, grants.server, \
     grants.item, grants.alias, grants.id, grants.effect, grants.conditions, grants.created_at, \
     uses.last_used_at \
     FROM kb.mcp_bindings AS grants LEFT JOIN kb.mcp_grant_uses AS uses \
     ON uses.project_id = grants.project_id AND uses.grant_id = grants.id \
     WHERE grants.project_id = $1 \
     ORDER BY grants.principal_kind, grants.principal, grants.server, grants.item, grants.effect, grants.id";

pub(crate) const OF_PRINCIPAL: &str = "SELECT id FROM kb.mcp_bindings \
     WHERE project_id = $1 AND principal_kind = $2 AND principal = $3";

pub(crate) const REMOVE: &str = "DELETE FROM kb.mcp_bindings \
     WHERE project_id = $1 AND principal_kind = $2 AND principal = $3";

pub(crate) const REMOVE_ONE: &str = "DELETE FROM kb.mcp_bindings WHERE project_id = $1 AND id = $2";

pub(crate) const NOTE_USE: &str = "INSERT INTO kb.mcp_grant_uses AS old \
     (project_id, grant_id, last_used_at) \
     SELECT project_id, id, CAST($3 AS BIGINT) FROM kb.mcp_bindings WHERE project_id = $1 AND id = $2 \
     ON CONFLICT (project_id, grant_id) DO UPDATE SET last_used_at = excluded.last_used_at \
     WHERE excluded.last_used_at > old.last_used_at";

pub(crate) const GROUPS: &str = "SELECT name, servers, created_at FROM kb.mcp_server_groups \
     WHERE project_id = $1 ORDER BY name";

pub(crate) const PUT_GROUP: &str = "INSERT INTO kb.mcp_server_groups \
     (project_id, name, servers, created_at) VALUES ($1, $2, $3, $4)";

pub(crate) const CHANGE_GROUP: &str = "UPDATE kb.mcp_server_groups SET servers = $3 \
     WHERE project_id = $1 AND name = $2";

pub(crate) const NAMES_GROUP: &str = "SELECT count(*) FROM kb.mcp_bindings \
     WHERE project_id = $1 AND server = $2";

pub(crate) const REMOVE_GROUP: &str = "DELETE FROM kb.mcp_server_groups \
     WHERE project_id = $1 AND name = $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT,
    FIND,
    SET_ALIAS,
    OF_PROJECT,
    OF_PRINCIPAL,
    REMOVE,
    REMOVE_ONE,
    NOTE_USE,
    GROUPS,
    PUT_GROUP,
    CHANGE_GROUP,
    NAMES_GROUP,
    REMOVE_GROUP,
];
