//! Statements over the audit. Run by `store::calls`.
//!
//! Importing joins `IMPORT_HEAD`, the rows as placeholders, and `IMPORT_TAIL`; asking joins `SELECT` with the
//! conditions of a filter.

/// How many columns a row has, in the order of `IMPORT_HEAD` and `SELECT`.
pub(crate) const COLUMNS: usize = 45;

pub(crate) const IMPORT_HEAD: &str = "INSERT INTO kb.mcp_tool_call_log AS old \
     (id, seq, project_id, agent_id, key_id, user_id, session_id, run_id, step, trace_id, surface, \
     server_name, method, tool_name, schema_version, started_at, ended_at, duration_us, status, \
     code, error, input, input_bytes, output, output_bytes, repeats, user_trusted, server_id, \
     gateway, boot, auth_us, grant_us, schema_us, queue_us, server_us, output_us, attempts, \
     input_check, output_check, error_kind, policy_revision, grant_id, parent_id, user_source, \
     chain_block) ";

/// How many columns a row has of its own where rows are alike.
pub(crate) const OWN: usize = 16;

/// The columns of rows that are alike: `?` is the same in all of them, `columnN` is a row's own.
pub(crate) const ALIKE_COLUMNS: &str = "own.column1, own.column2, ?, ?, ?, ?, ?, ?, ?, own.column3, ?, \
     ?, ?, ?, ?, own.column4, own.column5, own.column6, ?, \
     ?, ?, own.column7, own.column8, own.column9, own.column10, ?, ?, ?, \
     ?, ?, own.column11, own.column12, own.column13, own.column14, own.column15, own.column16, ?, \
     ?, ?, ?, ?, ?, ?, ?, ?";

/// An end replaces any row, `unknown` replaces only `running`, and `running` replaces nothing.
/// Values that the end does not know (the arguments, the context) keep those of the beginning.
pub(crate) const IMPORT_TAIL: &str = " ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, \
     user_id = coalesce(excluded.user_id, old.user_id), \
     user_trusted = CASE WHEN excluded.user_id IS NULL THEN old.user_trusted \
     ELSE excluded.user_trusted END, \
     session_id = coalesce(excluded.session_id, old.session_id), \
     run_id = coalesce(excluded.run_id, old.run_id), step = coalesce(excluded.step, old.step), \
     trace_id = coalesce(excluded.trace_id, old.trace_id), \
     schema_version = coalesce(excluded.schema_version, old.schema_version), \
     server_id = coalesce(excluded.server_id, old.server_id), \
     ended_at = excluded.ended_at, duration_us = excluded.duration_us, status = excluded.status, \
     code = excluded.code, error = excluded.error, \
     input = coalesce(excluded.input, old.input), input_bytes = excluded.input_bytes, \
     output = excluded.output, output_bytes = excluded.output_bytes, repeats = excluded.repeats, \
     auth_us = excluded.auth_us, grant_us = excluded.grant_us, schema_us = excluded.schema_us, \
     queue_us = excluded.queue_us, server_us = excluded.server_us, output_us = excluded.output_us, \
     attempts = excluded.attempts, input_check = excluded.input_check, \
     output_check = excluded.output_check, error_kind = excluded.error_kind, \
     policy_revision = coalesce(excluded.policy_revision, old.policy_revision), \
     grant_id = coalesce(excluded.grant_id, old.grant_id), \
     parent_id = coalesce(excluded.parent_id, old.parent_id), \
     user_source = coalesce(excluded.user_source, old.user_source), \
     chain_block = excluded.chain_block \
     WHERE excluded.status NOT IN ('running', 'unknown') \
     OR (excluded.status = 'unknown' AND old.status = 'running')";

pub(crate) const SELECT: &str = "SELECT id, seq, project_id, agent_id, key_id, user_id, session_id, run_id, step, trace_id, \
     surface, server_name, method, tool_name, schema_version, started_at, ended_at, duration_us, \
     status, code, error, input, input_bytes, output, output_bytes, repeats, user_trusted, \
     server_id, auth_us, grant_us, schema_us, queue_us, server_us, output_us, attempts, \
     input_check, output_check, error_kind, policy_revision, grant_id, parent_id, user_source, \
     gateway, boot, chain_block FROM kb.mcp_tool_call_log";

/// Rows are numbered as they come and deleted from the oldest on, so the first and the last number
/// give their count without a scan.
pub(crate) const USAGE_SQLITE: &str = "SELECT coalesce((SELECT max(rowid) FROM kb.mcp_tool_call_log) \
     - (SELECT min(rowid) FROM kb.mcp_tool_call_log) + 1, 0), \
     (SELECT started_at FROM kb.mcp_tool_call_log ORDER BY id LIMIT 1), \
     (SELECT started_at FROM kb.mcp_tool_call_log ORDER BY id DESC LIMIT 1)";

/// Counts up to a hundred thousand; beyond, the estimate that vacuuming keeps is close enough.
pub(crate) const USAGE_POSTGRES: &str = "SELECT CASE WHEN counted.calls < 100000 THEN counted.calls \
     ELSE greatest(100000, CAST(class.reltuples AS BIGINT)) END, \
     (SELECT started_at FROM kb.mcp_tool_call_log ORDER BY id LIMIT 1), \
     (SELECT started_at FROM kb.mcp_tool_call_log ORDER BY id DESC LIMIT 1), \
     pg_database_size(current_database()) FROM (SELECT count(*) AS calls FROM \
     (SELECT 1 FROM kb.mcp_tool_call_log LIMIT 100000) AS first) AS counted, pg_class AS class \
     WHERE class.oid = to_regclass('kb.mcp_tool_call_log')";

/// An earlier start of the gateway never moves the position of a later one.
pub(crate) const PUT_POSITION: &str = "INSERT INTO kb.mcp_journal_position AS old \
     (gateway, boot, segment, byte_offset) VALUES ($1, $2, $3, $4) ON CONFLICT (gateway) \
     DO UPDATE SET boot = excluded.boot, segment = excluded.segment, \
     byte_offset = excluded.byte_offset WHERE old.boot <= excluded.boot";

/// The oldest calls of a project that came in before a time; `$2` and `$3` bound the ids, which begin with
/// their time, so that they are found by the index of the project.
pub(crate) const OLD: &str = " WHERE project_id = $1 AND id > $2 AND id < $3 AND started_at < $4 \
     AND status <> 'running' ORDER BY id LIMIT $5";

/// The calls on behalf of a person, oldest first.
pub(crate) const OF_USER_SQLITE: &str = " INDEXED BY mcp_tool_call_log_user WHERE project_id = $1 \
     AND user_id = $2 AND id > $3 AND status <> 'running' ORDER BY id LIMIT $4";

/// PostgreSQL's index has the beginning of what callers choose the length of.
pub(crate) const OF_USER_POSTGRES: &str = " WHERE project_id = $1 AND user_id = $2 \
     AND left(user_id, 128) = left($2, 128) AND id > $3 AND status <> 'running' ORDER BY id LIMIT $4";

/// The project with calls that comes next by name.
pub(crate) const NEXT_PROJECT: &str = "SELECT project_id FROM kb.mcp_tool_call_log \
     WHERE project_id > $1 ORDER BY project_id LIMIT 1";

#[cfg(test)]
pub(crate) const ALL: &[&str] = &[SELECT, PUT_POSITION, NEXT_PROJECT];
