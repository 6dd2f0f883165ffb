//! Statements over the hash chain of the audit. Run by `store::chain` and by the `import` of each database.

pub(crate) const HEAD: &str =
    "SELECT gateway, number, hash, signature FROM kb.mcp_audit_heads WHERE gateway = $1";

pub(crate) const HEADS: &str =
    "SELECT gateway, number, hash, signature FROM kb.mcp_audit_heads ORDER BY gateway";

pub(crate) const PUT_BLOCK: &str = "INSERT INTO kb.mcp_audit_blocks \
     (gateway, number, previous, at, kind, note, count, live, entries, entries_hash, removed, key_id, \
     hash, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";

pub(crate) const PUT_HEAD: &str = "INSERT INTO kb.mcp_audit_heads (gateway, number, hash, signature) \
     VALUES ($1, $2, $3, $4) ON CONFLICT (gateway) \
     DO UPDATE SET number = excluded.number, hash = excluded.hash, signature = excluded.signature";

/// Notes from which block on a chain covers acts.
pub(crate) const PUT_ACTS_SINCE: &str =
    "UPDATE kb.mcp_audit_heads SET acts_since = $2 WHERE gateway = $1";

pub(crate) const ACTS_SINCE: &str = "SELECT gateway, acts_since FROM kb.mcp_audit_heads WHERE acts_since IS NOT NULL ORDER BY gateway";

pub(crate) const PUT_KEY: &str = "INSERT INTO kb.mcp_audit_keys (id, gateway, public) \
     VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";

pub(crate) const KEYS: &str =
    "SELECT id, gateway, public FROM kb.mcp_audit_keys ORDER BY gateway, id";

/// What is wrong in the tables of the audit and their indexes, at most a hundred things per table.
pub(crate) const DAMAGED_SQLITE: &str = "SELECT integrity_check \
     FROM pragma_integrity_check('mcp_tool_call_log', 'kb') WHERE integrity_check <> 'ok' \
     UNION ALL SELECT integrity_check \
     FROM pragma_integrity_check('mcp_admin_log', 'kb') WHERE integrity_check <> 'ok' \
     UNION ALL SELECT integrity_check \
     FROM pragma_integrity_check('mcp_audit_blocks', 'kb') WHERE integrity_check <> 'ok' \
     UNION ALL SELECT integrity_check \
     FROM pragma_integrity_check('mcp_audit_heads', 'kb') WHERE integrity_check <> 'ok' \
     UNION ALL SELECT integrity_check \
     FROM pragma_integrity_check('mcp_audit_keys', 'kb') WHERE integrity_check <> 'ok' \
     UNION ALL SELECT integrity_check \
     FROM pragma_integrity_check('mcp_audit_holds', 'kb') WHERE integrity_check <> 'ok'";

/// The gateways that are known, and those that something is left of.
pub(crate) const GATEWAYS: &str = "SELECT number FROM kb.mcp_gateways \
     UNION SELECT gateway FROM kb.mcp_audit_heads UNION SELECT gateway FROM kb.mcp_audit_keys \
     UNION SELECT gateway FROM kb.mcp_audit_blocks ORDER BY 1";

pub(crate) const BLOCKS_FROM: &str = "SELECT gateway, number, previous, at, kind, note, count, entries, \
     entries_hash, removed, key_id, hash, signature, live FROM kb.mcp_audit_blocks \
     WHERE gateway = $1 AND number >= $2 ORDER BY number LIMIT $3";

pub(crate) const ENTRIES: &str =
    "SELECT entries, live FROM kb.mcp_audit_blocks WHERE gateway = $1 AND number = $2";

pub(crate) const PUT_ENTRIES: &str = "UPDATE kb.mcp_audit_blocks SET entries = $3, live = $4 \
     WHERE gateway = $1 AND number = $2";

/// The next blocks of a gateway, without what is only verified.
pub(crate) const EXPORTED: &str = "SELECT number, at, kind, count, hash, entries \
     FROM kb.mcp_audit_blocks WHERE gateway = $1 AND number > $2 ORDER BY number LIMIT $3";

/// How many rows the blocks after a number cover.
pub(crate) const ROWS_AFTER: &str = "SELECT CAST(coalesce(sum(count), 0) AS BIGINT) \
     FROM kb.mcp_audit_blocks WHERE gateway = $1 AND number > $2 AND kind = 'import'";

pub(crate) const HASH: &str =
    "SELECT hash FROM kb.mcp_audit_blocks WHERE gateway = $1 AND number = $2";

/// Appended to `calls::SELECT`.
pub(crate) const AFTER: &str = " WHERE id > $1 ORDER BY id LIMIT $2";

/// The running calls of earlier starts of a gateway; appended to `calls::SELECT`.
pub(crate) const LEFT_RUNNING: &str =
    " WHERE status = 'running' AND gateway = $1 AND boot < $2 ORDER BY id LIMIT $3";

pub(crate) const NEWEST: &str = "SELECT id FROM kb.mcp_tool_call_log ORDER BY id DESC LIMIT 1";

/// Rows that another gateway has changed meanwhile are left for the next run.
pub(crate) const DROP: &str = "DELETE FROM kb.mcp_tool_call_log \
     WHERE status <> 'running' AND chain_block IS NOT DISTINCT FROM $1";

/// Erases the parts of a call that may be personal data. What remains can be counted: when, by
/// which agent, which tool, how it ended.
pub(crate) const ERASE: &str = "UPDATE kb.mcp_tool_call_log SET user_id = NULL, user_source = NULL, \
     session_id = NULL, run_id = NULL, step = NULL, trace_id = NULL, parent_id = NULL, error = NULL, \
     input = NULL, output = NULL, user_trusted = $2, chain_block = $3, gateway = $4, boot = $5 \
     WHERE status <> 'running' AND chain_block IS NOT DISTINCT FROM $1";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    HEAD,
    HEADS,
    PUT_BLOCK,
    PUT_HEAD,
    PUT_ACTS_SINCE,
    ACTS_SINCE,
    PUT_KEY,
    KEYS,
    GATEWAYS,
    BLOCKS_FROM,
    ENTRIES,
    PUT_ENTRIES,
    EXPORTED,
    ROWS_AFTER,
    HASH,
    NEWEST,
    DROP,
    ERASE,
];
