-- Which journal the audit was read from, where its present run began, and what was found damaged.
ALTER TABLE kb.mcp_journal_position ADD COLUMN identity INTEGER;    -- random, in every segment's header
ALTER TABLE kb.mcp_journal_position ADD COLUMN run_segment INTEGER; -- NULL after a clean stop
ALTER TABLE kb.mcp_journal_position ADD COLUMN run_calls INTEGER;   -- calls recorded before that run

CREATE TABLE kb.mcp_journal_damage (
    segment         INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    at              INTEGER NOT NULL,
    calls           INTEGER, -- at most so many calls without a row; NULL if that is not known
    file            TEXT,    -- what is left of the segment, in the journal's folder
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    PRIMARY KEY (segment, kind)
) STRICT;
