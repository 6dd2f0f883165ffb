-- No block covers when a key was made, and nothing reads it: what is stored of a key can all be verified.
ALTER TABLE kb.mcp_audit_keys DROP COLUMN created_at;
