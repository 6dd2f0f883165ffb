//! Statements over gateways and over what changed since it was read. Run by `store::gateways`.

/// A gateway takes over the rows that it wrote before gateways had ids.
pub(crate) const CLAIM: &str = "UPDATE kb.mcp_gateways SET id = $1 WHERE id IS NULL \
     AND NOT EXISTS (SELECT 1 FROM kb.mcp_gateways WHERE id = $1)";

/// A start that could not be registered has continued its number in memory: it is in the journal
/// position.
pub(crate) const REGISTER: &str = "INSERT INTO kb.mcp_gateways AS old \
     (id, folder, boot, started_at, seen_at) VALUES ($1, $2, 1, $3, $3) \
     ON CONFLICT (id) DO UPDATE SET folder = excluded.folder, \
     boot = 1 + coalesce((SELECT position.boot FROM kb.mcp_journal_position AS position \
     WHERE position.gateway = old.number AND position.boot > old.boot), old.boot), \
     started_at = excluded.started_at, seen_at = excluded.seen_at, stopped_at = NULL \
     RETURNING number, boot";

pub(crate) const KNOWN: &str = "SELECT number, boot + 1 FROM kb.mcp_gateways WHERE id = $1";

pub(crate) const SEEN: &str = "UPDATE kb.mcp_gateways SET seen_at = $2 WHERE number = $1";

pub(crate) const STOPPED: &str =
    "UPDATE kb.mcp_gateways SET stopped_at = $2 WHERE number = $1 AND boot = $3";

/// The revisions of a project, and whether another gateway was seen since `$3`.
pub(crate) const CHANGES: &str = "SELECT \
     (SELECT CAST(sum(revision) AS BIGINT) FROM kb.mcp_revisions \
     WHERE project_id = $1 AND kind IN ('keys', 'agents', 'grants', 'groups', 'settings', 'suspensions')), \
     (SELECT revision FROM kb.mcp_revisions WHERE project_id = $1 AND kind = 'servers'), \
     (SELECT revision FROM kb.mcp_revisions WHERE project_id = $1 AND kind = 'settings'), \
     (SELECT revision FROM kb.mcp_revisions WHERE project_id = $1 AND kind = 'suspensions'), \
     (SELECT CAST(sum(revision) AS BIGINT) FROM kb.mcp_revisions \
     WHERE project_id = $1 AND kind IN ('agents', 'grants', 'groups', 'settings')), \
     (SELECT revision FROM kb.mcp_revisions WHERE project_id = $1 AND kind = 'pins'), \
     EXISTS (SELECT 1 FROM kb.mcp_gateways \
     WHERE number <> $2 AND stopped_at IS NULL AND seen_at > $3)";

/// The gateway at which a call of a project runs, if it is not this one.
pub(crate) const RUNNING_AT: &str = "SELECT gateway.id FROM kb.mcp_tool_call_log AS running \
     JOIN kb.mcp_gateways AS gateway ON gateway.number = running.gateway \
     WHERE running.id = $1 AND running.project_id = $2 AND running.status = 'running' \
     AND running.gateway <> $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[CLAIM, REGISTER, KNOWN, SEEN, STOPPED, CHANGES, RUNNING_AT];
