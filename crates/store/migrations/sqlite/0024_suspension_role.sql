-- With which role something was suspended: a lesser one does not resume it. NULL: by an earlier release.
ALTER TABLE kb.mcp_suspensions ADD COLUMN role TEXT
    CHECK (role IN ('installation', 'admin', 'operator', 'approver', 'auditor'));
