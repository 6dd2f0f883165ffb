-- Administrative acts: who, from where, what changed, what became of it. Rows of before were written
-- after the effect, so that they are done.
ALTER TABLE kb.mcp_admin_log ADD COLUMN ended_at INTEGER;
ALTER TABLE kb.mcp_admin_log ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE kb.mcp_admin_log ADD COLUMN address TEXT;
ALTER TABLE kb.mcp_admin_log ADD COLUMN via TEXT NOT NULL DEFAULT 'rest';
ALTER TABLE kb.mcp_admin_log ADD COLUMN old_value TEXT; -- JSON, secrets as fingerprints
ALTER TABLE kb.mcp_admin_log ADD COLUMN new_value TEXT;
ALTER TABLE kb.mcp_admin_log ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done';
ALTER TABLE kb.mcp_admin_log ADD COLUMN code TEXT;
ALTER TABLE kb.mcp_admin_log ADD COLUMN repeats INTEGER NOT NULL DEFAULT 1;

-- Up to which time the clock was believed when rows were last dropped for their age.
CREATE TABLE kb.mcp_clock (
    name TEXT NOT NULL PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT;

-- Everything that calls are filtered by, in the order of time: a filter that matches little or nothing
-- reads these few bytes of each call and none of the bodies. One index for all filters, and the only
-- place that a new row takes in it is the end, so that folding hardly pays for it.
CREATE INDEX kb.mcp_tool_call_log_filters ON mcp_tool_call_log
    (id, project_id, agent_id, server_id, tool_name, status, code, session_id, trace_id, started_at);
