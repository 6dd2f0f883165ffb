-- Named secrets of a project (scope ''): their version, what tells two values apart and who used them
-- last; and which master key the values of this store are encrypted with.
ALTER TABLE kb.mcp_secrets ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE kb.mcp_secrets ADD COLUMN fingerprint TEXT; -- keyed with the master key
ALTER TABLE kb.mcp_secrets ADD COLUMN used_at INTEGER;
ALTER TABLE kb.mcp_secrets ADD COLUMN used_by TEXT; -- the server that was given it last

CREATE TABLE kb.mcp_master_keys (
    key_id     TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    retired_at INTEGER -- NULL for the one in use
) STRICT;
CREATE UNIQUE INDEX kb.mcp_master_keys_in_use ON mcp_master_keys (retired_at IS NULL)
WHERE retired_at IS NULL;

-- Servers are started with them, so that other gateways hear of a change as of one of the servers.
CREATE TRIGGER kb.mcp_secrets_inserted AFTER INSERT ON mcp_secrets WHEN NEW.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_secrets_updated AFTER UPDATE OF ciphertext ON mcp_secrets WHEN NEW.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_secrets_deleted AFTER DELETE ON mcp_secrets WHEN OLD.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
