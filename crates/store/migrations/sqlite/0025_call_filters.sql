-- The few calls of one session, of a trace that began elsewhere (other traces follow from the id of their call), with
-- one error, or that did not end well, among millions of others. Calls without any of that pay nothing for them.
CREATE INDEX kb.mcp_tool_call_log_session ON mcp_tool_call_log (project_id, session_id, id)
WHERE session_id IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_code ON mcp_tool_call_log (project_id, code, id) WHERE code IS NOT NULL;
CREATE INDEX kb.mcp_tool_call_log_not_ok ON mcp_tool_call_log
    (project_id, status, id, agent_id, server_name, tool_name, started_at) WHERE status <> 'ok';
CREATE INDEX kb.mcp_tool_call_log_trace ON mcp_tool_call_log (project_id, trace_id, id)
WHERE substr(trace_id, 1, 16) <> substr(id, 6, 16);
