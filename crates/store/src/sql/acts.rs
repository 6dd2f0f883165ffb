//! Statements over administrative acts. Run by `store::acts`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_admin_log \
     (at, ended_at, key_id, actor, address, via, act, target, detail, old_value, new_value, outcome, \
     code, repeats, project_id, gateway, chain_block) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING id";

/// Changes an act in the state that a block of this gateway covers.
pub(crate) const CHANGE: &str = "UPDATE kb.mcp_admin_log SET ended_at = $2, outcome = $3, code = $4, \
     target = $5, new_value = $6, repeats = $7, chain_block = $8 \
     WHERE id = $1 AND gateway = $9 AND chain_block = $10";

/// The refused attempts of a project, without the newest `$1`.
pub(crate) const SURPLUS_REFUSED: &str = "SELECT id, gateway, chain_block FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome = 'refused' AND id <= (SELECT id FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome = 'refused' \
     ORDER BY id DESC LIMIT 1 OFFSET $1) ORDER BY id LIMIT $3";

/// Everything else of a project, without the newest `$1`.
pub(crate) const SURPLUS_OTHERS: &str = "SELECT id, gateway, chain_block FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome <> 'refused' AND id <= (SELECT id FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome <> 'refused' \
     ORDER BY id DESC LIMIT 1 OFFSET $1) ORDER BY id LIMIT $3";

/// An act that another gateway has changed meanwhile is left for the next time.
pub(crate) const DROP: &str =
    "DELETE FROM kb.mcp_admin_log WHERE id = $1 AND chain_block IS NOT DISTINCT FROM $2";

pub(crate) const SELECT: &str = "SELECT id, at, ended_at, key_id, actor, address, via, act, target, \
     detail, old_value, new_value, outcome, code, repeats, project_id, gateway, chain_block \
     FROM kb.mcp_admin_log";

/// Appended to `SELECT`.
pub(crate) const AFTER: &str = " WHERE id > $1 ORDER BY id LIMIT $2";

pub(crate) const COUNT: &str = "SELECT count(*) FROM kb.mcp_admin_log WHERE project_id = $1";

pub(crate) const NEWEST: &str = "SELECT coalesce(max(id), 0) FROM kb.mcp_admin_log";

/// The acts that were done on a gateway, after a number.
pub(crate) const OWN: &str = "SELECT id, outcome FROM kb.mcp_admin_log \
     WHERE id > $2 AND gateway = $1 ORDER BY id LIMIT $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT,
    CHANGE,
    SURPLUS_REFUSED,
    SURPLUS_OTHERS,
    DROP,
    SELECT,
    COUNT,
    NEWEST,
    OWN,
];
