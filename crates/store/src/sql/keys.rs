//! Statements over keys. Run by `store::keys`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_api_keys \
     (id, project_id, agent_id, kind, digest, label, created_at, revoked_at, expires_at, role) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

pub(crate) const LIVE: &str = "SELECT id, project_id, agent_id, kind, digest, label, created_at, revoked_at, \
     expires_at, role FROM kb.mcp_api_keys WHERE revoked_at IS NULL ORDER BY created_at, kind, id";

pub(crate) const REVOKE: &str =
    "UPDATE kb.mcp_api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, LIVE, REVOKE];
