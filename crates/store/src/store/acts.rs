//! Administrative acts, each change with the block of the chain that covers it. Statements are in
//! `sql::acts`.

use super::Store;
use super::chain::{AuditSnapshot, append};
use crate::act::{ActFilter, ActOutcome, ActRow, StoredAct};
use crate::chain::{ChainHead, SignedBlock};
use crate::database::query::{Query, query};
use crate::database::row::{Row, column, parsed, signed, unsigned, unsigned_option};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::sql::{acts as sql, chain};

/// An act that is being written: its number is known, and the block that covers it is not.
pub struct OpenAct<'a> {
    transaction: Transaction<'a>,
    id: u64,
}

impl OpenAct<'_> {
    /// Returns its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Writes the act with the block that covers it.
    pub async fn cover(mut self, block: &SignedBlock, head: &ChainHead) -> Result<(), StoreError> {
        append(&mut self.transaction, block, head).await?;
        self.transaction.commit().await
    }
}

/// An act as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundAct {
    /// A valid row.
    Whole(Box<StoredAct>),
    /// A row with values that no gateway writes, by its number.
    Unreadable(i64),
}

impl FoundAct {
    /// Returns its number as it is stored.
    pub fn id(&self) -> i64 {
        match self {
            Self::Whole(stored) => signed(stored.row.id),
            Self::Unreadable(id) => *id,
        }
    }
}

impl Store {
    /// Writes an act without a block, as releases before the chain of acts did; returns its number.
    pub async fn put_act(&self, row: &ActRow) -> Result<u64, StoreError> {
        let open = self.insert_act(row, None).await?;
        let id = open.id;
        open.transaction.commit().await?;
        Ok(id)
    }

