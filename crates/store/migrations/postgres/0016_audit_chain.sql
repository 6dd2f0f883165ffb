-- Which block of the chain covers a row; NULL in rows of earlier releases.
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN chain_block BIGINT;

-- The hash chain of each gateway over the rows that it wrote.
CREATE TABLE kb.mcp_audit_blocks (
    gateway      BIGINT NOT NULL REFERENCES kb.mcp_gateways (number),
    number       BIGINT NOT NULL,
    previous     BYTEA NOT NULL,    -- the hash of the block before
    at           BIGINT NOT NULL,
    kind         TEXT COLLATE "C" NOT NULL,    -- 'begin', 'import', 'retention', 'erasure'
    note         TEXT COLLATE "C" NOT NULL,
    count        BIGINT NOT NULL, -- how many rows it covers
    live         BIGINT NOT NULL, -- how many of them are still there; a hint, not covered by the hash
    entries      BYTEA NOT NULL,    -- id, digest and salt of each; empty once none is there
    entries_hash BYTEA NOT NULL,
    removed      BYTEA NOT NULL,    -- entries of earlier blocks whose rows are gone
    key_id       TEXT COLLATE "C" NOT NULL,
    hash         BYTEA NOT NULL,
    signature    BYTEA NOT NULL,
    PRIMARY KEY (gateway, number)
);

-- The end of each chain, signed apart from its block.
CREATE TABLE kb.mcp_audit_heads (
    gateway   BIGINT NOT NULL PRIMARY KEY REFERENCES kb.mcp_gateways (number),
    number    BIGINT NOT NULL,
    hash      BYTEA NOT NULL,
    signature BYTEA NOT NULL
);

-- The public keys that blocks are signed with.
CREATE TABLE kb.mcp_audit_keys (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    gateway    BIGINT NOT NULL REFERENCES kb.mcp_gateways (number),
    public     BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- What is kept whatever its age, and not erased.
CREATE TABLE kb.mcp_audit_holds (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id  TEXT COLLATE "C" NOT NULL,
    agent_id    TEXT COLLATE "C",
    user_id     TEXT COLLATE "C",
    server_name TEXT COLLATE "C",
    since_at    BIGINT,
    until_at    BIGINT,
    reason      TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    released_at BIGINT,
    released_by TEXT COLLATE "C"
);
CREATE INDEX mcp_audit_holds_project ON kb.mcp_audit_holds (project_id);
