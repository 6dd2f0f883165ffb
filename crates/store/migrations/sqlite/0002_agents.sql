-- What an agent sees of the tools it was granted, and keys that end by themselves.
ALTER TABLE kb.agents ADD COLUMN tools TEXT; -- {"include": [...], "exclude": [...]}; patterns over server:tool
ALTER TABLE kb.mcp_api_keys ADD COLUMN expires_at INTEGER;
