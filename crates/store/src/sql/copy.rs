//! Statements that copy a store into another. Run by `copy`. What is read from a catalog is read from
//! PostgreSQL's.

/// Table, column, type, and whether the database counts it up.
pub(crate) const COLUMNS: &str = "SELECT CAST(c.table_name AS TEXT), CAST(c.column_name AS TEXT), \
     CAST(c.udt_name AS TEXT), CAST(c.is_identity AS TEXT) FROM information_schema.columns AS c \
     JOIN information_schema.tables AS t USING (table_schema, table_name) \
     WHERE c.table_schema = 'kb' AND t.table_type = 'BASE TABLE' \
     AND c.table_name <> '_sqlx_migrations' ORDER BY c.table_name, c.ordinal_position";

/// The columns of primary keys, in the order of the keys.
pub(crate) const KEYS: &str = "SELECT CAST(k.table_name AS TEXT), CAST(k.column_name AS TEXT) \
     FROM information_schema.key_column_usage AS k \
     JOIN information_schema.table_constraints AS t \
     USING (constraint_schema, constraint_name, table_name) \
     WHERE k.table_schema = 'kb' AND t.constraint_type = 'PRIMARY KEY' \
     ORDER BY k.table_name, k.ordinal_position";

/// Which table refers to which.
pub(crate) const REFERENCES: &str = "SELECT CAST(a.relname AS TEXT), CAST(b.relname AS TEXT) \
     FROM pg_constraint AS f JOIN pg_class AS a ON a.oid = f.conrelid \
     JOIN pg_class AS b ON b.oid = f.confrelid JOIN pg_namespace AS n ON n.oid = a.relnamespace \
     WHERE f.contype = 'f' AND n.nspname = 'kb'";

/// Gateways that run, or ended without a word.
pub(crate) const RUNNING: &str =
    "SELECT count(*) FROM kb.mcp_gateways WHERE stopped_at IS NULL AND id IS NOT NULL";

/// What the triggers have counted while the other tables were written.
pub(crate) const FORGET_REVISIONS: &str = "DELETE FROM kb.mcp_revisions";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[RUNNING, FORGET_REVISIONS];
