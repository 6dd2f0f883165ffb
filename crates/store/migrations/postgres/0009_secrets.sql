-- Named secrets of a project (scope ''): their version, what tells two values apart and who used them
-- last; and which master key the values of this store are encrypted with.
ALTER TABLE kb.mcp_secrets ADD COLUMN version BIGINT NOT NULL DEFAULT 1;
ALTER TABLE kb.mcp_secrets ADD COLUMN fingerprint TEXT COLLATE "C"; -- keyed with the master key
ALTER TABLE kb.mcp_secrets ADD COLUMN used_at BIGINT;
ALTER TABLE kb.mcp_secrets ADD COLUMN used_by TEXT COLLATE "C"; -- the server that was given it last

CREATE TABLE kb.mcp_master_keys (
    key_id     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    retired_at BIGINT -- NULL for the one in use
);
CREATE UNIQUE INDEX mcp_master_keys_in_use ON kb.mcp_master_keys ((retired_at IS NULL))
WHERE retired_at IS NULL;

-- Servers are started with them, so that other gateways hear of a change as of one of the servers.
CREATE TRIGGER mcp_secrets_inserted AFTER INSERT ON kb.mcp_secrets
    FOR EACH ROW WHEN (NEW.scope = '') EXECUTE FUNCTION kb.count_change('servers');
CREATE TRIGGER mcp_secrets_updated AFTER UPDATE OF ciphertext ON kb.mcp_secrets
    FOR EACH ROW WHEN (NEW.scope = '') EXECUTE FUNCTION kb.count_change('servers');
CREATE TRIGGER mcp_secrets_deleted AFTER DELETE ON kb.mcp_secrets
    FOR EACH ROW WHEN (OLD.scope = '') EXECUTE FUNCTION kb.count_change('servers');
