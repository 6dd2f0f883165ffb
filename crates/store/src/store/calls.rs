//! The audit: asking for its rows, dropping the old. Statements are in `sql::calls`; the journal's
//! rows come in by the `import` of each database.

use gantry_model::id::CallId;

use super::Store;
use crate::call::{CallDetails, CallFilter, CallRow, CallStatus, CallUsage, ErrorKind, Phases};
use crate::chain::RowOrigin;
use crate::clock::ClockRecord;
use crate::database::query::{Query, query};
use crate::database::row::{
    Row, column, narrow_option, parsed, parsed_option, unsigned, unsigned_option,
};
use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::sql::{calls as sql, clock as clock_sql};

/// How far the time in an id may differ from the call's own, so that a search by time can use the
/// primary key.
const SLACK_MS: u64 = 600_000;

/// So many calls are looked at one by one rather than walking an index with more.
const FEW: u32 = 500;

const BY_TOOL: &str = "mcp_tool_call_log_tool";
const BY_SERVER: &str = "mcp_tool_call_log_server";
const BY_AGENT: &str = "mcp_tool_call_log_agent";

impl Store {
    /// Returns the calls that match the filter, newest first.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>, StoreError> {
        let index = self.narrowest(filter).await?;
        let page = page(filter, self.database().is_sqlite(), index);
        self.database().rows("list calls", page, call).await
    }

    /// Returns one call.
    pub async fn call(&self, id: CallId) -> Result<Option<CallRow>, StoreError> {
        let mut one = query(sql::SELECT);
        one.push(" WHERE id = ").push_bind(id.to_string());
        self.database().optional("read a call", one, call).await
    }

    /// Counts the calls that match the filter, ignoring its limit.
    pub async fn count_calls(&self, filter: &CallFilter) -> Result<u64, StoreError> {
        let index = self.narrowest(filter).await?;
        let count = count(filter, self.database().is_sqlite(), index);
        let counted = self
            .database()
            .one("count calls", count, |row| unsigned(row, 0));
        counted.await
    }

    /// Returns the index for a filter; if an agent or a server is asked for that has few calls, its own, whatever
    /// else is asked for.
    async fn narrowest(&self, filter: &CallFilter) -> Result<Option<&'static str>, StoreError> {
        let index = index_for(filter);
        if !self.database().is_sqlite() || !matches!(index, Some(BY_TOOL | BY_SERVER)) {
            return Ok(index);
        }
        let others = [
            (BY_AGENT, "agent_id", &filter.agent),
            (BY_SERVER, "server_name", &filter.server),
        ];
        for (other, column, wanted) in others {
            let (Some(wanted), true) = (wanted, index != Some(other)) else {
                continue;
            };
            let mut has = query("SELECT count(*) FROM (SELECT 1 FROM kb.mcp_tool_call_log");
            has.push(" INDEXED BY ").push(other);
            has.push(" WHERE project_id = ")
                .push_bind(filter.project.as_deref());
            has.push(" AND ").push(column).push(" = ");
            has.push_bind(wanted.as_str()).push(" LIMIT ");
            has.push_bind(FEW + 1).push(")");
            let counted = self
                .database()
                .one("count calls", has, |row| unsigned(row, 0));
            if counted.await? <= u64::from(FEW) {
                return Ok(Some(other));
            }
        }
        Ok(index)
    }

    /// Returns the oldest calls of a project that came in before `ms` and have ended, behind `after`.
    pub async fn old_calls(
        &self,
        project: &str,
        after: Option<CallId>,
        ms: u64,
        at_most: u32,
    ) -> Result<Vec<StoredCall>, StoreError> {
        let mut old = query(sql::SELECT);
        old.push(sql::OLD);
        let old = old
            .bind(project)
            .bind(after.map(|id| id.to_string()).unwrap_or_default())
            .bind(first_after(ms))
            .bind(ms)
            .bind(at_most);
        self.database().rows("list old calls", old, stored).await
    }

    /// Returns the calls on behalf of a person that have ended, oldest first, behind `after`.
    pub async fn calls_of_user(
        &self,
        project: &str,
        user: &str,
        after: Option<CallId>,
        at_most: u32,
    ) -> Result<Vec<StoredCall>, StoreError> {
        const WHAT: &str = "list the calls of a user";
        let mut of_user = query(sql::SELECT);
        of_user.push(match self.database().is_sqlite() {
            true => sql::OF_USER_SQLITE,
            false => sql::OF_USER_POSTGRES,
        });
        let of_user = of_user
            .bind(project)
            .bind(user)
            .bind(after.map(|id| id.to_string()).unwrap_or_default())
            .bind(at_most);
        self.database().rows(WHAT, of_user, stored).await
    }

    /// Returns the names of all projects that have calls, in order; projects may be gone that had them.
    pub async fn projects_with_calls(&self) -> Result<Vec<String>, StoreError> {
        const WHAT: &str = "list projects with calls";
        let mut found: Vec<String> = Vec::new();
        loop {
            let last = found.last().map_or("", String::as_str);
            let next = query(sql::NEXT_PROJECT).bind(last.to_owned());
            let next = self.database().optional(WHAT, next, |row| column(row, 0));
            match next.await? {
                Some(next) => found.push(next),
                None => return Ok(found),
            }
        }
    }

    /// Returns how many calls there are, since when, and the size of the database. On PostgreSQL
    /// more than a hundred thousand calls are estimated.
    pub async fn call_usage(&self) -> Result<CallUsage, StoreError> {
        const WHAT: &str = "measure the audit";
        let (statement, file_bytes) = match self.database() {
            Database::Sqlite(store) => (sql::USAGE_SQLITE, Some(store.file_bytes())),
            Database::Postgres(_) => (sql::USAGE_POSTGRES, None),
        };
        let usage = self.database().one(WHAT, query(statement), |row| {
            Ok(CallUsage {
                rows: unsigned(row, 0)?,
                oldest_ms: unsigned_option(row, 1)?,
                newest_ms: unsigned_option(row, 2)?,
                database_bytes: match file_bytes {
                    Some(bytes) => bytes,
                    None => unsigned(row, 3)?,
                },
            })
        });
        usage.await
    }

    /// Returns what is recorded of the clock.
    pub async fn clock(&self) -> Result<Option<ClockRecord>, StoreError> {
        const WHAT: &str = "read up to when the clock was believed";
        let at = self.database();
        at.optional(WHAT, query(clock_sql::AT), |row| {
            Ok(ClockRecord {
                believed_ms: unsigned(row, 0)?,
                doubted_ms: unsigned(row, 1)?,
                seen_ms: unsigned(row, 2)?,
            })
        })
        .await
    }

    /// Returns the time by the clock that all gateways of this store share, in milliseconds.
    pub async fn shared_clock_ms(&self) -> Result<u64, StoreError> {
        let begun = self.database().snapshot("read the clock").await;
        let mut transaction = begun?;
        let now = transaction.now_ms().await?;
        transaction.rollback().await?;
        Ok(u64::try_from(now).unwrap_or(0))
    }

    /// Records up to when the clock was trusted.
    pub async fn put_clock(&self, clock: ClockRecord) -> Result<(), StoreError> {
        const WHAT: &str = "remember up to when the clock was believed";
        let put = query(clock_sql::PUT)
            .bind(clock.believed_ms)
            .bind(clock.doubted_ms)
            .bind(clock.seen_ms);
        let put = self.database().execute(WHAT, Durability::Process, put);
        put.await.map(drop)
    }
}

