-- What Gantry remembers, first schema. Times are milliseconds since 1970, JSON is text.
-- The numbers of migrations are the same for every engine; a released file never changes.
PRAGMA kb.application_id = 1195462228; -- 'GANT'

CREATE TABLE kb.projects (
    id          TEXT NOT NULL PRIMARY KEY, -- its name
    description TEXT,
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE kb.products (
    id         TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    version    TEXT NOT NULL,
    manifest   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (project_id, name)
) STRICT;

CREATE TABLE kb.agents (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id          TEXT NOT NULL, -- its name
    description TEXT,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
) STRICT;

CREATE TABLE kb.project_mcp_servers (
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
    UNIQUE (project_id, name)
) STRICT;

-- Hosted servers and other containers that live as long as their row.
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
    updated_at      INTEGER NOT NULL,
    UNIQUE (project_id, container_type, name)
) STRICT;

-- What a server said of itself when its catalog was last read.
CREATE TABLE kb.mcp_catalogs (
    server_id        TEXT NOT NULL PRIMARY KEY
                     REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    spec_fingerprint TEXT NOT NULL,
    hello            TEXT NOT NULL,
    saved_at         INTEGER NOT NULL
) STRICT;

-- One row per tool, prompt, resource and template; gone ones stay so that versions go on counting.
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
    gone_at    INTEGER,
    PRIMARY KEY (server_id, kind, name)
) STRICT;

-- Grants: who may use what, and under which other name.
CREATE TABLE kb.mcp_bindings (
    project_id     TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    principal_kind TEXT NOT NULL CHECK (principal_kind IN ('agent', 'api_key', 'project')),
    principal      TEXT NOT NULL, -- agent name, key id, or empty for the project
    server         TEXT NOT NULL,
    item           TEXT NOT NULL,
    alias          TEXT,
    created_at     INTEGER NOT NULL,
    PRIMARY KEY (project_id, principal_kind, principal, server, item)
) STRICT;

CREATE TABLE kb.mcp_api_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('admin', 'agent')),
    digest     BLOB NOT NULL UNIQUE,
    label      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    FOREIGN KEY (project_id, agent_id) REFERENCES agents (project_id, id) ON DELETE CASCADE
) STRICT;

-- Encrypted values; the plain ones never reach this file.
CREATE TABLE kb.mcp_secrets (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    scope      TEXT NOT NULL DEFAULT '', -- a server id, or empty for the whole project
    name       TEXT NOT NULL,
    key_id     TEXT NOT NULL, -- the key that it is encrypted with
    nonce      BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, scope, name)
) STRICT;

-- One row per call. The id begins with its time, so the primary key is also the order of time.
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
    server_id      TEXT NOT NULL,
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
) STRICT;
CREATE INDEX kb.mcp_tool_call_log_run ON mcp_tool_call_log (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_running ON mcp_tool_call_log (id) WHERE status = 'running';

CREATE VIEW kb.agent_run_tool_calls AS
SELECT id, run_id, step, project_id, agent_id, session_id, user_id, trace_id, server_id, tool_name,
       method, input, output, status, code, error, started_at, ended_at, duration_us
FROM mcp_tool_call_log;

CREATE TABLE kb.mcp_journal_position (
    journal     TEXT NOT NULL PRIMARY KEY,
    segment     INTEGER NOT NULL,
    byte_offset INTEGER NOT NULL
) STRICT;

CREATE TABLE kb.mcp_server_events (
    id          INTEGER PRIMARY KEY,
    project_id  TEXT NOT NULL,
    server_name TEXT NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    detail      TEXT NOT NULL
) STRICT;
CREATE INDEX kb.mcp_server_events_server ON mcp_server_events (project_id, server_name, id);

CREATE TABLE kb.mcp_server_leases (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    server_id  TEXT NOT NULL
               REFERENCES project_mcp_servers (id) ON DELETE CASCADE ON UPDATE CASCADE,
    holder     TEXT NOT NULL,
    generation INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (project_id, server_id)
) STRICT;

CREATE TABLE kb.mcp_admin_log (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    act    TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
