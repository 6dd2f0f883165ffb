-- Where keys may be used from, what keys and agents may use, which key replaces which, and last uses.
ALTER TABLE kb.mcp_api_keys ADD COLUMN sources JSONB NOT NULL DEFAULT '[]'; -- ranges of addresses; none: from everywhere
ALTER TABLE kb.mcp_api_keys ADD COLUMN limits JSONB NOT NULL DEFAULT '{}';
ALTER TABLE kb.mcp_api_keys ADD COLUMN replaces TEXT COLLATE "C"; -- the key that was rotated
ALTER TABLE kb.agents ADD COLUMN limits JSONB NOT NULL DEFAULT '{}';

-- A table of its own: a use is no change that other gateways must hear of.
CREATE TABLE kb.mcp_key_uses (
    key_id    TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES kb.mcp_api_keys (id) ON DELETE CASCADE,
    used_at   BIGINT NOT NULL,
    used_from TEXT COLLATE "C" -- an address
);
