//! Statements over legal holds. Run by `store::holds`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_audit_holds \
     (id, project_id, agent_id, user_id, server_name, since_at, until_at, reason, created_at, created_by) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

pub(crate) const RELEASE: &str = "UPDATE kb.mcp_audit_holds SET released_at = $3, released_by = $4 \
     WHERE project_id = $1 AND id = $2 AND released_at IS NULL";

pub(crate) const OF_PROJECT: &str = "SELECT id, project_id, agent_id, user_id, server_name, since_at, \
     until_at, reason, created_at, created_by, released_at, released_by FROM kb.mcp_audit_holds \
     WHERE project_id = $1 ORDER BY created_at, id";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, RELEASE, OF_PROJECT];
