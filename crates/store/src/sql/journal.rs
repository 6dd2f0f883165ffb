//! Statements over the journal's chain and its damage. Run by `store::journal`.

pub(crate) const STATE: &str = "SELECT segment, byte_offset, identity, run_segment, run_calls \
     FROM kb.mcp_journal_position WHERE gateway = $1";

/// Keeps the position, which importing alone moves.
pub(crate) const BEGIN_RUN: &str = "INSERT INTO kb.mcp_journal_position \
     (gateway, boot, segment, byte_offset, identity, run_segment, run_calls) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (gateway) \
     DO UPDATE SET boot = excluded.boot, identity = excluded.identity, \
     run_segment = excluded.run_segment, run_calls = excluded.run_calls";

pub(crate) const END_RUN: &str = "UPDATE kb.mcp_journal_position \
     SET segment = $3, byte_offset = $4, run_segment = NULL WHERE gateway = $1 AND boot <= $2";

/// What was found before is not found again.
pub(crate) const PUT_DAMAGE: &str = "INSERT INTO kb.mcp_journal_damage \
     (gateway, segment, kind, at, calls, file) VALUES ($1, $2, $3, $4, $5, $6) \
     ON CONFLICT (gateway, segment, kind) DO NOTHING";

pub(crate) const OPEN_DAMAGE: &str = "SELECT segment, kind, at, calls, file \
     FROM kb.mcp_journal_damage WHERE gateway = $1 AND acknowledged_at IS NULL \
     ORDER BY at, segment, kind";

pub(crate) const ACKNOWLEDGE: &str = "UPDATE kb.mcp_journal_damage \
     SET acknowledged_at = $2, acknowledged_by = $3 \
     WHERE gateway = $1 AND acknowledged_at IS NULL";

pub(crate) const ROWS_BETWEEN: &str = "SELECT count(*) FROM kb.mcp_tool_call_log \
     WHERE gateway = $1 AND seq >= $2 AND seq < $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    STATE,
    BEGIN_RUN,
    END_RUN,
    PUT_DAMAGE,
    OPEN_DAMAGE,
    ACKNOWLEDGE,
    ROWS_BETWEEN,
];
