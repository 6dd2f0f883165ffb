//! Statements over what happened to servers. Run by `store::events`.

/// `$6` is the gateway. An event of a removed server keeps the id of its earlier events.
pub(crate) const PUT: &str = "INSERT INTO kb.mcp_server_events \
     (project_id, server_name, at, kind, detail, server_id) VALUES ($1, $2, $3, $4, $5, coalesce(\
     (SELECT id FROM kb.project_mcp_servers WHERE project_id = $1 AND name = $2 \
     AND coalesce(gateway, $6) = $6 ORDER BY gateway DESC NULLS LAST LIMIT 1), \
     (SELECT server_id FROM kb.mcp_server_events WHERE project_id = $1 AND server_name = $2 \
     ORDER BY id DESC LIMIT 1)))";

/// Keeps the newest thousand events of one server.
pub(crate) const PRUNE: &str = "DELETE FROM kb.mcp_server_events \
     WHERE project_id = $1 AND server_name = $2 AND id <= (SELECT id FROM kb.mcp_server_events \
     WHERE project_id = $1 AND server_name = $2 ORDER BY id DESC LIMIT 1 OFFSET 1000)";

pub(crate) const OF_PROJECT: &str = "SELECT server_name, at, kind, detail, id \
     FROM kb.mcp_server_events WHERE project_id = $1 AND id < $3 ORDER BY id DESC LIMIT $2";

pub(crate) const OF_SERVER: &str = "SELECT server_name, at, kind, detail, id \
     FROM kb.mcp_server_events WHERE project_id = $1 AND id < $3 AND server_name = $4 \
     ORDER BY id DESC LIMIT $2";

/// The next events after one, for streams.
pub(crate) const NEXT_OF_PROJECT: &str = "SELECT server_name, at, kind, detail, id \
     FROM kb.mcp_server_events WHERE project_id = $1 AND id > $3 ORDER BY id LIMIT $2";

pub(crate) const NEXT_OF_SERVER: &str = "SELECT server_name, at, kind, detail, id \
     FROM kb.mcp_server_events WHERE project_id = $1 AND id > $3 AND server_name = $4 \
     ORDER BY id LIMIT $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT,
    PRUNE,
    OF_PROJECT,
    OF_SERVER,
    NEXT_OF_PROJECT,
    NEXT_OF_SERVER,
];
