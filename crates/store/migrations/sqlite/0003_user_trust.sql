-- Which agents are trusted to say on whose behalf they act, and which user ids were believed.
ALTER TABLE kb.agents ADD COLUMN trusted_user_ids INTEGER NOT NULL DEFAULT 0;
ALTER TABLE kb.mcp_tool_call_log ADD COLUMN user_trusted INTEGER NOT NULL DEFAULT 0;
