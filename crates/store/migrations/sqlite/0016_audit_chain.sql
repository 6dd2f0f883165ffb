-- Which block of the chain covers a row; NULL in rows of earlier releases.
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN chain_block INTEGER;

-- The hash chain of each gateway over the rows that it wrote.
CREATE TABLE kb.mcp_audit_blocks (
    gateway      INTEGER NOT NULL REFERENCES mcp_gateways (number),
    number       INTEGER NOT NULL,
    previous     BLOB NOT NULL,    -- the hash of the block before
    at           INTEGER NOT NULL,
    kind         TEXT NOT NULL,    -- 'begin', 'import', 'retention', 'erasure'
    note         TEXT NOT NULL,
    count        INTEGER NOT NULL, -- how many rows it covers
    live         INTEGER NOT NULL, -- how many of them are still there; a hint, not covered by the hash
    entries      BLOB NOT NULL,    -- id, digest and salt of each; empty once none is there
    entries_hash BLOB NOT NULL,
    removed      BLOB NOT NULL,    -- entries of earlier blocks whose rows are gone
    key_id       TEXT NOT NULL,
    hash         BLOB NOT NULL,
    signature    BLOB NOT NULL,
    PRIMARY KEY (gateway, number)
) STRICT;

-- The end of each chain, signed apart from its block.
CREATE TABLE kb.mcp_audit_heads (
    gateway   INTEGER NOT NULL PRIMARY KEY REFERENCES mcp_gateways (number),
    number    INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    signature BLOB NOT NULL
) STRICT;

-- The public keys that blocks are signed with.
CREATE TABLE kb.mcp_audit_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    gateway    INTEGER NOT NULL REFERENCES mcp_gateways (number),
    public     BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- What is kept whatever its age, and not erased.
CREATE TABLE kb.mcp_audit_holds (
    id          TEXT NOT NULL PRIMARY KEY,
    project_id  TEXT NOT NULL,
    agent_id    TEXT,
    user_id     TEXT,
    server_name TEXT,
    since_at    INTEGER,
    until_at    INTEGER,
    reason      TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    released_at INTEGER,
    released_by TEXT
) STRICT;
CREATE INDEX kb.mcp_audit_holds_project ON mcp_audit_holds (project_id);
