-- Administration of projects: roles, settings, suspensions, registrations that wait for a second person,
-- products that are pinned by the hash of their manifest.

-- What an administrator's key may do; NULL for agents. Until now every administrator managed everything:
-- those of the folder's own project still do.
ALTER TABLE kb.mcp_api_keys ADD COLUMN role TEXT
    CHECK (role IN ('installation', 'admin', 'operator', 'approver', 'auditor'));
UPDATE kb.mcp_api_keys SET role = CASE
    WHEN project_id = 'local' OR (SELECT count(*) FROM kb.projects) = 1 THEN 'installation' ELSE 'admin' END
WHERE kind = 'admin';

ALTER TABLE kb.projects ADD COLUMN loaded INTEGER NOT NULL DEFAULT 1; -- 0: none of its servers runs
ALTER TABLE kb.products ADD COLUMN hash TEXT NOT NULL DEFAULT ''; -- SHA-256 of the manifest as it was given

CREATE TABLE kb.mcp_project_settings (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    value      TEXT NOT NULL, -- JSON
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, name)
) STRICT;

CREATE TABLE kb.mcp_suspensions (
    project_id   TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    kind         TEXT NOT NULL CHECK (kind IN ('project', 'agent', 'server', 'tool')),
    name         TEXT NOT NULL, -- `server:tool` for a tool, empty for the project
    reason       TEXT NOT NULL,
    suspended_by TEXT NOT NULL,
    suspended_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, kind, name)
) STRICT;

CREATE TABLE kb.mcp_registrations (
    id         TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    act        TEXT NOT NULL, -- such as `server.register`
    target     TEXT NOT NULL,
    request    TEXT NOT NULL, -- what is done once it is approved, sealed
    shown      TEXT NOT NULL, -- JSON: the same without its secrets
    reasons    TEXT NOT NULL, -- JSON: why a second person is asked
    asked_key  TEXT NOT NULL,
    asked_by   TEXT NOT NULL,
    asked_at   INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'refused')),
    decided_by TEXT,
    decided_at INTEGER
) STRICT;
CREATE INDEX kb.mcp_registrations_project ON mcp_registrations (project_id, state, id);

CREATE TRIGGER kb.mcp_project_settings_inserted AFTER INSERT ON mcp_project_settings BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'settings', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_project_settings_updated AFTER UPDATE ON mcp_project_settings BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'settings', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_project_settings_deleted AFTER DELETE ON mcp_project_settings BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'settings', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_suspensions_inserted AFTER INSERT ON mcp_suspensions BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'suspensions', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_suspensions_updated AFTER UPDATE ON mcp_suspensions BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'suspensions', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_suspensions_deleted AFTER DELETE ON mcp_suspensions BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'suspensions', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
-- Which projects there are, and which are loaded, is the installation's: its revision has no project.
CREATE TRIGGER kb.projects_inserted AFTER INSERT ON projects BEGIN
    INSERT INTO mcp_revisions VALUES ('', 'projects', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.projects_updated AFTER UPDATE ON projects BEGIN
    INSERT INTO mcp_revisions VALUES ('', 'projects', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.projects_deleted AFTER DELETE ON projects BEGIN
    INSERT INTO mcp_revisions VALUES ('', 'projects', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
