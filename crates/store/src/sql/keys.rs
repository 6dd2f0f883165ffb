//! Statements over keys. Run by `store::keys`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_api_keys \
     (id, project_id, agent_id, kind, digest, label, created_at, revoked_at, expires_at, role, sources, \
     limits, replaces) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

pub(crate) const LIVE: &str = "SELECT id, project_id, agent_id, kind, digest, label, created_at, revoked_at, \
     expires_at, role, sources, limits, replaces FROM kb.mcp_api_keys WHERE revoked_at IS NULL \
     ORDER BY created_at, kind, id";

pub(crate) const REVOKE: &str =
    "UPDATE kb.mcp_api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";

pub(crate) const REPLACE: &str = "UPDATE kb.mcp_api_keys \
     SET label = $2, expires_at = $3, sources = $4, limits = $5 WHERE id = $1 AND revoked_at IS NULL";

/// Does nothing for a key that was removed meanwhile.
pub(crate) const NOTE_USE: &str = "INSERT INTO kb.mcp_key_uses AS old (key_id, used_at, used_from) \
     SELECT id, CAST($2 AS BIGINT), CAST($3 AS TEXT) FROM kb.mcp_api_keys WHERE id = $1 \
     ON CONFLICT (key_id) DO UPDATE SET used_at = excluded.used_at, used_from = excluded.used_from \
     WHERE excluded.used_at > old.used_at";

pub(crate) const USES: &str = "SELECT uses.key_id, uses.used_at, uses.used_from FROM kb.mcp_key_uses AS uses \
     JOIN kb.mcp_api_keys AS keys ON keys.id = uses.key_id \
     WHERE keys.project_id = $1 AND keys.revoked_at IS NULL";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, LIVE, REVOKE, REPLACE, NOTE_USE, USES];
