-- Pins: each version of a tool, prompt or template that a server listed, and which of them is approved.

-- What of the catalog is approved: 'unpinned' until the first list after this migration.
ALTER TABLE kb.mcp_tools ADD COLUMN pin TEXT NOT NULL DEFAULT 'unpinned'
    CHECK (pin IN ('unpinned', 'approved', 'unapproved', 'refused'));
ALTER TABLE kb.mcp_tools ADD COLUMN change TEXT NOT NULL DEFAULT 'first'; -- how it differs from what is approved
ALTER TABLE kb.mcp_tools ADD COLUMN approved_hash TEXT; -- NULL: no version was ever approved

CREATE TABLE kb.mcp_tool_versions (
    server_id    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    hash         TEXT NOT NULL,
    definition   TEXT NOT NULL, -- the wire's JSON in canonical form, without secrets
    change       TEXT NOT NULL, -- how it differed from what was approved then
    renamed_from TEXT,          -- a guess
    findings     TEXT NOT NULL, -- JSON: what in its texts a person should look at
    seen_at      INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('approved', 'unapproved', 'refused')),
    decided_by   TEXT,          -- NULL until decided; 'policy' if the project's settings did
    decided_at   INTEGER,
    PRIMARY KEY (server_id, kind, name, version),
    FOREIGN KEY (server_id, kind, name) REFERENCES mcp_tools (server_id, kind, name)
        ON DELETE CASCADE ON UPDATE CASCADE
) STRICT;

-- What is approved is counted for the server's project, so that other gateways read it again.
CREATE TRIGGER kb.mcp_tools_pin_inserted AFTER INSERT ON mcp_tools BEGIN
    INSERT INTO mcp_revisions SELECT project_id, 'pins', 1 FROM project_mcp_servers WHERE id = NEW.server_id
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_tools_pin_updated AFTER UPDATE OF pin, hash, change, gone_at ON mcp_tools BEGIN
    INSERT INTO mcp_revisions SELECT project_id, 'pins', 1 FROM project_mcp_servers WHERE id = NEW.server_id
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
