//! Statements over administrative acts. Run by `store::acts`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_admin_log \
     (at, ended_at, key_id, actor, address, via, act, target, detail, old_value, new_value, outcome, \
     code, repeats, project_id, gateway) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING id";

/// Values that the end does not know keep those of the beginning.
pub(crate) const END: &str = "UPDATE kb.mcp_admin_log SET ended_at = $2, outcome = $3, code = $4, \
     target = coalesce($5, target), new_value = coalesce($6, new_value) WHERE id = $1";

pub(crate) const REPEAT: &str =
    "UPDATE kb.mcp_admin_log SET repeats = repeats + $2, ended_at = $3 WHERE id = $1";

/// Keeps the newest `$1` refused attempts of a project.
pub(crate) const PRUNE_REFUSED: &str = "DELETE FROM kb.mcp_admin_log WHERE project_id = $2 \
     AND outcome = 'refused' AND id <= (SELECT id FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome = 'refused' \
     ORDER BY id DESC LIMIT 1 OFFSET $1)";

/// Keeps the newest `$1` of everything else of a project.
pub(crate) const PRUNE_OTHERS: &str = "DELETE FROM kb.mcp_admin_log WHERE project_id = $2 \
     AND outcome <> 'refused' AND id <= (SELECT id FROM kb.mcp_admin_log \
     WHERE project_id = $2 AND outcome <> 'refused' \
     ORDER BY id DESC LIMIT 1 OFFSET $1)";

pub(crate) const SELECT: &str = "SELECT id, at, ended_at, key_id, actor, address, via, act, target, \
     detail, old_value, new_value, outcome, code, repeats, project_id FROM kb.mcp_admin_log";

pub(crate) const NEWEST: &str = "SELECT coalesce(max(id), 0) FROM kb.mcp_admin_log";

/// The acts that were done on a gateway, after a number.
pub(crate) const OWN: &str = "SELECT id, outcome FROM kb.mcp_admin_log \
     WHERE id > $2 AND gateway = $1 ORDER BY id LIMIT $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT,
    END,
    REPEAT,
    PRUNE_REFUSED,
    PRUNE_OTHERS,
    SELECT,
    NEWEST,
    OWN,
];