/// Returns the query for a page of calls: first their ids, from an index alone, then only these
/// rows.
pub(crate) fn page<'q>(
    filter: &'q CallFilter,
    is_sqlite: bool,
    index: Option<&'static str>,
) -> Query<'q> {
    let mut page = query(sql::SELECT);
    page.push(" WHERE id IN (SELECT id");
    if is_sqlite && is_of_trace(filter) {
        push_of_trace(&mut page, filter);
        page.push(") ORDER BY id DESC LIMIT ")
            .push_bind(filter.limit);
        return page;
    }
    push_filtered(&mut page, filter, is_sqlite, index, None);
    page.push(" ORDER BY id DESC LIMIT ")
        .push_bind(filter.limit);
    page.push(") ORDER BY id DESC");
    page
}

/// Returns the query for the number of calls that match the filter.
pub(crate) fn count<'q>(
    filter: &'q CallFilter,
    is_sqlite: bool,
    index: Option<&'static str>,
) -> Query<'q> {
    if is_sqlite && is_of_trace(filter) {
        let mut count = query("SELECT count(*) FROM (SELECT id");
        push_of_trace(&mut count, filter);
        count.push(")");
        return count;
    }
    let mut count = query("SELECT count(*)");
    push_filtered(&mut count, filter, is_sqlite, index, None);
    count
}

