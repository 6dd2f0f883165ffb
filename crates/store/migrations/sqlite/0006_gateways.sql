-- Several gateways on one store: which gateway wrote a row, which one runs a server, and what changed
-- since somebody read it. Foreign keys are off while this runs, because tables that others refer to
-- are rebuilt.
CREATE TABLE kb.mcp_gateways (
    number     INTEGER NOT NULL PRIMARY KEY, -- stands for the id in rows that there are many of
    id         TEXT UNIQUE,                  -- NULL until the gateway that wrote the older rows takes it
    folder     TEXT NOT NULL,                -- its data folder
    boot       INTEGER NOT NULL,             -- counts its starts
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    stopped_at INTEGER                       -- NULL while it runs, and after a crash
) STRICT;
INSERT INTO kb.mcp_gateways (number, id, folder, boot, started_at, seen_at, stopped_at)
SELECT 1, NULL, '', 0, 0, 0, 0
WHERE EXISTS (SELECT 1 FROM kb.mcp_journal_position) OR EXISTS (SELECT 1 FROM kb.projects);

-- One journal per gateway.
CREATE TABLE kb.mcp_journal_position_new (
    gateway     INTEGER NOT NULL PRIMARY KEY REFERENCES mcp_gateways (number),
    boot        INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    byte_offset INTEGER NOT NULL,
    identity    INTEGER, -- random, in every segment's header
    run_segment INTEGER, -- NULL after a clean stop
    run_calls   INTEGER  -- calls recorded before that run
) STRICT;
INSERT INTO kb.mcp_journal_position_new
SELECT 1, 0, segment, byte_offset, identity, run_segment, run_calls FROM kb.mcp_journal_position;
DROP TABLE kb.mcp_journal_position;
ALTER TABLE kb.mcp_journal_position_new RENAME TO mcp_journal_position;

CREATE TABLE kb.mcp_journal_damage_new (
    gateway         INTEGER NOT NULL REFERENCES mcp_gateways (number),
    segment         INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    at              INTEGER NOT NULL,
    calls           INTEGER, -- at most so many calls without a row; NULL if that is not known
    file            TEXT,    -- what is left of the segment, in the journal's folder
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    PRIMARY KEY (gateway, segment, kind)
) STRICT;
INSERT INTO kb.mcp_journal_damage_new
SELECT 1, segment, kind, at, calls, file, acknowledged_at, acknowledged_by FROM kb.mcp_journal_damage;
DROP TABLE kb.mcp_journal_damage;
ALTER TABLE kb.mcp_journal_damage_new RENAME TO mcp_journal_damage;

-- Servers of files belong to the gateway that reads the files; registered ones to every gateway.
CREATE TABLE kb.project_mcp_servers_new (
    id          TEXT NOT NULL PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    product_id  TEXT REFERENCES products (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    description TEXT,
    transport   TEXT NOT NULL CHECK (transport IN ('stdio', 'sse', 'streamable-http')),
    config      TEXT NOT NULL,
    enabled     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    position    INTEGER NOT NULL, -- order of insertion within the project
    gateway     INTEGER REFERENCES mcp_gateways (number) -- NULL: registered
) STRICT;
INSERT INTO kb.project_mcp_servers_new
SELECT id, project_id, product_id, name, description, transport, config, enabled, created_at, updated_at,
       position, CASE coalesce(json_extract(config, '$.source'), 'api') WHEN 'api' THEN NULL ELSE 1 END
FROM kb.project_mcp_servers;
DROP TABLE kb.project_mcp_servers;
ALTER TABLE kb.project_mcp_servers_new RENAME TO project_mcp_servers;
CREATE UNIQUE INDEX kb.project_mcp_servers_name
    ON project_mcp_servers (project_id, name, coalesce(gateway, 0));

-- A lease says which gateway runs a registered server. Its generation only grows: it survives the end
-- and the release of the lease.
CREATE TABLE kb.mcp_server_leases_new (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    server_id  TEXT NOT NULL
               REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    gateway    INTEGER REFERENCES mcp_gateways (number), -- NULL: released
    boot       INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (project_id, server_id)
) STRICT;
INSERT INTO kb.mcp_server_leases_new
SELECT project_id, server_id, NULL, 0, generation, 0 FROM kb.mcp_server_leases;
DROP TABLE kb.mcp_server_leases;
ALTER TABLE kb.mcp_server_leases_new RENAME TO mcp_server_leases;

-- What a gateway did about its own files is told apart from what others did about theirs.
ALTER TABLE kb.mcp_admin_log ADD COLUMN gateway INTEGER NOT NULL DEFAULT 1;

-- Calls and events outlive servers: they keep the name beside the id.
DROP VIEW kb.agent_run_tool_calls;
DROP INDEX kb.mcp_tool_call_log_filters;
ALTER TABLE kb.mcp_tool_call_log RENAME COLUMN server_id TO server_name;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN server_id TEXT; -- NULL: no server of that name was registered
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN gateway INTEGER NOT NULL DEFAULT 1;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;
UPDATE kb.mcp_tool_call_log SET server_id = server.id FROM kb.project_mcp_servers AS server
WHERE server.project_id = mcp_tool_call_log.project_id AND server.name = mcp_tool_call_log.server_name;
ALTER TABLE kb.mcp_server_events ADD COLUMN server_id TEXT;
UPDATE kb.mcp_server_events SET server_id = server.id FROM kb.project_mcp_servers AS server
WHERE server.project_id = mcp_server_events.project_id AND server.name = mcp_server_events.server_name;

CREATE VIEW kb.agent_run_tool_calls AS
SELECT id, run_id, step, project_id, agent_id, session_id, user_id, trace_id, server_id, server_name,
       tool_name, method, input, output, status, code, error, started_at, ended_at, duration_us
FROM mcp_tool_call_log;

-- Everything that calls are filtered by, in the order of time, for a project and for one of its servers:
-- a filter that matches little reads these few bytes of each call and none of the bodies. A new row takes
-- its place at the end of its project's and its server's part.
CREATE INDEX kb.mcp_tool_call_log_project ON mcp_tool_call_log
    (project_id, id, agent_id, server_name, tool_name, status, code, session_id, trace_id, started_at);
CREATE INDEX kb.mcp_tool_call_log_server ON mcp_tool_call_log
    (project_id, server_name, id, agent_id, tool_name, status, code, session_id, trace_id, started_at);

-- Counts the changes of what gateways keep in memory. Triggers count, so that no writer can forget it.
CREATE TABLE kb.mcp_revisions (
    project_id TEXT NOT NULL,
    kind       TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (project_id, kind)
) STRICT;
CREATE TRIGGER kb.mcp_api_keys_inserted AFTER INSERT ON mcp_api_keys BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'keys', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_api_keys_updated AFTER UPDATE ON mcp_api_keys BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'keys', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_api_keys_deleted AFTER DELETE ON mcp_api_keys BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'keys', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.agents_inserted AFTER INSERT ON agents BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'agents', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.agents_updated AFTER UPDATE ON agents BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'agents', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.agents_deleted AFTER DELETE ON agents BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'agents', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
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
CREATE TRIGGER kb.project_mcp_servers_inserted AFTER INSERT ON project_mcp_servers
WHEN NEW.gateway IS NULL BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.project_mcp_servers_updated AFTER UPDATE ON project_mcp_servers
WHEN NEW.gateway IS NULL BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.project_mcp_servers_deleted AFTER DELETE ON project_mcp_servers
WHEN OLD.gateway IS NULL BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
