-- Ranges of ids are given back when nothing on disk belongs to them any more.
ALTER TABLE kb.mcp_id_ranges ADD COLUMN released_at BIGINT; -- since when no server and no file has them
ALTER TABLE kb.mcp_id_ranges ADD COLUMN is_kept BOOLEAN NOT NULL DEFAULT FALSE; -- files outside of the places of servers may belong to it
