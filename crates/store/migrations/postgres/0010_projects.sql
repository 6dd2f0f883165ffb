-- Administration of projects: roles, settings, suspensions, registrations that wait for a second person,
-- products that are pinned by the hash of their manifest.
ALTER TABLE kb.mcp_api_keys ADD COLUMN role TEXT COLLATE "C" -- what an administrator's key may do; NULL for agents
    CHECK (role IN ('installation', 'admin', 'operator', 'approver', 'auditor'));
UPDATE kb.mcp_api_keys SET role = CASE
    WHEN project_id = 'local' OR (SELECT count(*) FROM kb.projects) = 1 THEN 'installation' ELSE 'admin' END
WHERE kind = 'admin';

ALTER TABLE kb.projects ADD COLUMN loaded BOOLEAN NOT NULL DEFAULT TRUE; -- false: none of its servers runs
ALTER TABLE kb.products ADD COLUMN hash TEXT COLLATE "C" NOT NULL DEFAULT ''; -- SHA-256 of the manifest as it was given

CREATE TABLE kb.mcp_project_settings (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES kb.projects (id) ON DELETE CASCADE,
    name       TEXT COLLATE "C" NOT NULL,
    value      JSONB NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, name)
);

CREATE TABLE kb.mcp_suspensions (
    project_id   TEXT COLLATE "C" NOT NULL REFERENCES kb.projects (id) ON DELETE CASCADE,
    kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('project', 'agent', 'server', 'tool')),
    name         TEXT COLLATE "C" NOT NULL, -- `server:tool` for a tool, empty for the project
    reason       TEXT COLLATE "C" NOT NULL,
    suspended_by TEXT COLLATE "C" NOT NULL,
    suspended_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, kind, name)
);

CREATE TABLE kb.mcp_registrations (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES kb.projects (id) ON DELETE CASCADE,
    act        TEXT COLLATE "C" NOT NULL, -- such as `server.register`
    target     TEXT COLLATE "C" NOT NULL,
    request    TEXT COLLATE "C" NOT NULL, -- what is done once it is approved, sealed
    shown      JSONB NOT NULL,            -- the same without its secrets
    reasons    JSONB NOT NULL,            -- why a second person is asked
    asked_key  TEXT COLLATE "C" NOT NULL,
    asked_by   TEXT COLLATE "C" NOT NULL,
    asked_at   BIGINT NOT NULL,
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'approved', 'refused')),
    decided_by TEXT COLLATE "C",
    decided_at BIGINT
);
CREATE INDEX mcp_registrations_project ON kb.mcp_registrations (project_id, state, id);

CREATE TRIGGER mcp_project_settings_changed AFTER INSERT OR UPDATE OR DELETE ON kb.mcp_project_settings
    FOR EACH ROW EXECUTE FUNCTION kb.count_change('settings');
CREATE TRIGGER mcp_suspensions_changed AFTER INSERT OR UPDATE OR DELETE ON kb.mcp_suspensions
    FOR EACH ROW EXECUTE FUNCTION kb.count_change('suspensions');
-- Which projects there are, and which are loaded, is the installation's: its revision has no project.
CREATE FUNCTION kb.count_project() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO kb.mcp_revisions AS known (project_id, kind, revision) VALUES ('', 'projects', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = known.revision + 1;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_changed AFTER INSERT OR UPDATE OR DELETE ON kb.projects
    FOR EACH ROW EXECUTE FUNCTION kb.count_project();
