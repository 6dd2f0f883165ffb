-- Grants with an identity, an effect and conditions; groups of servers that grants name; when a grant last
-- decided a call. Until now every grant allowed, and an item of a server was granted once.

CREATE TABLE kb.mcp_bindings_next (
    project_id     TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    principal_kind TEXT NOT NULL CHECK (principal_kind IN ('agent', 'api_key', 'project')),
    principal      TEXT NOT NULL, -- agent name, key id, or empty for the project
    server         TEXT NOT NULL, -- a name, a pattern, or a group behind `@`
    item           TEXT NOT NULL,
    alias          TEXT,
    created_at     INTEGER NOT NULL,
    id             TEXT NOT NULL,
    effect         TEXT NOT NULL DEFAULT 'allow' CHECK (effect IN ('allow', 'ask', 'deny')),
    conditions     TEXT, -- JSON: what must hold of the arguments
    PRIMARY KEY (project_id, id)
) STRICT;
INSERT INTO kb.mcp_bindings_next
    SELECT project_id, principal_kind, principal, server, item, alias, created_at,
        'grant_' || lower(hex(randomblob(16))), 'allow', NULL
    FROM kb.mcp_bindings;
DROP TABLE kb.mcp_bindings;
ALTER TABLE kb.mcp_bindings_next RENAME TO mcp_bindings;
CREATE TRIGGER kb.mcp_bindings_inserted AFTER INSERT ON mcp_bindings BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'grants', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_bindings_updated AFTER UPDATE ON mcp_bindings BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'grants', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_bindings_deleted AFTER DELETE ON mcp_bindings BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'grants', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;

-- Written beside the grants, so that a use is no change of policy.
CREATE TABLE kb.mcp_grant_uses (
    project_id   TEXT NOT NULL,
    grant_id     TEXT NOT NULL,
    last_used_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, grant_id),
    FOREIGN KEY (project_id, grant_id) REFERENCES mcp_bindings (project_id, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE kb.mcp_server_groups (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    servers    TEXT NOT NULL, -- JSON: names and patterns
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, name)
) STRICT;
CREATE TRIGGER kb.mcp_server_groups_inserted AFTER INSERT ON mcp_server_groups BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'groups', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_server_groups_updated AFTER UPDATE ON mcp_server_groups BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'groups', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_server_groups_deleted AFTER DELETE ON mcp_server_groups BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'groups', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
