//! Statements over the settings of projects. Run by `store::settings`.

pub(crate) const OF_PROJECT: &str =
    "SELECT name, value FROM kb.mcp_project_settings WHERE project_id = $1 ORDER BY name";

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_project_settings AS old \
     (project_id, name, value, updated_at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (project_id, name) DO UPDATE SET value = excluded.value, \
     updated_at = excluded.updated_at WHERE old.value <> excluded.value";

pub(crate) const REMOVE: &str =
    "DELETE FROM kb.mcp_project_settings WHERE project_id = $1 AND name = $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[OF_PROJECT, PUT, REMOVE];
