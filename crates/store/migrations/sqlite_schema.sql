-- What the migrations make of an empty file. Generated: `just gen`.
PRAGMA kb.application_id = 1195462228;
CREATE TABLE kb._sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
CREATE TABLE kb.projects (
    id          TEXT NOT NULL PRIMARY KEY, -- its name
    description TEXT,
    created_at  INTEGER NOT NULL
, loaded INTEGER NOT NULL DEFAULT 1) STRICT;
CREATE TABLE kb.products (
    id         TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    version    TEXT NOT NULL,
    manifest   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, hash TEXT NOT NULL DEFAULT '',
    UNIQUE (project_id, name)
) STRICT;
CREATE TABLE kb.agents (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id          TEXT NOT NULL, -- its name
    description TEXT,
    created_at  INTEGER NOT NULL, tools TEXT, trusted_user_ids INTEGER NOT NULL DEFAULT 0, limits TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (project_id, id)
) STRICT;
CREATE TABLE kb.agent_workspaces (
    id              TEXT NOT NULL PRIMARY KEY,
    project_id      TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    agent_id        TEXT,
    server_id       TEXT REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    name            TEXT NOT NULL,
    container_type  TEXT NOT NULL, -- 'mcp_server' for hosted servers
    status          TEXT NOT NULL, -- 'ready' when it answers
    provider        TEXT,
    image           TEXT,
    container_id    TEXT,
    stdio_bridge    INTEGER NOT NULL DEFAULT 1,
    port            INTEGER,
    restart_policy  TEXT,
    resource_limits TEXT,
    volumes         TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL, image_digest TEXT,
    UNIQUE (project_id, container_type, name)
) STRICT;
CREATE TABLE kb.mcp_catalogs (
    server_id        TEXT NOT NULL PRIMARY KEY
                     REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    spec_fingerprint TEXT NOT NULL,
    hello            TEXT NOT NULL,
    saved_at         INTEGER NOT NULL
) STRICT;
CREATE TABLE kb.mcp_tools (
    server_id  TEXT NOT NULL
               REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    definition TEXT NOT NULL, -- the wire's JSON, byte for byte
    hash       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    gone_at    INTEGER, pin TEXT NOT NULL DEFAULT 'unpinned'
    CHECK (pin IN ('unpinned', 'approved', 'unapproved', 'refused')), change TEXT NOT NULL DEFAULT 'first', approved_hash TEXT,
    PRIMARY KEY (server_id, kind, name)
) STRICT;
CREATE TABLE kb.mcp_api_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('admin', 'agent')),
    digest     BLOB NOT NULL UNIQUE,
    label      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER, expires_at INTEGER, role TEXT
    CHECK (role IN ('installation', 'admin', 'operator', 'approver', 'auditor')), sources TEXT NOT NULL DEFAULT '[]', limits TEXT NOT NULL DEFAULT '{}', replaces TEXT,
    FOREIGN KEY (project_id, agent_id) REFERENCES agents (project_id, id) ON DELETE CASCADE
) STRICT;
CREATE TABLE kb.mcp_secrets (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    scope      TEXT NOT NULL DEFAULT '', -- a server id, or empty for the whole project
    name       TEXT NOT NULL,
    key_id     TEXT NOT NULL, -- the key that it is encrypted with
    nonce      BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 1, fingerprint TEXT, used_at INTEGER, used_by TEXT,
    PRIMARY KEY (project_id, scope, name)
) STRICT;
CREATE TABLE kb.mcp_tool_call_log (
    id             TEXT NOT NULL PRIMARY KEY,
    seq            INTEGER NOT NULL,
    project_id     TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    key_id         TEXT NOT NULL,
    user_id        TEXT,
    session_id     TEXT,
    run_id         TEXT,
    step           TEXT,
    trace_id       TEXT,
    surface        TEXT NOT NULL,
    server_name      TEXT NOT NULL,
    method         TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    schema_version TEXT,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    duration_us    INTEGER,
    status         TEXT NOT NULL,
    code           TEXT,
    error          TEXT,
    input          TEXT,
    input_bytes    INTEGER NOT NULL,
    output         TEXT,
    output_bytes   INTEGER NOT NULL,
    repeats        INTEGER NOT NULL
, user_trusted INTEGER NOT NULL DEFAULT 0, server_id TEXT, gateway INTEGER NOT NULL DEFAULT 1, boot INTEGER NOT NULL DEFAULT 0, auth_us INTEGER, grant_us INTEGER, schema_us INTEGER, queue_us INTEGER, server_us INTEGER, output_us INTEGER, attempts INTEGER, input_check TEXT, output_check TEXT, error_kind TEXT, policy_revision INTEGER, grant_id TEXT, parent_id TEXT, user_source TEXT, chain_block INTEGER) STRICT;
CREATE INDEX kb.mcp_tool_call_log_run ON mcp_tool_call_log (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_running ON mcp_tool_call_log (id) WHERE status = 'running';
CREATE TABLE kb.mcp_server_events (
    id          INTEGER PRIMARY KEY,
    project_id  TEXT NOT NULL,
    server_name TEXT NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    detail      TEXT NOT NULL
, server_id TEXT) STRICT;
CREATE INDEX kb.mcp_server_events_server ON mcp_server_events (project_id, server_name, id);
CREATE TABLE kb.mcp_admin_log (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    act    TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
, ended_at INTEGER, actor TEXT NOT NULL DEFAULT '', address TEXT, via TEXT NOT NULL DEFAULT 'rest', old_value TEXT, new_value TEXT, outcome TEXT NOT NULL DEFAULT 'done', code TEXT, repeats INTEGER NOT NULL DEFAULT 1, gateway INTEGER NOT NULL DEFAULT 1, project_id TEXT NOT NULL DEFAULT 'local', chain_block INTEGER) STRICT;
CREATE TABLE kb.mcp_clock (
    name TEXT NOT NULL PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT;
CREATE TABLE kb.mcp_gateways (
    number     INTEGER NOT NULL PRIMARY KEY, -- stands for the id in rows that there are many of
    id         TEXT UNIQUE,                  -- NULL until the gateway that wrote the older rows takes it
    folder     TEXT NOT NULL,                -- its data folder
    boot       INTEGER NOT NULL,             -- counts its starts
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    stopped_at INTEGER                       -- NULL while it runs, and after a crash
) STRICT;
CREATE TABLE kb."mcp_journal_position" (
    gateway     INTEGER NOT NULL PRIMARY KEY REFERENCES mcp_gateways (number),
    boot        INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    byte_offset INTEGER NOT NULL,
    identity    INTEGER, -- random, in every segment's header
    run_segment INTEGER, -- NULL after a clean stop
    run_calls   INTEGER  -- calls recorded before that run
) STRICT;
CREATE TABLE kb."mcp_journal_damage" (
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
CREATE TABLE kb."project_mcp_servers" (
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
CREATE UNIQUE INDEX kb.project_mcp_servers_name
    ON project_mcp_servers (project_id, name, coalesce(gateway, 0));
CREATE TABLE kb."mcp_server_leases" (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    server_id  TEXT NOT NULL
               REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    gateway    INTEGER REFERENCES mcp_gateways (number), -- NULL: released
    boot       INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (project_id, server_id)
) STRICT;
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
CREATE INDEX kb.mcp_admin_log_project ON mcp_admin_log (project_id, id);
CREATE TABLE kb.mcp_id_ranges (
    project_id TEXT NOT NULL,
    server     TEXT NOT NULL, -- its name
    first_id   INTEGER NOT NULL UNIQUE,
    created_at INTEGER NOT NULL, released_at INTEGER, is_kept INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, server)
) STRICT;
CREATE TABLE kb.mcp_volumes (
    project_id TEXT NOT NULL,
    server     TEXT NOT NULL, -- its name
    path       TEXT NOT NULL, -- inside the server
    gateway    INTEGER NOT NULL REFERENCES mcp_gateways (number),
    folder     TEXT NOT NULL, -- its name in the folder of volumes
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, server, path, gateway)
) STRICT;
CREATE TABLE kb.mcp_master_keys (
    key_id     TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    retired_at INTEGER -- NULL for the one in use
) STRICT;
CREATE UNIQUE INDEX kb.mcp_master_keys_in_use ON mcp_master_keys (retired_at IS NULL)
WHERE retired_at IS NULL;
CREATE TRIGGER kb.mcp_secrets_inserted AFTER INSERT ON mcp_secrets WHEN NEW.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_secrets_updated AFTER UPDATE OF ciphertext ON mcp_secrets WHEN NEW.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (NEW.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_secrets_deleted AFTER DELETE ON mcp_secrets WHEN OLD.scope = '' BEGIN
    INSERT INTO mcp_revisions VALUES (OLD.project_id, 'servers', 1)
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
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
    suspended_at INTEGER NOT NULL, role TEXT
    CHECK (role IN ('installation', 'admin', 'operator', 'approver', 'auditor')),
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
CREATE INDEX kb.mcp_tool_call_log_user ON mcp_tool_call_log (project_id, user_id, id)
WHERE user_id IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_error_kind ON mcp_tool_call_log (project_id, error_kind, id)
WHERE error_kind IS NOT NULL;
CREATE VIEW kb.agent_run_tool_calls AS
SELECT id, run_id, step, project_id, agent_id, session_id, user_id, trace_id, server_id, server_name,
       tool_name, method, input, output, status, code, error, started_at, ended_at, duration_us,
       parent_id, error_kind, attempts, queue_us, server_us
FROM mcp_tool_call_log;
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
CREATE TABLE kb.mcp_audit_heads (
    gateway   INTEGER NOT NULL PRIMARY KEY REFERENCES mcp_gateways (number),
    number    INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    signature BLOB NOT NULL
, acts_since INTEGER) STRICT;
CREATE TABLE kb.mcp_audit_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    gateway    INTEGER NOT NULL REFERENCES mcp_gateways (number),
    public     BLOB NOT NULL) STRICT;
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
CREATE TABLE kb."mcp_bindings" (
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
CREATE TRIGGER kb.mcp_tools_pin_inserted AFTER INSERT ON mcp_tools BEGIN
    INSERT INTO mcp_revisions SELECT project_id, 'pins', 1 FROM project_mcp_servers WHERE id = NEW.server_id
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TRIGGER kb.mcp_tools_pin_updated AFTER UPDATE OF pin, hash, change, gone_at ON mcp_tools BEGIN
    INSERT INTO mcp_revisions SELECT project_id, 'pins', 1 FROM project_mcp_servers WHERE id = NEW.server_id
    ON CONFLICT (project_id, kind) DO UPDATE SET revision = revision + 1;
END;
CREATE TABLE kb.mcp_key_uses (
    key_id    TEXT NOT NULL PRIMARY KEY REFERENCES mcp_api_keys (id) ON DELETE CASCADE,
    used_at   INTEGER NOT NULL,
    used_from TEXT -- an address
) STRICT;
CREATE INDEX kb.mcp_tool_call_log_session ON mcp_tool_call_log (project_id, session_id, id)
WHERE session_id IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_code ON mcp_tool_call_log (project_id, code, id) WHERE code IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_not_ok ON mcp_tool_call_log
    (project_id, status, id, agent_id, server_name, tool_name, started_at) WHERE status <> 'ok';
CREATE INDEX kb.mcp_tool_call_log_trace ON mcp_tool_call_log (project_id, trace_id, id)
WHERE substr(trace_id, 1, 16) <> substr(id, 6, 16);
CREATE INDEX kb.mcp_tool_call_log_project ON mcp_tool_call_log (project_id, id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_server ON mcp_tool_call_log
    (project_id, server_name, id, agent_id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_agent ON mcp_tool_call_log (project_id, agent_id, id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_tool ON mcp_tool_call_log
    (project_id, tool_name, id, agent_id, server_name, status, started_at);
