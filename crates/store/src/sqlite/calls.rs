//! The audit: asking for its rows, dropping the old. Statements are in `sql::calls`; the journal's
//! rows come in by `import`.

use gantry_model::id::CallId;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteStore;
use super::file::beside;
use super::value::{column, parsed, signed, unsigned, unsigned_option};
use super::writer::Durability;
use crate::call::{CallFilter, CallRow, CallStatus, CallUsage};
use crate::error::StoreError;
use crate::sql::{calls as sql, clock};

/// How far the time in an id may be from the call's own, so that a search by time may use the
/// primary key.
const SLACK_MS: u64 = 600_000;

impl SqliteStore {
    pub(crate) async fn settle_running(
        &self,
        as_status: CallStatus,
        code: &str,
        ended_ms: u64,
    ) -> Result<u64, StoreError> {
        const WHAT: &str = "settle calls left running";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let settle = sqlx::query(sql::SETTLE_RUNNING).bind(as_status.as_str());
        let settled = settle
            .bind(code)
            .bind(signed(ended_ms))
            .bind(self.number())
            .bind(self.boot())
            .execute(turn.connection()?)
            .await;
        let settled = settled.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(settled.rows_affected())
    }

    pub(crate) async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, StoreError> {
        const WHAT: &str = "list calls";
        let mut builder = page(filter);
        let mut reader = self.readers.take(WHAT).await?;
        let rows = builder
            .build()
            .persistent(false)
            .fetch_all(reader.connection())
            .await;
        let rows = rows.map_err(|error| self.failed(WHAT, error))?;
        rows.iter()
            .map(call)
            .collect::<Result<_, _>>()
            .map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn call(&self, id: CallId) -> Result<Option<CallRow>, StoreError> {
        const WHAT: &str = "read a call";
        let mut builder = QueryBuilder::<Sqlite>::new(sql::SELECT);
        builder.push(" WHERE id = ").push_bind(id.to_string());
        let mut reader = self.readers.take(WHAT).await?;
        let row = builder.build().fetch_optional(reader.connection()).await;
        let row = row.map_err(|error| self.failed(WHAT, error))?;
        row.as_ref()
            .map(call)
            .transpose()
            .map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn count_calls(&self, filter: &CallFilter) -> Result<u64, StoreError> {
        const WHAT: &str = "count calls";
        let mut builder = QueryBuilder::new("SELECT count(*)");
        push_filtered(&mut builder, filter);
        let mut reader = self.readers.take(WHAT).await?;
        let row = builder
            .build()
            .persistent(false)
            .fetch_one(reader.connection())
            .await;
        let counted = row.and_then(|row| unsigned(&row, 0));
        counted.map_err(|error| self.failed(WHAT, error))
    }

    pub(crate) async fn drop_calls_before(&self, ms: u64, at_most: u32) -> Result<u64, StoreError> {
        const WHAT: &str = "drop old calls";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let drop = sqlx::query(sql::DROP_BEFORE)
            .bind(first_after(ms))
            .bind(signed(ms));
        let dropped = drop
            .bind(i64::from(at_most))
            .execute(turn.connection()?)
            .await;
        let dropped = dropped.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(dropped.rows_affected())
    }

    pub(crate) async fn call_usage(&self) -> Result<CallUsage, StoreError> {
        const WHAT: &str = "measure the audit";
        let failed = |error| self.failed(WHAT, error);
        let mut reader = self.readers.take(WHAT).await?;
        let row = sqlx::query(sql::USAGE).fetch_one(reader.connection()).await;
        let row = row.map_err(failed)?;
        // Asks only how long the files are, and opens none.
        let parts = [self.path.clone(), beside(&self.path, "-wal")];
        let lengths = parts.iter().filter_map(|part| std::fs::metadata(part).ok());
        Ok(CallUsage {
            rows: unsigned(&row, 0).map_err(failed)?,
            oldest_ms: unsigned_option(&row, 1).map_err(failed)?,
            newest_ms: unsigned_option(&row, 2).map_err(failed)?,
            database_bytes: lengths.map(|file| file.len()).sum(),
        })
    }

    pub(crate) async fn clock(&self) -> Result<Option<u64>, StoreError> {
        const WHAT: &str = "read up to when the clock was believed";
        let failed = |error| self.failed(WHAT, error);
        let mut reader = self.readers.take(WHAT).await?;
        let row = sqlx::query(clock::AT).fetch_optional(reader.connection());
        let row = row.await.map_err(failed)?;
        row.map(|row| unsigned(&row, 0)).transpose().map_err(failed)
    }

    pub(crate) async fn put_clock(&self, at_ms: u64) -> Result<(), StoreError> {
        const WHAT: &str = "remember up to when the clock was believed";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let put = sqlx::query(clock::PUT).bind(signed(at_ms));
        let put = put.execute(turn.connection()?).await;
        put.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }
}

/// Asks for a page of calls: first for their ids, which an index knows without any row, then for the
/// rows of these alone.
pub(super) fn page(filter: &CallFilter) -> QueryBuilder<Sqlite> {
    let mut builder = QueryBuilder::new(sql::SELECT);
    builder.push(" WHERE id IN (SELECT id");
    push_filtered(&mut builder, filter);
    builder
        .push(" ORDER BY id DESC LIMIT ")
        .push_bind(i64::from(filter.limit));
    builder.push(") ORDER BY id DESC");
    builder
}

/// Adds the table with the index that answers the filter, and the filter's conditions.
pub(super) fn push_filtered(builder: &mut QueryBuilder<Sqlite>, filter: &CallFilter) {
    builder.push(" FROM kb.mcp_tool_call_log");
    if let Some(index) = index_for(filter) {
        builder.push(" INDEXED BY ").push(index);
    }
    builder.push(" WHERE id < ");
    builder.push_bind(filter.before.map_or_else(last, |id| id.to_string()));
    let separator = " AND ";
    let equal = [
        ("project_id = ", filter.project.as_deref()),
        ("agent_id = ", filter.agent.as_deref()),
        ("server_name = ", filter.server.as_deref()),
        ("tool_name = ", filter.tool.as_deref()),
        ("status = ", filter.status.map(CallStatus::as_str)),
        ("code = ", filter.code.as_deref()),
        ("run_id = ", filter.run.as_deref()),
        ("session_id = ", filter.session.as_deref()),
        ("trace_id = ", filter.trace.as_deref()),
    ];
    for (condition, wanted) in equal {
        if let Some(wanted) = wanted {
            builder.push(separator).push(condition).push_bind(wanted);
        }
    }
    let times = [
        (
            "started_at >= ",
            " AND id >= ",
            filter.since_ms,
            first_before as fn(u64) -> String,
        ),
        ("started_at < ", " AND id < ", filter.until_ms, first_after),
    ];
    for (condition, and_id, ms, bound) in times {
        if let Some(ms) = ms {
            builder
                .push(separator)
                .push(condition)
                .push_bind(signed(ms));
            builder.push(and_id).push_bind(bound(ms));
        }
    }
}

/// Returns the index that has the fewest calls beside those that are asked for. Without a project the
/// primary key is used, which has the order of time but not the filters.
pub(super) fn index_for(filter: &CallFilter) -> Option<&'static str> {
    match (&filter.run, &filter.project, &filter.server) {
        // The calls of a run are few, whatever else they are asked for.
        (Some(_), _, _) => Some("mcp_tool_call_log_run"),
        (None, Some(_), Some(_)) => Some("mcp_tool_call_log_server"),
        (None, Some(_), None) => Some("mcp_tool_call_log_project"),
        (None, None, _) => None,
    }
}

/// Returns what every id lies before.
fn last() -> String {
    "~".to_owned()
}

/// Returns an id that no call from `ms` on lies before.
fn first_before(ms: u64) -> String {
    CallId::new(ms.saturating_sub(SLACK_MS), 0).to_string()
}

/// Returns an id that every call until `ms` lies before.
fn first_after(ms: u64) -> String {
    const LATEST: u64 = (1 << 48) - 1;
    CallId::new(ms.saturating_add(SLACK_MS).min(LATEST), 0).to_string()
}

fn call(row: &SqliteRow) -> Result<CallRow, sqlx::Error> {
    Ok(CallRow {
        id: parsed(row, 0)?,
        seq: unsigned(row, 1)?,
        project: column(row, 2)?,
        agent: column(row, 3)?,
        key: column(row, 4)?,
        user: column(row, 5)?,
        user_trust: column::<bool, _>(row, 26)?.into(),
        session: column(row, 6)?,
        run: column(row, 7)?,
        step: column(row, 8)?,
        trace: column(row, 9)?,
        surface: column(row, 10)?,
        server: column(row, 11)?,
        server_id: column::<Option<&str>, _>(row, 27)?
            .map(|_| parsed(row, 27))
            .transpose()?,
        method: column(row, 12)?,
        tool: column(row, 13)?,
        schema_version: column(row, 14)?,
        started_ms: unsigned(row, 15)?,
        ended_ms: unsigned_option(row, 16)?,
        duration_us: unsigned_option(row, 17)?,
        status: parsed(row, 18)?,
        code: column(row, 19)?,
        error: column(row, 20)?,
        input: column(row, 21)?,
        input_bytes: unsigned(row, 22)?,
        output: column(row, 23)?,
        output_bytes: unsigned(row, 24)?,
        repeats: unsigned(row, 25)?,
    })
}
