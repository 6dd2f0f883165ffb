//! Statements over sealed values, named secrets and master keys. Run by `store::secrets`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_secrets \
     (project_id, scope, name, key_id, nonce, ciphertext, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $7) \
     ON CONFLICT (project_id, scope, name) DO UPDATE SET key_id = excluded.key_id, \
     nonce = excluded.nonce, ciphertext = excluded.ciphertext, updated_at = excluded.updated_at";

pub(crate) const ONE: &str = "SELECT key_id, nonce, ciphertext, version FROM kb.mcp_secrets \
     WHERE project_id = $1 AND scope = $2 AND name = $3";

pub(crate) const REMOVE: &str =
    "DELETE FROM kb.mcp_secrets WHERE project_id = $1 AND scope = $2 AND name = $3";

pub(crate) const REMOVE_SCOPE: &str =
    "DELETE FROM kb.mcp_secrets WHERE project_id = $1 AND scope = $2";

pub(crate) const PUT_NAMED: &str = "INSERT INTO kb.mcp_secrets AS known \
     (project_id, scope, name, key_id, nonce, ciphertext, version, fingerprint, created_at, updated_at) \
     VALUES ($1, '', $2, $3, $4, $5, $6, $7, $8, $8) \
     ON CONFLICT (project_id, scope, name) DO UPDATE SET key_id = excluded.key_id, \
     nonce = excluded.nonce, ciphertext = excluded.ciphertext, version = excluded.version, \
     fingerprint = excluded.fingerprint, updated_at = excluded.updated_at \
     WHERE known.version = $9";

pub(crate) const NAMED: &str = "SELECT name, key_id, nonce, ciphertext, version, fingerprint, \
     created_at, updated_at, used_at, used_by FROM kb.mcp_secrets \
     WHERE project_id = $1 AND scope = '' ORDER BY name";

pub(crate) const USED: &str = "UPDATE kb.mcp_secrets SET used_at = $3, used_by = $4 \
     WHERE project_id = $1 AND scope = '' AND name = $2";

pub(crate) const ALL_SEALED: &str = "SELECT project_id, scope, name, key_id, nonce, ciphertext, version \
     FROM kb.mcp_secrets ORDER BY project_id, scope, name";

pub(crate) const RESEAL: &str = "UPDATE kb.mcp_secrets SET key_id = $4, nonce = $5, ciphertext = $6, \
     fingerprint = $7 WHERE project_id = $1 AND scope = $2 AND name = $3";

pub(crate) const ANY_SEALED: &str = "SELECT EXISTS (SELECT 1 FROM kb.mcp_secrets) \
     OR EXISTS (SELECT 1 FROM kb.project_mcp_servers WHERE CAST(config AS TEXT) LIKE '%gantry-sealed-%')";

pub(crate) const MASTER_KEY: &str =
    "SELECT key_id FROM kb.mcp_master_keys WHERE retired_at IS NULL";

pub(crate) const PUT_MASTER_KEY: &str = "INSERT INTO kb.mcp_master_keys (key_id, created_at, retired_at) \
     VALUES ($1, $2, NULL) ON CONFLICT DO NOTHING";

pub(crate) const RETIRE_MASTER_KEYS: &str =
    "UPDATE kb.mcp_master_keys SET retired_at = $1 WHERE retired_at IS NULL";

/// Also records a key that was in use before.
pub(crate) const USE_MASTER_KEY: &str = "INSERT INTO kb.mcp_master_keys (key_id, created_at, retired_at) \
     VALUES ($1, $2, NULL) ON CONFLICT (key_id) DO UPDATE SET retired_at = NULL";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT,
    ONE,
    REMOVE,
    REMOVE_SCOPE,
    PUT_NAMED,
    NAMED,
    USED,
    ALL_SEALED,
    RESEAL,
    ANY_SEALED,
    MASTER_KEY,
    PUT_MASTER_KEY,
    RETIRE_MASTER_KEYS,
    USE_MASTER_KEY,
];
