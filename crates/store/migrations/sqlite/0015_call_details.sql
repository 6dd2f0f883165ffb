-- Where the time of a call went, what was decided on the way, and whose error it was. NULL in older rows.
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN auth_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN grant_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN schema_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN queue_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN server_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN output_us INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN attempts INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN input_check TEXT;     -- 'passed', 'failed', 'skipped'
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN output_check TEXT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN error_kind TEXT;      -- 'transport', 'json_rpc', 'tool', …
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN policy_revision INTEGER;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN grant_id TEXT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN parent_id TEXT;       -- the call this one was made for
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN user_source TEXT;     -- who said which user: 'agent', 'token'
-- Calls on behalf of one person: listed, and erased when that person asks for it.
CREATE INDEX kb.mcp_tool_call_log_user ON mcp_tool_call_log (project_id, user_id, id)
WHERE user_id IS NOT NULL;
-- Few calls fail; which of them failed in the same way.
CREATE INDEX kb.mcp_tool_call_log_error_kind ON mcp_tool_call_log (project_id, error_kind, id)
WHERE error_kind IS NOT NULL;
DROP VIEW kb.agent_run_tool_calls;
CREATE VIEW kb.agent_run_tool_calls AS
SELECT id, run_id, step, project_id, agent_id, session_id, user_id, trace_id, server_id, server_name,
       tool_name, method, input, output, status, code, error, started_at, ended_at, duration_us,
       parent_id, error_kind, attempts, queue_us, server_us
FROM mcp_tool_call_log;
