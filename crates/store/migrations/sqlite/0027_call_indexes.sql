-- The few calls of an agent or a tool among millions of others. Each of the four indexes has what its filter may be
-- joined with; sessions, traces and codes have indexes of their own, so that the two that were here before need not
-- repeat them, and all four are no larger than those two were.
DROP INDEX kb.mcp_tool_call_log_project;
DROP INDEX kb.mcp_tool_call_log_server;
CREATE INDEX kb.mcp_tool_call_log_project ON mcp_tool_call_log (project_id, id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_server ON mcp_tool_call_log
    (project_id, server_name, id, agent_id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_agent ON mcp_tool_call_log (project_id, agent_id, id, status, started_at);
CREATE INDEX kb.mcp_tool_call_log_tool ON mcp_tool_call_log
    (project_id, tool_name, id, agent_id, server_name, status, started_at);
