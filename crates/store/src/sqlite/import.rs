//! Imports the journal's rows into the audit, together with the position they were read up to.
//!
//! Binds many rows to one statement, because a round trip to the connection's thread costs more
//! than a row. Most rows of a burst differ in a few columns only: what they have in common is bound
//! once for all of them. Placeholders are bare `?`: SQLite looks numbered ones up one by one.
//! Entry point `Registered::import_rows`.

use std::sync::{Arc, LazyLock};

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};

use crate::call::{CallRow, Check, ErrorKind, JournalPosition, UserSource};
use crate::database::row::signed;
use crate::sql::calls as sql;
use crate::store::Registered;

/// Rows per statement; enough to hide the round trip, few enough for a small statement.
pub(super) const MANY: usize = 64;
/// Rows per statement for similar rows.
pub(super) const ALIKE: usize = 128;
/// Rows per statement for fewer similar rows.
pub(super) const FEW: usize = 16;
/// How many groups of similar rows are distinguished; other rows are bound individually.
const KINDS: usize = 8;

static IMPORT_ONE: LazyLock<String> = LazyLock::new(|| statement(1));
static IMPORT_MANY: LazyLock<String> = LazyLock::new(|| statement(MANY));
static IMPORT_ALIKE: LazyLock<String> = LazyLock::new(|| alike_statement(ALIKE));
static IMPORT_FEW: LazyLock<String> = LazyLock::new(|| alike_statement(FEW));

/// Who writes rows, and the block that covers them.
struct RowWriter {
    gateway: Registered,
    block: Option<i64>,
}

impl Registered {
    /// Writes rows and the position; `block` covers them.
    pub(crate) async fn import_rows<T: AsRef<str> + Sync>(
        self,
        connection: &mut SqliteConnection,
        rows: &[CallRow<T>],
        position: JournalPosition,
        block: Option<u64>,
    ) -> Result<(), sqlx::Error> {
        let writer = RowWriter {
            gateway: self,
            block: signed_option(block),
        };
        let Kinds { kinds, mut others } = Kinds::of(rows);
        for kind in &kinds {
            let (alike, rest) = kind.as_chunks::<ALIKE>();
            for chunk in alike {
                writer
                    .bind_alike(&IMPORT_ALIKE, chunk)
                    .execute(&mut *connection)
                    .await?;
            }
            let (few, rest) = rest.as_chunks::<FEW>();
            for chunk in few {
                writer
                    .bind_alike(&IMPORT_FEW, chunk)
                    .execute(&mut *connection)
                    .await?;
            }
            others.extend(rest);
        }
        let (many, rest) = others.as_chunks::<MANY>();
        for chunk in many {
            let statement = sqlx::query(IMPORT_MANY.as_str());
            let statement = chunk.iter().copied().fold(statement, |statement, row| {
                writer.bind_whole(statement, row)
            });
            statement.execute(&mut *connection).await?;
        }
        for row in rest {
            let statement = writer.bind_whole(sqlx::query(IMPORT_ONE.as_str()), row);
            statement.execute(&mut *connection).await?;
        }
        let put = sqlx::query(sql::PUT_POSITION)
            .bind(self.number)
            .bind(self.boot)
            .bind(signed(position.segment));
        put.bind(signed(position.offset))
            .execute(connection)
            .await
            .map(drop)
    }
}

impl RowWriter {
    /// Binds all columns in the order of `sql::IMPORT_HEAD`.
    fn bind_whole<'q, T: AsRef<str>>(&self, query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
        let query = query.bind(row.id.to_string()).bind(signed(row.seq));
        let query = bind_asker(query, row).bind(row.trace.as_ref().map(copied));
        let query = bind_asked(query, row)
            .bind(signed(row.started_ms))
            .bind(signed_option(row.ended_ms))
            .bind(signed_option(row.duration_us));
        let query = bind_ended(query, row)
            .bind(row.input.as_ref().map(copied))
            .bind(signed(row.input_bytes))
            .bind(row.output.as_ref().map(copied))
            .bind(signed(row.output_bytes))
            .bind(signed(row.repeats))
            .bind(row.user_trust.is_trusted());
        let query = bind_phases(self.bind_writer(query, row), row);
        bind_decided(query, row).bind(self.block)
    }

    /// Binds similar rows to a statement for this many.
    fn bind_alike<'q, T: AsRef<str>>(
        &self,
        statement: &'static str,
        rows: &[&CallRow<T>],
    ) -> Bound<'q> {
        let common = self.bind_common(sqlx::query(statement), rows[0]);
        rows.iter().copied().fold(common, bind_own)
    }

    /// Binds the common values of similar rows, in the order of `sql::ALIKE_COLUMNS`.
    fn bind_common<'q, T: AsRef<str>>(&self, query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
        let query = bind_ended(bind_asked(bind_asker(query, row), row), row)
            .bind(signed(row.repeats))
            .bind(row.user_trust.is_trusted());
        bind_decided(self.bind_writer(query, row), row).bind(self.block)
    }

    /// Binds the server's id and the writing gateway.
    fn bind_writer<'q, T>(&self, query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
        query
            .bind(row.server_id.map(|id| id.to_string()))
            .bind(self.gateway.number)
            .bind(self.gateway.boot)
    }
}

/// Returns the statement that imports this many arbitrary rows.
pub(super) fn statement(rows: usize) -> String {
    let group = placeholders(sql::COLUMNS);
    let groups = vec![group.as_str(); rows].join(", ");
    let (head, tail) = (sql::IMPORT_HEAD, sql::IMPORT_TAIL);
    format!("{head}VALUES {groups}{tail}")
}

