-- Pins: each version of a tool, prompt or template that a server listed, and which of them is approved.

-- What of the catalog is approved: 'unpinned' until the first list after this migration.
ALTER TABLE kb.mcp_tools ADD COLUMN pin TEXT COLLATE "C" NOT NULL DEFAULT 'unpinned'
    CHECK (pin IN ('unpinned', 'approved', 'unapproved', 'refused'));
ALTER TABLE kb.mcp_tools ADD COLUMN change TEXT COLLATE "C" NOT NULL DEFAULT 'first'; -- how it differs from what is approved
ALTER TABLE kb.mcp_tools ADD COLUMN approved_hash TEXT COLLATE "C"; -- NULL: no version was ever approved

CREATE TABLE kb.mcp_tool_versions (
    server_id    TEXT COLLATE "C" NOT NULL,
    kind         TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    hash         TEXT COLLATE "C" NOT NULL,
    definition   TEXT COLLATE "C" NOT NULL, -- the wire's JSON in canonical form, without secrets
    change       TEXT COLLATE "C" NOT NULL, -- how it differed from what was approved then
    renamed_from TEXT COLLATE "C",          -- a guess
    findings     JSONB NOT NULL,            -- what in its texts a person should look at
    seen_at      BIGINT NOT NULL,
    state        TEXT COLLATE "C" NOT NULL CHECK (state IN ('approved', 'unapproved', 'refused')),
    decided_by   TEXT COLLATE "C",          -- NULL until decided; 'policy' if the project's settings did
    decided_at   BIGINT,
    PRIMARY KEY (server_id, kind, name, version),
    FOREIGN KEY (server_id, kind, name) REFERENCES kb.mcp_tools (server_id, kind, name)
        ON DELETE CASCADE ON UPDATE CASCADE
);

-- What is approved is counted for the server's project, so that other gateways read it again.
CREATE FUNCTION kb.count_pin() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO kb.mcp_revisions AS known (project_id, kind, revision)
    SELECT project_id, 'pins', 1 FROM kb.project_mcp_servers WHERE id = NEW.server_id
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = known.revision + 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER mcp_tools_pinned AFTER INSERT OR UPDATE OF pin, hash, change, gone_at ON kb.mcp_tools
    FOR EACH ROW EXECUTE FUNCTION kb.count_pin();
