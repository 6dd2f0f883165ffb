//! Statements over remembered catalogs. Run by `store::catalog`.

pub(crate) const PUT_HEAD: &str = "INSERT INTO kb.mcp_catalogs AS old \
     (server_id, spec_fingerprint, hello, saved_at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (server_id) DO UPDATE SET spec_fingerprint = excluded.spec_fingerprint, \
     hello = excluded.hello, saved_at = excluded.saved_at \
     WHERE old.spec_fingerprint <> excluded.spec_fingerprint OR old.hello <> excluded.hello";

pub(crate) const HEAD: &str =
    "SELECT spec_fingerprint, hello FROM kb.mcp_catalogs WHERE server_id = $1";

/// Everything about a server's items except their definitions, including removed ones.
pub(crate) const KNOWN: &str = "SELECT kind, name, position, hash, version, gone_at, pin, change, approved_hash \
     FROM kb.mcp_tools WHERE server_id = $1";

/// One definition as it was last listed.
pub(crate) const DEFINITION: &str =
    "SELECT definition FROM kb.mcp_tools WHERE server_id = $1 AND kind = $2 AND name = $3";

pub(crate) const PUT_ITEM: &str = "INSERT INTO kb.mcp_tools \
     (server_id, kind, name, position, definition, hash, version, updated_at, pin, change, \
     approved_hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
     ON CONFLICT (server_id, kind, name) DO UPDATE SET \
     position = excluded.position, definition = excluded.definition, hash = excluded.hash, \
     version = excluded.version, updated_at = excluded.updated_at, gone_at = NULL, \
     pin = excluded.pin, change = excluded.change, approved_hash = excluded.approved_hash";

pub(crate) const MARK_GONE: &str =
    "UPDATE kb.mcp_tools SET gone_at = $4 WHERE server_id = $1 AND kind = $2 AND name = $3";

/// Deletes all but the last thousand removed items, so that a server with ever new names cannot
/// fill the disk.
pub(crate) const FORGET_GONE: &str = "DELETE FROM kb.mcp_tools \
     WHERE server_id = $1 AND (kind, name) IN (SELECT kind, name FROM kb.mcp_tools \
     WHERE server_id = $1 AND gone_at IS NOT NULL \
     ORDER BY gone_at DESC, kind, name LIMIT 1000000000 OFFSET 1000)";

pub(crate) const ITEMS: &str = "SELECT kind, name, position, definition, hash, version \
     FROM kb.mcp_tools WHERE server_id = $1 AND gone_at IS NULL ORDER BY kind, position, name";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[
    PUT_HEAD,
    HEAD,
    KNOWN,
    DEFINITION,
    PUT_ITEM,
    MARK_GONE,
    FORGET_GONE,
    ITEMS,
];
