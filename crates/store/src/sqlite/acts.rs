//! Administrative acts: begun, ended, counted, asked for. Statements are in `sql::acts`.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteStore;
use super::value::{column, parsed, signed, signed_option, unsigned, unsigned_option};
use super::writer::{Durability, WriteTurn};
use crate::act::{ActEnd, ActFilter, ActOutcome, ActRow};
use crate::error::StoreError;
use crate::sql::acts as sql;

/// Refused attempts that are kept: whoever tries and tries pushes out only his own like.
const REFUSED_KEPT: i64 = 10_000;
/// Acts of all other outcomes that are kept.
const OTHERS_KEPT: i64 = 100_000;
/// After how many acts what is too much is dropped.
const PRUNED_EVERY: u64 = 128;

impl SqliteStore {
    pub(crate) async fn put_act(&self, row: &ActRow) -> Result<u64, StoreError> {
        const WHAT: &str = "write down an administrative act";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let put = sqlx::query(sql::PUT)
            .bind(signed(row.at_ms))
            .bind(signed_option(row.ended_ms))
            .bind(&row.key)
            .bind(&row.actor)
            .bind(row.address.as_deref())
            .bind(&row.via)
            .bind(&row.act)
            .bind(&row.target)
            .bind(&row.detail)
            .bind(row.before.as_deref())
            .bind(row.after.as_deref())
            .bind(row.outcome.as_str())
            .bind(row.code.as_deref())
            .bind(signed(row.repeats.max(1)))
            .bind(&row.project)
            .bind(self.number())
            .fetch_one(turn.connection()?)
            .await;
        let id = put.and_then(|row| unsigned(&row, 0));
        let id = id.map_err(|error| self.failed(WHAT, error))?;
        if id.is_multiple_of(PRUNED_EVERY) {
            self.prune(&mut turn, &row.project, (REFUSED_KEPT, OTHERS_KEPT))
                .await?;
        }
        turn.done();
        Ok(id)
    }

    async fn prune(
        &self,
        turn: &mut WriteTurn<'_>,
        project: &str,
        (refused, others): (i64, i64),
    ) -> Result<(), StoreError> {
        const WHAT: &str = "drop old administrative acts";
        for (statement, kept) in [(sql::PRUNE_REFUSED, refused), (sql::PRUNE_OTHERS, others)] {
            let prune = sqlx::query(statement).bind(kept).bind(project);
            let pruned = prune.execute(turn.connection()?).await;
            pruned.map_err(|error| self.failed(WHAT, error))?;
        }
        Ok(())
    }

    pub(crate) async fn end_act(&self, id: u64, end: &ActEnd) -> Result<(), StoreError> {
        const WHAT: &str = "write down how an administrative act ended";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let update = sqlx::query(sql::END)
            .bind(signed(id))
            .bind(signed(end.at_ms))
            .bind(end.outcome.as_str())
            .bind(end.code.as_deref())
            .bind(end.target.as_deref())
            .bind(end.after.as_deref())
            .execute(turn.connection()?);
        update.await.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn repeat_act(
        &self,
        id: u64,
        more: u64,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "count an administrative act";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let update = sqlx::query(sql::REPEAT)
            .bind(signed(id))
            .bind(signed(more))
            .bind(signed(at_ms))
            .execute(turn.connection()?);
        update.await.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn acts(&self, filter: &ActFilter) -> Result<Vec<ActRow>, StoreError> {
        const WHAT: &str = "list administrative acts";
        let mut builder = filtered(filter);
        builder
            .push(" ORDER BY id DESC LIMIT ")
            .push_bind(i64::from(filter.limit));
        let mut reader = self.readers.take(WHAT).await?;
        let query = builder.build().persistent(false);
        let rows = query.fetch_all(reader.connection()).await;
        self.decoded(WHAT, rows, act)
    }
}

fn filtered(filter: &ActFilter) -> QueryBuilder<Sqlite> {
    let mut builder = QueryBuilder::new(sql::SELECT);
    builder
        .push(" WHERE id < ")
        .push_bind(filter.before.map_or(i64::MAX, signed));
    let equal = [
        (" AND project_id = ", filter.project.as_deref()),
        (" AND target = ", filter.target.as_deref()),
        (" AND key_id = ", filter.key.as_deref()),
        (" AND actor = ", filter.actor.as_deref()),
        (" AND address = ", filter.address.as_deref()),
        (" AND via = ", filter.via.as_deref()),
        (" AND outcome = ", filter.outcome.map(ActOutcome::as_str)),
    ];
    for (condition, wanted) in equal {
        if let Some(wanted) = wanted {
            builder.push(condition).push_bind(wanted);
        }
    }
    if let Some(gateway) = filter.gateway {
        builder
            .push(" AND gateway = (SELECT number FROM kb.mcp_gateways WHERE id = ")
            .push_bind(gateway.to_string())
            .push(")");
    }
    match filter
        .act
        .as_deref()
        .map(|act| (act, act.strip_suffix('*')))
    {
        Some((_, Some(begin))) => {
            builder
                .push(" AND substr(act, 1, ")
                .push_bind(i64::try_from(begin.chars().count()).unwrap_or(i64::MAX))
                .push(") = ")
                .push_bind(begin);
        }
        Some((act, None)) => {
            builder.push(" AND act = ").push_bind(act);
        }
        None => {}
    }
    let times = [
        (" AND at >= ", filter.since_ms),
        (" AND at < ", filter.until_ms),
    ];
    for (condition, ms) in times {
        if let Some(ms) = ms {
            builder.push(condition).push_bind(signed(ms));
        }
    }
    builder
}

fn act(row: &SqliteRow) -> Result<ActRow, sqlx::Error> {
    Ok(ActRow {
        id: unsigned(row, 0)?,
        at_ms: unsigned(row, 1)?,
        ended_ms: unsigned_option(row, 2)?,
        key: column(row, 3)?,
        actor: column(row, 4)?,
        address: column(row, 5)?,
        via: column(row, 6)?,
        act: column(row, 7)?,
        target: column(row, 8)?,
        detail: column(row, 9)?,
        before: column(row, 10)?,
        after: column(row, 11)?,
        outcome: parsed(row, 12)?,
        code: column(row, 13)?,
        repeats: unsigned(row, 14)?,
        project: column(row, 15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refused_attempts_push_out_only_their_like() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gantry.db");
        let store = crate::sqlite::tests::opened(&path).await.unwrap();
        for number in 0..20 {
            let outcome = match number % 4 {
                0 => ActOutcome::Done,
                _ => ActOutcome::Refused,
            };
            let row = ActRow {
                at_ms: number,
                act: "server.remove".into(),
                outcome,
                ..ActRow::default()
            };
            store.put_act(&row).await.unwrap();
        }
        let mut turn = store
            .writer
            .turn("prune", Durability::Process)
            .await
            .unwrap();
        store.prune(&mut turn, "", (3, 4)).await.unwrap();
        turn.done();
        let left = store.acts(&ActFilter::default()).await.unwrap();
        let of = |outcome| {
            let rows = left.iter().filter(|row| row.outcome == outcome);
            rows.map(|row| row.at_ms).collect::<Vec<_>>()
        };
        assert_eq!(of(ActOutcome::Refused), [19, 18, 17]);
        assert_eq!(of(ActOutcome::Done), [16, 12, 8, 4]);
        store.close().await.unwrap();
    }
}
