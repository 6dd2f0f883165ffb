//! Statements over leases. Run by the engine's `leases`.

/// Changes a row only for its own holder with no older generation, or when it has run out (`$6`).
pub(crate) const TAKE: &str = "INSERT INTO kb.mcp_server_leases AS old \
     (project_id, server_id, holder, generation, until_at) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (project_id, server_id) DO UPDATE SET holder = excluded.holder, \
     generation = excluded.generation, until_at = excluded.until_at \
     WHERE (old.holder = excluded.holder AND old.generation <= excluded.generation) \
     OR old.until_at <= $6";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[TAKE];