/// Returns whether the calls of a trace are looked for by its id, for lack of something that fewer have.
fn is_of_trace(filter: &CallFilter) -> bool {
    let has_fewer = filter.run.is_some() || filter.user.is_some() || filter.session.is_some();
    filter.trace.is_some() && filter.project.is_some() && !has_fewer
}

/// Adds the calls of a trace: those that came with it, and the one that began it, if one did, whose id has the
/// same beginning.
fn push_of_trace<'q>(list: &mut Query<'q>, filter: &'q CallFilter) {
    push_filtered(list, filter, true, Some("mcp_tool_call_log_trace"), None);
    list.push(" AND substr(trace_id, 1, 16) <> substr(id, 6, 16) UNION ALL SELECT id");
    let began: String = filter
        .trace
        .iter()
        .flat_map(|trace| trace.chars())
        .take(16)
        .collect();
    push_filtered(
        list,
        filter,
        true,
        Some("mcp_tool_call_log_project"),
        Some(&began),
    );
}

/// Adds the table with an index, and the filter's conditions; `began` is how ids begin after `call_`.
fn push_filtered<'q>(
    list: &mut Query<'q>,
    filter: &'q CallFilter,
    is_sqlite: bool,
    index: Option<&'static str>,
    began: Option<&str>,
) {
    list.push(" FROM kb.mcp_tool_call_log");
    if let Some(index) = index.filter(|_| is_sqlite) {
        list.push(" INDEXED BY ").push(index);
    }
    // One bound on each side: of several, SQLite may seek by the widest.
    let until = filter.until_ms.map(first_after);
    let before = filter.before.map(|id| id.to_string());
    let end = began.map(|began| format!("call_{began}~"));
    let most = [until, before, end].into_iter().flatten().min();
    list.push(" WHERE id < ");
    list.push_bind(most.unwrap_or_else(last));
    let since = filter.since_ms.map(first_before);
    let start = began.map(|began| format!("call_{began}"));
    if let Some(least) = since.max(start) {
        list.push(" AND id >= ").push_bind(least);
    }
    let equal = [
        ("project_id", filter.project.as_deref(), false),
        ("agent_id", filter.agent.as_deref(), false),
        ("server_name", filter.server.as_deref(), false),
        ("tool_name", filter.tool.as_deref(), true),
        ("status", filter.status.map(CallStatus::as_str), false),
        ("code", filter.code.as_deref(), true),
        ("run_id", filter.run.as_deref(), true),
        ("session_id", filter.session.as_deref(), true),
        ("trace_id", filter.trace.as_deref(), true),
        ("user_id", filter.user.as_deref(), true),
        (
            "error_kind",
            filter.error_kind.map(ErrorKind::as_str),
            false,
        ),
    ];
    for (column, wanted, by_beginning) in equal {
        let Some(wanted) = wanted else { continue };
        list.push(" AND ").push(column).push(" = ");
        list.push_bind(wanted);
        // PostgreSQL's indexes contain only the beginning of values whose length callers choose.
        if by_beginning && !is_sqlite {
            list.push(" AND left(").push(column).push(", 128) = left(");
            list.push_bind(wanted).push(", 128)");
        }
    }
    // Stated explicitly, for the partial index of calls that are not ok.
    if is_not_ok(filter) {
        list.push(" AND status <> 'ok'");
    }
    let times = [
        (" AND started_at >= ", filter.since_ms),
        (" AND started_at < ", filter.until_ms),
    ];
    for (condition, ms) in times {
        if let Some(ms) = ms {
            list.push(condition).push_bind(ms);
        }
    }
}

