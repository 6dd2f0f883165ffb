//! Statements over grants. Run by `store::grants`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_bindings AS old \
     (project_id, principal_kind, principal, server, item, alias, created_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) \
     ON CONFLICT (project_id, principal_kind, principal, server, item) \
     DO UPDATE SET alias = excluded.alias WHERE old.alias IS DISTINCT FROM excluded.alias";

pub(crate) const OF_PROJECT: &str = "SELECT principal_kind, principal, server, item, alias \
     FROM kb.mcp_bindings WHERE project_id = $1 \
     ORDER BY principal_kind, principal, server, item";

pub(crate) const REMOVE: &str = "DELETE FROM kb.mcp_bindings \
     WHERE project_id = $1 AND principal_kind = $2 AND principal = $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, OF_PROJECT, REMOVE];