/// Returns the statement that imports this many similar rows: first their common values, then those
/// of each row.
pub(super) fn alike_statement(rows: usize) -> String {
    let group = placeholders(sql::OWN);
    let groups = vec![group.as_str(); rows].join(", ");
    let (head, columns, tail) = (sql::IMPORT_HEAD, sql::ALIKE_COLUMNS, sql::IMPORT_TAIL);
    // Without a condition SQLite would parse the conflict clause as part of a join.
    format!("{head}SELECT {columns} FROM (VALUES {groups}) AS own WHERE true{tail}")
}

fn placeholders(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}

/// The rows of a batch, grouped by similarity.
struct Kinds<'r, T> {
    kinds: Vec<Vec<&'r CallRow<T>>>,
    others: Vec<&'r CallRow<T>>,
}

impl<'r, T: AsRef<str>> Kinds<'r, T> {
    fn of(rows: &'r [CallRow<T>]) -> Self {
        let mut kinds: Vec<Vec<&CallRow<T>>> = Vec::new();
        let mut others = Vec::new();
        for row in rows {
            match kinds.iter().position(|kind| are_alike(kind[0], row)) {
                Some(known) => kinds[known].push(row),
                None if kinds.len() < KINDS => kinds.push(vec![row]),
                None => others.push(row),
            }
        }
        Self { kinds, others }
    }
}

/// Returns whether two rows differ only in the values of `bind_own`.
fn are_alike<T: AsRef<str>>(one: &CallRow<T>, other: &CallRow<T>) -> bool {
    let (a, b) = (one, other);
    let same = |a: &T, b: &T| a.as_ref() == b.as_ref();
    let agree = |a: &Option<T>, b: &Option<T>| text(a) == text(b);
    same(&a.tool, &b.tool)
        && agree(&a.step, &b.step)
        && same(&a.server, &b.server)
        && a.server_id == b.server_id
        && a.status == b.status
        && same(&a.agent, &b.agent)
        && same(&a.key, &b.key)
        && same(&a.project, &b.project)
        && same(&a.method, &b.method)
        && same(&a.surface, &b.surface)
        && agree(&a.user, &b.user)
        && a.user_trust == b.user_trust
        && agree(&a.session, &b.session)
        && agree(&a.run, &b.run)
        && agree(&a.schema_version, &b.schema_version)
        && agree(&a.code, &b.code)
        && agree(&a.error, &b.error)
        && a.repeats == b.repeats
        && a.details.attempts == b.details.attempts
        && a.details.input_check == b.details.input_check
        && a.details.output_check == b.details.output_check
        && a.details.error_kind == b.details.error_kind
        && a.details.policy_revision == b.details.policy_revision
        && agree(&a.details.grant, &b.details.grant)
        && agree(&a.details.parent, &b.details.parent)
        && a.details.user_source == b.details.user_source
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Binds who asked.
fn bind_asker<'q, T: AsRef<str>>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    query
        .bind(copied(&row.project))
        .bind(copied(&row.agent))
        .bind(copied(&row.key))
        .bind(row.user.as_ref().map(copied))
        .bind(row.session.as_ref().map(copied))
        .bind(row.run.as_ref().map(copied))
        .bind(row.step.as_ref().map(copied))
}

/// Binds whom they asked for what.
fn bind_asked<'q, T: AsRef<str>>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    query
        .bind(copied(&row.surface))
        .bind(copied(&row.server))
        .bind(copied(&row.method))
        .bind(copied(&row.tool))
        .bind(row.schema_version.as_ref().map(copied))
}

/// Binds the outcome.
fn bind_ended<'q, T: AsRef<str>>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    query
        .bind(row.status.as_str())
        .bind(row.code.as_ref().map(copied))
        .bind(row.error.as_ref().map(copied))
}

/// Binds how long each phase took.
fn bind_phases<'q, T>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    let phases = row.details.phases.in_order();
    phases
        .into_iter()
        .fold(query, |query, (_, us)| query.bind(us.map(i64::from)))
}

/// Binds what was decided on the way.
fn bind_decided<'q, T: AsRef<str>>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    let details = &row.details;
    query
        .bind(details.attempts.map(i64::from))
        .bind(details.input_check.map(Check::as_str))
        .bind(details.output_check.map(Check::as_str))
        .bind(details.error_kind.map(ErrorKind::as_str))
        .bind(signed_option(details.policy_revision))
        .bind(details.grant.as_ref().map(copied))
        .bind(details.parent.as_ref().map(copied))
        .bind(details.user_source.map(UserSource::as_str))
}

/// Binds the values of one row, in the order of the columns in `sql::ALIKE_COLUMNS`.
fn bind_own<'q, T: AsRef<str>>(query: Bound<'q>, row: &CallRow<T>) -> Bound<'q> {
    let query = query
        .bind(row.id.to_string())
        .bind(signed(row.seq))
        .bind(row.trace.as_ref().map(copied))
        .bind(signed(row.started_ms))
        .bind(signed_option(row.ended_ms))
        .bind(signed_option(row.duration_us))
        .bind(row.input.as_ref().map(copied))
        .bind(signed(row.input_bytes))
        .bind(row.output.as_ref().map(copied))
        .bind(signed(row.output_bytes));
    bind_phases(query, row)
}

/// Copies a text once; a borrowed text would be copied twice.
fn copied<T: AsRef<str>>(text: &T) -> Arc<str> {
    Arc::from(text.as_ref())
}

fn signed_option(number: Option<u64>) -> Option<i64> {
    number.map(signed)
}

fn text<T: AsRef<str>>(text: &Option<T>) -> Option<&str> {
    text.as_ref().map(AsRef::as_ref)
}
