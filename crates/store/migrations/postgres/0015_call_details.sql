-- Where the time of a call went, what was decided on the way, and whose error it was. NULL in older rows.
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN auth_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN grant_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN schema_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN queue_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN server_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN output_us BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN attempts BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN input_check TEXT COLLATE "C";     -- 'passed', 'failed', 'skipped'
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN output_check TEXT COLLATE "C";
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN error_kind TEXT COLLATE "C";      -- 'transport', 'json_rpc', 'tool', …
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN policy_revision BIGINT;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN grant_id TEXT COLLATE "C";
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN parent_id TEXT COLLATE "C";       -- the call this one was made for
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN user_source TEXT COLLATE "C";     -- who said which user: 'agent', 'token'
-- Calls on behalf of one person: listed, and erased when that person asks for it.
CREATE INDEX mcp_tool_call_log_user ON kb.mcp_tool_call_log (project_id, left(user_id, 128), id)
    WHERE user_id IS NOT NULL;
-- Few calls fail; which of them failed in the same way.
CREATE INDEX mcp_tool_call_log_error_kind ON kb.mcp_tool_call_log (project_id, error_kind, id)
    WHERE error_kind IS NOT NULL;
CREATE OR REPLACE VIEW kb.agent_run_tool_calls AS
SELECT id, run_id, step, project_id, agent_id, session_id, user_id, trace_id, server_id, server_name,
       tool_name, method, input, output, status, code, error, started_at, ended_at, duration_us,
       parent_id, error_kind, attempts, queue_us, server_us
FROM kb.mcp_tool_call_log;
