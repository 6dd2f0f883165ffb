-- Grants with an identity, an effect and conditions; groups of servers that grants name; when a grant last
-- decided a call. Until now every grant allowed, and an item of a server was granted once.

ALTER TABLE kb.mcp_bindings ADD COLUMN id TEXT COLLATE "C";
UPDATE kb.mcp_bindings SET id = 'grant_' || replace(gen_random_uuid()::text, '-', '');
ALTER TABLE kb.mcp_bindings ALTER COLUMN id SET NOT NULL;
ALTER TABLE kb.mcp_bindings DROP CONSTRAINT mcp_bindings_pkey;
ALTER TABLE kb.mcp_bindings ADD PRIMARY KEY (project_id, id);
ALTER TABLE kb.mcp_bindings ADD COLUMN effect TEXT COLLATE "C" NOT NULL DEFAULT 'allow'
    CHECK (effect IN ('allow', 'ask', 'deny'));
ALTER TABLE kb.mcp_bindings ADD COLUMN conditions TEXT COLLATE "C"; -- JSON: what must hold of the arguments

-- Written beside the grants, so that a use is no change of policy.
CREATE TABLE kb.mcp_grant_uses (
    project_id   TEXT COLLATE "C" NOT NULL,
    grant_id     TEXT COLLATE "C" NOT NULL,
    last_used_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, grant_id),
    FOREIGN KEY (project_id, grant_id) REFERENCES kb.mcp_bindings (project_id, id) ON DELETE CASCADE
);

CREATE TABLE kb.mcp_server_groups (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES kb.projects (id) ON DELETE CASCADE,
    name       TEXT COLLATE "C" NOT NULL,
    servers    JSONB NOT NULL, -- names and patterns
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, name)
);
CREATE TRIGGER mcp_server_groups_changed AFTER INSERT OR UPDATE OR DELETE ON kb.mcp_server_groups
    FOR EACH ROW EXECUTE FUNCTION kb.count_change('groups');
