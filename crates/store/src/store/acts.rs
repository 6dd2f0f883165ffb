//! Administrative acts: begin, end, count, query. Statements are in `sql::acts`.

use super::Store;
use crate::act::{ActEnd, ActFilter, ActOutcome, ActRow};
use crate::database::query::{Query, query};
use crate::database::row::{Row, column, parsed, signed, unsigned, unsigned_option};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::sql::acts as sql;

/// How many refused attempts are kept: repeated attempts displace only each other.
const REFUSED_KEPT: i64 = 10_000;
/// Acts of all other outcomes that are kept.
const OTHERS_KEPT: i64 = 100_000;
/// After how many acts surplus rows are deleted.
const PRUNED_EVERY: u64 = 128;

impl Store {
    /// Writes an administrative act, begun or complete, and returns its number.
    ///
    /// Keeps the newest ten thousand refused attempts and the newest hundred thousand other acts.
    pub async fn put_act(&self, row: &ActRow) -> Result<u64, StoreError> {
        const WHAT: &str = "write down an administrative act";
        let put = query(sql::PUT)
            .bind(row.at_ms)
            .bind(row.ended_ms)
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
            .bind(row.repeats.max(1))
            .bind(&row.project)
            .bind(self.number());
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        let id = transaction.one(put, |row| unsigned(row, 0)).await?;
        if id.is_multiple_of(PRUNED_EVERY) {
            prune(&mut transaction, &row.project, (REFUSED_KEPT, OTHERS_KEPT)).await?;
        }
        transaction.commit().await?;
        Ok(id)
    }

    /// Writes the outcome of an act.
    pub async fn end_act(&self, id: u64, end: &ActEnd) -> Result<(), StoreError> {
        const WHAT: &str = "write down how an administrative act ended";
        let update = query(sql::END)
            .bind(id)
            .bind(end.at_ms)
            .bind(end.outcome.as_str())
            .bind(end.code.as_deref())
            .bind(end.target.as_deref())
            .bind(end.after.as_deref());
        let updated = self.database().execute(WHAT, Durability::Power, update);
        updated.await.map(drop)
    }

    /// Adds to the count of an act.
    pub async fn repeat_act(&self, id: u64, more: u64, at_ms: u64) -> Result<(), StoreError> {
        const WHAT: &str = "count an administrative act";
        let update = query(sql::REPEAT).bind(id).bind(more).bind(at_ms);
        let updated = self.database().execute(WHAT, Durability::Process, update);
        updated.await.map(drop)
    }

    /// Returns the acts that match the filter, newest first.
    pub async fn acts(&self, filter: &ActFilter) -> Result<Vec<ActRow>, StoreError> {
        let mut list = filtered(filter);
        list.push(" ORDER BY id DESC LIMIT ")
            .push_bind(filter.limit);
        let database = self.database();
        database.rows("list administrative acts", list, act).await
    }
}

async fn prune(
    transaction: &mut Transaction<'_>,
    project: &str,
    (refused, others): (i64, i64),
) -> Result<(), StoreError> {
    for (statement, kept) in [(sql::PRUNE_REFUSED, refused), (sql::PRUNE_OTHERS, others)] {
        let prune = query(statement).bind(kept).bind(project);
        transaction.execute(prune).await?;
    }
    Ok(())
}

fn filtered(filter: &ActFilter) -> Query<'_> {
    let mut list = query(sql::SELECT);
    list.push(" WHERE id < ")
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
            list.push(condition).push_bind(wanted);
        }
    }
    if let Some(gateway) = filter.gateway {
        list.push(" AND gateway = (SELECT number FROM kb.mcp_gateways WHERE id = ")
            .push_bind(gateway.to_string())
            .push(")");
    }
    let act = filter.act.as_deref();
    match act.map(|act| (act, act.strip_suffix('*'))) {
        Some((_, Some(begin))) => {
            let length = u32::try_from(begin.chars().count().min(10_000)).unwrap_or(0);
            list.push(" AND substr(act, 1, CAST(")
                .push_bind(length)
                .push(" AS INTEGER)) = ")
                .push_bind(begin);
        }
        Some((act, None)) => {
            list.push(" AND act = ").push_bind(act);
        }
        None => {}
    }
    let times = [
        (" AND at >= ", filter.since_ms),
        (" AND at < ", filter.until_ms),
    ];
    for (condition, ms) in times {
        if let Some(ms) = ms {
            list.push(condition).push_bind(ms);
        }
    }
    list
}

pub(super) fn act(row: &Row) -> Result<ActRow, sqlx::Error> {
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
    use crate::gateway::Gateway;

    #[tokio::test]
    async fn refused_attempts_push_out_only_their_like() {
        let folder = tempfile::tempdir().unwrap();
        let config = crate::StoreConfig::in_folder(folder.path());
        let gateway = Gateway {
            id: gantry_model::id::GatewayId::from_random(1),
            folder: folder.path().to_owned(),
        };
        let store = Store::open(&config, &gateway).await.unwrap();
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
        let database = store.database();
        let mut transaction = database.begin("prune", Durability::Process).await.unwrap();
        prune(&mut transaction, "", (3, 4)).await.unwrap();
        transaction.commit().await.unwrap();
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
