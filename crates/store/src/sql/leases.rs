//! Statements over leases. Run by `store::leases`.

/// Takes every registered server of a project that is free, that an earlier start of this gateway
/// held, or whose lease expired before `$5`. The generation increases by one, also with the same holder. A
/// server whose name is used by a file of this gateway is left to the others.
pub(crate) const TAKE: &str = "INSERT INTO kb.mcp_server_leases AS old \
     (project_id, server_id, gateway, boot, generation, until_at) \
     SELECT project_id, id, $2, $3, 1, $4 FROM kb.project_mcp_servers AS server \
     WHERE project_id = $1 AND gateway IS NULL AND enabled AND NOT EXISTS \
     (SELECT 1 FROM kb.project_mcp_servers AS own \
     WHERE own.project_id = $1 AND own.name = server.name AND own.gateway = $2) \
     ON CONFLICT (project_id, server_id) DO UPDATE SET gateway = excluded.gateway, \
     boot = excluded.boot, generation = old.generation + 1, until_at = excluded.until_at \
     WHERE old.gateway IS NULL OR (old.gateway = excluded.gateway AND old.boot <> excluded.boot) \
     OR (old.gateway <> excluded.gateway AND old.until_at <= $5)";

pub(crate) const OF_PROJECT: &str = "SELECT lease.server_id, gateway.id, lease.generation, \
     lease.until_at FROM kb.mcp_server_leases AS lease \
     LEFT JOIN kb.mcp_gateways AS gateway ON gateway.number = lease.gateway \
     WHERE lease.project_id = $1 ORDER BY lease.server_id";

pub(crate) const RENEW: &str =
    "UPDATE kb.mcp_server_leases SET until_at = $3 WHERE gateway = $1 AND boot = $2";

/// Keeps the row and with it the generation.
pub(crate) const RELEASE: &str = "UPDATE kb.mcp_server_leases SET gateway = NULL, until_at = 0 \
     WHERE project_id = $1 AND gateway = $2 AND boot = $3";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[TAKE, OF_PROJECT, RENEW, RELEASE];
