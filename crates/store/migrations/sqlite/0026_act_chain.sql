-- Which block of the chain covers an act; NULL in acts of earlier releases.
ALTER TABLE kb.mcp_admin_log ADD COLUMN chain_block INTEGER;
-- The block from which on the chain covers acts, too; NULL in chains of earlier releases.
ALTER TABLE kb.mcp_audit_heads ADD COLUMN acts_since INTEGER;
