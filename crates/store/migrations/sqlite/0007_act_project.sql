-- Administrative acts belong to a project; until now there was only that of the folder.
ALTER TABLE kb.mcp_admin_log ADD COLUMN project_id TEXT NOT NULL DEFAULT 'local';
UPDATE kb.mcp_admin_log SET project_id = (SELECT id FROM kb.projects)
WHERE (SELECT count(*) FROM kb.projects) = 1;
CREATE INDEX kb.mcp_admin_log_project ON mcp_admin_log (project_id, id);
