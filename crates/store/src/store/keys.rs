//! Keys. Statements are in `sql::keys`.

use std::net::IpAddr;

use gantry_model::caller::{KeyKind, Role};
use gantry_model::id::{KeyId, ProjectName};
use sqlx::types::Json;

use super::Store;
use super::grants::insert_grant;
use super::servers::ensure_agent;
use crate::database::query::{Query, query};
use crate::database::row::{
    Row, column, parsed, parsed_option, unexpected, unsigned, unsigned_option,
};
use crate::database::{Durability, Transaction};
use crate::error::StoreError;
use crate::row::{GrantRow, KeyRow, KeyUse};
use crate::sql::keys as sql;

impl Store {
    /// Stores a key; creates its project and agent if necessary.
    pub async fn put_key(&self, row: &KeyRow) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database.begin("store a key", Durability::Power).await?;
        insert_key(&mut transaction, row).await?;
        transaction.commit().await
    }

    /// Stores a data folder's first grants and keys, all of them or none.
    pub async fn put_first(&self, grants: &[GrantRow], keys: &[KeyRow]) -> Result<(), StoreError> {
        const WHAT: &str = "store the first keys";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        for grant in grants {
            insert_grant(&mut transaction, grant).await?;
        }
        for key in keys {
            insert_key(&mut transaction, key).await?;
        }
        transaction.commit().await
    }

    /// Returns the keys of all projects that are not revoked, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.database()
            .rows("list keys", query(sql::LIVE), key)
            .await
    }

    /// Revokes a key; returns whether it existed and was not revoked.
    pub async fn revoke_key(&self, id: KeyId, at_ms: u64) -> Result<bool, StoreError> {
        let revoke = query(sql::REVOKE).bind(id.to_string()).bind(at_ms);
        let database = self.database();
        let revoked = database.execute("revoke a key", Durability::Power, revoke);
        Ok(revoked.await? > 0)
    }

    /// Changes label, end, sources and limits of a key; tells whether it is there and not revoked.
    pub async fn replace_key(&self, row: &KeyRow) -> Result<bool, StoreError> {
        let database = self.database();
        let changed = database.execute("change a key", Durability::Power, replace(row));
        Ok(changed.await? > 0)
    }

    /// Stores a key with its own grants, and the other end of the key that it replaces; false if that was
    /// revoked meanwhile, and nothing is stored.
    pub async fn rotate_key(
        &self,
        new: &KeyRow,
        grants: &[GrantRow],
        old: &KeyRow,
    ) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database.begin("rotate a key", Durability::Power).await?;
        if transaction.execute(replace(old)).await? == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        insert_key(&mut transaction, new).await?;
        for grant in grants {
            insert_grant(&mut transaction, grant).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Notes when and from where keys were last used.
    pub async fn note_key_uses(&self, uses: &[KeyUse]) -> Result<(), StoreError> {
        const WHAT: &str = "note uses of keys";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        for used in uses {
            let note = query(sql::NOTE_USE)
                .bind(used.key.to_string())
                .bind(used.at_ms)
                .bind(used.from.map(|from| from.to_string()));
            transaction.execute(note).await?;
        }
        transaction.commit().await
    }

    /// Returns when and from where the keys of a project were last used.
    pub async fn key_uses(&self, project: &ProjectName) -> Result<Vec<KeyUse>, StoreError> {
        let all = query(sql::USES).bind(project.as_str());
        self.database()
            .rows("list uses of keys", all, key_use)
            .await
    }
}

fn replace(row: &KeyRow) -> Query<'_> {
    query(sql::REPLACE)
        .bind(row.id.to_string())
        .bind(row.label.as_str())
        .bind(row.expires_ms)
        .bind(Json(&row.sources))
        .bind(Json(&row.limits))
}

fn key_use(row: &Row) -> Result<KeyUse, sqlx::Error> {
    Ok(KeyUse {
        key: parsed(row, 0)?,
        at_ms: unsigned(row, 1)?,
        from: parsed_option::<IpAddr>(row, 2)?,
    })
}

async fn insert_key(transaction: &mut Transaction<'_>, row: &KeyRow) -> Result<(), StoreError> {
    ensure_agent(transaction, &row.project, &row.agent).await?;
    let put = query(sql::PUT)
        .bind(row.id.to_string())
        .bind(row.project.as_str())
        .bind(row.agent.as_str())
        .bind(kind_text(row.kind))
        .bind(row.digest.as_slice())
        .bind(row.label.as_str())
        .bind(row.created_ms)
        .bind(row.revoked_ms)
        .bind(row.expires_ms)
        .bind(row.kind.role().map(Role::as_str))
        .bind(Json(&row.sources))
        .bind(Json(&row.limits))
        .bind(row.replaces.map(|key| key.to_string()));
    let put = transaction.execute(put).await;
    put.map(drop)
        .map_err(|error| error.or_conflict(|| format!("key `{}`", row.id)))
}

const fn kind_text(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Admin(_) => "admin",
        KeyKind::Agent => "agent",
    }
}

/// Reads the role of an administrator's key.
fn role(row: &Row) -> Result<Role, sqlx::Error> {
    let text: &str = column(row, 9)?;
    text.parse().map_err(|_| unexpected("role", text))
}

fn key(row: &Row) -> Result<KeyRow, sqlx::Error> {
    let digest: &[u8] = column(row, 4)?;
    let kind = match column::<&str>(row, 3)? {
        "admin" => KeyKind::Admin(role(row)?),
        "agent" => KeyKind::Agent,
        other => return Err(unexpected("kind of key", other)),
    };
    Ok(KeyRow {
        id: parsed(row, 0)?,
        project: parsed(row, 1)?,
        agent: parsed(row, 2)?,
        kind,
        digest: digest
            .try_into()
            .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        label: column(row, 5)?,
        created_ms: unsigned(row, 6)?,
        revoked_ms: unsigned_option(row, 7)?,
        expires_ms: unsigned_option(row, 8)?,
        sources: column::<Json<_>>(row, 10)?.0,
        limits: column::<Json<_>>(row, 11)?.0,
        replaces: parsed_option(row, 12)?,
    })
}