    /// Begins to write an act that the next block of this gateway's chain covers.
    pub async fn begin_act(&self, row: &ActRow, block: u64) -> Result<OpenAct<'_>, StoreError> {
        self.insert_act(row, Some(block)).await
    }

    async fn insert_act(
        &self,
        row: &ActRow,
        block: Option<u64>,
    ) -> Result<OpenAct<'_>, StoreError> {
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
            .bind(self.number())
            .bind(block);
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        let id = transaction.one(put, |row| unsigned(row, 0)).await?;
        Ok(OpenAct { transaction, id })
    }

    /// Changes an act of this gateway that the block `old` covers, with the block that covers it
    /// now. A mere `count` need not survive a power loss.
    pub async fn change_act(
        &self,
        row: &ActRow,
        old: u64,
        (block, head): (&SignedBlock, &ChainHead),
        is_count: bool,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "write down how an administrative act ended";
        let change = query(sql::CHANGE)
            .bind(row.id)
            .bind(row.ended_ms)
            .bind(row.outcome.as_str())
            .bind(row.code.as_deref())
            .bind(&row.target)
            .bind(row.after.as_deref())
            .bind(row.repeats)
            .bind(block.block.number)
            .bind(self.number())
            .bind(old);
        let durability = match is_count {
            true => Durability::Process,
            false => Durability::Power,
        };
        let mut transaction = self.database().begin(WHAT, durability).await?;
        if transaction.execute(change).await? == 0 {
            transaction.rollback().await?;
            let what = format!("the record of the administrative act {}", row.id);
            return Err(StoreError::NotFound { what });
        }
        append(&mut transaction, block, head).await?;
        transaction.commit().await
    }

    /// Returns some acts of a project that are too many if so many refused attempts and others are
    /// kept, each with its gateway and the block that covers it. Attempts displace only each other.
    pub async fn surplus_acts(
        &self,
        project: &str,
        (refused, others): (u32, u32),
        at_most: u32,
    ) -> Result<Vec<(u64, i64, Option<u64>)>, StoreError> {
        const WHAT: &str = "count administrative acts";
        let mut surplus = Vec::new();
        for (statement, kept) in [
            (sql::SURPLUS_REFUSED, refused),
            (sql::SURPLUS_OTHERS, others),
        ] {
            let asked = query(statement).bind(kept).bind(project).bind(at_most);
            let found = self.database().rows(WHAT, asked, |row| {
                Ok((unsigned(row, 0)?, column(row, 1)?, unsigned_option(row, 2)?))
            });
            surplus.extend(found.await?);
        }
        Ok(surplus)
    }

    /// Deletes acts in the state that a block covers, and appends the block that records this.
    pub async fn drop_acts(
        &self,
        acts: &[(u64, i64, Option<u64>)],
        block: &SignedBlock,
        head: &ChainHead,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "drop old administrative acts";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        for (id, _, covered_by) in acts {
            let drop = query(sql::DROP).bind(*id).bind(*covered_by);
            transaction.execute(drop).await?;
        }
        append(&mut transaction, block, head).await?;
        transaction.commit().await
    }

    /// Appends the block from which on this gateway's chain covers acts.
    pub async fn begin_acts(
        &self,
        block: &SignedBlock,
        head: &ChainHead,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "append to the audit's chain";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        append(&mut transaction, block, head).await?;
        let since = query(chain::PUT_ACTS_SINCE)
            .bind(head.gateway)
            .bind(head.number);
        transaction.execute(since).await?;
        transaction.commit().await
    }

    /// Returns whether this gateway's chain covers acts.
    pub async fn covers_acts(&self) -> Result<bool, StoreError> {
        const WHAT: &str = "read the end of the audit's chain";
        let since = self
            .database()
            .rows(WHAT, query(chain::ACTS_SINCE), |row| column::<i64>(row, 0));
        Ok(since.await?.contains(&self.number()))
    }

    /// Returns how many acts of a project are recorded.
    pub async fn count_acts(&self, project: &str) -> Result<u64, StoreError> {
        let count = query(sql::COUNT).bind(project);
        let counted = self
            .database()
            .one("count administrative acts", count, |row| unsigned(row, 0));
        counted.await
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

impl AuditSnapshot<'_> {
    /// Returns from which block on the chains of gateways cover acts.
    pub async fn acts_since(&mut self) -> Result<Vec<(i64, u64)>, StoreError> {
        let since = self.transaction.rows(query(chain::ACTS_SINCE), |row| {
            Ok((column(row, 0)?, unsigned(row, 1)?))
        });
        since.await
    }

    /// Returns acts in the order of their numbers, after `after`.
    pub async fn acts(&mut self, after: i64, at_most: u32) -> Result<Vec<FoundAct>, StoreError> {
        let mut some = query(sql::SELECT);
        some.push(sql::AFTER);
        let some = some.bind(after).bind(at_most);
        self.transaction.rows(some, found).await
    }
}

fn found(row: &Row) -> Result<FoundAct, sqlx::Error> {
    /// The columns with numbers that are never negative.
    const NUMBERS: [usize; 5] = [0, 1, 2, 14, 17];
    let id: i64 = column(row, 0)?;
    let is_odd = |at: &usize| matches!(column::<Option<i64>>(row, *at), Ok(Some(..0)) | Err(_));
    let stored = || {
        Ok::<_, sqlx::Error>(StoredAct {
            row: act(row)?,
            gateway: column(row, 16)?,
            block: unsigned_option(row, 17)?,
        })
    };
    match stored() {
        Ok(stored) if !NUMBERS.iter().any(is_odd) => Ok(FoundAct::Whole(Box::new(stored))),
        Ok(_) | Err(_) => Ok(FoundAct::Unreadable(id)),
    }
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
        let surplus = store.surplus_acts("", (3, 4), 100).await.unwrap();
        let mut dropped: Vec<u64> = surplus.iter().map(|(id, _, _)| *id).collect();
        dropped.sort_unstable();
        let mut left = store.acts(&ActFilter::default()).await.unwrap();
        left.retain(|row| !dropped.contains(&row.id));
        let of = |outcome| {
            let rows = left.iter().filter(|row| row.outcome == outcome);
            rows.map(|row| row.at_ms).collect::<Vec<_>>()
        };
        assert_eq!(of(ActOutcome::Refused), [19, 18, 17]);
        assert_eq!(of(ActOutcome::Done), [16, 12, 8, 4]);
        store.close().await.unwrap();
    }
}
