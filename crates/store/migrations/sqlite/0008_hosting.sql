-- Hosted servers: what became of them, which ids they own on their host, and their volumes.
ALTER TABLE kb.agent_workspaces ADD COLUMN image_digest TEXT; -- what the image's tag stood for when it was pulled

-- Ranges of 65,536 user and group ids, one per server. Kept when the server is removed, because files
-- in its volumes belong to them.
CREATE TABLE kb.mcp_id_ranges (
    project_id TEXT NOT NULL,
    server     TEXT NOT NULL, -- its name
    first_id   INTEGER NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, server)
) STRICT;

-- Volumes lie on the disk of one gateway. They outlive their servers.
CREATE TABLE kb.mcp_volumes (
    project_id TEXT NOT NULL,
    server     TEXT NOT NULL, -- its name
    path       TEXT NOT NULL, -- inside the server
    gateway    INTEGER NOT NULL REFERENCES mcp_gateways (number),
    folder     TEXT NOT NULL, -- its name in the folder of volumes
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, server, path, gateway)
) STRICT;
