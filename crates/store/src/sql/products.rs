//! Statements over products. Run by `store::products`.

pub(crate) const OF_PROJECT: &str = "SELECT id, name, version, manifest, hash, created_at, updated_at \
     FROM kb.products WHERE project_id = $1 ORDER BY name";

pub(crate) const PUT: &str = "INSERT INTO kb.products \
     (id, project_id, name, version, manifest, hash, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO UPDATE SET \
     version = excluded.version, manifest = excluded.manifest, hash = excluded.hash, \
     updated_at = excluded.updated_at";

/// Its servers go with it.
pub(crate) const REMOVE: &str = "DELETE FROM kb.products WHERE project_id = $1 AND id = $2";

pub(crate) const SERVERS: &str = "SELECT id, product_id FROM kb.project_mcp_servers \
     WHERE project_id = $1 AND product_id IS NOT NULL";

/// The product of a registered server of that name, if there is such a server.
pub(crate) const OWNER: &str = "SELECT coalesce(product_id, '') FROM kb.project_mcp_servers \
     WHERE project_id = $1 AND name = $2 AND gateway IS NULL";

pub(crate) const SET_PRODUCT: &str =
    "UPDATE kb.project_mcp_servers SET product_id = $3 WHERE project_id = $1 AND id = $2";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[OF_PROJECT, PUT, REMOVE, SERVERS, OWNER, SET_PRODUCT];
