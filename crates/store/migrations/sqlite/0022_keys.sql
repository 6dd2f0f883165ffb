-- Where keys may be used from, what keys and agents may use, which key replaces which, and last uses.
ALTER TABLE kb.mcp_api_keys ADD COLUMN sources TEXT NOT NULL DEFAULT '[]'; -- JSON: ranges of addresses; none: from everywhere
ALTER TABLE kb.mcp_api_keys ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'; -- JSON
ALTER TABLE kb.mcp_api_keys ADD COLUMN replaces TEXT; -- the key that was rotated
ALTER TABLE kb.agents ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'; -- JSON

-- A table of its own: a use is no change that other gateways must hear of.
CREATE TABLE kb.mcp_key_uses (
    key_id    TEXT NOT NULL PRIMARY KEY REFERENCES mcp_api_keys (id) ON DELETE CASCADE,
    used_at   INTEGER NOT NULL,
    used_from TEXT -- an address
) STRICT;
