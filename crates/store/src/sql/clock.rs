//! Statements over the time up to which the clock was believed. Run by `store::calls`.

pub(crate) const PUT: &str = "INSERT INTO kb.mcp_clock (name, at) VALUES ('retention', $1), \
     ('retention.doubt', $2), ('retention.seen', $3) \
     ON CONFLICT (name) DO UPDATE SET at = excluded.at";

/// Earlier releases wrote no more than the first.
pub(crate) const AT: &str = "SELECT at, \
     coalesce((SELECT at FROM kb.mcp_clock WHERE name = 'retention.doubt'), 0), \
     coalesce((SELECT at FROM kb.mcp_clock WHERE name = 'retention.seen'), at) \
     FROM kb.mcp_clock WHERE name = 'retention'";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[PUT, AT];
