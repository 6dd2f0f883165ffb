//! Statements over versions of tools and what of them is approved. Run by `store::pins` and
//! `store::catalog`.

/// What is not approved in a project, of what its servers list now.
pub(crate) const UNAPPROVED: &str = "SELECT tool.server_id, tool.kind, tool.name, tool.pin, \
     tool.change FROM kb.mcp_tools AS tool \
     JOIN kb.project_mcp_servers AS server ON server.id = tool.server_id \
     WHERE server.project_id = $1 AND tool.gone_at IS NULL \
     AND tool.pin IN ('unapproved', 'refused')";

/// The versions that are listed now and not approved, with what is approved instead.
pub(crate) const CHANGES: &str = "SELECT now.server_id, now.kind, now.name, now.version, now.hash, \
     now.definition, now.change, now.renamed_from, now.findings, now.seen_at, now.state, \
     now.decided_by, now.decided_at, old.version, old.definition FROM kb.mcp_tools AS tool \
     JOIN kb.project_mcp_servers AS server ON server.id = tool.server_id \
     JOIN kb.mcp_tool_versions AS now ON now.server_id = tool.server_id AND now.kind = tool.kind \
     AND now.name = tool.name AND now.version = tool.version \
     LEFT JOIN kb.mcp_tool_versions AS old ON old.server_id = tool.server_id \
     AND old.kind = tool.kind AND old.name = tool.name AND old.hash = tool.approved_hash \
     AND old.state = 'approved' AND NOT EXISTS (SELECT 1 FROM kb.mcp_tool_versions AS later \
     WHERE later.server_id = old.server_id AND later.kind = old.kind AND later.name = old.name \
     AND later.hash = old.hash AND later.state = 'approved' AND later.version > old.version) \
     WHERE server.project_id = $1 AND tool.gone_at IS NULL \
     AND tool.pin IN ('unapproved', 'refused') ORDER BY server.position, now.kind, now.name";

/// All versions of one thing that are remembered, the newest first.
pub(crate) const VERSIONS: &str = "SELECT server_id, kind, name, version, hash, definition, change, \
     renamed_from, findings, seen_at, state, decided_by, decided_at FROM kb.mcp_tool_versions \
     WHERE server_id = $1 AND kind = $2 AND name = $3 ORDER BY version DESC";

/// The newest version with a hash.
pub(crate) const WITH_HASH: &str = "SELECT definition, state FROM kb.mcp_tool_versions \
     WHERE server_id = $1 AND kind = $2 AND name = $3 AND hash = $4 ORDER BY version DESC LIMIT 1";

/// The definition of something as it was listed last.
pub(crate) const LAST_DEFINITION: &str = "SELECT definition FROM kb.mcp_tool_versions \
     WHERE server_id = $1 AND kind = $2 AND name = $3 ORDER BY version DESC LIMIT 1";

pub(crate) const PUT_VERSION: &str = "INSERT INTO kb.mcp_tool_versions (server_id, kind, name, \
     version, hash, definition, change, renamed_from, findings, seen_at, state, decided_by, \
     decided_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
     ON CONFLICT (server_id, kind, name, version) DO UPDATE SET hash = excluded.hash, \
     definition = excluded.definition, change = excluded.change, findings = excluded.findings";

/// Deletes the old versions of an item, but not the one approved last and those refused by a person.
pub(crate) const FORGET_VERSIONS: &str = "DELETE FROM kb.mcp_tool_versions \
     WHERE server_id = $1 AND kind = $2 AND name = $3 AND version <= $4 AND hash <> $5 \
     AND NOT (state = 'refused' AND decided_by <> 'policy')";

pub(crate) const NOTE_RENAME: &str = "UPDATE kb.mcp_tool_versions SET renamed_from = $5 \
     WHERE server_id = $1 AND kind = $2 AND name = $3 AND version = $4";

/// Decides on the version that is listed now.
pub(crate) const DECIDE: &str = "UPDATE kb.mcp_tools SET pin = $5, \
     change = CASE WHEN $5 = 'approved' THEN 'same' ELSE change END, \
     approved_hash = CASE WHEN $5 = 'approved' THEN hash ELSE approved_hash END \
     WHERE server_id = $1 AND kind = $2 AND name = $3 AND version = $4 AND gone_at IS NULL";

pub(crate) const DECIDE_VERSION: &str = "UPDATE kb.mcp_tool_versions SET state = $5, \
     decided_by = $6, decided_at = $7 \
     WHERE server_id = $1 AND kind = $2 AND name = $3 AND version = $4";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    UNAPPROVED,
    CHANGES,
    VERSIONS,
    WITH_HASH,
    LAST_DEFINITION,
    PUT_VERSION,
    FORGET_VERSIONS,
    NOTE_RENAME,
    DECIDE,
    DECIDE_VERSION,
];