/// Returns whether the filter excludes calls that ended well.
fn is_not_ok(filter: &CallFilter) -> bool {
    filter.status.is_some_and(|status| status != CallStatus::Ok)
}

/// Returns the index with the fewest additional calls. Without a project the primary key is used,
/// which is ordered by time but has no filters. PostgreSQL chooses by itself.
pub(crate) fn index_for(filter: &CallFilter) -> Option<&'static str> {
    // The calls of a run are few, whatever else they are asked for.
    if filter.run.is_some() {
        return Some("mcp_tool_call_log_run");
    }
    filter.project.as_ref()?;
    Some(match filter {
        // So are those on behalf of one person or of a session, and those that failed in one way.
        _ if filter.user.is_some() => "mcp_tool_call_log_user",
        _ if filter.session.is_some() => "mcp_tool_call_log_session",
        _ if filter.code.is_some() => "mcp_tool_call_log_code",
        _ if filter.error_kind.is_some() => "mcp_tool_call_log_error_kind",
        _ if is_not_ok(filter) => "mcp_tool_call_log_not_ok",
        // Each of these has what those after it ask for.
        _ if filter.tool.is_some() => BY_TOOL,
        _ if filter.server.is_some() => BY_SERVER,
        _ if filter.agent.is_some() => BY_AGENT,
        _ => "mcp_tool_call_log_project",
    })
}

/// Returns an upper limit of all ids.
fn last() -> String {
    "~".to_owned()
}

/// Returns a lower limit of the ids from `ms` on.
fn first_before(ms: u64) -> String {
    CallId::new(ms.saturating_sub(SLACK_MS), 0).to_string()
}

/// Returns an upper limit of the ids until `ms`.
fn first_after(ms: u64) -> String {
    const LATEST: u64 = (1 << 48) - 1;
    CallId::new(ms.saturating_add(SLACK_MS).min(LATEST), 0).to_string()
}

/// A call as it is stored: who wrote it, and which block of the chain covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    /// The row.
    pub row: CallRow,
    /// Which start of which gateway wrote it.
    pub origin: RowOrigin,
    /// The block that covers it; none in rows of earlier releases.
    pub block: Option<u64>,
}

/// Reads a call with who wrote it.
pub(crate) fn stored(row: &Row) -> Result<StoredCall, sqlx::Error> {
    Ok(StoredCall {
        row: call(row)?,
        origin: RowOrigin {
            gateway: column(row, 42)?,
            boot: column(row, 43)?,
        },
        block: unsigned_option(row, 44)?,
    })
}

/// Reads a call.
pub(crate) fn call(row: &Row) -> Result<CallRow, sqlx::Error> {
    Ok(CallRow {
        id: parsed(row, 0)?,
        seq: unsigned(row, 1)?,
        project: column(row, 2)?,
        agent: column(row, 3)?,
        key: column(row, 4)?,
        user: column(row, 5)?,
        user_trust: column::<bool>(row, 26)?.into(),
        session: column(row, 6)?,
        run: column(row, 7)?,
        step: column(row, 8)?,
        trace: column(row, 9)?,
        parent_span: None,
        surface: column(row, 10)?,
        server: column(row, 11)?,
        server_id: parsed_option(row, 27)?,
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
        details: details(row)?,
    })
}

fn details(row: &Row) -> Result<CallDetails, sqlx::Error> {
    Ok(CallDetails {
        phases: Phases {
            auth_us: narrow_option(row, 28)?,
            grant_us: narrow_option(row, 29)?,
            schema_us: narrow_option(row, 30)?,
            queue_us: narrow_option(row, 31)?,
            server_us: narrow_option(row, 32)?,
            output_us: narrow_option(row, 33)?,
        },
        attempts: narrow_option(row, 34)?,
        input_check: parsed_option(row, 35)?,
        output_check: parsed_option(row, 36)?,
        error_kind: parsed_option(row, 37)?,
        policy_revision: unsigned_option(row, 38)?,
        grant: column(row, 39)?,
        parent: column(row, 40)?,
        user_source: parsed_option(row, 41)?,
    })
}
