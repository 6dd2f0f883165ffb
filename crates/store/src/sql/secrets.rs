//! Statements over sealed values. Run by `store::secrets`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_secrets \
     (project_id, scope, name, key_id, nonce, ciphertext, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $7) \
     ON CONFLICT (project_id, scope, name) DO UPDATE SET key_id = excluded.key_id, \
     nonce = excluded.nonce, ciphertext = excluded.ciphertext, updated_at = excluded.updated_at";

pub(crate) const ONE: &str = "SELECT key_id, nonce, ciphertext FROM kb.mcp_secrets \
     WHERE project_id = $1 AND scope = $2 AND name = $3";

pub(crate) const REMOVE: &str =
    "DELETE FROM kb.mcp_secrets WHERE project_id = $1 AND scope = $2 AND name = $3";

pub(crate) const REMOVE_SCOPE: &str =
    "DELETE FROM kb.mcp_secrets WHERE project_id = $1 AND scope = $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, ONE, REMOVE, REMOVE_SCOPE];
