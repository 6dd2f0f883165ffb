//! Statements over agents. Run by `store::agents`.

pub(crate) const PUT: &str = "INSERT INTO kb.agents \
     (project_id, id, description, created_at, tools, trusted_user_ids, limits) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";

pub(crate) const REPLACE: &str = "UPDATE kb.agents SET description = $3, tools = $4, trusted_user_ids = $5, \
     limits = $6 WHERE project_id = $1 AND id = $2";

pub(crate) const OF_PROJECT: &str = "SELECT id, description, created_at, tools, trusted_user_ids, limits \
     FROM kb.agents WHERE project_id = $1 ORDER BY id";

/// The keys of the agent are deleted with it.
pub(crate) const REMOVE: &str = "DELETE FROM kb.agents WHERE project_id = $1 AND id = $2";

/// Grants to single keys, before their keys are deleted.
pub(crate) const REMOVE_KEY_GRANTS: &str = "DELETE FROM kb.mcp_bindings \
     WHERE project_id = $1 AND principal_kind = 'api_key' AND principal IN \
     (SELECT id FROM kb.mcp_api_keys WHERE project_id = $1 AND agent_id = $2)";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, REPLACE, OF_PROJECT, REMOVE, REMOVE_KEY_GRANTS];
